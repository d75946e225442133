# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The experiments of the BERT paper as data, and what came out there.

arXiv 1810.04805: tables 5 to 8 and figure 5, all on dev sets. An `Experiment` is a
table: its rows say how to pre-train, its columns what to fine-tune on. Options are
those of `bert_tf.pretrain.PretrainConfig` and of the tasks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any


@dataclasses.dataclass(frozen=True)
class Row:
    """One way to pre-train and fine-tune.

    Attributes:
        name: What the table calls it.
        pretrain: Options of pre-training that differ from the scale's.
        finetune: Options of fine-tuning that differ from the task's own.
        share: Of the steps, after which the weights are taken.
        line: The line of the picture that it is a point of, if it is one of lines.
        x: Where on the line.
        against: The row it is compared with; the first one when empty.
    """

    name: str
    pretrain: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    finetune: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    share: float = 1.0
    line: str = ""
    x: float = 0.0
    against: str = ""


@dataclasses.dataclass(frozen=True)
class Column:
    """A score, for all rows.

    Attributes:
        data_set: The paper's data set to fine-tune on; empty for the perplexity of the
            pre-training, on held-out documents.
        name: What the table calls it.
        paper: The paper's values, one a row; `()` where it has none.
        finetune: Options of fine-tuning that differ from the task's own.
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
        title: Of the report.
        source: Where in the paper it is.
        rows: See `Row`.
        columns: See `Column`.
        claim: What the paper concludes.
        x_label: Of the picture, where the rows are points of lines.
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
    """How large it all is.

    Attributes:
        pretrain: Options of every pre-training; a row's own come on top.
        warmup_share: Share of the steps in which the learning rate rises.
        sizes: Layers/hidden size/heads of the rows of table 6.
    """

    pretrain: Mapping[str, Any]
    warmup_share: float
    sizes: Sequence[str]


SCALES: Mapping[str, Scale] = {
    # About a third of the paper's layers and a twelfth of its width.
    "small": Scale(
        pretrain={
            "size": "4/64/2",
            "dropout": 0.0,
            "batch_size": 32,
            "steps": 800,
            "learning_rate": 1e-3,
        },
        warmup_share=0.1,
        sizes=("1/64/2", "2/64/1", "2/64/2", "4/64/2", "4/96/3", "8/96/3"),
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

_NO_NEXT_SENTENCE = {"next_sentence": False}
_LEFT_TO_RIGHT = {
    "left_to_right": True,
    "mask_selection_rate": 1.0,  # Every token is predicted.
    "next_sentence": False,
}
# A learning rate for LSTMs that begin with random weights.
_FEATURES = {"features": "concat_last_four", "learning_rate": 1e-3}

# Of the selected tokens, in percent: shown as [MASK], as they are, as a random one.
_MIXTURES = (
    (80, 10, 10),
    (100, 0, 0),
    (80, 0, 20),
    (80, 20, 0),
    (0, 20, 80),
    (0, 0, 100),
)
_SELECTION_RATES = (15, 5, 40)

# The parts of the training at which figure 5 looks; the models are kept there.
EVALUATIONS = 5


def _mixture(mask: int, random: int) -> dict[str, float]:
    rates = {"mask_token_rate": mask / 100, "random_token_rate": random / 100}
    usual = {"mask_token_rate": 0.8, "random_token_rate": 0.1}
    return {} if rates == usual else rates


def _layers(features: str) -> dict[str, Any]:
    return {**_FEATURES, "features": features}


def experiments(scale: Scale) -> dict[str, Experiment]:
    """Returns all experiments by name."""
    base = scale.pretrain["size"]
    shares = [(i + 1) / EVALUATIONS for i in range(EVALUATIONS)]
    return {
        "pretraining_tasks": Experiment(
            "Pre-training tasks",
            "table 5",
            rows=(
                Row("BERT"),
                Row("no NSP", _NO_NEXT_SENTENCE),
                Row("LTR & no NSP", _LEFT_TO_RIGHT, against="no NSP"),
                Row(
                    "+ BiLSTM",
                    _LEFT_TO_RIGHT,
                    finetune={"bilstm": True},
                    against="LTR & no NSP",
                ),
            ),
            columns=(
                Column("MNLI", "MNLI-m", (84.4, 83.9, 82.1, 82.1)),
                Column("QNLI", "QNLI", (88.4, 84.9, 84.3, 84.1)),
                Column("MRPC", "MRPC", (86.7, 86.5, 77.5, 75.7)),
                Column("SST-2", "SST-2", (92.7, 92.6, 92.1, 91.6)),
                Column("SQuAD", "SQuAD F1", (88.5, 87.9, 77.8, 84.9)),
            ),
            claim="Next sentence prediction helps pairs and questions; a left-to-right "
            "model is worse on all tasks, much so on MRPC and SQuAD; a BiLSTM on it "
            "helps SQuAD and hurts the others.",
        ),
        "steps": Experiment(
            "Number of steps",
            "figure 5",
            rows=tuple(
                Row(
                    f"{line}, {share:.0%} of the steps",
                    pretrain,
                    share=share,
                    line=line,
                    x=100 * share,
                    against=f"MLM, {share:.0%} of the steps"
                    if line == "LTR"
                    else "MLM, 100% of the steps",
                )
                for line, pretrain in (("MLM", {}), ("LTR", _LEFT_TO_RIGHT))
                for share in shares
            ),
            columns=(Column("MNLI", "MNLI-m"),),
            claim="More steps help to the end: 1.0 points from half of them to all. "
            "The masked LM is ahead of the left-to-right LM almost at once.",
            x_label="% of the steps of pre-training",
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
            claim="Larger models are better throughout, on the small MRPC, too. Rows: "
            "layers/hidden size/heads, in parentheses the paper's.",
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
                    _FEATURES,
                ),
            ),
            claim="Fine-tuning does not mind how tokens are masked; features do: "
            "always [MASK] is worst for them. Rows: per cent of the selected tokens "
            "shown as [MASK], as they are, and as a random token.",
        ),
        "selection_rate": Experiment(
            "Share of the tokens that is predicted",
            "section 3.1, which says 15 % and compares nothing",
            rows=tuple(
                Row(
                    f"{rate} %",
                    {} if rate == 15 else {"mask_selection_rate": rate / 100},
                    line="80/10/10",
                    x=rate,
                )
                for rate in _SELECTION_RATES
            ),
            columns=(Column("MNLI", "MNLI"), Column("NER", "NER")),
            claim="None; 15 % is the paper's choice.",
            x_label="% of the tokens predicted",
        ),
        "features": Experiment(
            "Which layers make features",
            "table 7, CoNLL-2003",
            rows=(
                Row("fine-tuned"),
                Row("embeddings", finetune=_layers("embeddings")),
                Row("second-to-last", finetune=_layers("second_to_last")),
                Row("last", finetune=_layers("last")),
                Row(
                    "weighted sum of the last four",
                    finetune=_layers("weighted_sum_last_four"),
                ),
                Row("last four side by side", finetune=_layers("concat_last_four")),
                Row("weighted sum of all", finetune=_layers("weighted_sum_all")),
            ),
            columns=(Column("NER", "NER", (96.4, 91.0, 95.6, 94.9, 95.9, 96.1, 95.5)),),
            claim="The last four layers side by side are 0.3 points behind "
            "fine-tuning; the embeddings alone are far behind.",
        ),
    }
