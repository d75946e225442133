# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning and six kinds of frozen features (table 7, section 5.3).

    python -m experiments.features --records=records --data_dir=data --output=ablations

Writes features.md, features.svg and features.csv to --output. Rerun to resume.
"""

from __future__ import annotations

from bert_tf import cli

from .ablation import Ablation, AblationConfig

CLAIM = """The paper: two BiLSTM layers on the concatenation of the last four layers are
0.3 points below fine-tuning; the embeddings alone are far below."""

# Values of --features of tasks.tagging, with the paper's F1 on CoNLL-2003, dev.
ROWS = {
    "": 96.4,
    "embeddings": 91.0,
    "second_to_last": 95.6,
    "last": 94.9,
    "weighted_sum_last_four": 95.9,
    "concat_last_four": 96.1,
    "weighted_sum_all": 95.5,
}


def main(options: AblationConfig) -> None:
    """Trains what is not finished, and writes the report."""
    study = Ablation(options, "features", "Features (table 7)", CLAIM, ["NER"])
    for features, paper in study.rows(ROWS.items()):
        row, path = features.replace("_", " ") or "fine-tuned", study.pretrain().path
        study.fine_tune(row, "NER", path, paper, features=features)


if __name__ == "__main__":
    cli.run(main, AblationConfig)
