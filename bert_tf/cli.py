# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Configuration: one frozen dataclass <-> command-line flags <-> JSON.

Every command is a plain function of one flat dataclass::

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class GreetConfig(cli.Options):
        name: str = cli.option(help="Whom to greet.")
        times: int = cli.option(1, help="How often.", minimum=1)

    def main(options: GreetConfig) -> None:
        print(f"Hello {options.name}\\n" * options.times)

    if __name__ == "__main__":
        cli.run(main, GreetConfig)

The definition gives type, default, help text, flag and JSON at once, and scripts
and tests call ``main(GreetConfig(name="you"))``. This module also holds
`BertConfig`, the architecture of a model. It imports no TensorFlow, so `--help`
and wrong flags answer at once.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import os
import re
import shutil
import signal
import sys
import textwrap
import typing
from collections.abc import Callable, Sequence
from typing import Any

from absl import app, flags, logging

# --- Options of a command --------------------------------------------------------


def option(
    default: Any = dataclasses.MISSING,
    *,
    help: str,
    choices: Sequence[str] = (),
    minimum: float | None = None,
    maximum: float | None = None,
    common: bool = False,
    grid: bool = False,
    per_phase: bool = False,
    resumable: bool = False,
) -> Any:
    """A dataclass field that is also a flag. Without a default it is required.

    Args:
        common: Whether it is one of the few that most people set; where a command has
            such options, `--help` explains them and only names the others.
        grid: Whether the flag takes several numbers, each of which is to be tried.
        per_phase: Whether it takes several numbers, one for each part of a training;
            the field then holds a tuple, and the number itself where there is but one.
        resumable: Whether a run can resume with another value of the option.
    """
    metadata = {"help": help, "choices": choices, "min": minimum, "max": maximum}
    metadata |= {"common": common, "grid": grid, "per_phase": per_phase}
    metadata |= {"resumable": resumable}
    return dataclasses.field(default=default, metadata=metadata)


def flag_name(field: dataclasses.Field) -> str:
    """The flag of a field: its name, without the underscore of a `from_`."""
    return field.name.removesuffix("_")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Base of a command's configuration; checks choices and ranges.

    Raises:
        ValueError: A value breaks the rule of its `option`; the message names it.
    """

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value, rules = getattr(self, field.name), field.metadata
            values = value if isinstance(value, tuple) else (value,)
            if rules.get("choices") and value not in rules["choices"]:
                rule = f"must be one of {', '.join(rules['choices'])}"
            elif rules.get("min") is not None and min(values) < rules["min"]:
                rule = f"must be at least {rules['min']}"
            elif rules.get("max") is not None and max(values) > rules["max"]:
                rule = f"must be at most {rules['max']}"
            else:
                continue
            name = flag_name(field)
            raise ValueError(f"--{name} {rule}. Received: {name}={value!r}")

    def to_dict(self) -> dict[str, Any]:
        """Returns the options by name, as JSON has them: tuples are lists."""
        values = dataclasses.asdict(self).items()
        return {k: list(v) if isinstance(v, tuple) else v for k, v in values}

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Returns the values of the options that need not be given."""
        fields = dataclasses.fields(cls)
        return {
            f.name: f.default for f in fields if f.default is not dataclasses.MISSING
        }

    @classmethod
    def resumable(cls) -> set[str]:
        """Returns the names of the options that may change when a run resumes."""
        return {f.name for f in dataclasses.fields(cls) if f.metadata.get("resumable")}


_DEFINE = {
    str: flags.DEFINE_string,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    bool: flags.DEFINE_bool,
}


def define_flags(options_class: type[Options]) -> None:
    """Defines one absl flag per field of `options_class`."""
    types = typing.get_type_hints(options_class)
    for field in dataclasses.fields(options_class):
        name, text = flag_name(field), _explanation(field)
        default = None if field.default is dataclasses.MISSING else field.default
        if field.metadata["grid"] or field.metadata["per_phase"]:
            flags.DEFINE_list(name, str(default), text)
        else:
            _DEFINE[types[field.name]](name, default, text)


def options_from_flags(options_class: type[Options]) -> list[Options]:
    """Builds `options_class` from the parsed flags.

    Returns:
        One object; where a flag of the grid has several values, one for each
        combination, the last such flag changing fastest.

    Raises:
        ValueError: A required flag was not given, or a value breaks its rule.
    """
    types = typing.get_type_hints(options_class)
    values = {}
    for field in dataclasses.fields(options_class):
        value = flags.FLAGS[flag_name(field)].value
        if field.default is dataclasses.MISSING and value is None:
            raise ValueError(
                f"--{flag_name(field)} is required: {field.metadata['help']} "
                "See --help for all flags."
            )
        if field.metadata["grid"]:
            values[field.name] = _numbers(field, types[field.name], value)
        elif field.metadata["per_phase"]:
            number = typing.get_args(types[field.name])[0]
            numbers = _numbers(field, number, value)
            values[field.name] = [tuple(numbers) if len(numbers) > 1 else numbers[0]]
        else:
            values[field.name] = [value]
    return [
        options_class(**dict(zip(values, combination)))
        for combination in itertools.product(*values.values())
    ]


