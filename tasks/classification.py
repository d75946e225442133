# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Classification and regression of texts or pairs (paper, section 4.1).

Input: a GLUE data set in its own files, or TSV, CSV or JSONL tables with a header::

    sentence                                               label
    it 's a charming and often affecting journey .         1

    python -m tasks.classification --task=sst2 --data_dir=glue/SST-2 \\
        --init_from=models/base --output=models/sst2

    python -m tasks.classification --train_file=train.csv --dev_file=dev.csv \\
        --text_a=question --text_b=answer --label=verdict \\
        --init_from=models/base --output=models/verdict

A text can have several labels (multi-label classification): in one column with
--label_separator, or in columns of 0 and 1, --label=toxic,spam. The threshold of each
label is tuned on the dev set. Rows without a gold label (empty, "-", -1 or NaN) are
skipped with a warning.

Output: a fine-tuned model directory with dev metrics in metrics.json and
predictions_dev.tsv: id, texts, prediction, its probability, the gold label, and the
probability of each class. A test set (test.tsv in --data_dir, or --test_file) adds
predictions_test.tsv; it needs no labels.

Expected: BERT base has 92.7 % accuracy on the dev set of SST-2 (table 6).

Texts longer than --max_sequence_length are truncated, or with --long_text split into
overlapping windows. Each window is trained with the label of its text, and the logits
of the windows are averaged (window_mean) or maximized (window_max).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from absl import logging

from bert_tf import cli, finetuning, heads
from bert_tf.lazy import lazy_import

sklearn = lazy_import("sklearn")
tf = lazy_import("tensorflow")


def _f1(average: str, gold: np.ndarray, predicted: np.ndarray) -> float:
    # To scikit-learn, a single column of labels is a binary classification.
    labels = [1] if gold.ndim == 2 and gold.shape[1] == 1 else None
    return sklearn.metrics.f1_score(
        gold, predicted, labels=labels, average=average, zero_division=0
    )


# Functions of (gold, predicted): class indices or scores [N], or 0 and 1 for labels
# [N, L].
METRICS: Mapping[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "accuracy": lambda *x: sklearn.metrics.accuracy_score(*x),
    "f1": functools.partial(_f1, "binary"),
    "macro_f1": functools.partial(_f1, "macro"),
    "micro_f1": functools.partial(_f1, "micro"),
    "matthews_correlation": lambda *x: sklearn.metrics.matthews_corrcoef(*x),
    "pearson": lambda *x: finetuning.correlations(*x)["pearson"],
    "spearman": lambda *x: finetuning.correlations(*x)["spearman"],
    "rmse": lambda *x: sklearn.metrics.root_mean_squared_error(*x),
    "mae": lambda *x: sklearn.metrics.mean_absolute_error(*x),
}

# Metrics of own tables, by `problem`.
_TABLE_METRICS = {
    "classification": ("accuracy", "macro_f1"),
    "multi_label": ("micro_f1", "macro_f1"),
    "regression": finetuning.SCORE_METRICS,
}


