# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Layers, hidden size, heads (table 6, section 5.2).

    python -m experiments.model_size --records=records --data_dir=data \\
        --output=ablations

Writes model_size.md, model_size.svg and model_size.csv to --output. Rerun to resume.
"""

from __future__ import annotations

from bert_tf import cli

from .ablation import Ablation, AblationConfig

CLAIM = """The paper: larger models are better on all data sets, even on the small MRPC.
Rows: layers/hidden size/heads, the paper's in parentheses. Perplexity is that of
masked LM on held-out text."""

DATA_SETS = ("MNLI", "MRPC", "SST-2")
SMALL = ("1/256/4", "2/256/1", "2/256/4", "4/256/4", "4/384/6", "8/384/6")
# The paper's sizes, with perplexity, MNLI-m, MRPC, SST-2.
BASE = {
    "3/768/12": (5.84, 77.9, 79.8, 88.4),
    "6/768/3": (5.24, 80.6, 82.2, 90.7),
    "6/768/12": (4.68, 81.9, 84.8, 91.3),
    "12/768/12": (3.99, 84.4, 86.7, 92.9),
    "12/1024/16": (3.54, 85.7, 86.9, 93.3),
    "24/1024/16": (3.23, 86.6, 87.8, 93.7),
}


def main(options: AblationConfig) -> None:
    """Trains what is not finished, and writes the report."""
    title = "Model size (table 6)"
    study = Ablation(options, "model_size", title, CLAIM, DATA_SETS)
    study.table.lower_is_better = frozenset({"perplexity"})
    sizes = BASE if options.scale == "base" else SMALL
    for size, (theirs, paper) in study.rows(zip(sizes, BASE.items())):
        row = size if size == theirs else f"{size} ({theirs})"
        model = study.pretrain(size=size)
        study.table.add(row, "perplexity", [model.score], paper[0])
        for data_set, score in zip(DATA_SETS, paper[1:]):
            study.fine_tune(row, data_set, model.path, score)


if __name__ == "__main__":
    cli.run(main, AblationConfig)
