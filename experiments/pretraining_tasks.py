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

ROWS = ("BERT", "no NSP", "LTR & no NSP", "+ BiLSTM")
PAPER = {
    "MNLI": (84.4, 83.9, 82.1, 82.1),
    "QNLI": (88.4, 84.9, 84.3, 84.1),
    "MRPC": (86.7, 86.5, 77.5, 75.7),
    "SST-2": (92.7, 92.6, 92.1, 91.6),
    "SQuAD": (88.5, 87.9, 77.8, 84.9),
    "NER": (None,) * 4,
}


def main(options: AblationConfig) -> None:
    """Trains what is not finished, and writes the report."""
    title = "Pre-training tasks (table 5)"
    study = Ablation(options, "pretraining_tasks", title, CLAIM)
    encoder = {"encoder_class": left_to_right.LeftToRightBackbone}
    bilstm = {"encoder_class": left_to_right.LeftToRightBiLstmBackbone}
    no_nsp = {"next_sentence_prediction": False}
    changes = {}, no_nsp, {**encoder, **left_to_right.LEFT_TO_RIGHT}
    for index, row in study.chosen(ROWS):
        path = study.pretrain(**changes[min(index, 2)]).path
        for data_set, paper in PAPER.items():
            settings = bilstm if index == 3 else {}
            study.fine_tune(row, data_set, path, paper[index], **settings)
        study.write()


if __name__ == "__main__":
    cli.run(main, AblationConfig)
