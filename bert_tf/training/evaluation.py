# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Evaluates masked language models on documents, with masks as in pre-training.

A row is [CLS] tokens [SEP]. Long documents fill several rows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import keras
import numpy as np
import tensorflow as tf

from bert_tf import text
from bert_tf.checkpoints import Checkpoint
from bert_tf.data import Masker
from bert_tf.modeling import BertPretrainer

_DOCUMENTS_AT_ONCE = 32
_ROWS_AT_ONCE = 32  # The masks depend on it.

# Inputs, labels and weights of a `BertPretrainer`; see `Masker`.
Batch: TypeAlias = tuple[dict[str, Any], dict[str, Any], dict[str, Any]]


def masked_rows(
    checkpoint: Checkpoint,
    documents: Iterable[str],
    *,
    max_sequence_length: int = 0,
    max_rows: int = 0,
    seed: int = 0,
    **masking: Any,
) -> Iterator[Batch]:
    """Yields batches of masked rows of up to B = 32 documents or parts of documents.

    Args:
        checkpoint: Its tokenizer and vocabulary are used.
        documents: Texts.
        max_sequence_length: Tokens per row, at most those of the checkpoint; 0 for all.
        max_rows: The number of rows, the first ones; 0 for all.
        seed: Seed of the masks.
        **masking: Arguments of `Masker`.

    Yields:
        `(x, y, weights)` for a `BertPretrainer`, with S tokens and P predictions: x has
        `token_ids`, `padding_mask` [B, S] and `mask_positions` [B, P], y `mlm` [B, P],
        weights `mlm` [B, P], above 0 for predictions.
    """
    tokenizer = text.Tokenizer.from_checkpoint(checkpoint)
    limit = checkpoint.architecture.max_sequence_length
    length = min(max_sequence_length or limit, limit)
    masker = Masker(vocabulary=checkpoint.vocabulary, **masking)

    def rows() -> Iterator[list[int]]:
        iterator = iter(documents)
        while batch := list(itertools.islice(iterator, _DOCUMENTS_AT_ONCE)):
            pieces = tokenizer.tokenize(tf.constant(batch))
            windows = text.cut_windows(tokenizer, pieces, length, stride=length)
            ids = windows.inputs()["token_ids"].numpy()
            for row, size in zip(ids, windows.lengths.numpy()):
                if size > 2:
                    yield row[:size].tolist()

    iterator = itertools.islice(rows(), max_rows or None)
    pad_id = checkpoint.vocabulary.pad_id
    batches = iter(lambda: list(itertools.islice(iterator, _ROWS_AT_ONCE)), [])
    for step, batch in enumerate(batches):
        token_ids = tf.ragged.constant(batch, tf.int32).to_tensor(pad_id)
        lengths = tf.constant(list(map(len, batch)))
        unused = tf.zeros([len(batch), 1], tf.int32)
        inputs = {
            "token_ids": token_ids,
            "segment_ids": tf.zeros_like(token_ids),
            "padding_mask": tf.sequence_mask(lengths, dtype=tf.int32),
            "first_positions": unused,
            "is_random_next": unused,
        }
        yield masker(inputs, (seed, tf.constant(step)))


def masked_lm_metrics(
    checkpoint: Checkpoint, batches: Iterable[Batch]
) -> dict[str, float]:
    """Computes the metrics of masked language modeling.

    Args:
        checkpoint: A checkpoint with a masked-LM head.
        batches: See `masked_rows`.

    Returns:
        `loss`, the mean over all predictions; `accuracy`; `perplexity`, the exponential
        of the loss; and the numbers of `predictions` and `rows`.

    Raises:
        ValueError: The checkpoint has no masked-LM head, or there is no prediction.
    """
    if "mlm/bias" not in checkpoint.weights:
        raise ValueError(
            f"{checkpoint.path} has no masked-LM head. Received: a checkpoint for "
            f"{checkpoint.head['kind']}"
        )
    model = checkpoint.load_model(BertPretrainer)
    # On TensorFlow, XLA would compile for each length of rows.
    model.jit_compile = keras.config.backend() == "jax"
    loss, correct, predictions, rows = 0.0, 0, 0, 0
    for batch in batches:
        x, y, weights = keras.tree.map_structure(np.asarray, batch)
        is_prediction = weights["mlm"] > 0
        logits = model.predict_on_batch(x)["mlm"][is_prediction]
        wanted = y["mlm"][is_prediction]
        losses = keras.losses.sparse_categorical_crossentropy(
            wanted, logits, from_logits=True
        )
        loss += float(np.sum(losses, dtype=np.float64))
        correct += int(np.sum(logits.argmax(axis=1) == wanted))
        predictions, rows = predictions + len(wanted), rows + len(is_prediction)
    if not predictions:
        raise ValueError("The text has no tokens to predict.")
    loss /= predictions
    return {
        "loss": loss,
        "accuracy": correct / predictions,
        "perplexity": math.exp(loss),
        "predictions": predictions,
        "rows": rows,
    }
