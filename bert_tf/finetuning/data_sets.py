# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tasks on tables of texts and labels: GLUE in its own files, or the user's tables.

Input: `--task` with `--data_dir`, or `--train_file`, `--dev_file` and column names.
Output: the `Example`s of each split.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import pathlib
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from absl import logging

from bert_tf import cli, data
from bert_tf.finetuning.task import Example, RowsConfig, Task
from bert_tf.lazy import lazy_import

scipy = lazy_import("scipy")

# Labels of rows without a gold label: missing values, "-" in SNLI, -1 in Hugging Face's
# data sets.
_NO_GOLD = data.MISSING_VALUES | {"-", "-1", "-1.0"}
# Those that are valid labels: "" for a text without labels, -1 as a score.
_VALID = {"multi_label": {""}, "regression": {"-1", "-1.0"}}

# Several labels in a cell, as pandas, Python, NumPy and Label Studio write containers.
# Names of relations, such as Cause-Effect(e1,e2), do not match: they are single labels.
_LIST = re.compile(
    r"\[(\s*([-.'\"\d]|nan|None|True|False).*|.*,.*)?\]|\{.*\}"
    r"|\((\s*(['\"].*|[-.\d].*,.*))?\)"
    r"|(set|frozenset|list|tuple|dict)\(\)|[\w.]+\(\s*[\[({].*\)",
    re.DOTALL,
)
# Three or more labels as 0 and 1. Two with a comma may be a number.
_VECTOR = re.compile(r"[01](\.0)?(\s*[,;|\s]\s*[01](\.0)?){2,}")

