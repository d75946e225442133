# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints with any head -> signatures."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import keras
from absl import logging

from bert_tf import modeling
from bert_tf.checkpoints import Checkpoint
from bert_tf.serving import signatures, task_signatures
from bert_tf.serving.answers import cut_passages
from bert_tf.serving.entities import is_iob_scheme
from bert_tf.serving.ragged_encoder import optimize_for_inference
from bert_tf.serving.signatures import Signature
from bert_tf.text import Tokenizer

# Settings of a task that a checkpoint of another project does not record: the defaults
# of `tasks`, which are those of google-research/bert.
_DEFAULTS = {
    "long_text": "truncate",
    "max_question_length": 64,
    "stride": 128,
    "max_answer_length": 30,
    "n_best": 20,
}
_MAX_WINDOW = 384  # Tokens of a window of question answering.


def load_signatures(
    checkpoint: Checkpoint,
    *,
    dtype: str = "float32",
    layers: Sequence[int] = (),
    pooling: str = "",
) -> dict[str, Signature]:
    """Loads a model with any head and returns its signatures.

    Args:
        checkpoint: A checkpoint that `open_checkpoint` returned.
        dtype: Keras dtype policy of the layers.
        layers: As in `pretrained_signatures`; only for models without a task.
        pooling: The same; by default that of the checkpoint, else "mean".

    Raises:
        ValueError: The head has no weights, or is not one of `modeling`.
    """
    tokenizer = Tokenizer(checkpoint.vocabulary, lowercase=checkpoint.lowercase)
    head, kind = checkpoint.head, checkpoint.head["kind"]
    settings = _settings(checkpoint)
    limit = {"max_sequence_length": settings["max_sequence_length"]}
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
        return signatures.pretrained_signatures(
            loaders[kind](dtype),
            tokenizer,
            layers,
            pooling or "mean",
            heads={"mlm", "nsp"} - set(head.get("newly_initialized", ())),
            **limit,
        )
    if layers or pooling:
        raise ValueError(
            "--layers and --pooling require a model without a task. Received: "
            f"{checkpoint.path}, a model for {kind}"
        )
    model = optimize_for_inference(_load_task_model(checkpoint, dtype))
    if kind == "classification":
        long_text = settings["long_text"]
        read = functools.partial(
            task_signatures.read_texts, tokenizer, long_text=long_text, **limit
        )
        head = {**head, **checkpoint.read_metrics().get("decision", {})}
        return task_signatures.classification_signatures(model, read, head, long_text)
    if kind == "multiple_choice":
        read = functools.partial(task_signatures.read_choices, tokenizer, **limit)
        return task_signatures.choice_signatures(model, read)
    if kind == "question_answering":
        limit |= {k: settings[k] for k in ("max_question_length", "stride")}
        threshold = None
        if head.get("no_answer"):
            threshold = checkpoint.read_metrics().get("dev", {}).get("threshold", 0.0)
        return task_signatures.answer_signatures(
            model,
            functools.partial(cut_passages, tokenizer, **limit),
            threshold,
            no_answer=threshold is not None,
            max_answer_length=settings["max_answer_length"],
            n_best=settings["n_best"],
        )
    if not is_iob_scheme(head["labels"]):
        text = "The labels of %s are not B-, I- and O. Words are not grouped: %s"
        logging.warning(text, checkpoint.path, ", ".join(head["labels"]))
    return task_signatures.tag_signatures(
        model,
        tokenizer,
        head["labels"],
        by_word=head.get("aggregation") != "simple",
        **limit,
    )


def _settings(checkpoint: Checkpoint) -> dict[str, Any]:
    """Returns the options that the model was trained with, or defaults."""
    positions = checkpoint.architecture.max_sequence_length
    settings = {**_DEFAULTS, "max_sequence_length": positions, **checkpoint.options}
    if (
        checkpoint.head["kind"] == "question_answering"
        and "stride" not in checkpoint.options
    ):
        window = min(_MAX_WINDOW, settings["max_sequence_length"])
        question = min(settings["max_question_length"], window // 2)
        settings |= {"max_sequence_length": window, "max_question_length": question}
    return settings


def _load_task_model(checkpoint: Checkpoint, dtype: str) -> keras.Model:
    """Returns the model of a task with its weights."""
    backbone = modeling.BertBackbone(checkpoint.architecture, dtype=dtype)
    kind, options = checkpoint.head["kind"], checkpoint.options
    units = len(checkpoint.head.get("labels", ())) or 1
    if options.get("features"):
        model = modeling.FeatureTagger(
            backbone, units, options["features"], options["lstm_units"]
        )
        checkpoint.load_weights(model)
        return model
    if kind == "classification":
        model = modeling.SequenceClassifier(backbone, units)
    elif kind == "multiple_choice":
        model = modeling.ChoiceScorer(backbone)
    elif kind == "question_answering":
        model = modeling.SpanPredictor(backbone)
    elif kind == "tagging":
        model = modeling.TokenClassifier(backbone, units)
    else:
        raise ValueError(
            f"{checkpoint.path} is a model for {kind}, which only the command that "
            "trained it can export: rerun it with --export."
        )
    missing = set(checkpoint.load_into(model))
    if kind in ("question_answering", "tagging"):
        missing.discard("pooler")  # Not used.
    if missing:
        raise ValueError(
            f"{checkpoint.path} has no weights for {', '.join(sorted(missing))}; its "
            "answers would be random. Fine-tune it first."
        )
    return model
