# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Six mixtures of [MASK], unchanged and random tokens (table 8, appendix C.2).

    python -m experiments.masking --records=records --data_dir=data --output=ablations

Writes masking.md, masking.svg and masking.csv to --output. Rerun to resume.
"""

from __future__ import annotations

from bert_tf import cli

from .ablation import Ablation, AblationConfig

CLAIM = """The paper: fine-tuning is robust to the mixture; frozen features suffer if
selected tokens are always [MASK]. Rows: percentages of the selected tokens that are
shown as [MASK], unchanged, and as a random token."""

# The mixtures, with the paper's MNLI, NER fine-tuned, NER with features.
ROWS = {
    (80, 10, 10): (84.2, 95.4, 94.9),
    (100, 0, 0): (84.3, 94.9, 94.0),
    (80, 0, 20): (84.1, 95.2, 94.6),
    (80, 20, 0): (84.4, 95.2, 94.7),
    (0, 20, 80): (83.7, 94.8, 94.6),
    (0, 0, 100): (83.6, 94.9, 94.6),
}


def main(options: AblationConfig) -> None:
    """Trains what is not finished, and writes the report."""
    title = "Masking (table 8)"
    study = Ablation(options, "masking", title, CLAIM, ["MNLI", "NER"])
    for mixture, paper in study.rows(ROWS.items()):
        row, (mask, _, random) = "/".join(map(str, mixture)), mixture
        rates = {"mask_token_rate": mask / 100, "random_token_rate": random / 100}
        path = study.pretrain(**rates).path
        study.fine_tune(row, "MNLI", path, paper[0])
        study.fine_tune(row, "NER", path, paper[1])
        frozen = {"features": "concat_last_four", "column": "{}, features"}
        study.fine_tune(row, "NER", path, paper[2], **frozen)


if __name__ == "__main__":
    cli.run(main, AblationConfig)