def _numbers(field: dataclasses.Field, number: type, texts: list[str]) -> list[float]:
    try:
        if texts:
            return [number(text) for text in texts]
    except ValueError:
        pass  # The same message as for none at all.
    raise ValueError(
        f"--{flag_name(field)} takes numbers of type {number.__name__}, separated by "
        f"commas. Received: {','.join(texts)!r}"
    )


# --- Help ------------------------------------------------------------------------

_HELP = {"-h", "-help", "--help", "--helpshort", "--helpfull"}
_INDENT = 26  # Where explanations begin.


def help_text(doc: str, options_class: type[Options], full: bool) -> str:
    """Returns what `--help` prints; with `full`, what `--helpfull` does.

    `--help` fits a screen: the first line of `doc` and its examples, the flags that are
    needed, and those that are common. The full text has all of `doc` and all flags.
    """
    fields = {field.name: field for field in dataclasses.fields(options_class)}
    # A command's own options before those that it shares with others.
    names = [name for c in options_class.__mro__ for name in inspect.get_annotations(c)]
    ordered = [fields[name] for name in dict.fromkeys(names) if name in fields]
    needed = [f for f in ordered if f.default is dataclasses.MISSING]
    optional = [f for f in ordered if f.default is not dataclasses.MISSING]
    common = [f for f in optional if f.metadata["common"]]
    others = [f for f in optional if not f.metadata["common"]] if common else []
    groups = {"Needed": needed, "Common" if common else "Optional": common or optional}
    paragraphs = doc.strip().split("\n\n")
    if full:
        groups["All others"] = others
    else:
        examples = [p for p in paragraphs if re.match(" {4}.*python -m", p, re.DOTALL)]
        paragraphs = [paragraphs[0], *examples]
    width = min(shutil.get_terminal_size().columns, 100)
    for title, group in groups.items():
        if group:
            lines = [_flag_help(field, width) for field in group]
            paragraphs.append("\n".join([f"{title}:", *lines]))
    if not full:
        more = " ".join(f"--{flag_name(field)}" for field in others)
        more = f"--helpfull says more{', also of ' if others else '.'}{more}"
        paragraphs.append(textwrap.fill(more, width, break_on_hyphens=False))
    return "\n\n".join(paragraphs)


def _flag_help(field: dataclasses.Field, width: int) -> str:
    """A flag with its default, and beside it, in a column, what it means."""
    default = "..." if field.default in (dataclasses.MISSING, "") else field.default
    flag = f"  --{flag_name(field)}={str(default).lower()}"
    indent = " " * _INDENT
    text = textwrap.fill(
        _explanation(field),
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )
    if len(flag) > _INDENT - 2:
        return f"{flag}\n{text}"
    return flag.ljust(_INDENT) + text[_INDENT:]


def _explanation(field: dataclasses.Field) -> str:
    text, choices = field.metadata["help"], field.metadata["choices"]
    if not all(choice in text for choice in choices):
        text += f" One of: {', '.join(filter(None, choices))}."
    if field.metadata["grid"]:
        text += " Several, separated by commas, are all tried."
    return text


# --- Running ---------------------------------------------------------------------


def run(main: Callable[..., Any], options_class: type[Options]) -> None:
    """Runs `main` as a command: flags in, one-line errors out.

    `main` gets the options, one argument for each combination of the grid.
    `ValueError` and `OSError` are what a user can mend: they end the command with
    one message and status 1 (`--verbosity=1` shows the traceback too).
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # Before TensorFlow starts.
    define_flags(options_class)

    def parse(argv: Sequence[str]) -> list[str]:
        if _HELP & set(argv[1:]):
            full = "--helpfull" in argv
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # --help | head
            print(help_text(sys.modules[main.__module__].__doc__, options_class, full))
            sys.exit()
        try:
            return flags.FLAGS(argv)
        except flags.Error as error:
            sys.exit(f"error: {error} (see --help)")

    def command(argv: Sequence[str]) -> None:
        if len(argv) > 1:
            sys.exit(
                "error: Every argument is a --flag=value. Received: "
                f"{' '.join(argv[1:])}"
            )
        if not flags.FLAGS["verbosity"].present:
            logging.set_verbosity(logging.WARNING)  # app.run has set it to INFO.
        try:
            main(*options_from_flags(options_class))
        except (ValueError, OSError) as error:
            logging.debug("The error came from here:", exc_info=True)
            sys.exit(f"error: {error}")

    app.run(command, flags_parser=parse)
