# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints with any head -> signatures, and their answers to strings in Python."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import heads
from bert_tf.checkpoints import Checkpoint, open_checkpoint
from bert_tf.heads import Head, Signature
from bert_tf.serving.jax_model import JaxModel
from bert_tf.serving.ragged_encoder import optimize_for_inference
from bert_tf.text import Tokenizer

# Texts that a `Predictor` answers before it builds graphs. That takes a few seconds;
# later answers then take a fraction of the time.
_EAGER_ROWS = 64


def load_signatures(
    checkpoint: Checkpoint, *, dtype: str = "float32", layers: Sequence[int] = ()
) -> dict[str, Signature]:
    """Loads a model with any head and returns its signatures.

    Args:
        checkpoint: A checkpoint that `open_checkpoint` returned.
        dtype: Keras dtype policy of the layers.
        layers: See `head_signatures`.

    Raises:
        ValueError: The head is unclear, has no weights, or is not one of `heads.HEADS`.
    """
    return head_signatures(*_load_model(checkpoint, dtype), layers=layers)


def _load_model(checkpoint: Checkpoint, dtype: str) -> tuple[Head, keras.Model]:
    """Returns the head of a checkpoint, and its model with weights."""
    heads.check_declared(checkpoint.head, checkpoint.path)
    tokenizer = Tokenizer.from_checkpoint(checkpoint)
    limit = {"max_sequence_length": checkpoint.max_sequence_length}
    head = heads.find_head(checkpoint.head["kind"])
    head = head(checkpoint.head, {**checkpoint.options, **limit}, tokenizer)
    model = head.build(checkpoint.build_backbone(dtype))
    missing = ", ".join(sorted({*checkpoint.load_into(model)} - {*head.unused_layers}))
    problem = f"{checkpoint.path} has no weights for {missing}"
    if missing and not isinstance(head, heads.EncoderHead):
        raise ValueError(f"{problem}; its answers would be random. Fine-tune it first.")
    if missing:
        logging.warning("%s (newly initialized)", problem)
    return head, model


def head_signatures(
    head: Head,
    model: keras.Model,
    *,
    layers: Sequence[int] = (),
    optimize: Callable | None = None,
) -> dict[str, Signature]:
    """Returns the signatures of a model, with an encoder that is fast at inference.

    On JAX, the signatures run eagerly and the encoder is the model's own.

    Args:
        head: Its head.
        model: The model that `head.build` returned, with weights.
        layers: The layers n to return as `layer_<n>`; only for models without a task.
        optimize: What to apply to the model instead of `optimize_for_inference`.
    """
    if optimize is None:
        is_jax = keras.config.backend() == "jax"
        optimize = JaxModel if is_jax else optimize_for_inference
    if isinstance(head, heads.EncoderHead):
        encoder = optimize(getattr(model, "backbone", model), layers)
        return head.signatures(model, encoder)
    if layers:
        raise ValueError(
            f"--layers requires a model without a task. Received: a model for "
            f"{head.kind}"
        )
    model = optimize(model)
    return {**head.signatures(model), "ids": heads.ids_signature(model)}


def load(
    path: str | os.PathLike, *, dtype: str = "float32", head: str = ""
) -> Predictor:
    """Loads a model with any head, to predict from strings.

    Args:
        path: A model directory of any command or task, a folder in another supported
            format, or a handle (`hf://...`); see `open_checkpoint`.
        dtype: Keras dtype policy of the layers, e.g. `"mixed_bfloat16"`.
        head: The kind of its head, if it is unclear; see `open_checkpoint`.

    Raises:
        ValueError: The checkpoint is damaged, not a BERT, or its head has no weights.
    """
    checkpoint = open_checkpoint(path, head=head)
    task, model = _load_model(checkpoint, dtype)
    optimized = functools.partial(head_signatures, task, model)
    # In bfloat16, both kinds of signatures would round differently.
    if keras.config.backend() == "jax" or dtype != "float32":
        return Predictor(checkpoint, optimized())
    return Predictor(checkpoint, optimized(optimize=lambda x, *_: x), optimized)


