# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The `head` of checkpoints of other projects: from declarations and weights.

A format tells which kind of head a folder declares. If it cannot, the kind is
`UNDECLARED`: the encoder can be used, but `check_declared` refuses to serve or convert
the folder until the user has chosen a kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

# The kinds that a user can choose.
TASK_KINDS = ("classification", "tagging", "question_answering", "multiple_choice")
HEAD_KINDS = ("encoder", "pretrainer", *TASK_KINDS)

UNDECLARED = "undeclared"

# The values of `problem_type`.
_PROBLEMS = ("single_label_classification", "multi_label_classification", "regression")

# Outputs of heads without labels.
_OUTPUTS = {"question_answering": 2, "multiple_choice": 1}  # Start and end; a score.


def task_head(
    kind: str,
    outputs: int | None,
    *,
    labels: Sequence[str] | None = None,
    size: int | None = None,
    problem: str | None = None,
    activation: str | None = None,
) -> dict[str, Any]:
    """Returns the `head` of a `Checkpoint` with a task.

    Args:
        kind: One of `TASK_KINDS`.
        outputs: The number of outputs of the layer `logits`; None if it has no weights.
        labels: The declared names of the outputs; by default LABEL_0, LABEL_1, ...
        size: The declared number of labels. It overrides `labels`.
        problem: The `problem_type` of transformers, if declared.
        activation: The activation that the other project applies to the logits, a name
            in `keras.activations`; None if it declares none.

    Raises:
        ValueError: The declarations contradict the number of outputs or each other.
    """
    head = {"kind": kind}
    if kind in ("classification", "tagging"):
        if labels is None or size not in (None, len(labels)):
            _check_size(size or outputs or 2, outputs)
            labels = [f"LABEL_{number}" for number in range(outputs or 2)]
        head["labels"] = list(labels)
    if kind == "classification":
        head |= _classification(len(labels), problem, activation)
    if head.get("problem") == "regression":
        del head["labels"]
    check_outputs(head, outputs)
    return head


def _classification(
    size: int, problem: str | None, activation: str | None
) -> dict[str, Any]:
    """Returns how the outputs of a classifier become answers."""
    if problem not in (None, *_PROBLEMS):
        raise ValueError(
            f"problem_type must be one of {', '.join(_PROBLEMS)}. Received: {problem!r}"
        )
    if problem == "multi_label_classification":
        return {"problem": "multi_label"}
    if problem == "regression" or size == 1:
        if problem == "single_label_classification" or activation == "softmax":
            raise ValueError(
                "a single output must be a score, because the probability of a single "
                f"class is always 1. Received: problem_type={problem}, "
                f"activation={activation}"
            )
        head = {"problem": "regression"}
        if activation not in (None, "linear"):
            head["activation"] = activation
        return head
    if activation == "sigmoid":
        return {"problem": "multi_label"}
    if activation not in (None, "linear", "softmax"):
        raise ValueError(
            "the activation of several labels must be linear, softmax or sigmoid. "
            f"Received: {activation}"
        )
    return {}


def check_outputs(head: Mapping[str, Any], outputs: int | None) -> None:
    """Raises ValueError if the layer `logits` has another size than `head` implies."""
    labels = head.get("labels", ())
    _check_size(_OUTPUTS.get(head["kind"]) or len(labels) or 1, outputs)


def _check_size(declared: int, outputs: int | None) -> None:
    if outputs not in (None, declared):
        raise ValueError(
            f"the config declares {declared} labels or scores, but the output layer "
            f"has {outputs}."
        )


def optional_layers(kind: str) -> tuple[str, ...]:
    """Returns the layers of a model of this kind that its file may lack."""
    if kind in ("encoder", "embedding", UNDECLARED):
        return ("pooler",)
    return ("pooler", "mlm", "nsp") if kind == "pretrainer" else ("pooler", "logits")


def undeclared_head(reason: str) -> dict[str, Any]:
    """Returns the `head` of a folder whose head is unclear for this reason."""
    return {"kind": UNDECLARED, "reason": reason}


def check_declared(head: Mapping[str, Any], path: Any) -> None:
    """Raises ValueError if the user must choose a kind first."""
    if head["kind"] == UNDECLARED:
        raise ValueError(
            f"{path}: {head['reason']} Choose how to read the folder: --head=encoder "
            f"for the encoder only, or one of {', '.join(HEAD_KINDS[1:])} (options of "
            "bert_tf.export and bert_tf.convert; `head=` in Python)."
        )