# Values of several label columns.
_BOOLEANS = {"0": False, "1": True, "false": False, "true": True}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TablesConfig(RowsConfig):
    """Options of a task that reads a benchmark or the user's own tables.

    A subclass has the option `task`, the name of a benchmark.
    """

    data_dir: str = cli.option(
        "", help="Folder of --task.", common=True, resumable=True, local=True
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSet:
    """Files and columns of a data set.

    Attributes:
        texts: Columns of the texts.
        label: Column of the label; or several columns of 0 and 1, separated by commas,
            whose names are the labels; "" for none.
        files: For splits that may have other files than `<split>.tsv`: the glob pattern
            of these files.
        columns: Column names of the files without a header, by split.
        nested: Columns of JSONL files that hold lists or objects.
        skip_malformed: Whether to skip malformed rows of the training set.
        optional: For each split, the columns that its files may lack. Any test set may
            lack the label.
        metrics: Names of the metrics. The first selects the best epoch, unless the task
            sets another.
        problem: What a label is, see `Task.problem`.
        separator: The separator of several labels in a cell.
    """

    texts: Sequence[str]
    label: str = "label"
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    columns: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    nested: Sequence[str] = ()
    skip_malformed: bool = False
    optional: Mapping[str, Collection[str]] = dataclasses.field(default_factory=dict)
    metrics: Sequence[str] = ("accuracy",)
    problem: str = "classification"
    separator: str = ","

    @property
    def label_columns(self) -> list[str]:
        return self.label.split(",") if self.label else []

    def split_labels(self, gold: str) -> list[str]:
        """Returns the labels in a cell."""
        if self.problem != "multi_label":
            return [gold]
        return [*filter(None, map(str.strip, gold.split(self.separator)))]


class TableTask(Task):
    """A task that reads a benchmark, `--task`, or the user's own tables.

    Rows whose label is missing are skipped with a warning. A test set that has only
    such rows is unlabeled. The test set of a benchmark may be missing.

    Attributes:
        benchmarks: Data sets by the name of `--task`.
        columns: Flags of own tables, required without `--task`.
        other_flags: Flags of own tables that have a default.
        data_set: The data set.
        gold_labels: The distinct labels of the training set, in the order of the file.

    Raises:
        ValueError: A flag is missing or contradicts `--task`, a file or column is
            missing, or a file is malformed or empty.
    """

    benchmarks: ClassVar[Mapping[str, DataSet]]
    columns: ClassVar[Sequence[str]]
    other_flags: ClassVar[Sequence[str]] = ()

    @classmethod
    def own_data_set(cls, options: TablesConfig) -> DataSet:
        """Returns the data set that the flags describe."""
        raise NotImplementedError

    @classmethod
    def find_data_set(cls, options: TablesConfig) -> DataSet:
        """Returns the benchmark `--task`, or `own_data_set`."""
        return cls.benchmarks.get(options.task) or cls.own_data_set(options)

    @classmethod
    def read(
        cls, options: TablesConfig, split: str, paths: Sequence[pathlib.Path]
    ) -> Iterator[Example]:
        """Yields the rows of a split. Their inputs are all texts.

        Args:
            options: The columns.
            split: Name of the split; `"predict"` for `--predict`. Only `"train"` and
                those of dev sets need the label.
            paths: The files.

        Raises:
            ValueError: A column is missing, a row is malformed, or there are no rows.
        """
        data_set, flags = cls.find_data_set(options), cls._column_flags(options, split)
        labels, index, empty = data_set.label_columns, 0, 0
        optional = {"id", *data_set.optional.get(split, ())}
        if not split.startswith(("train", "dev")):
            optional |= {*labels}
        needs_label = not optional.issuperset(labels)
        if both := {*labels}.intersection(data_set.texts):
            raise ValueError(
                "The label must be another column than the texts. Got "
                f"{', '.join(both)} for both. Select columns with {flags}."
            )
        copied = list(options.kept)
        if split == "train" and options.group:
            copied.append(options.group)
        for path in paths:
            skip = data_set.skip_malformed and split == "train"
            table = data.Table(path, data_set.columns.get(split, ()), skip)
            # Without the optional texts that the file lacks.
            known = {*table.columns} | {*data_set.texts} - optional
            texts = [column for column in data_set.texts if column in known]
            # The file must have these columns, but the objects of JSONL may lack them.
            table.require(copied, flags)
            columns = [*texts, *labels, options.id, *copied]
            rows = table.rows(
                columns,
                flags=flags,
                nested={*data_set.nested, *labels},  # Labels may be null.
                optional={*optional, *copied}.difference(texts),
            )
            for line, values in rows:
                cells, gold = dict(zip(columns, values)), None
                golds = {column: cells[column] for column in labels}
                if needs_label or any(value is not None for value in golds.values()):
                    gold = _label(data_set, golds, f"{path}, line {line}")
                id_ = str(index) if cells[options.id] is None else cells[options.id]
                inputs = tuple(cells[column] for column in texts)
                kept = {column: cells[column] or "" for column in options.kept}
                group = cells.get(options.group) or ""
                example = Example(id_, None, inputs, gold, path, line)
                yield example._replace(kept=kept, group=group)
                empty += inputs[0].strip() in data.MISSING_VALUES
                index += 1
        if not index:
            raise ValueError(f"{paths[0]} has a header but no rows.")
        if empty:
            message = "%s: %d of %d rows have an empty or missing text."
            logging.warning(message, paths[0], empty, index)

    @classmethod
    def _column_flags(cls, options: TablesConfig, split: str) -> str:
        """Returns the flags that select columns, for messages."""
        if split == "predict":
            return f"the training's {_flags(cls.columns)}, or with --id, --keep"
        if options.task:
            return "another --task or --data_dir"
        names = (*cls.columns, *cls.other_flags, "id", "keep", "group")
        return f"{_flags(names)}, or with --task"

    @classmethod
    def read_input(cls, options, path):
        return cls.read(options, "predict", [pathlib.Path(path)])

    def __init__(self, options, encoder):
        super().__init__(options, encoder)
        self._check_flags()
        self.data_set = self.find_data_set(options)
        self.problem = self.data_set.problem
        self.metric = self.data_set.metrics[0]
        rows = {
            split: list(self.read(options, split, paths))
            for split in dict.fromkeys(("train", "dev", *self.data_set.files, "test"))
            if (paths := self._find_split(split))
        }
        golds = {k: collections.Counter(row.gold for row in x) for k, x in rows.items()}
        missing = _NO_GOLD - _valid_labels(golds["train"], self.problem)
        rows = {k: _labeled(k, x, golds[k], missing) for k, x in rows.items()}
        self.data = self.split(rows, self.classes)
        self.gold_labels = [gold for gold in golds["train"] if gold not in missing]

    def classes(self, row: Example) -> Iterable[str]:
        """Returns the classes of a row; see `Task.split`."""
        return [row.gold] if self.problem == "classification" else []

    def _check_flags(self) -> None:
        options, defaults = self.options, type(self.options)
        dev = "dev_share" if options.dev_share else "dev_file"
        required = ("train_file", dev, *self.columns)
        names = (*required, *self.other_flags, "test_share", "group")
        given = [n for n in names if getattr(options, n) != getattr(defaults, n)]
        missing = [name for name in required if name not in given]
        if options.task and given:
            raise ValueError(
                f"--task={options.task} determines the files and columns. Remove "
                f"{_flags(given)}."
            )
        if options.data_dir:
            missing.append("task")
        if missing and not options.task:
            raise ValueError(
                f"Missing flags: {_flags(missing)}. Pass {_flags(required)} to read "
                "your own tables; --dev_share=0.1 instead of --dev_file holds out rows "
                f"of --train_file. Or pass --task ({', '.join(self.benchmarks)}) and "
                "--data_dir."
            )

    def _find_split(self, split: str) -> list[pathlib.Path]:
        """Returns the files of a split, or an empty list for a missing test set."""
        own = getattr(self.options, f"{split}_file", "")
        if own or not self.options.task:
            return [pathlib.Path(own)] if own else []
        folder, usual = pathlib.Path(self.options.data_dir), f"{split}.tsv"
        # This order: GLUE's folder of MRPC has both, and the other training set has the
        # rows of dev.tsv, too.
        names = dict.fromkeys((usual, self.data_set.files.get(split, usual)))
        paths = next(filter(None, (sorted(folder.glob(name)) for name in names)), [])
        if not paths and split in ("train", "dev"):
            raise ValueError(
                f"The {split} set is missing: --data_dir={folder.absolute()} has no "
                f"{' or '.join(names)}."
            )
        return paths


def _flags(names: Sequence[str]) -> str:
    return ", ".join(f"--{name}" for name in names)


def _label(data_set: DataSet, labels: Mapping[str, Any], where: str) -> str:
    """Returns the label in a column, or the names of the columns with a 1."""
    if len(labels) == 1:
        ((column, label),) = labels.items()
        label = label or ""
        if not isinstance(label, str) or _LIST.fullmatch(label.strip()):
            rule = "Join several labels, and pass --label_separator."
        elif _VECTOR.fullmatch(label.strip()):
            rule = "Write a column of 0 and 1 for each label, and pass --label=a,b,c."
        else:
            return sys.intern(label.strip())
        raise ValueError(
            f"{where}: column {column!r} must be text or a number. {rule} Got "
            f"{label!r}."
        )
    values = {column: _normalized(str(label)) for column, label in labels.items()}
    no_gold = {str(x or "").strip() for x in labels.values()} <= data.MISSING_VALUES
    if no_gold or {*values.values()} == {"-1"}:
        return "-1"
    for column, value in values.items():
        if value not in _BOOLEANS:
            raise ValueError(
                f"{where}: column {column!r} must be one of {', '.join(_BOOLEANS)}, as "
                f"one of several label columns. Got {labels[column]!r}."
            )
    chosen = (column for column, value in values.items() if _BOOLEANS[value])
    return data_set.separator.join(chosen)


def _normalized(label: str) -> str:
    return label.strip().lower().removesuffix(".0")


def _valid_labels(labels: Collection[str], problem: str) -> set[str]:
    """Returns those of `_NO_GOLD` that are labels of a training set.

    "-" beside "+" is a label, as is -1 if there is the opposite of each negative label,
    as in -1, 0, 1.
    """
    found = {"-"} if "+" in labels else set()
    labels = {_normalized(x) for x in {*labels} - data.MISSING_VALUES - {None, "-"}}
    negative = {label for label in labels if label.startswith("-")}
    if {label[1:] for label in negative} == labels - negative - {"0"}:
        found |= {"-1", "-1.0"}
    return found | _VALID.get(problem, set())


def _labeled(
    split: str, rows: Sequence[Example], golds: Mapping, missing: Collection[str]
) -> list[Example]:
    """Returns the rows with a label; for an unlabeled split, all, with `gold=None`.

    Args:
        split: Name of the split.
        rows: Its rows.
        golds: How often it has each label.
        missing: The labels that mean that there is none.
    """
    # None if the file has no labels. Those of a test set may all be missing.
    if golds.keys() <= (_NO_GOLD if split.startswith("test") else set()) | {None}:
        return [row._replace(gold=None) for row in rows]
    skipped = [gold for gold in golds if gold is None or gold in missing]
    if len(skipped) == len(golds):
        raise ValueError(f"{rows[0].path}: no row has a label. Got {rows[0].gold!r}.")
    for label in skipped:
        logging.warning(
            "%s: skipped %d of %d rows, whose label %r means that there is no gold "
            "label. If it is a class, rename it.",
            rows[0].path, golds[label], len(rows), label,
        )  # fmt: skip
    return [row for row in rows if row.gold not in skipped]


def scores(rows: Sequence[Example]) -> np.ndarray | None:
    """Returns the gold labels as scores [N] float64; None without labels.

    Raises:
        ValueError: A label is not a finite number.
    """
    if rows[0].gold is None:
        return None
    return np.array([_score(row) for row in rows])


def _score(row: Example) -> float:
    with contextlib.suppress(ValueError):
        if abs(value := float(row.gold)) < 3.4e38:  # In float32, and not NaN.
            return value
    rule = f"a score must be a finite number, as 1.5 or 1e-3. Got {row.gold!r}."
    raise ValueError(f"{row.location}: {rule}")


def correlations(gold: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """Returns `spearman` and `pearson`; 0 if one side has only equal scores."""
    if np.ptp(gold) == 0 or np.ptp(predicted) == 0:
        return {"spearman": 0.0, "pearson": 0.0}
    spearman = scipy.stats.spearmanr(gold, predicted).statistic
    pearson = np.corrcoef(gold, predicted)[0, 1]
    return {"spearman": float(spearman), "pearson": float(pearson)}


# --- GLUE ------------------------------------------------------------------------


_PAIR, _F1 = ("sentence1", "sentence2"), ("f1", "accuracy")
SCORE_METRICS = ("spearman", "pearson", "rmse", "mae")

# Files: arXiv 1804.07461, gluebenchmark.com; CoLA and MRPC also in those of their
# authors. Metrics: table 1 of GLUE; the first is the one in table 1 of the BERT paper.
GLUE: Mapping[str, DataSet] = {
    "cola": DataSet(
        texts=["sentence"],
        metrics=("matthews_correlation", "accuracy"),
        files={"train": "in_domain_train.tsv", "dev": "*_domain_dev.tsv"},
        columns=dict.fromkeys(("train", "dev"), ("code", "label", "mark", "sentence")),
    ),
    "sst2": DataSet(texts=["sentence"]),
    "mrpc": DataSet(
        texts=["#1 String", "#2 String"],
        label="Quality",
        metrics=_F1,
        files={"train": "msr_paraphrase_train.txt", "dev": "msr_paraphrase_test.txt"},
    ),
    "stsb": DataSet(
        texts=_PAIR, label="score", metrics=SCORE_METRICS, problem="regression"
    ),
    "qqp": DataSet(
        texts=["question1", "question2"],
        label="is_duplicate",
        metrics=_F1,
        skip_malformed=True,  # Line breaks inside questions split some rows in two.
    ),
    "mnli": DataSet(
        texts=_PAIR,
        label="gold_label",
        files={
            "dev": "dev_matched.tsv",
            "dev_mismatched": "dev_mismatched.tsv",
            "test": "test_matched.tsv",
            "test_mismatched": "test_mismatched.tsv",
        },
    ),
    "qnli": DataSet(texts=["question", "sentence"]),
    "rte": DataSet(texts=_PAIR),
    "wnli": DataSet(texts=_PAIR),
}
