# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import ast
import dataclasses
import io
import os
import pathlib
import subprocess
import sys
import types

import pytest

from bert_tf import cli


@dataclasses.dataclass(frozen=True, kw_only=True)
class GreetConfig(cli.Options):
    name: str = cli.option(help="Who to greet.")
    times: int = cli.option(1, help="Repetitions.", minimum=1, resumable=True)
    mood: str = cli.option("kind", help="Tone.", choices=("kind", "curt"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class CleanConfig(cli.Options):
    """Cleans up.

        python -m party --clean

    Needs a broom.
    """

    RECIPES = types.MappingProxyType({"quick": {}, "thorough": {"rooms": 9}})

    clean: bool = cli.option(False, help="Clean up.")
    rooms: int = cli.option(1, help="Number of rooms.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PartyConfig(GreetConfig):
    guests: str = cli.option("", help="File of names.", common=True, local=True)
    speed: float | None = cli.option(
        None, help="Speed of the music, 100% at most.", common=True, minimum=0
    )
    volume: int | tuple[int, ...] = cli.option(3, help="Volume.")
    songs: tuple[int, ...] = cli.option((), help="Numbers of songs.")


def main(options):
    if getattr(options, "name", "") == "nobody":
        raise ValueError("--name must be somebody.")
    print(options.to_dict())


@pytest.fixture
def greet(monkeypatch, capsys):
    """Returns a function that runs the command and returns its output or error."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["party", *arguments])
        try:
            cli.run(main, PartyConfig, clean=CleanConfig)
        except SystemExit as stopped:
            if stopped.code:
                return stopped.code
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize(
    ("flags", "speed", "songs"),
    [((), None, ()), (("--speed=2.5", "--songs=7"), 2.5, (7,))],
)
def test_flags_set_the_fields(greet, flags, speed, songs):
    shown = greet("--name=you", "--times", "2", "--volume=1,2", *flags)
    fields = {"name": "you", "times": 2, "mood": "kind", "guests": ""}
    fields |= {"volume": [1, 2], "speed": speed, "songs": [*songs]}
    assert ast.literal_eval(shown) == fields
    assert PartyConfig(**fields).to_dict() == fields


def test_home_directory_in_paths(greet, monkeypatch):
    """Bash keeps the tilde in --flag=~/file."""
    monkeypatch.setenv("HOME", "/home/me")
    shown = greet("--name=you", "--guests=~/a,~/b*,c~/d")
    assert "'guests': '/home/me/a,/home/me/b*,c~/d'" in shown


def test_a_mode_has_its_own_flags(greet):
    for flags in (["--clean", "--rooms=3"], ["--rooms", "3", "--clean=true"]):
        assert greet(*flags) == "{'clean': True, 'rooms': 3}\n"
    unknown = "error: Unknown command line flag 'rooms' (see --help)"
    assert greet("--name=you", "--rooms=3") == unknown
    assert "'name' (see --clean --help)" in greet("-clean", "--name=you")
    for value in (["--name", "clean"], ["--guests", "clean", "--name=you"]):
        assert "times" in greet(*value)  # No mode.
    shown = greet("--clean", "--help")
    assert shown.startswith("Cleans up.\n\n    python -m party --clean\n\nCommon:")
    assert "--guests" not in shown


def test_booleans_have_a_value_or_a_prefix(greet):
    for flags in (["--clean", "--noclean"], ["--clean=False"]):
        assert greet(*flags) == "{'clean': False, 'rooms': 1}\n"
    assert "flag --clean=maybe: must be true or false (see" in greet("--clean=maybe")


def test_recipe_replaces_defaults_but_not_flags(greet):
    for arguments, rooms in (
        ((), 1),
        (("--recipe=thorough",), 9),
        (("--recipe=thorough", "--rooms=1"), 1),
        (("--recipe=quick",), 1),
    ):
        shown = greet("--clean", *arguments)
        assert ast.literal_eval(shown) == {"clean": True, "rooms": rooms}
    assert "should be one of <quick|thorough>" in greet("--clean", "--recipe=slow")
    shown = " ".join(greet("--clean", "--help").split())
    assert "quick: as shown here. thorough: --rooms=9." in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--name is required: Who to greet."),
        (["--name=you", "--times=0"], "--times must be at least 1. Received: times=0"),
        (["--name=you", "--times=a"], "flag --times=a: must be an integer (see"),
        (["--name=you", "--mood=sad"], "--mood must be one of kind, curt."),
        (["--name=you", "--volume=1,a"], "an integer, or several separated by commas"),
        (["--name"], "Missing value for flag --name (see --help)"),
        (["--name=nobody"], "error: --name must be somebody."),
        (["--nam=you"], "Unknown command line flag 'nam'. Did you mean: name ?"),
        (["--name=you", "--speed=-1"], "--speed must be at least 0. Received: speed=-"),
        (["--name=you", "--speed=nan"], "--speed must be at least 0. Received: speed="),
        (["you"], "form --flag=value, with patterns in quotes. Received: you"),
    ],
)
def test_invalid_flags_end_with_one_line(greet, arguments, message):
    result = greet(*arguments)
    assert result.startswith("error: ")
    assert message in result


PARTY = """Greets many guests.

More text that only --helpfull prints.

    python -m party --name=you
"""


def test_help_has_required_and_common_flags(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    expected = """Greets many guests.

    python -m party --name=you

Required:
  --name=...                Who to greet.

Common:
  --guests=...              File of names.
  --speed=...               Speed of the music, 100% at
                            most.

See --helpfull for more and for: --volume --songs --times
--mood

--clean: Cleans up. See --clean --help."""
    modes = {"clean": CleanConfig}
    assert cli.help_text(PARTY, PartyConfig, False, modes) == expected


@pytest.mark.parametrize(
    ("quota", "cores"), [("max 100000", 3), ("150000 100000", 2), ("900000 100000", 3)]
)
def test_cores_are_those_of_the_process_and_its_cgroup(monkeypatch, quota, cores):
    monkeypatch.setattr(
        "os.sched_getaffinity", lambda process: {3, 5, 7}, raising=False
    )
    monkeypatch.setattr(cli, "open", lambda *_, **__: io.StringIO(quota), raising=False)
    assert cli.num_cores() == cores


def test_program_of_a_script_of_the_user(tmp_path):
    script = tmp_path / "my task.py"
    script.write_text(
        "from bert_tf import cli\nclass Own: pass\n"
        "print(cli.program(Own), cli.program(cli.Options), sep='; ')\n"
    )
    commands = {
        (str(script),): f"python '{script}'",
        ("-m", "my task"): "python -m my task",
    }
    for arguments, expected in commands.items():
        found = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env={
                **os.environ,
                "PYTHONPATH": str(pathlib.Path(cli.__file__).parents[1]),
            },
            text=True,
            capture_output=True,
            check=True,
        )
        assert found.stdout == f"{expected}; python -m bert_tf.cli\n"


def test_full_help_has_all_text_and_flags():
    text = cli.help_text(PARTY, PartyConfig, full=True)
    assert text.startswith(PARTY.strip())
    assert text.index("--guests") < text.index("Others:\n  --volume=3 ")
    assert "--mood=kind               Tone. One of: kind, curt." in text


def test_several_files_are_refused(greet, tmp_path):
    names = [str(tmp_path / name) for name in ("a.csv", "b.csv")]
    assert "guests': '" in greet("--name=x", f"--guests={','.join(names)}")
    for name in names:
        pathlib.Path(name).touch()
    found = greet("--name=x", f"--guests={','.join(names)}")
    assert "--guests must be one file. Concatenate the files." in found
