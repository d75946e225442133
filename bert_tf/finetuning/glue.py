# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The nine data sets of GLUE: files, columns, metrics and submission files.

Source: arXiv 1804.07461, and the data and submission formats of gluebenchmark.com.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from bert_tf.finetuning.data_sets import DataSet


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassificationDataSet(DataSet):
    """A data set of labeled texts or pairs of texts.

    Attributes:
        metrics: Names of the metrics; the first selects the best epoch.
        score_range: Minimum and maximum label of a regression; None for classes.
        submissions: For each split without labels, the file to submit.
    """

    metrics: Sequence[str] = ("accuracy",)
    score_range: tuple[float, float] | None = None
    submissions: Mapping[str, str] = dataclasses.field(default_factory=dict)


# Metrics: table 1 of GLUE; the first is the one in table 1 of the BERT paper.
GLUE: Mapping[str, ClassificationDataSet] = {
    "cola": ClassificationDataSet(
        texts=("sentence",),
        metrics=("matthews_correlation", "accuracy"),
        files={
            "train": [["train.tsv"], ["in_domain_train.tsv"]],
            "dev": [["dev.tsv"], ["in_domain_dev.tsv", "out_of_domain_dev.tsv"]],
            "test": [["test.tsv"]],
        },
        columns=("source", "label", "mark", "sentence"),
        headerless=("train", "dev"),
        submissions={"test": "CoLA.tsv"},
    ),
    "sst2": ClassificationDataSet(
        texts=("sentence",), submissions={"test": "SST-2.tsv"}
    ),
    "mrpc": ClassificationDataSet(
        texts=("#1 String", "#2 String"),
        label="Quality",
        metrics=("f1", "accuracy"),
        files={
            "train": [["train.tsv"], ["msr_paraphrase_train.txt"]],
            "dev": [["dev.tsv"], ["msr_paraphrase_test.txt"]],
            "test": [["test.tsv"]],
        },
        submissions={"test": "MRPC.tsv"},
    ),
    "stsb": ClassificationDataSet(
        texts=("sentence1", "sentence2"),
        label="score",
        metrics=("spearman", "pearson"),
        score_range=(0.0, 5.0),
        submissions={"test": "STS-B.tsv"},
    ),
    "qqp": ClassificationDataSet(
        texts=("question1", "question2"),
        label="is_duplicate",
        metrics=("f1", "accuracy"),
        # Line breaks inside questions split some rows in two.
        skip_malformed=True,
        submissions={"test": "QQP.tsv"},
    ),
    "mnli": ClassificationDataSet(
        texts=("sentence1", "sentence2"),
        label="gold_label",
        files={
            "train": [["train.tsv"]],
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
    "qnli": ClassificationDataSet(
        texts=("question", "sentence"), submissions={"test": "QNLI.tsv"}
    ),
    "rte": ClassificationDataSet(
        texts=("sentence1", "sentence2"), submissions={"test": "RTE.tsv"}
    ),
    "wnli": ClassificationDataSet(
        texts=("sentence1", "sentence2"), submissions={"test": "WNLI.tsv"}
    ),
}
