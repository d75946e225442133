# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Data sets in tables: a known one in its own files, or the user's own tables."""

from __future__ import annotations

import dataclasses

from bert_tf import cli
from bert_tf.finetuning.task import FinetuneConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class TablesConfig(FinetuneConfig):
    """Options of a task that reads a known data set or the user's own tables."""

    data_dir: str = cli.option(
        "",
        help="Directory with the files of --task.",
        common=True,
        resumable=True,
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
