# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Command-line flags, help and JSON from one frozen dataclass.

Every command is a function of one flat dataclass::

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class GreetConfig(cli.Options):
        name: str = cli.option(help="Who to greet.")
        times: int = cli.option(1, help="Number of greetings.", minimum=1)

    def main(options: GreetConfig) -> None:
        print(f"Hello {options.name}\\n" * options.times)

    if __name__ == "__main__":
        cli.run(main, GreetConfig)

Each field defines type, default, help text, flag and JSON key of an option. Scripts
and tests call ``main(GreetConfig(name="you"))``. This module does not import
TensorFlow, so `--help` and invalid flags respond immediately.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import logging as python_logging
import os
import pathlib
import re
import shlex
import shutil
import sys
import textwrap
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from absl import flags, logging

from bert_tf import lazy

# --- Options of a command --------------------------------------------------------


def option(
    default: Any = dataclasses.MISSING,
    *,
    help: str,
    choices: Sequence[str] = (),
    minimum: float | None = None,
    maximum: float | None = None,
    common: bool = False,
    resumable: bool = False,
    local: bool = False,
) -> Any:
    """Defines a dataclass field that is also a flag.

    Args:
        default: The default value. An option without default is required. None is the
            default of a number that may be missing, with the type `float | None`. With
            `int | tuple[int, ...]`, the flag accepts one number per training phase; the
            field then holds a tuple, or a number if there is only one. With
            `tuple[int, ...]`, it always holds a tuple.
        help: The help text of the flag.
        choices: The allowed values of a string.
        minimum: The smallest allowed value.
        maximum: The largest allowed value.
        common: Whether most users need the option. `--help` explains the common
            options and lists only the names of the others.
        resumable: Whether an interrupted run may resume with another value.
        local: Whether it is a path that must not be in a bucket.
    """
    metadata = {"help": help, "choices": choices, "min": minimum, "max": maximum}
    metadata |= {"common": common, "resumable": resumable, "local": local}
    return dataclasses.field(default=default, metadata=metadata)