class Classification(finetuning.TableTask):
    """See the module docstring."""

    kind = "classification"
    benchmarks = finetuning.GLUE
    columns = ("text_a", "label")
    other_flags = ("text_b", "problem", "label_separator")

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Config(finetuning.TablesConfig):
        """Options of `python -m tasks.classification`."""

        task: str = cli.option(
            "", help="GLUE data set.", choices=("", *finetuning.GLUE), common=True
        )
        text_a: str = cli.option("", help="Column of the (first) text.", common=True)
        text_b: str = cli.option("", help="Column of a second text.", common=True)
        label: str = cli.option(
            "", help="Column of the class or score, or columns of 0 and 1.", common=True
        )
        label_separator: str = cli.option("", help="Separator of labels.")
        problem: str = cli.option(
            "auto",
            help="What labels are. auto: classes, or the scores of --task=stsb.",
            choices=("auto", "classification", "regression"),
        )
        class_weight: str = cli.option(
            "",
            help="balanced: all classes have the same weight in the loss.",
            choices=("", "balanced"),
        )
        long_text: str = cli.option(
            "truncate",
            help="Truncate texts above --max_sequence_length, or cut them into windows "
            "and use the mean or maximum of their logits.",
            choices=("truncate", "window_mean", "window_max"),
        )

    @classmethod
    def own_data_set(cls, options: Config) -> finetuning.DataSet:
        """Returns the columns that the flags select; `text` by default."""
        texts = tuple(filter(None, (options.text_a or "text", options.text_b)))
        problem = options.problem
        if options.label_separator and problem != "auto":
            raise ValueError(
                "--label_separator is for several labels in a cell. Omit "
                f"--problem={problem}, or --label_separator."
            )
        if problem != "regression":
            is_multi_label = options.label_separator or "," in options.label
            problem = "multi_label" if is_multi_label else "classification"
        return finetuning.DataSet(
            texts=texts,
            label=options.label,
            metrics=_TABLE_METRICS[problem],
            problem=problem,
            separator=options.label_separator or ",",
        )

    def __init__(self, options, encoder):
        super().__init__(options, encoder)
        pairs, train = len(self.data_set.texts) > 1, self.data["train"]
        self.in_windows = options.long_text.startswith("window")
        if self.in_windows and pairs:
            raise ValueError(
                f"--long_text={options.long_text} requires single texts. For pairs, "
                "use truncate."
            )
        self.labels, details = (), {}
        if self.problem == "regression":
            if options.class_weight:
                raise ValueError("--class_weight requires classes, not scores.")
            # The model is trained on standardized scores.
            values = finetuning.scores(train)
            deviation = values.std().item()
            self.scale = finetuning.ScoreScale(values.mean().item(), deviation)
        else:
            # In the order of the file, also in messages.
            names = map(self.data_set.split_labels, self.gold_labels)
            values = [*dict.fromkeys(itertools.chain(*names))]
            self._check_names(values)
            are_numbers = all(name.isdecimal() for name in values)
            self.labels = tuple(sorted(values, key=int if are_numbers else None))
            if len(columns := self.data_set.label_columns) > 1:
                self.labels = tuple(dict.fromkeys(columns))
            details = {"labels": list(self.labels)}
        if len(set(values)) < (1 if self.problem == "multi_label" else 2):
            raise ValueError(
                f"{train[0].path}: all labels are {train[0].gold!r}. Training needs "
                "different labels."
            )
        self.settings = {"problem": self.problem, "pairs": pairs, **details}
        self.gold = {name: self._read_labels(rows) for name, rows in self.data.items()}

    def classes(self, row):
        is_score = self.problem == "regression"
        return () if is_score else self.data_set.split_labels(row.gold)

    def _check_names(self, names: Sequence[str]) -> None:
        """Warns about labels that are scores or several labels; refuses vectors."""
        path, options, numbers = self.data["train"][0].path, self.options, []
        known = set(names)
        if options.label_separator and names and known <= {"0", "1", "0.0", "1.0"}:
            raise ValueError(
                f"{path}: all labels are 0 or 1. Omit --label_separator. For several "
                "labels, write a column of 0 and 1 for each, and pass --label=a,b,c."
            )
        with contextlib.suppress(ValueError):
            numbers = [float(name.replace(",", ".")) for name in names]
        fractions = [name for name, x in zip(names, numbers) if x != round(x, 0)]
        if fractions and options.problem == "auto":
            logging.warning(
                "%s: the labels are scores, such as %s, but learned as %d classes. "
                "Pass --problem=regression, or classification if they are classes.",
                path, fractions[0], len(names),
            )  # fmt: skip
        parts = {name: re.split(r"\s*[,;|/+&]\s*", name) for name in names}
        joined = [x for x in names if len(parts[x]) > 1 and known.issuperset(parts[x])]
        if joined and not numbers and self.problem != "multi_label":
            logging.warning(
                "%s: %r is a class of its own, beside %s. If it is several labels, "
                "pass their separator as --label_separator.",
                path, joined[0], " and ".join(map(repr, parts[joined[0]])),
            )  # fmt: skip

    def _read_labels(self, rows: Sequence[finetuning.Example]) -> np.ndarray | None:
        """Returns class indices or scores [N], 0 or 1 for labels [N, L], or None."""
        if rows[0].gold is None or self.problem == "regression":
            return finetuning.scores(rows)
        indices = {name: index for index, name in enumerate(self.labels)}
        is_multi_label = self.problem == "multi_label"
        shape = [len(indices)] if is_multi_label else []
        targets = np.zeros([len(rows), *shape], np.float32 if shape else np.int32)
        for number, row in enumerate(rows):
            for name in self.data_set.split_labels(row.gold):
                if name not in indices:
                    raise ValueError(
                        f"{row.location}: label {name!r} is not in the training set, "
                        f"whose labels are {', '.join(self.labels)[:200]}. Labels are "
                        "compared as text. For scores, pass --problem=regression."
                    )
                if is_multi_label:
                    targets[number, indices[name]] = 1
                else:
                    targets[number] = indices[name]
        return targets

    def dataset(self, name: str) -> finetuning.Split:
        """Returns a split of texts, or of windows that weigh 1 in total per text."""
        rows = self.head.encode(*zip(*(row.inputs for row in self.data[name])))
        targets, weights = self.gold[name], None
        if self.options.class_weight and name == "train":
            weights = finetuning.balanced_weights(targets)
        if targets is not None and self.scale:
            targets = self.scale.standardize(targets[:, np.newaxis]).astype(np.float32)
        if self.in_windows:
            source = rows.row.numpy()
            share = np.float32(1 / np.bincount(source)[source])
            # Weights of several labels are [N, L].
            weights = share if weights is None else (weights[source].T * share).T
            targets = None if targets is None else targets[source]
        columns = (None if x is None else tf.constant(x) for x in (targets, weights))
        return finetuning.Split(name, rows, *columns)

    def evaluate(self, split, outputs, decision=None):
        gold, logits = self.gold[split.name], tf.constant(np.stack(outputs), tf.float64)
        if self.in_windows:
            logits = self.head.pool(logits, split.rows.row)  # [N, C]
        decision = decision or {}
        if self.problem == "multi_label" and not decision:
            probabilities = self.head.answers(logits)["probabilities"].numpy()
            decision = {"thresholds": best_thresholds(gold, probabilities)}
        head = self.build_head({**self.settings, **decision})
        answers = heads.to_numpy(head.answers(logits))
        predicted = head.predictions(logits).numpy()
        metrics, report = {}, ""
        if gold is not None:
            for name in self.data_set.metrics:
                metrics[name] = float(METRICS[name](gold, predicted))
            if self.problem == "classification":
                most_frequent = np.bincount(self.gold["train"]).argmax()
                metrics["majority_accuracy"] = float(np.mean(gold == most_frequent))
            report = self._report(gold, predicted)
        return finetuning.Evaluation(metrics, answers, decision, report)

    @classmethod
    def prediction(cls, example, answer, settings, options):
        if "score" in answer:
            return finetuning.Prediction(answer["score"])
        shares = dict(zip(settings["labels"], answer["probabilities"]))
        columns = {f"P({name})": share for name, share in shares.items()}
        if "label" in answer:
            confidence = answer["probabilities"].max()
            return finetuning.Prediction(answer["label"], confidence, columns)
        # Labels are independent: all must be right.
        names = [*filter(None, answer["labels"])]
        confidence = math.prod(p if k in names else 1 - p for k, p in shares.items())
        data_set, gold = cls.find_data_set(options), example.gold
        if gold is not None:  # In the order of the prediction.
            rank = {name: number for number, name in enumerate(settings["labels"])}
            found = sorted(data_set.split_labels(gold), key=lambda x: rank.get(x, -1))
            gold = data_set.separator.join(found)
        value = data_set.separator.join(names)
        return finetuning.Prediction(value, confidence, columns, gold)

    def _report(self, gold: np.ndarray, predicted: np.ndarray) -> str:
        """Returns precision, recall and F1 of each class or label; "" for scores."""
        if not self.labels:
            return ""
        if self.problem == "multi_label":  # A single column would be two classes.
            gold, predicted = (np.pad(x, [(0, 0), (0, 1)]) for x in (gold, predicted))
        return sklearn.metrics.classification_report(
            gold,
            predicted,
            labels=range(len(self.labels)),
            target_names=self.labels,
            digits=4,
            zero_division=0,
        )


# --- Decisions -------------------------------------------------------------------


def best_thresholds(gold: np.ndarray, probabilities: np.ndarray) -> list[float]:
    """Returns the threshold of each label with the highest F1.

    A label is predicted if its probability is above its threshold. Labels without a
    positive text have the threshold 0.5.

    Args:
        gold: 0 or 1 for each label [N, L].
        probabilities: [N, L].
    """
    return [_best_threshold(*column) for column in zip(gold.T, probabilities.T)]


def _best_threshold(gold: np.ndarray, scores: np.ndarray) -> float:
    if not gold.any():
        return 0.5
    precision, recall, values = sklearn.metrics.precision_recall_curve(gold, scores)
    f1 = precision * recall / np.maximum(precision + recall, 1e-12)
    best = values[f1[:-1].argmax()]
    # Halfway to the next lower probability, to be robust to rounding.
    return float(best + scores[scores < best].max(initial=0.0)) / 2


def main(options: Classification.Config | finetuning.PredictConfig) -> None:
    """Fine-tunes, or predicts a file."""
    finetuning.run_task(Classification, options)


if __name__ == "__main__":
    cli.run(main, Classification.Config, predict=finetuning.PredictConfig)
