# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads data sets of texts and labels: GLUE in its own files, or user tables.

Input: `--task` with `--data_dir`, or `--train_file`, `--dev_file` and column names.
Output: a list of `Row`s for each split.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import math
import pathlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from absl import logging

from bert_tf import cli
from bert_tf.data import Table
from bert_tf.finetuning.task import FilesConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class TablesConfig(FilesConfig):
    """Options of a task that reads a benchmark or the user's own tables."""

    task: str = cli.option("", help="Benchmark to read from --data_dir.", common=True)
    data_dir: str = cli.option(
        "",
        help="Folder of the files of --task.",
        common=True,
        resumable=True,
        local=True,
    )
    train_file: str = cli.option(
        "",
        help="Instead of --task: your training data, TSV, .csv or .jsonl, with header.",
        common=True,
        local=True,
    )
    dev_file: str = cli.option(
        "",
        help="Your dev set, in the format of --train_file. Selects the best epoch.",
        common=True,
        local=True,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSet:
    """Files and columns of a data set.

    Attributes:
        texts: Columns of the texts.
        label: Column of the label; or several columns of 0 and 1, separated by commas,
            whose names are the labels.
        files: For each split that is not in `<split>.tsv`, the alternatives. Each is a
            list of files to read one after the other. The first alternative that exists
            is used.
        columns: Column names of the files without a header, by split.
        nested: Columns of JSONL files that hold lists or objects.
        skip_malformed: Whether to skip malformed rows of the training set.
        optional: For each split, the columns that its files may lack. Any test set may
            lack the label. If `label` is empty, it must be optional.
        metrics: Of a classification: names of the metrics; the first selects the best
            epoch.
        score_range: Minimum and maximum label of a regression; None for classes.
        submissions: For each split without labels, the file to submit.
    """

    texts: Sequence[str]
    label: str = "label"
    files: Mapping[str, Sequence[Sequence[str]]] = dataclasses.field(
        default_factory=dict
    )
    columns: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    nested: Sequence[str] = ()
    skip_malformed: bool = False
    optional: Mapping[str, Collection[str]] = dataclasses.field(default_factory=dict)
    metrics: Sequence[str] = ("accuracy",)
    score_range: tuple[float, float] | None = None
    submissions: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def splits(self) -> Sequence[str]:
        """Names of the splits."""
        return tuple(dict.fromkeys(("train", "dev", *self.files, "test")))


class Row(NamedTuple):
    """A row of a table: its texts, and its label if the table has labels.

    `id` is that of the column `id`, or else the index of the row. The texts of nested
    columns are as in the JSON file.
    """

    path: pathlib.Path
    line: int
    id: str
    texts: tuple[Any, ...]
    label: str | None

    @property
    def location(self) -> str:
        """Prefix of error messages about the row."""
        return f"{self.path}, line {self.line}"

    def score(self) -> float:
        """Returns the label as a finite number, or raises ValueError."""
        with contextlib.suppress(ValueError):
            if math.isfinite(score := float(self.label)):
                return score
        raise ValueError(
            f"{self.location}: a score must be a finite number. "
            f"Received: {self.label!r}"
        )


# Labels of rows without a gold label: empty cells, "-" in SNLI, -1 in Hugging Face's
# data sets, NaN in pandas.
NO_GOLD = frozenset(("", "-", "-1", "nan"))

# Values of label columns.
_BOOLEANS = {"0": False, "1": True, "0.0": False, "1.0": True}
_BOOLEANS |= {"false": False, "true": True}


def read_data_set(
    options: TablesConfig,
    benchmarks: Mapping[str, DataSet],
    own: DataSet,
    *,
    required: Sequence[str],
    optional: Sequence[str] = (),
    missing_labels: Collection[str] = NO_GOLD,
) -> tuple[DataSet, dict[str, list[Row]]]:
    """Reads the benchmark `--task`, or the user's own tables.

    Rows whose label is missing are skipped with a warning. A test set that has only
    such rows is unlabeled. The test set of a benchmark may be missing.

    Args:
        options: The task's options.
        benchmarks: Data sets by the name of `--task`.
        own: The data set that the flags describe.
        required: Flags that describe `own` and are required without `--task`.
        optional: Flags that describe `own` and have a default.
        missing_labels: A subset of `NO_GOLD`. -1 beside 1 only, and "-" beside "+",
            are labels.

    Returns:
        The data set, and the rows of each split.

    Raises:
        ValueError: A flag is missing or contradicts `--task`, a file or column is
            missing, or a file is malformed or empty.
    """
    flags = _flags([*required, *optional])
    required = ("train_file", "dev_file", *required)
    defaults = options.defaults()
    given = [n for n in (*required, *optional) if getattr(options, n) != defaults[n]]
    missing = [name for name in required if name not in given]
    if not options.task:
        if missing:
            raise ValueError(
                f"Missing flags: {_flags(missing)}. Pass {_flags(required)} to read "
                f"your own tables, or --task ({', '.join(benchmarks)}) and --data_dir."
            )
        if options.data_dir:
            raise ValueError("--data_dir requires --task. Pass both or none.")
        # There is no default test set, only --test_file.
        data_set = dataclasses.replace(own, files={"test": []})
    elif given:
        raise ValueError(
            f"--task={options.task} determines the files and columns. Remove "
            f"{_flags(given)}."
        )
    else:
        data_set = benchmarks[options.task]
    splits = {
        split: list(read_rows(data_set, split, paths, f"{flags}, or with --task"))
        for split in data_set.splits
        if (paths := _find_split(data_set, split, options))
    }
    missing = set(missing_labels)
    labels = {row.label for rows in splits.values() for row in rows} - {None}
    if "+" in labels:
        missing.discard("-")
    if {*map(_normalized, labels)} == {"-1", "1"}:
        missing.discard("-1")
    for split, rows in splits.items():
        splits[split] = _skip_unlabeled(split, rows, missing)
    return data_set, splits


def _normalized(label: str) -> str:
    return label.strip().lower().removesuffix(".0")


def _skip_unlabeled(
    split: str, rows: Sequence[Row], missing: Collection[str]
) -> list[Row]:
    """Returns the rows with a label; all, with None, of an unlabeled test set."""
    if rows[0].label is None:
        return list(rows)
    labels = [_normalized(row.label) for row in rows]
    if split.startswith("test") and NO_GOLD.issuperset(labels):
        return [row._replace(label=None) for row in rows]
    kept = [row for row, label in zip(rows, labels) if label not in missing]
    if not kept:
        raise ValueError(
            f"{rows[0].path}: no row has a label. The first has {rows[0].label!r}."
        )
    skipped = collections.Counter(label for label in labels if label in missing)
    for label, count in skipped.items():
        logging.warning(
            "%s: skipped %d of %d rows, whose label %r means that there is no gold "
            "label. If it is a class, rename it.",
            rows[0].path, count, len(rows), label,
        )  # fmt: skip
    return kept


def _flags(names: Sequence[str]) -> str:
    return ", ".join(f"--{name}" for name in names)


def _find_split(
    data_set: DataSet, split: str, options: TablesConfig
) -> list[pathlib.Path]:
    """Returns the files of a split, or an empty list for a missing test set."""
    path = getattr(options, f"{split}_file", "")
    if path:
        folder, alternatives = pathlib.Path(), [[path]]
    else:
        folder = pathlib.Path(options.data_dir)
        alternatives = data_set.files.get(split, [[f"{split}.tsv"]])
    for names in alternatives:
        paths = [folder / name for name in names]
        if all(path.is_file() for path in paths):
            return paths
    if path or split in ("train", "dev"):
        wanted = " or ".join(" and ".join(names) for names in alternatives)
        raise ValueError(
            f"The {split} set is missing: there is no {wanted} in {folder.absolute()}."
        )
    return []


def read_rows(
    data_set: DataSet, split: str, paths: Sequence[pathlib.Path], column_flags: str
) -> Iterator[Row]:
    """Yields the rows of a split.

    Args:
        data_set: The columns.
        split: Name of the split. Rows of a test set have a label only if the files have
            the column.
        paths: The files.
        column_flags: The flags that select columns, for the message about a missing
            column.

    Raises:
        ValueError: A column is missing, a row is malformed, or there are no rows.
    """
    index, labels = 0, data_set.label.split(",")
    for path in paths:
        table = Table(path, data_set.columns.get(split, ()))
        columns = list(data_set.texts)
        if not split.startswith("test") or set(labels) <= set(table.columns):
            columns += labels
        optional = data_set.optional.get(split, ())
        columns = [c for c in columns if c in table.columns or c not in optional]
        table.require(columns, column_flags)
        if "id" in table.columns:
            columns.append("id")
        skip = data_set.skip_malformed and split == "train"
        nested = {*data_set.nested, *labels}  # Labels may be null.
        for line, values in table.rows(columns, nested=nested, skip_malformed=skip):
            row = dict(zip(columns, values, strict=True))
            name = row.get("id", str(index))
            texts = tuple(row[column] for column in data_set.texts if column in row)
            has_labels = set(labels) <= row.keys()
            label = _label(row, labels, f"{path}, line {line}") if has_labels else None
            yield Row(path, line, name, texts, label)
            index += 1
    if not index:
        raise ValueError(f"{paths[0]} has a header but no rows.")


def _label(row: Mapping[str, Any], columns: Sequence[str], where: str) -> str:
    """Returns the label in a column, or the names of the columns with a 1."""
    values = ["" if row[column] is None else row[column] for column in columns]
    for column, value in zip(columns, values):
        if not isinstance(value, str):
            raise ValueError(
                f"{where}: {column!r} must be text or a number. Got {value!r}"
            )
    if len(columns) == 1:
        return values[0]
    if {*map(_normalized, values)} == {"-1"}:
        return "-1"
    for column, value in zip(columns, values):
        if value.lower() not in _BOOLEANS:
            raise ValueError(
                f"{where}: column {column!r} must be one of {', '.join(_BOOLEANS)}, as "
                f"one of several label columns. Got {value!r}."
            )
    return ",".join(c for c, v in zip(columns, values) if _BOOLEANS[v.lower()])


# --- GLUE ------------------------------------------------------------------------


def _data_set(submission: str, *texts: str, **options: Any) -> DataSet:
    """Returns a data set with one test set and the file to submit for it."""
    submissions = {"test": f"{submission}.tsv"}
    return DataSet(texts=texts, submissions=submissions, **options)


_PAIR, _F1 = ("sentence1", "sentence2"), ("f1", "accuracy")
_COLA = ("source", "label", "mark", "sentence")
_MRPC = ("#1 String", "#2 String")
_QQP = ("question1", "question2")

# Files: arXiv 1804.07461, gluebenchmark.com. Metrics: table 1 of GLUE; the first is the
# one in table 1 of the BERT paper.
GLUE: Mapping[str, DataSet] = {
    "cola": _data_set(
        "CoLA",
        "sentence",
        metrics=("matthews_correlation", "accuracy"),
        files={
            "train": [["train.tsv"], ["in_domain_train.tsv"]],
            "dev": [["dev.tsv"], ["in_domain_dev.tsv", "out_of_domain_dev.tsv"]],
        },
        columns={"train": _COLA, "dev": _COLA},
    ),
    "sst2": _data_set("SST-2", "sentence"),
    "mrpc": _data_set(
        "MRPC",
        *_MRPC,
        label="Quality",
        metrics=_F1,
        files={
            "train": [["train.tsv"], ["msr_paraphrase_train.txt"]],
            "dev": [["dev.tsv"], ["msr_paraphrase_test.txt"]],
        },
    ),
    "stsb": _data_set(
        "STS-B",
        *_PAIR,
        label="score",
        metrics=("spearman", "pearson"),
        score_range=(0.0, 5.0),
    ),
    # Line breaks inside questions split some rows in two.
    "qqp": _data_set(
        "QQP", *_QQP, label="is_duplicate", metrics=_F1, skip_malformed=True
    ),
    "mnli": DataSet(
        texts=_PAIR,
        label="gold_label",
        files={
            "dev": [["dev_matched.tsv"]],
            "dev_mismatched": [["dev_mismatched.tsv"]],
            "test": [["test_matched.tsv"]],
            "test_mismatched": [["test_mismatched.tsv"]],
            # Predicted by models of MNLI.
            "test_diagnostic": [["diagnostic.tsv"], ["../diagnostic/diagnostic.tsv"]],
        },
        submissions={
            "test": "MNLI-m.tsv",
            "test_mismatched": "MNLI-mm.tsv",
            "test_diagnostic": "AX.tsv",
        },
    ),
    "qnli": _data_set("QNLI", "question", "sentence"),
    "rte": _data_set("RTE", *_PAIR),
    "wnli": _data_set("WNLI", *_PAIR),
}
