# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The nine data sets of GLUE: their files, columns, metrics, and what is submitted.

Source: arXiv 1804.07461, and the files that gluebenchmark.com hands out and takes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence


@dataclasses.dataclass(frozen=True)
class DataSet:
    """Files and columns of a data set.

    Attributes:
        text_a, text_b, label: Names of the columns; no `text_b` for single sentences.
        metrics: Names of metrics of the task; the first chooses the epoch.
        problem: `"classification"` or `"regression"`.
        files: For each split the alternatives, each one or several files.
        columns: Names of the columns where train and dev have no header.
        skip_bad_rows: Whether the training file is known to have malformed rows.
        submissions: For each split without labels, the file that the server takes.
    """

    text_a: str
    text_b: str = ""
    label: str = "label"
    metrics: Sequence[str] = ("accuracy",)
    problem: str = "classification"
    files: Mapping[str, Sequence[Sequence[str]]] = dataclasses.field(
        default_factory=lambda: {
            "train": [["train.tsv"]],
            "dev": [["dev.tsv"]],
            "test": [["test.tsv"]],
        }
    )
    columns: Sequence[str] = ()
    skip_bad_rows: bool = False
    submissions: Mapping[str, str] = dataclasses.field(default_factory=dict)


# What a score of STS-B may be.
SCORES = (0.0, 5.0)

# Metrics: table 1 there; the first is the one in table 1 of BERT's paper.
GLUE: Mapping[str, DataSet] = {
    "cola": DataSet(
        text_a="sentence",
        metrics=("matthews_correlation", "accuracy"),
        files={
            "train": [["train.tsv"], ["in_domain_train.tsv"]],
            "dev": [["dev.tsv"], ["in_domain_dev.tsv", "out_of_domain_dev.tsv"]],
            "test": [["test.tsv"]],
        },
        columns=("source", "label", "mark", "sentence"),
        submissions={"test": "CoLA.tsv"},
    ),
    "sst2": DataSet(
        text_a="sentence",
        submissions={"test": "SST-2.tsv"},
    ),
    "mrpc": DataSet(
        text_a="#1 String",
        text_b="#2 String",
        label="Quality",
        metrics=("f1", "accuracy"),
        files={
            "train": [["train.tsv"], ["msr_paraphrase_train.txt"]],
            "dev": [["dev.tsv"], ["msr_paraphrase_test.txt"]],
            "test": [["test.tsv"]],
        },
        submissions={"test": "MRPC.tsv"},
    ),
    "stsb": DataSet(
        text_a="sentence1",
        text_b="sentence2",
        label="score",
        metrics=("spearman", "pearson"),
        problem="regression",
        submissions={"test": "STS-B.tsv"},
    ),
    "qqp": DataSet(
        text_a="question1",
        text_b="question2",
        label="is_duplicate",
        metrics=("f1", "accuracy"),
        # Line breaks within questions cut some rows in two.
        skip_bad_rows=True,
        submissions={"test": "QQP.tsv"},
    ),
    "mnli": DataSet(
        text_a="sentence1",
        text_b="sentence2",
        label="gold_label",
        files={
            "train": [["train.tsv"]],
            "dev": [["dev_matched.tsv"]],
            "dev_mismatched": [["dev_mismatched.tsv"]],
            "test": [["test_matched.tsv"]],
            "test_mismatched": [["test_mismatched.tsv"]],
            # Of entailment too, to analyse models of MNLI.
            "test_diagnostic": [["diagnostic.tsv"], ["../diagnostic/diagnostic.tsv"]],
        },
        submissions={
            "test": "MNLI-m.tsv",
            "test_mismatched": "MNLI-mm.tsv",
            "test_diagnostic": "AX.tsv",
        },
    ),
    "qnli": DataSet(
        text_a="question",
        text_b="sentence",
        submissions={"test": "QNLI.tsv"},
    ),
    "rte": DataSet(
        text_a="sentence1",
        text_b="sentence2",
        submissions={"test": "RTE.tsv"},
    ),
    "wnli": DataSet(
        text_a="sentence1",
        text_b="sentence2",
        submissions={"test": "WNLI.tsv"},
    ),
}
