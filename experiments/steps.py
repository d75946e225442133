# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Masked LM and left-to-right after a fifth to all of the steps (figure 5).

    python -m experiments.steps --records=records --data_dir=data --output=ablations

Writes steps.md, steps.svg and steps.csv to --output. Rerun to resume. As in the paper,
the checkpoints are those of one training per line.
"""

from __future__ import annotations

from bert_tf import cli, lazy

from .ablation import SHARES, Ablation, AblationConfig

left_to_right = lazy.lazy_import(f"{__package__}.left_to_right")

CLAIM = """The paper, on MNLI: accuracy improves until the end, by 1.0 points in the
second half of the steps. The masked LM is better than the left-to-right LM almost from
the start."""


def main(options: AblationConfig) -> None:
    """Trains what is not finished, and writes the report."""
    title = "Number of steps (figure 5)"
    study = Ablation(options, "steps", title, CLAIM, ["MNLI"])
    study.table.x_label = "% of the pre-training steps"
    encoder = left_to_right.LeftToRightBackbone
    lines = {
        "masked LM": {},
        "left-to-right": {"encoder_class": encoder, **left_to_right.LEFT_TO_RIGHT},
    }
    for line, changes in study.rows(lines.items()):
        model = study.pretrain(**changes)
        for share in range(1, SHARES + 1):
            step, row = study.steps // SHARES * share, 100 // SHARES * share
            path = model.path / "checkpoints" / f"step-{step}"
            study.fine_tune(row, "MNLI", path, column=f"{{}}, {line}")


if __name__ == "__main__":
    cli.run(main, AblationConfig)