class Predictor:
    """A model that maps strings to answers, equal to those of its export.

    Args:
        checkpoint: Where the model comes from.
        signatures: The functions that an export would have, by name; see
            `bert_tf.heads`.
        optimized: Returns faster signatures. `predict` calls it when there is enough
            work. Until then `signatures` run eagerly.

    Attributes:
        checkpoint, signatures: The arguments, or later the optimized signatures.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        signatures: dict[str, Any],
        optimized: Callable[[], dict[str, Any]] | None = None,
    ):
        self.checkpoint = checkpoint
        self.signatures = signatures
        self._optimized = optimized
        self._rows = 0  # Answered so far.

    def predict(
        self,
        *columns: Any,
        signature: str = "serving_default",
        batch_size: int = 32,
        **named_columns: Any,
    ) -> dict[str, np.ndarray]:
        """Returns the answers to N texts, pairs of texts, or questions.

        Args:
            *columns: The inputs of the signature in their order, each N strings or one
                string, e.g. texts, or questions and contexts. Lists of choices or words
                may differ in length; shorter ones are padded with "".
            signature: The name of the signature.
            batch_size: Rows to compute at once.
            **named_columns: Instead of `columns`: the inputs by name.

        Returns:
            The outputs of the signature by name, arrays with N rows. Strings are `str`.
            Rows with fewer values than others are padded with "" and 0.

        Raises:
            ValueError: The signature does not exist, the inputs are not its inputs, or
                `batch_size` is less than 1.

        Example: `load("models/verdict").predict(["A deep film."])["label"]`.
        """
        if signature not in self.signatures:
            names = ", ".join(self.signatures)
            raise ValueError(
                f"`signature` must be one of {names}. Received: signature={signature!r}"
            )
        function = self.signatures[signature]
        specs = {spec.name: spec for spec in function.input_signature}
        given = {**dict(zip(specs, columns)), **named_columns}
        if given.keys() != specs.keys() or len(columns) > len(specs):
            raise ValueError(
                f"{signature} has the inputs {', '.join(specs)}. Received: "
                f"{len(columns)} columns and the names {list(named_columns)}"
            )
        inputs = [_to_tensor(given[name], spec) for name, spec in specs.items()]
        if len({len(column) for column in inputs}) != 1:
            sizes = ", ".join(f"{name}: {len(x)}" for name, x in zip(specs, inputs))
            raise ValueError(
                f"All inputs must have the same number of rows. Received: {sizes}"
            )
        if batch_size < 1:
            raise ValueError(f"`batch_size` must be at least 1. Received: {batch_size}")
        self._rows += len(inputs[0])
        is_text = all(spec.dtype == tf.string for spec in specs.values())
        if self._optimized and (self._rows > _EAGER_ROWS or not is_text):
            self.signatures, self._optimized = self._optimized(), None
            function = self.signatures[signature]
        if self._optimized:
            function = function.python_function
        batches = [
            function(*(column[start : start + batch_size] for column in inputs))
            for start in range(0, max(len(inputs[0]), 1), batch_size)
        ]
        parts = {name: [batch[name] for batch in batches] for name in batches[0]}
        return heads.to_numpy({name: _concatenate(x) for name, x in parts.items()})

    def __repr__(self) -> str:
        return f"Predictor({self.checkpoint!r}, signatures={list(self.signatures)})"


def _to_tensor(column: Any, spec: tf.TensorSpec) -> tf.Tensor:
    if isinstance(column, (str, bytes)):
        column = [column]
    try:
        if isinstance(column, (list, tuple)) and (axes := spec.shape.rank - 1):
            ragged = tf.ragged.constant(column, spec.dtype, ragged_rank=axes)
            column = ragged.to_tensor()
        tensor = tf.convert_to_tensor(column, spec.dtype)
        spec.shape.assert_is_compatible_with(tensor.shape)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"`{spec.name}` must have dtype {spec.dtype.name} and shape {spec.shape}. "
            f"Received: {column!r:.80}"
        ) from error
    return tensor


def _concatenate(batches: list[tf.Tensor]) -> tf.Tensor:
    """Concatenates along axis 0; pads axis 1 with "" or 0."""
    if batches[0].shape.rank > 1:
        ragged = [tf.RaggedTensor.from_tensor(batch) for batch in batches]
        return tf.concat(ragged, axis=0).to_tensor()
    return tf.concat(batches, axis=0)
