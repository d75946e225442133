# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads data sets of texts and labels: benchmarks in their own files, or user tables.

Input: `--task` with `--data_dir`, or `--train_file`, `--dev_file` and column names.
Output: a list of `Row`s for each split.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from bert_tf import cli
from bert_tf.data import Table
from bert_tf.finetuning.task import FinetuneConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class TablesConfig(FinetuneConfig):
    """Options of a task that reads a benchmark or the user's own tables."""

    task: str = cli.option("", help="Benchmark to read from --data_dir.", common=True)
    data_dir: str = cli.option(
        "", help="Directory with the files of --task.", common=True, resumable=True
    )
    train_file: str = cli.option(
        "",
        help="Instead of --task: your training data, a TSV, .csv or .jsonl file with a "
        "header.",
        common=True,
    )
    dev_file: str = cli.option(
        "",
        help="Your dev set, in the format of --train_file. Selects the best epoch.",
        common=True,
    )
    test_file: str = cli.option(
        "",
        help="Data to predict, with or without labels. Also with --task.",
        common=True,
        resumable=True,
    )


def _default_files() -> dict[str, list[list[str]]]:
    return {split: [[f"{split}.tsv"]] for split in ("train", "dev", "test")}


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSet:
    """Files and columns of a data set.

    Attributes:
        texts: Columns of the texts.
        label: Column of the label.
        files: For each split the alternatives, each a list of files that are read one
            after the other. The first alternative that exists is read.
        columns: Column names of the files without a header, if any.
        headerless: The splits whose files have no header.
        skip_malformed: Whether to skip malformed rows of the training set.
    """

    texts: Sequence[str]
    label: str = "label"
    files: Mapping[str, Sequence[Sequence[str]]] = dataclasses.field(
        default_factory=_default_files
    )
    columns: Sequence[str] = ()
    headerless: Sequence[str] = ()
    skip_malformed: bool = False


class Row(NamedTuple):
    """A row of a table: its texts, and its label if the table has labels."""

    path: pathlib.Path
    line: int
    texts: tuple[str, ...]
    label: str | None

    @property
    def location(self) -> str:
        """Prefix of error messages about the row."""
        return f"{self.path}, line {self.line}"


AnyDataSet = TypeVar("AnyDataSet", bound=DataSet)


def select_data_set(
    options: TablesConfig,
    benchmarks: Mapping[str, AnyDataSet],
    own: AnyDataSet,
    *,
    required: Sequence[str],
    optional: Sequence[str] = (),
) -> AnyDataSet:
    """Returns the benchmark `--task`, or `own` with the files of the flags.

    Args:
        options: The task's options.
        benchmarks: Data sets by the name of `--task`.
        own: The data set that the flags describe, whose `files` are replaced.
        required: Flags that describe `own` and are required without `--task`.
        optional: Flags that describe `own` and have a default.

    Raises:
        ValueError: `--task` is unknown, or a flag is missing or contradicts `--task`.
    """
    required = ("train_file", "dev_file", *required)
    if not options.task:
        if missing := [f"--{name}" for name in required if not getattr(options, name)]:
            needed = ", ".join(f"--{name}" for name in required)
            raise ValueError(
                f"{', '.join(missing)} is missing. Pass {needed} to read your own "
                f"tables, or --task ({', '.join(benchmarks)}) and --data_dir."
            )
        if options.data_dir:
            raise ValueError("--data_dir requires --task. Remove it.")
        splits = ("train", "dev", "test")
        paths = {split: getattr(options, f"{split}_file") for split in splits}
        files = {split: [[path]] for split, path in paths.items() if path}
        return dataclasses.replace(own, files=files)
    if options.task not in benchmarks:
        raise ValueError(
            f"--task must be one of {', '.join(benchmarks)}. "
            f"Received: task={options.task!r}"
        )
    defaults = options.defaults()
    given = [
        f"--{name}"
        for name in (*required, *optional)
        if getattr(options, name) != defaults[name]
    ]
    if given:
        raise ValueError(
            f"--task={options.task} determines the files and columns. Remove "
            f"{', '.join(given)}."
        )
    data_set = benchmarks[options.task]
    if options.test_file:
        test_file = str(pathlib.Path(options.test_file).absolute())
        files = {**data_set.files, "test": [[test_file]]}
        data_set = dataclasses.replace(data_set, files=files)
    return data_set


def read_data_set(
    data_set: DataSet, options: TablesConfig, *, flags: str
) -> dict[str, list[Row]]:
    """Returns the rows of each split.

    A test set may have no labels. The test set of a benchmark may be missing.

    Args:
        data_set: From `select_data_set`.
        options: The task's options.
        flags: The flags that select columns, for the message about a missing one.

    Raises:
        ValueError: A file or column is missing, or a file is malformed or empty.
    """
    return {
        split: _read_split(data_set, split, paths, flags)
        for split in data_set.files
        if (paths := _find_split(data_set, split, options))
    }


def _find_split(
    data_set: DataSet, split: str, options: TablesConfig
) -> list[pathlib.Path]:
    folder = pathlib.Path(options.data_dir)
    alternatives = data_set.files[split]
    for names in alternatives:
        paths = [folder / name for name in names]
        if all(path.is_file() for path in paths):
            return paths
    if split in ("train", "dev") or (split == "test" and options.test_file):
        wanted = " or ".join(" and ".join(names) for names in alternatives)
        raise ValueError(
            f"The {split} set is missing: there is no {wanted} in {folder.absolute()}."
        )
    return []


def _read_split(
    data_set: DataSet, split: str, paths: Sequence[pathlib.Path], flags: str
) -> list[Row]:
    rows = []
    for path in paths:
        table = Table(path, data_set.columns if split in data_set.headerless else ())
        is_labeled = not split.startswith("test") or data_set.label in table.columns
        columns = [*data_set.texts, *([data_set.label] if is_labeled else [])]
        table.require(columns, flags)
        skip = data_set.skip_malformed and split == "train"
        for line, values in table.rows(columns, skip_malformed=skip):
            texts = tuple(values[: len(data_set.texts)])
            rows.append(Row(path, line, texts, values[-1] if is_labeled else None))
    if not rows:
        raise ValueError(f"{paths[0]} has a header but no rows.")
    return rows
