# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The nine data sets of GLUE: files, columns, metrics and submission files.

Source: arXiv 1804.07461, and the data and submission formats of gluebenchmark.com.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bert_tf.finetuning.data_sets import DataSet


def _data_set(submission: str, *texts: str, **options: Any) -> DataSet:
    """Returns a data set with one test set and the file to submit for it."""
    submissions = {"test": f"{submission}.tsv"}
    return DataSet(texts=texts, submissions=submissions, **options)


_PAIR = ("sentence1", "sentence2")
_F1, _CORRELATION = ("f1", "accuracy"), ("spearman", "pearson")

# Metrics: table 1 of GLUE; the first is the one in table 1 of the BERT paper.
GLUE: Mapping[str, DataSet] = {
    "cola": _data_set(
        "CoLA",
        "sentence",
        metrics=("matthews_correlation", "accuracy"),
        files={
            "train": [["train.tsv"], ["in_domain_train.tsv"]],
            "dev": [["dev.tsv"], ["in_domain_dev.tsv", "out_of_domain_dev.tsv"]],
        },
        columns=("source", "label", "mark", "sentence"),
        headerless=("train", "dev"),
    ),
    "sst2": _data_set("SST-2", "sentence"),
    "mrpc": _data_set(
        "MRPC",
        "#1 String",
        "#2 String",
        label="Quality",
        metrics=_F1,
        files={
            "train": [["train.tsv"], ["msr_paraphrase_train.txt"]],
            "dev": [["dev.tsv"], ["msr_paraphrase_test.txt"]],
        },
    ),
    "stsb": _data_set(
        "STS-B", *_PAIR, label="score", metrics=_CORRELATION, score_range=(0.0, 5.0)
    ),
    "qqp": _data_set(
        "QQP",
        "question1",
        "question2",
        label="is_duplicate",
        metrics=_F1,
        # Line breaks inside questions split some rows in two.
        skip_malformed=True,
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
