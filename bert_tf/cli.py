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
    """Defines a dataclass field that is also a flag.

    Args:
        default: The default value. An option without default is required.
        help: The help text of the flag.
        choices: The allowed values of a string.
        minimum: The smallest allowed value.
        maximum: The largest allowed value.
        common: Whether most users need the option. `--help` explains the common
            options and lists only the names of the others.
        grid: Whether the flag accepts several numbers, to train with each of them.
        per_phase: Whether the flag accepts one number per training phase. The field
            then holds a tuple, or a number if there is only one.
        resumable: Whether an interrupted run may resume with another value.
    """
    metadata = {"help": help, "choices": choices, "min": minimum, "max": maximum}
    metadata |= {"common": common, "grid": grid, "per_phase": per_phase}
    metadata |= {"resumable": resumable}
    return dataclasses.field(default=default, metadata=metadata)


def _flag_name(field: dataclasses.Field) -> str:
    """Returns the field's name; `from_` stands for the keyword `from`."""
    return field.name.removesuffix("_")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Base class of a command's options. Checks choices and ranges.

    Raises:
        ValueError: A value violates its `option`.
    """

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value, rules = getattr(self, field.name), field.metadata
            values = value if isinstance(value, tuple) else (value,)
            if rules.get("choices") and value not in rules["choices"]:
                rule = f"must be one of {', '.join(filter(None, rules['choices']))}"
            elif rules.get("min") is not None and min(values) < rules["min"]:
                rule = f"must be at least {rules['min']}"
            elif rules.get("max") is not None and max(values) > rules["max"]:
                rule = f"must be at most {rules['max']}"
            else:
                continue
            name = _flag_name(field)
            raise ValueError(f"--{name} {rule}. Received: {name}={value!r}")

    def to_dict(self) -> dict[str, Any]:
        """Returns the options by name, with lists instead of tuples as in JSON."""
        values = dataclasses.asdict(self).items()
        return {k: list(v) if isinstance(v, tuple) else v for k, v in values}

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Returns the default values of the options that are not required."""
        fields = dataclasses.fields(cls)
        return {f.name: f.default for f in fields if not _is_required(f)}

    @classmethod
    def resumable(cls) -> set[str]:
        """Returns the names of the options that may change when a run resumes."""
        fields = dataclasses.fields(cls)
        return {f.name for f in fields if f.metadata.get("resumable")}


def _is_required(field: dataclasses.Field) -> bool:
    return field.default is dataclasses.MISSING


# --- Flags -----------------------------------------------------------------------

_DEFINE = {
    str: flags.DEFINE_string,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    bool: flags.DEFINE_bool,
}


def _define_flags(options_class: type[Options]) -> None:
    """Defines one absl flag per field of `options_class`."""
    types = typing.get_type_hints(options_class)
    for field in dataclasses.fields(options_class):
        name, text = _flag_name(field), _help_of(field)
        default = None if _is_required(field) else field.default
        if field.metadata["grid"] or field.metadata["per_phase"]:
            flags.DEFINE_list(name, str(default), text)
        else:
            _DEFINE[types[field.name]](name, default, text)


def _options_from_flags(options_class: type[Options]) -> list[Options]:
    """Builds `options_class` from the parsed flags.

    Returns:
        One object per combination of the `grid` options. The last of them varies
        fastest.

    Raises:
        ValueError: A required flag is missing, or a value violates its `option`.
    """
    types = typing.get_type_hints(options_class)
    values = {}  # By field, all values to try.
    for field in dataclasses.fields(options_class):
        value = flags.FLAGS[_flag_name(field)].value
        if value is None and _is_required(field):
            raise ValueError(
                f"--{_flag_name(field)} is required: {field.metadata['help']} "
                "See --help for all flags."
            )
        if field.metadata["grid"]:
            values[field.name] = _numbers(field, types[field.name], value)
        elif field.metadata["per_phase"]:
            number_type = typing.get_args(types[field.name])[0]
            numbers = _numbers(field, number_type, value)
            values[field.name] = [tuple(numbers) if len(numbers) > 1 else numbers[0]]
        else:
            values[field.name] = [value]
    return [
        options_class(**dict(zip(values, combination)))
        for combination in itertools.product(*values.values())
    ]


