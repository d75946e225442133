# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints with any head -> signatures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import keras
from absl import logging

from bert_tf import modeling
from bert_tf.checkpoints import Checkpoint, check_declared, load_tokenizer
from bert_tf.serving.entities import is_iob_scheme
from bert_tf.serving.ragged_encoder import optimize_for_inference
from bert_tf.serving.signatures import Signature, pretrained_signatures
from bert_tf.serving.task_heads import find_head, task_signatures

# Options of tasks that checkpoints of other projects do not have: the defaults of
# `tasks`, which are those of google-research/bert.
_DEFAULTS = {
    "long_text": "truncate",
    "stride": 128,
    "max_answer_length": 30,
    "n_best": 20,
}
# Signatures that every model or pre-trained model has.
_SIGNATURES = ("embeddings", "ids", "metadata", "sentence_embedding", "serving_default")
_MAX_WINDOW, _MAX_QUESTION = 384, 64  # Tokens, for question answering.


def load_signatures(
    checkpoint: Checkpoint,
    *,
    dtype: str = "float32",
    layers: Sequence[int] = (),
    pooling: str = "",
    calibration_texts: Sequence[str] = (),
) -> dict[str, Signature]:
    """Loads a model with any head and returns its signatures.

    Args:
        checkpoint: A checkpoint that `open_checkpoint` returned.
        dtype: Keras dtype policy of the layers, or "int8" for an int8 encoder.
        layers: As in `pretrained_signatures`; only for models without a task.
        pooling: The same; by default that of the checkpoint, else "mean".
        calibration_texts: The same.

    Raises:
        ValueError: The head is unclear, has no weights, or is not one of `HEADS`.
    """
    check_declared(checkpoint.head, checkpoint.path)
    tokenizer = load_tokenizer(checkpoint)
    head, kind = checkpoint.head, checkpoint.head["kind"]
    options = _options(checkpoint)
    int8 = dtype == "int8"
    dtype = "float32" if int8 else dtype
    loaders = {
        "encoder": checkpoint.load_backbone,
        "pretrainer": checkpoint.load_pretrainer,
        "embedding": checkpoint.load_sentence_encoder,
    }
    if kind in loaders:
        if pooling not in ("", head.get("pooling", pooling)):
            raise ValueError(
                f"--pooling must be {head['pooling']}, the pooling of "
                f"{checkpoint.path}, or not be set. Received: {pooling}"
            )
        return pretrained_signatures(
            loaders[kind](dtype),
            tokenizer,
            layers,
            pooling or "mean",
            heads={"mlm", "nsp"} - set(head.get("newly_initialized", ())),
            max_sequence_length=options["max_sequence_length"],
            int8=int8,
            prompts=_prompts(checkpoint),
            include_prompt=head.get("include_prompt", True),
            calibration_texts=calibration_texts,
        )
    if layers or pooling or calibration_texts:
        raise ValueError(
            "--layers, --pooling and --calibration_file require a model without a "
            "task. Received: "
            f"{checkpoint.path}, a model for {kind}"
        )
    model = optimize_for_inference(_load_task_model(checkpoint, dtype), int8=int8)
    if kind == "tagging" and not is_iob_scheme(head["labels"]):
        text = "%s: the labels are not B-, I- and O, so words are not grouped."
        logging.warning(text, checkpoint.path)
    head = {**head, **head.get("decision", {})}
    return task_signatures(model, tokenizer, head, options)


def _prompts(checkpoint: Checkpoint) -> dict[str, str]:
    """Returns the prompts by name of the signature.

    Raises:
        ValueError: The names of two signatures would be equal.
    """
    prompts = checkpoint.head.get("prompts", {})
    default = prompts.get(checkpoint.head.get("default_prompt_name"), "")
    # Names of signatures are names of nodes in the graph.
    names = {prompt: re.sub(r"[^A-Za-z0-9_]", "_", prompt) for prompt in prompts}
    taken = [*_SIGNATURES, *names.values()]
    if clashes := [p for p, name in names.items() if taken.count(name) > 1]:
        raise ValueError(
            f"{checkpoint.path}: prompts become signatures and need names of their "
            f"own. Rename in config_sentence_transformers.json: {clashes}"
        )
    signatures = {names[prompt]: text for prompt, text in prompts.items()}
    return {"sentence_embedding": default, **signatures}


def _options(checkpoint: Checkpoint) -> dict[str, Any]:
    """Returns the options that the model was trained with, or defaults."""
    limit = checkpoint.architecture.max_sequence_length
    options = {**_DEFAULTS, "max_sequence_length": limit, **checkpoint.options}
    is_question_answering = checkpoint.head["kind"] == "question_answering"
    if is_question_answering and "stride" not in checkpoint.options:
        window = min(_MAX_WINDOW, options["max_sequence_length"])
        options["max_sequence_length"] = window
        options["max_question_length"] = min(_MAX_QUESTION, window // 2)
    return options


def _load_task_model(checkpoint: Checkpoint, dtype: str) -> keras.Model:
    """Returns the model of a task with its weights."""
    backbone = modeling.BertBackbone(checkpoint.architecture, dtype=dtype)
    kind, options = checkpoint.head["kind"], checkpoint.options
    model = find_head(kind).build(backbone, checkpoint.head, options)
    missing = set(checkpoint.load_into(model))
    if kind in ("question_answering", "tagging"):
        missing.discard("pooler")  # Not used.
    if missing:
        raise ValueError(
            f"{checkpoint.path} has no weights for {', '.join(sorted(missing))}; its "
            "answers would be random. Fine-tune it first."
        )
    return model
