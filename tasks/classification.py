# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Text or sentence-pair classification and regression (paper, section 4.1).

Input: a GLUE data set in its own files, or TSV, CSV or JSONL tables with a header::

    sentence                                               label
    it 's a charming and often affecting journey .         1

    python -m tasks.classification --task=sst2 --data_dir=glue/SST-2 \\
        --init_from=models/base --output=models/sst2

    python -m tasks.classification --train_file=train.csv --dev_file=dev.csv \\
        --text_a=question --text_b=answer --label=verdict \\
        --init_from=models/base --output=models/verdict

Output: a fine-tuned model directory with dev metrics in metrics.json and
predictions_dev.tsv (.csv or .jsonl for data in that format): index, prediction, and the
probability of each class. A test set (test.tsv in --data_dir, or --test_file) adds
predictions_test.tsv; it needs no labels. For GLUE test sets, the file to submit is
written too, e.g. SST-2.tsv.

Expected: BERT base has 92.7 % accuracy on the dev set of SST-2 (table 6).

Texts longer than --max_sequence_length are truncated, or keep their first quarter and
their end (--long_text=head_tail), or are split into overlapping windows. Each window is
trained with the label of its text, and the logits of the windows are averaged
(window_mean) or maximized (window_max).
"""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_tf import cli, data, finetuning, modeling, serving, text
from bert_tf.lazy import lazy_import

scipy = lazy_import("scipy")
sklearn = lazy_import("sklearn")
tf = lazy_import("tensorflow")

if TYPE_CHECKING:
    import keras

    from bert_tf.finetuning import Row, Split

# Functions of (gold, predicted): class indices, or scores. The correlation with a
# constant is NaN in SciPy and 0 here.
METRICS: Mapping[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "accuracy": lambda *x: sklearn.metrics.accuracy_score(*x),
    "f1": lambda *x: sklearn.metrics.f1_score(*x, zero_division=0),
    "macro_f1": lambda *x: sklearn.metrics.f1_score(
        *x, average="macro", zero_division=0
    ),
    "matthews_correlation": lambda *x: sklearn.metrics.matthews_corrcoef(*x),
    "pearson": lambda *x: np.nan_to_num(scipy.stats.pearsonr(*x).statistic),
    "spearman": lambda *x: np.nan_to_num(scipy.stats.spearmanr(*x).statistic),
}


class Classification(finetuning.Task):
    """See the module docstring."""

    kind = "classification"

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Config(finetuning.TablesConfig):
        """Options of `python -m tasks.classification`."""

        task: str = cli.option(
            "",
            help="GLUE data set in --data_dir.",
            choices=("", *finetuning.GLUE),
            common=True,
        )
        text_a: str = cli.option(
            "", help="Column of the text, or of the first of a pair.", common=True
        )
        text_b: str = cli.option(
            "", help="Column of the second text of a pair.", common=True
        )
        label: str = cli.option("", help="Column of the class or score.", common=True)
        problem: str = cli.option(
            "auto",
            help="Whether labels are classes or numbers. auto follows --task; without "
            "--task, labels are classes.",
            choices=("auto", "classification", "regression"),
        )
        long_text: str = cli.option(
            "truncate",
            help="How to read texts longer than --max_sequence_length: without their "
            "end (truncate) or middle (head_tail), or in windows with mean or maximum "
            "logits (window_mean, window_max).",
            choices=("truncate", "head_tail", "window_mean", "window_max"),
        )

    def __init__(self, options: Config, tokenizer: text.Tokenizer):
        super().__init__(options, tokenizer)
        is_regression = options.problem == "regression"
        metrics = ("spearman", "pearson") if is_regression else ("accuracy", "macro_f1")
        own = finetuning.ClassificationDataSet(
            texts=tuple(filter(None, (options.text_a, options.text_b))),
            label=options.label,
            metrics=metrics,
        )
        self.data_set, self.rows = finetuning.read_data_set(
            options,
            finetuning.GLUE,
            own,
            required=("text_a", "label"),
            optional=("text_b", "problem"),
            column_flags="--text_a, --text_b and --label, or with --task",
        )
        self.evaluation_splits = [name for name in self.rows if name != "train"]
        self.metrics = self.data_set.metrics
        self.metric = self.metrics[0]
        pairs = len(self.data_set.texts) > 1
        self.in_windows = options.long_text.startswith("window")
        if self.in_windows and pairs:
            raise ValueError(
                f"--long_text={options.long_text} requires single texts. For pairs, "
                "use truncate or head_tail."
            )
        train = self.rows["train"]
        if is_regression or self.data_set.score_range:
            self.labels = ()
            # The model is trained on standardized scores.
            scores = [_score(row) for row in train]
            _check_labels_differ(train, scores)
            self.mean, self.deviation = float(np.mean(scores)), float(np.std(scores))
            details = {"mean": self.mean, "deviation": self.deviation}
        else:
            self.labels = _class_names(train)
            details = {"labels": list(self.labels)}
            self.target_kind = "class"
        problem = "classification" if self.labels else "regression"
        self.head = {"problem": problem, "pairs": pairs, **details}
        self.gold = {name: self._read_labels(rows) for name, rows in self.rows.items()}

    def model(self, backbone: modeling.BertBackbone) -> keras.Model:
        return modeling.SequenceClassifier(backbone, num_classes=len(self.labels) or 1)

    def preprocess(self, *texts: tf.Tensor) -> Any:
        """Returns the encoder's inputs [N, S], or the windows of the texts."""
        return serving.read_texts(
            self.tokenizer,
            *texts,
            max_sequence_length=self.options.max_sequence_length,
            long_text=self.options.long_text,
        )

    def dataset(self, name: str) -> Split:
        """Returns a split of texts, or of windows that weigh 1 in total per text.

        The split's `source` is the index of the text of each example.
        """
        columns = [list(c) for c in zip(*(row.texts for row in self.rows[name]))]
        if self.in_windows:
            windows = self.preprocess(tf.constant(*columns))
            inputs, source = windows.ragged_inputs(), windows.row.numpy()
            weights = tf.constant(1 / np.bincount(source)[source], tf.float32)
        else:
            inputs = finetuning.encode(self.preprocess, *columns)
            source, weights = np.arange(len(columns[0])), None
        targets = self.gold[name]
        if targets is not None:
            if not self.labels:
                targets = (targets[:, np.newaxis] - self.mean) / self.deviation
            targets = tf.constant(targets[source])
        return finetuning.Split(name, source, inputs, targets, weights)

    def evaluate(self, split: Split, outputs: Sequence[np.ndarray]) -> dict[str, float]:
        logits, gold = self._text_logits(split, outputs), self.gold[split.name]
        predicted = logits.argmax(axis=1) if self.labels else logits[:, 0]
        return {m: float(METRICS[m](gold, predicted)) for m in self.metrics}

    def majority_baseline(self, split: Split) -> float:
        gold, metric = self.gold[split.name], METRICS[self.metric]
        constants = (np.full_like(gold, index) for index in range(len(self.labels)))
        return max((float(metric(gold, answer)) for answer in constants), default=0.0)

    def gold_and_predicted(
        self, split: Split, outputs: Sequence[np.ndarray]
    ) -> tuple[Sequence, Sequence]:
        gold, predicted = self.gold[split.name], self._predictions(split, outputs)
        if self.labels:
            return [self.labels[index] for index in gold], predicted
        return gold.tolist(), predicted

    def write_predictions(
        self, split: Split, outputs: Sequence[np.ndarray], folder: pathlib.Path
    ) -> pathlib.Path:
        predictions = self._predictions(split, outputs)
        if not self.labels:
            predictions = [round(score, 6) for score in predictions]
        rows = [{"index": i, "prediction": p} for i, p in enumerate(predictions)]
        self._write_submission(split.name, rows, folder)
        if self.labels:
            logits = self._text_logits(split, outputs)
            probabilities = np.round(scipy.special.softmax(logits, axis=1), 6).tolist()
            names = [f"P({label})" for label in self.labels]
            for row, values in zip(rows, probabilities, strict=True):
                row |= zip(names, values, strict=True)
        suffix = self.rows[split.name][0].path.suffix
        suffix = suffix if suffix in (".csv", ".jsonl") else ".tsv"
        path = folder / f"predictions_{split.name}{suffix}"
        data.write_table(path, rows)
        return path

    def serve(self, model: keras.Model) -> dict[str, serving.Signature]:
        """Returns `serving.classification_signatures`."""
        return serving.classification_signatures(
            model, self.preprocess, self.head, self.options.long_text
        )

    # --- Outputs -----------------------------------------------------------------

    def _text_logits(self, split: Split, outputs: Sequence[np.ndarray]) -> np.ndarray:
        """Returns the logits of the texts of a split [N, C] float64."""
        logits = np.stack(outputs).astype(np.float64)
        long_text = self.options.long_text
        return serving.pool_windows(logits, split.source, long_text).numpy()

    def _predictions(
        self, split: Split, outputs: Sequence[np.ndarray]
    ) -> list[str] | list[float]:
        """Returns the predicted class, or the score in the unit of the data."""
        logits = self._text_logits(split, outputs)
        if self.labels:
            return [self.labels[index] for index in logits.argmax(axis=1)]
        return (logits[:, 0] * self.deviation + self.mean).tolist()

    def _write_submission(
        self, split: str, rows: Sequence[Mapping[str, Any]], folder: pathlib.Path
    ) -> None:
        """Writes the file that GLUE's server accepts, if the split has one."""
        name = self.data_set.submissions.get(split)
        if not name or self.options.test_file:
            return
        if self.data_set.score_range:
            low, high = self.data_set.score_range
            scores = [min(max(row["prediction"], low), high) for row in rows]
            rows = [row | {"prediction": s} for row, s in zip(rows, scores)]
        data.write_table(folder / name, rows)

    # --- Labels ------------------------------------------------------------------

    def _read_labels(self, rows: Sequence[Row]) -> np.ndarray | None:
        """Returns class indices or scores [N]; None without labels."""
        if rows[0].label is None:
            return None
        if not self.labels:
            return np.array([_score(row) for row in rows], np.float32)
        indices = {label: index for index, label in enumerate(self.labels)}
        for row in rows:
            if row.label not in indices:
                raise ValueError(
                    f"{row.location}: label {row.label!r} is not in the training set, "
                    f"whose labels are {', '.join(self.labels)}."
                )
        return np.array([indices[row.label] for row in rows], np.int32)


def _class_names(rows: Sequence[Row]) -> tuple[str, ...]:
    for row in rows:
        if not row.label:
            raise ValueError(f"{row.location}: the label is empty.")
    names = {row.label for row in rows}
    _check_labels_differ(rows, names)
    are_numbers = all(name.isdecimal() for name in names)
    return tuple(sorted(names, key=int if are_numbers else None))


def _check_labels_differ(rows: Sequence[Row], labels: Collection[str | float]) -> None:
    if len(set(labels)) == 1:
        raise ValueError(
            f"{rows[0].path}: all labels are {rows[0].label!r}. Training needs at "
            "least two different labels."
        )


def _score(row: Row) -> float:
    try:
        score = float(row.label)
        if math.isfinite(score):
            return score
    except ValueError:
        pass
    raise ValueError(
        f"{row.location}: a score must be a finite number. Received: {row.label!r}"
    )


def main(*grid: Classification.Config) -> None:
    """Fine-tunes and evaluates each configuration; see `finetuning.fine_tune`."""
    finetuning.fine_tune(Classification, *grid)


if __name__ == "__main__":
    cli.run(main, Classification.Config)