def _numbers(
    field: dataclasses.Field, number_type: type, texts: list[str]
) -> list[float]:
    try:
        if texts:
            return [number_type(text) for text in texts]
    except ValueError:
        pass  # Raises the same error as an empty list.
    raise ValueError(
        f"--{_flag_name(field)} must be one or more comma-separated numbers of type "
        f"{number_type.__name__}. Received: {','.join(texts)!r}"
    )


# --- Help ------------------------------------------------------------------------

_HELP_FLAGS = {"-h", "-help", "--help", "--helpshort", "--helpfull"}
_HELP_COLUMN = 26


def help_text(doc: str, options_class: type[Options], full: bool) -> str:
    """Returns the output of `--help`, or of `--helpfull` if `full`.

    `--help` fits on a screen: the first line of `doc`, its examples, the required
    flags and the common ones. `--helpfull` has all of `doc` and all flags.
    """
    fields = {field.name: field for field in dataclasses.fields(options_class)}
    # Options of the class itself come before inherited ones.
    names = [name for c in options_class.__mro__ for name in inspect.get_annotations(c)]
    ordered = [fields[name] for name in dict.fromkeys(names) if name in fields]
    optional = [field for field in ordered if not _is_required(field)]
    common = [field for field in optional if field.metadata["common"]]
    others = [field for field in optional if field not in common] if common else []
    groups = {
        "Required": [field for field in ordered if _is_required(field)],
        "Common" if common else "Optional": common or optional,
        "Others": others if full else [],
    }
    paragraphs = doc.strip().split("\n\n")
    if not full:
        examples = [p for p in paragraphs if re.match(" {4}.*python -m", p, re.DOTALL)]
        paragraphs = [paragraphs[0], *examples]
    width = min(shutil.get_terminal_size().columns, 100)
    for title, group in groups.items():
        if group:
            lines = [_flag_help(field, width) for field in group]
            paragraphs.append("\n".join([f"{title}:", *lines]))
    if not full:
        more = " ".join(f"--{_flag_name(field)}" for field in others)
        more = f"See --helpfull for more{' and for: ' if others else '.'}{more}"
        paragraphs.append(textwrap.fill(more, width, break_on_hyphens=False))
    return "\n\n".join(paragraphs)


def _flag_help(field: dataclasses.Field, width: int) -> str:
    """Returns a flag with its default, and its help text in a column beside it."""
    default = "..." if _is_required(field) or field.default == "" else field.default
    flag = f"  --{_flag_name(field)}={str(default).lower()}"
    indent = " " * _HELP_COLUMN
    text = textwrap.fill(
        _help_of(field),
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )
    if len(flag) > _HELP_COLUMN - 2:
        return f"{flag}\n{text}"
    return flag.ljust(_HELP_COLUMN) + text[_HELP_COLUMN:]


def _help_of(field: dataclasses.Field) -> str:
    text, choices = field.metadata["help"], field.metadata["choices"]
    if not all(choice in text for choice in choices):
        text += f" One of: {', '.join(filter(None, choices))}."
    if field.metadata["grid"]:
        text += " Tries each of several comma-separated values."
    return text


# --- Running ---------------------------------------------------------------------


def run(main: Callable[..., Any], options_class: type[Options]) -> None:
    """Runs `main` as a command with the options that the flags define.

    `main` receives one positional argument per combination of the `grid` options. A
    `ValueError` or `OSError` ends the command with a one-line message and status 1.
    `--verbosity=1` shows its traceback.
    """
    # TensorFlow reads this variable when it is imported.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    _define_flags(options_class)

    def parse(argv: Sequence[str]) -> list[str]:
        if _HELP_FLAGS & set(argv[1:]):
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Allows `--help | head`.
            doc = sys.modules[main.__module__].__doc__
            print(help_text(doc, options_class, full="--helpfull" in argv))
            sys.exit()
        try:
            return flags.FLAGS(argv)
        except flags.Error as error:
            sys.exit(f"error: {error} (see --help)")

    def command(argv: Sequence[str]) -> None:
        if len(argv) > 1:
            sys.exit(
                "error: Arguments must have the form --flag=value. Received: "
                f"{' '.join(argv[1:])}"
            )
        if not flags.FLAGS["verbosity"].present:
            logging.set_verbosity(logging.WARNING)  # app.run sets it to INFO.
        try:
            main(*_options_from_flags(options_class))
        except (ValueError, OSError) as error:
            logging.debug("Traceback of the error:", exc_info=True)
            sys.exit(f"error: {error}")

    app.run(command, flags_parser=parse)
