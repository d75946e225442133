# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The ablation experiments of the BERT paper, with the paper's results.

Tables 5 to 8 and figure 5 of arXiv 1810.04805, all on dev sets. An `Experiment` is a
table: a row defines a pre-training run, a column the data set to fine-tune on. Options
are those of `bert_tf.training.PretrainConfig` and of the tasks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.training import PretrainConfig


@dataclasses.dataclass(frozen=True)
class Row:
    """A configuration of pre-training and fine-tuning.

    Attributes:
        name: Name in the table.
        pretrain: Pre-training options that differ from the scale's.
        finetune: Fine-tuning options that differ from the task's defaults.
        encoder: A name of `ablations.ENCODERS`.
        share: Fraction of the pre-training steps after which the weights are taken.
        line: In line plots, the line that the row is a point of.
        x: In line plots, the position on the x axis.
        against: Name of the row to compare with; the first row if it is empty or not
            run.
    """

    name: str
    pretrain: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    finetune: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    encoder: str = "bert"
    share: float = 1.0
    line: str = ""
    x: float = 0.0
    against: str = ""


@dataclasses.dataclass(frozen=True)
class Column:
    """A score for all rows.

    Attributes:
        data_set: Data set of the paper to fine-tune on; empty for the perplexity of
            pre-training on held-out documents.
        name: Name in the table.
        paper: The paper's values, one per row; empty if it has none.
        finetune: Fine-tuning options that differ from the task's defaults.
    """

    data_set: str
    name: str
    paper: Sequence[float] = ()
    finetune: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def lower_is_better(self) -> bool:
        return not self.data_set


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A table of the paper.

    Attributes:
        title: Title in the report.
        source: Table, figure or section of the paper.
        rows: Configurations.
        columns: Scores.
        claim: The paper's conclusion.
        x_label: Label of the x axis; empty if the rows are not points of lines.
    """

    title: str
    source: str
    rows: Sequence[Row]
    columns: Sequence[Column]
    claim: str
    x_label: str = ""


# --- Scales ----------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Scale:
    """Size of the models and length of pre-training.

    Attributes:
        pretrain: Options of all pre-training runs. Options of a row take precedence.
        warmup_share: Fraction of the steps used for warm-up.
        sizes: Layers/hidden size/heads for the rows of table 6.
    """

    pretrain: Mapping[str, Any]
    warmup_share: float
    sizes: Sequence[str]


SCALES: Mapping[str, Scale] = {
    # A third of the paper's layers and width. 52 million tokens in rows of 64: enough
    # to compare two texts with each other, which a width of 64 does not learn.
    "small": Scale(
        pretrain={
            **PretrainConfig.RECIPES["short"],
            "size": "4/256/4",
            "batch_size": 128,
            "steps": 6400,
        },
        warmup_share=0.05,
        sizes=("1/256/4", "2/256/1", "2/256/4", "4/256/4", "4/384/6", "8/384/6"),
    ),
    "paper": Scale(
        pretrain={
            "size": "12/768/12",
            "batch_size": 256,
            "steps": 1_000_000,
            "learning_rate": 1e-4,
        },
        warmup_share=0.01,
        sizes=(
            "3/768/12",
            "6/768/3",
            "6/768/12",
            "12/768/12",
            "12/1024/16",
            "24/1024/16",
        ),
    ),
}

# --- Experiments -----------------------------------------------------------------

_NO_NEXT_SENTENCE = {"next_sentence_weight": 0.0}
# Predict every token from those to its left.
_LEFT_TO_RIGHT = {
    "mask_selection_rate": 1.0,
    "mask_token_rate": 0.0,
    "random_token_rate": 0.0,
    "next_sentence_weight": 0.0,
}

# Percentages of the selected tokens: replaced by [MASK], unchanged, random token.
_MIXTURES = (
    (80, 10, 10),
    (100, 0, 0),
    (80, 0, 20),
    (80, 20, 0),
    (0, 20, 80),
    (0, 0, 100),
)
_SELECTION_RATES = (15, 5, 30, 40)

# Number of evenly spaced checkpoints for figure 5.
EVALUATIONS = 5


def _mixture(mask: int, random: int) -> dict[str, float]:
    rates = {"mask_token_rate": mask / 100, "random_token_rate": random / 100}
    usual = {"mask_token_rate": 0.8, "random_token_rate": 0.1}
    return {} if rates == usual else rates


def experiments(scale: Scale) -> dict[str, Experiment]:
    """Returns all experiments by name."""
    base = scale.pretrain["size"]
    hidden_size = int(base.split("/")[1])
    base_rate = round(100 * scale.pretrain.get("mask_selection_rate", 0.15))
    shares = [(i + 1) / EVALUATIONS for i in range(EVALUATIONS)]

    def features(layers: str) -> dict[str, Any]:
        # LSTMs are as wide as the encoder, as in the paper. The learning rate suits
        # weights that are all new.
        return {"features": layers, "lstm_units": hidden_size, "learning_rate": 1e-3}

    return {
        "pretraining_tasks": Experiment(
            "Pre-training tasks",
            "table 5",
            rows=(
                Row("BERT"),
                Row("no NSP", _NO_NEXT_SENTENCE),
                Row(
                    "LTR & no NSP",
                    _LEFT_TO_RIGHT,
                    encoder="left_to_right",
                    against="no NSP",
                ),
                Row(
                    "+ BiLSTM",
                    _LEFT_TO_RIGHT,
                    encoder="left_to_right_bilstm",
                    against="LTR & no NSP",
                ),
            ),
            columns=(
                Column("MNLI", "MNLI-m", (84.4, 83.9, 82.1, 82.1)),
                Column("QNLI", "QNLI", (88.4, 84.9, 84.3, 84.1)),
                Column("MRPC", "MRPC", (86.7, 86.5, 77.5, 75.7)),
                Column("SST-2", "SST-2", (92.7, 92.6, 92.1, 91.6)),
                Column("SQuAD", "SQuAD F1", (88.5, 87.9, 77.8, 84.9)),
                Column("NER", "NER"),
            ),
            claim="Next sentence prediction helps sentence pairs and question "
            "answering. A left-to-right model is worse on all tasks, most of all "
            "on MRPC and SQuAD. A BiLSTM on top helps on SQuAD and hurts elsewhere.",
        ),
        "steps": Experiment(
            "Number of steps",
            "figure 5",
            rows=tuple(
                Row(
                    f"{line}, {share:.0%} of the steps",
                    pretrain,
                    encoder=encoder,
                    share=share,
                    line=line,
                    x=100 * share,
                    against=f"MLM, {share:.0%} of the steps"
                    if line == "LTR"
                    else "MLM, 100% of the steps",
                )
                for line, pretrain, encoder in (
                    ("MLM", {}, "bert"),
                    ("LTR", _LEFT_TO_RIGHT, "left_to_right"),
                )
                for share in shares
            ),
            columns=(Column("MNLI", "MNLI-m"),),
            claim="Accuracy improves until the end, by 1.0 points in the second half. "
            "The masked LM is better than the left-to-right LM almost from the start.",
            x_label="% of the pre-training steps",
        ),
        "model_size": Experiment(
            "Model size",
            "table 6",
            rows=tuple(
                Row(
                    f"{size} ({'/'.join(paper)})",
                    {} if size == base else {"size": size},
                )
                for size, paper in zip(
                    scale.sizes,
                    (size.split("/") for size in SCALES["paper"].sizes),
                    strict=True,
                )
            ),
            columns=(
                Column("", "perplexity", (5.84, 5.24, 4.68, 3.99, 3.54, 3.23)),
                Column("MNLI", "MNLI-m", (77.9, 80.6, 81.9, 84.4, 85.7, 86.6)),
                Column("MRPC", "MRPC", (79.8, 82.2, 84.8, 86.7, 86.9, 87.8)),
                Column("SST-2", "SST-2", (88.4, 90.7, 91.3, 92.9, 93.3, 93.7)),
            ),
            claim="Larger models are better on all data sets, even on the small MRPC. "
            "Rows: layers/hidden size/heads; the paper's in parentheses.",
        ),
        "masking": Experiment(
            "Masking",
            "table 8",
            rows=tuple(
                Row(f"{mask}/{same}/{random}", _mixture(mask, random))
                for mask, same, random in _MIXTURES
            ),
            columns=(
                Column("MNLI", "MNLI", (84.2, 84.3, 84.1, 84.4, 83.7, 83.6)),
                Column("NER", "NER", (95.4, 94.9, 95.2, 95.2, 94.8, 94.9)),
                Column(
                    "NER",
                    "NER, features",
                    (94.9, 94.0, 94.6, 94.7, 94.6, 94.6),
                    features("concat_last_four"),
                ),
            ),
            claim="Fine-tuning is robust to the masking strategy. With features, "
            "always using [MASK] is worst. Rows: percentages of the selected tokens "
            "replaced by [MASK], unchanged, and replaced by a random token.",
        ),
        "selection_rate": Experiment(
            "Fraction of tokens to predict",
            "section 3.1, which uses 15 % without a comparison",
            rows=tuple(
                Row(
                    f"{rate} %",
                    {} if rate == base_rate else {"mask_selection_rate": rate / 100},
                    line="80/10/10",
                    x=rate,
                )
                for rate in _SELECTION_RATES
            ),
            columns=(Column("MNLI", "MNLI"), Column("NER", "NER")),
            claim="None. The paper uses 15 %.",
            x_label="% of the tokens predicted",
        ),
        "features": Experiment(
            "Layers used as features",
            "table 7, CoNLL-2003",
            rows=(
                Row("fine-tuned"),
                Row("embeddings", finetune=features("embeddings")),
                Row("second-to-last", finetune=features("second_to_last")),
                Row("last", finetune=features("last")),
                Row(
                    "weighted sum of the last four",
                    finetune=features("weighted_sum_last_four"),
                ),
                Row(
                    "concatenation of the last four",
                    finetune=features("concat_last_four"),
                ),
                Row("weighted sum of all", finetune=features("weighted_sum_all")),
            ),
            columns=(Column("NER", "NER", (96.4, 91.0, 95.6, 94.9, 95.9, 96.1, 95.5)),),
            claim="The concatenation of the last four layers is 0.3 points below "
            "fine-tuning. The embeddings alone are far below.",
        ),
    }
