# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""BERT, no NSP, left-to-right & no NSP, + BiLSTM (table 5, section 5.1).

    python -m experiments.pretraining_tasks --records=records --data_dir=data \\
        --output=ablations

Writes pretraining_tasks.md, .svg and .csv to --output. Rerun to resume.
"""

from __future__ import annotations

from bert_tf import cli, lazy

from .ablation import Ablation, AblationConfig

left_to_right = lazy.lazy_import(f"{__package__}.left_to_right")

CLAIM = """The paper: next sentence prediction helps sentence pairs and question
answering. A left-to-right model is worse on all tasks, most of all on MRPC and SQuAD. A
BiLSTM on top of it helps on SQuAD and hurts elsewhere."""

DATA_SETS = ("MNLI", "QNLI", "MRPC", "SST-2", "SQuAD", "NER")
# The paper's scores. It has no NER.
ROWS = {
    "BERT": (84.4, 88.4, 86.7, 92.7, 88.5, None),
    "no NSP": (83.9, 84.9, 86.5, 92.6, 87.9, None),
    "LTR & no NSP": (82.1, 84.3, 77.5, 92.1, 77.8, None),
    "+ BiLSTM": (82.1, 84.1, 75.7, 91.6, 84.9, None),
}


def main(options: AblationConfig) -> None:
    """Trains what is not finished, and writes the report."""
    title = "Pre-training tasks (table 5)"
    study = Ablation(options, "pretraining_tasks", title, CLAIM, DATA_SETS)
    encoder = {"encoder_class": left_to_right.LeftToRightBackbone}
    causal = {**encoder, **left_to_right.LEFT_TO_RIGHT}
    bilstm = {"encoder_class": left_to_right.LeftToRightBiLstmBackbone}
    pretraining = {}, {"next_sentence_prediction": False}, causal, causal
    rows = zip(ROWS.items(), pretraining, ({}, {}, {}, bilstm))
    for (row, scores), changes, settings in study.rows(rows):
        path = study.pretrain(**changes).path
        for data_set, paper in zip(DATA_SETS, scores):
            study.fine_tune(row, data_set, path, paper, **settings)


if __name__ == "__main__":
    cli.run(main, AblationConfig)
