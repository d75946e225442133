# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints with any head -> signatures, and their answers to strings in Python."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import heads, keras_private, storage
from bert_tf.checkpoints import Checkpoint, open_checkpoint
from bert_tf.heads import Head, Signature
from bert_tf.serving.jax_model import JaxModel
from bert_tf.serving.ragged_encoder import optimize_for_inference
from bert_tf.text import Tokenizer


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
    keras_private.check_not_forked()
    heads.check_declared(checkpoint.head, checkpoint.path)
    tokenizer = Tokenizer.from_checkpoint(checkpoint)
    limit = {"max_sequence_length": checkpoint.max_sequence_length}
    head = heads.find_head(checkpoint.head["kind"])
    head = head(checkpoint.head, {**checkpoint.options, **limit}, tokenizer)
    model = head.build(checkpoint.build_backbone(dtype))
    missing = ", ".join(sorted({*checkpoint.load_into(model)} - {*head.unused_layers}))
    problem = f"{checkpoint.path} has no weights for {missing}"
    if missing and not head.runs_encoder:
        raise ValueError(f"{problem}; its answers would be random. Fine-tune it first.")
    if missing:
        logging.warning("%s (newly initialized)", problem)
    return head_signatures(head, model, layers=layers)


def head_signatures(
    head: Head, model: keras.Model, *, layers: Sequence[int] = ()
) -> dict[str, Signature]:
    """Returns the signatures of a model, with an encoder that is fast at inference.

    On JAX, the signatures run eagerly and the encoder is the model's own.

    Args:
        head: Its head.
        model: The model that `head.build` returned, with weights.
        layers: The layers n to return as `layer_<n>`; only for models without a task.
    """
    is_jax = keras.config.backend() == "jax"
    optimize = JaxModel if is_jax else optimize_for_inference
    if layers and not head.runs_encoder:
        raise ValueError(
            f"--layers requires a model without a task. Received: a model for "
            f"{head.kind}"
        )
    part = getattr(model, "backbone", model) if head.runs_encoder else model
    fast = optimize(part, layers)
    return {**head.signatures(fast, model), "ids": heads.ids_signature(fast)}


def load(
    path: str | os.PathLike,
    *,
    dtype: str = "float32",
    head: str = "",
    pairs: bool = False,
) -> Predictor:
    """Loads a model with any head, to predict from strings.

    Args:
        path: A model directory of any command or task, a folder in another supported
            format, or a handle (`hf://...`); see `open_checkpoint`.
        dtype: Keras dtype policy of the layers, e.g. `"mixed_bfloat16"`.
        head: The kind of its head, if it is unclear; see `open_checkpoint`.
        pairs: Whether a classifier from another project reads pairs of texts, as for
            entailment. Its checkpoint does not tell.

    Raises:
        ValueError: The checkpoint is damaged, not a BERT, or its head has no weights;
            or `pairs` does not fit its head.
        RuntimeError: The process was forked after TensorFlow had started.
    """
    checkpoint = open_checkpoint(path, head=head)
    if pairs:
        checkpoint = checkpoint.of_pairs()
    # Another process may have another working directory, and the Hub a newer commit.
    path = os.fspath(path)
    if path.startswith("hf://"):
        path = checkpoint.source
    path = path if storage.is_remote(path) else os.path.abspath(path)
    reload = functools.partial(load, path, dtype=dtype, head=head, pairs=pairs)
    return Predictor(checkpoint, load_signatures(checkpoint, dtype=dtype), reload)


class Predictor:
    """A model that maps strings to answers, equal to those of its export.

    Threads can share a predictor. `pickle` and `copy.deepcopy` load the checkpoint
    again, from its path or handle.

    Args:
        checkpoint: Where the model comes from.
        signatures: The functions that an export would have, by name; see
            `bert_tf.heads`.
        reload: Returns an equal predictor; for `pickle` and `copy`.

    Attributes:
        checkpoint, signatures: The arguments.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        signatures: dict[str, Any],
        reload: functools.partial[Predictor] | None = None,
    ):
        self.checkpoint, self.signatures = checkpoint, signatures
        self._reload = reload
        # The first call of a signature builds its graph, in one thread.
        self._building, self._built = threading.Lock(), set()

    def __reduce__(self) -> tuple[Callable[[], Predictor], tuple]:
        if self._reload is None:
            raise TypeError("Only a predictor that `bert_tf.load` returned is copied.")
        return self._reload, ()

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
            RuntimeError: The process was forked after TensorFlow had started.

        Example: `load("models/verdict").predict(["A deep film."])["label"]`.
        """
        keras_private.check_not_forked()
        if signature not in self.signatures:
            names = ", ".join(self.signatures)
            raise ValueError(
                f"`signature` must be one of {names}. Received: signature={signature!r}"
            )
        function = self.signatures[signature]
        specs = {spec.name: spec for spec in function.input_signature}
        given = {**dict(zip(specs, columns)), **named_columns}
        count = len(columns) + len(named_columns)
        if given.keys() != specs.keys() or count != len(specs):
            two = [*specs] == ["text"] and count == 2
            hint = ". For a classifier of pairs, pass pairs=True to `load`" * two
            raise ValueError(
                f"{signature} has the inputs {', '.join(specs)}. Received: "
                f"{len(columns)} columns and the names {list(named_columns)}{hint}"
            )
        inputs = [_to_tensor(given[name], spec) for name, spec in specs.items()]
        if len({len(column) for column in inputs}) != 1:
            sizes = ", ".join(f"{name}: {len(x)}" for name, x in zip(specs, inputs))
            raise ValueError(
                f"All inputs must have the same number of rows. Received: {sizes}"
            )
        if batch_size < 1:
            raise ValueError(f"`batch_size` must be at least 1. Received: {batch_size}")
        chunks = [
            [column[start : start + batch_size] for column in inputs]
            for start in range(0, max(len(inputs[0]), 1), batch_size)
        ]
        is_built = signature in self._built
        with contextlib.nullcontext() if is_built else self._building:
            batches = [function(*chunks[0])]
        self._built.add(signature)
        batches += [function(*chunk) for chunk in chunks[1:]]
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
    if tensor.dtype == tf.string and tensor.shape.rank == 1:
        empty = sum(not text.strip() for text in tensor.numpy())
        if empty:
            message = "%d of %d values of `%s` are empty. They get answers, too."
            logging.warning(message, empty, len(tensor), spec.name)
    return tensor


def _concatenate(batches: list[tf.Tensor]) -> tf.Tensor:
    """Concatenates along axis 0; pads axis 1 with "" or 0."""
    if len(batches) == 1:  # Without rows, the next lines would lose fixed widths.
        return batches[0]
    if batches[0].shape.rank > 1:
        ragged = [tf.RaggedTensor.from_tensor(batch) for batch in batches]
        return tf.concat(ragged, axis=0).to_tensor()
    return tf.concat(batches, axis=0)