def _flag_name(field: dataclasses.Field) -> str:
    """Returns the field's name. `from_` becomes `from`, which is a Python keyword."""
    return field.name.removesuffix("_")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Base class of a command's options. Checks choices, ranges and local paths.

    Raises:
        ValueError: A value violates its `option`.
    """

    RECIPES: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Named sets of values. The flag `--recipe` selects one; the first is the default.
    Its values replace the defaults of flags that the user does not pass."""

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value, rules = getattr(self, field.name), field.metadata
            if value is None:
                continue
            values = value if isinstance(value, tuple) else (value,)
            low, high = rules.get("min"), rules.get("max")
            if rules.get("choices") and value not in rules["choices"]:
                rule = f"must be one of {', '.join(filter(None, rules['choices']))}"
            elif low is not None and not all(x >= low for x in values):
                rule = f"must be at least {low}"  # NaN is not.
            elif high is not None and not all(x <= high for x in values):
                rule = f"must be at most {high}"
            elif rules.get("local") and "://" in value:
                rule = "must be a path of this machine, not of a bucket"
            elif rules.get("local") and _are_paths(value.split(",")):
                rule = "must be one file. Concatenate the files"
            else:
                continue
            name = _flag_name(field)
            raise ValueError(f"--{name} {rule}. Received: {name}={value!r}")

    def to_dict(self) -> dict[str, Any]:
        """Returns the options by name as JSON: lists for tuples."""
        return json.loads(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def resumable(cls) -> set[str]:
        """Returns the names of the options that may change when a run resumes."""
        return {f.name for f in dataclasses.fields(cls) if f.metadata.get("resumable")}


def check_unchanged(
    directory: str | os.PathLike, before: Mapping[str, Any], now: Mapping[str, Any]
) -> None:
    """Checks that a directory was written with the same settings.

    Settings that only `before` has do not count: an earlier version had them.

    Raises:
        ValueError: It was not; the message lists each difference with both values.
    """
    differences = [
        f"  {name}: {before.get(name)!r} before, {value!r} now"
        for name, value in sorted(now.items())
        if before.get(name) != value
    ]
    if differences:
        raise ValueError(
            f"{directory} was written with other options:\n"
            + "\n".join(differences)
            + "\nUse the same options to resume, choose another --output, or delete it."
        )


def num_cores() -> int:
    """Returns the number of cores that this process may use.

    In a container with a quota of processor time, it is rounded up.
    """
    is_linux = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if is_linux else os.cpu_count()
    try:
        with open("/sys/fs/cgroup/cpu.max", encoding="ascii") as file:
            quota, period = map(int, file.read().split())
    except (OSError, ValueError):  # No cgroup of version 2, or "max".
        return cores
    return min(cores, -(-quota // period))


def program(definer: Any) -> str:
    """Returns the command that runs the module of a class or a function."""
    module, main = definer.__module__, sys.modules["__main__"]
    if module == "__main__":
        if main.__spec__ is None:  # python script.py
            return f"python {shlex.quote(getattr(main, '__file__', 'SCRIPT'))}"
        module = main.__spec__.name
    return f"python -m {module}"


def _are_paths(names: Sequence[str]) -> bool:
    return len(names) > 1 and all(map(os.path.exists, names))


def _is_required(field: dataclasses.Field) -> bool:
    return field.default is dataclasses.MISSING


# --- Flags -----------------------------------------------------------------------


def _expand_home(paths: str) -> str:
    """Expands ~/, which shells do not after `--flag=`."""
    home = os.path.expanduser("~")
    return re.sub("(^|,)~(?=/)", lambda start: start[1] + home, paths)


# By the type of a field: the function that converts its flag, and the rule for values.
_TYPES = {
    str: (_expand_home, "text"),
    bool: (flags.BooleanParser().parse, "true or false"),
    int: (int, "an integer"),
    float: (float, "a number"),
}


class _Parser(flags.ArgumentParser):
    """Parses values of a field: of one of `_TYPES`, or several separated by commas."""

    def __init__(self, field_type: Any):
        # Of `int | tuple[int, ...]`, `tuple[int, ...]` and `float | None`.
        value_type, *others = typing.get_args(field_type) or (field_type,)
        self.convert, self.rule = _TYPES[value_type]
        self.is_tuple = typing.get_origin(field_type) is tuple
        self.has_several = self.is_tuple or any(map(typing.get_args, others))

    def parse(self, argument: str) -> Any:
        try:
            if self.is_tuple or (self.has_several and "," in argument):
                return tuple(map(self.convert, argument.split(",")))
            return self.convert(argument)
        except ValueError:
            several = ", or several separated by commas" * self.has_several
            raise ValueError(f"must be {self.rule}{several}") from None


def parse(options_class: type[Options], arguments: Sequence[str]) -> Any:
    """Returns the options that flags and a recipe define; sets the level of logs.

    Raises:
        flags.Error: There is an unknown flag, or a value of another type.
        ValueError: A required flag is missing, or a value violates its `option`.
    """
    parsed, recipes = flags.FlagValues(), options_class.RECIPES
    flags.DEFINE(_Parser(int), "verbosity", logging.WARNING, "", parsed)
    if recipes:
        flags.DEFINE_enum("recipe", next(iter(recipes)), [*recipes], "", parsed)
    types = typing.get_type_hints(options_class)
    fields = {_flag_name(field): field for field in dataclasses.fields(options_class)}
    for name, field in fields.items():
        kind = types[field.name]
        flags.DEFINE(_Parser(kind), name, None, "", parsed, boolean=kind is bool)
    if others := parsed(["", *arguments])[1:]:
        raise ValueError(
            "Arguments must have the form --flag=value, with patterns in quotes. "
            f"Received: {' '.join(others)}"
        )
    logging.set_verbosity(parsed["verbosity"].value)
    values = dict(recipes[parsed["recipe"].value]) if recipes else {}
    for name, field in fields.items():
        if parsed[name].present:
            values[field.name] = parsed[name].value
        elif _is_required(field):
            raise ValueError(
                f"--{name} is required: {field.metadata['help']} See --help for all "
                "flags."
            )
    return options_class(**values)


# --- Help ------------------------------------------------------------------------


def help_text(
    doc: str,
    options_class: type[Options],
    full: bool,
    modes: Mapping[str, type[Options]] | None = None,
) -> str:
    """Returns the output of `--help`, or of `--helpfull` if `full`.

    `--help` fits on a screen: the first line of `doc`, its examples, the required
    flags and the common ones. `--helpfull` has all of `doc` and all flags. Both name
    the `modes`, see `run`.
    """
    fields = {field.name: field for field in dataclasses.fields(options_class)}
    # Options of the class itself come before inherited ones.
    names = [name for c in options_class.__mro__ for name in inspect.get_annotations(c)]
    ordered = [fields[name] for name in dict.fromkeys(names) if name in fields]
    if options_class.RECIPES:
        ordered.append(_recipe_option(options_class.RECIPES))
    optional = [field for field in ordered if not _is_required(field)]
    common = [field for field in optional if field.metadata["common"]] or optional
    others = [field for field in optional if field not in common]
    groups = {
        "Required": [field for field in ordered if _is_required(field)],
        "Optional" if common == optional else "Common": common,
        "Others": others if full else [],
    }
    paragraphs = doc.strip().split("\n\n")
    if not full:
        examples = [p for p in paragraphs if re.match(" {4}.*python -m", p, re.DOTALL)]
        paragraphs = [paragraphs[0], *examples]
    width = min(shutil.get_terminal_size().columns, 100)
    for title, group in groups.items():
        lines = [f"{title}:", *(_flag_help(field, width) for field in group)]
        if group:
            paragraphs.append("\n".join(lines))
    if not full:
        names = " ".join(f"--{_flag_name(field)}" for field in others)
        names = f" and for: {names}" if others else "."
        paragraphs.append(textwrap.fill(f"See --helpfull for more{names}", width))
    for name, mode in (modes or {}).items():
        title = mode.__doc__.partition("\n")[0]
        paragraphs.append(f"--{name}: {title} See --{name} --help.")
    return "\n\n".join(paragraphs)


def command_list(package: str, folder: pathlib.Path) -> str:
    """Returns the commands in a folder with the first lines of their docstrings."""
    lines = [
        f"Commands of {package}. python -m {package}.COMMAND --help has the flags."
    ]
    for file in sorted(folder.glob("*.py")):
        source = file.read_text(encoding="utf-8")
        if '\nif __name__ == "__main__":' in source:
            title = ast.get_docstring(ast.parse(source)).partition("\n")[0]
            lines.append(f"  {file.stem:<20}{title}")
    return "\n".join(lines)


def _flag_help(field: dataclasses.Field, width: int) -> str:
    has_value = not _is_required(field) and field.default not in ("", None, ())
    values = field.default if isinstance(field.default, tuple) else [field.default]
    value = ",".join(map(str, values)).lower() if has_value else "..."
    text, choices = field.metadata["help"], field.metadata["choices"]
    if not all(choice in text for choice in choices):
        text += f" One of: {', '.join(filter(None, choices))}."
    flag = f"  --{_flag_name(field)}={value}  ".ljust(28)
    indent = " " * 28
    return textwrap.fill(text, width, initial_indent=flag, subsequent_indent=indent)


def _recipe_option(recipes: Mapping[str, Mapping[str, Any]]) -> dataclasses.Field:
    text = "Defaults of other flags."
    for name, values in recipes.items():
        flags_of_recipe = (f"--{key}={value}" for key, value in values.items())
        text += f" {name}: {' '.join(flags_of_recipe) or 'as shown here'}."
    field = option(next(iter(recipes)), help=text, common=True)
    field.name = "recipe"
    return field


# --- Running ---------------------------------------------------------------------

# Optional requirements, by the module that needs them.
_EXTRAS = {
    "h11": "serving",
    "huggingface_hub": "hub",
    "jax": "jax",
    "keras_hub": "hub",
    "tensorflow_serving": "serving",
}


def run(
    main: Callable[..., Any], options_class: type[Options], **modes: type[Options]
) -> None:
    """Runs `main` as a command with the options that the flags define.

    A wrong flag, a `ValueError` or an `OSError` ends the command with a one-line
    message and status 1. `--verbosity=1` shows its traceback.

    Args:
        main: The command.
        options_class: Its options.
        **modes: Other uses of the command with flags of their own: the options class
            by the name of its flag that selects the mode. Its docstring is the help.
    """
    lazy.skip_keras_wrappers()
    arguments = sys.argv[1:]
    names = {a.lstrip("-").partition("=")[0] for a in arguments if a.startswith("-")}
    mode = next((name for name in modes if name in names), None)
    used = modes.get(mode, options_class)
    if names & {"h", "help", "helpfull"}:
        module = sys.modules[main.__module__]
        doc = inspect.getdoc(used if mode else module)
        name = module.__spec__.name if module.__spec__ else ""
        if "tasks." in name:  # Of this task; bert_tf.tasks.* if installed from a wheel.
            doc = re.sub(r"-m tasks\.\w+", f"-m {name}", doc)
        print(help_text(doc, used, "helpfull" in names, {} if mode else modes))
        sys.exit()
    # For messages of absl and of other libraries.
    python_logging.basicConfig(format="%(levelname)s: %(message)s")
    try:
        main(parse(used, arguments))
    except KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
        sys.exit(130)
    except (ValueError, OSError, flags.Error, ImportError) as error:
        hint = ""
        if isinstance(error, flags.Error):
            hint = f" (see {f'--{mode} ' if mode else ''}--help)"
        elif isinstance(error, ImportError) and error.name != "tensorflow_text":
            if not (extra := _EXTRAS.get((error.name or "").partition(".")[0])):
                raise
            hint = f". Run: pip install 'bert_tf[{extra}]'"
        logging.debug("Traceback of the error:", exc_info=True)
        sys.exit(f"error: {error}{hint}")
