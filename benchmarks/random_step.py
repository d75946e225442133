# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""A pre-training step on random tokens, for measurements of time and memory."""

from __future__ import annotations

import math

import numpy as np

from bert_tf.modeling import BertConfig

VOCABULARY_SIZE = 30_522


def predictions(length: int) -> int:
    """Returns the number of predicted tokens of a row, 15 %."""
    return math.ceil(length * 15 / 100)


class RandomStep:
    """Runs one training step when called; the constructor runs two to trace it.

    Args:
        size: Name of an architecture.
        length: Tokens in a row, without padding.
        rows: Batch size.
        recompute: See `EncoderLayer`.
        vocabulary_size: Size of the vocabulary.
    """

    def __init__(
        self,
        size: str,
        length: int,
        rows: int,
        *,
        recompute: bool = False,
        vocabulary_size: int = VOCABULARY_SIZE,
    ):
        import tensorflow as tf

        from bert_tf.modeling import BertBackbone, BertPretrainer
        from bert_tf.training import AdamW

        self.architecture = BertConfig.from_size(size, vocabulary_size)
        backbone = BertBackbone(self.architecture, recompute=recompute)
        self.model = BertPretrainer(backbone)
        self.model.compile(AdamW(1e-4))

        token_ids = tf.random.uniform((rows, length), 0, vocabulary_size, tf.int32)
        positions = tf.range(predictions(length))[None]
        x = {
            "token_ids": token_ids,
            "segment_ids": tf.zeros_like(token_ids),
            "padding_mask": tf.ones_like(token_ids),
            "mask_positions": tf.tile(positions, (rows, 1)),
            "first_positions": tf.zeros((rows, 1), tf.int32),
        }
        y = {
            "mlm": token_ids[:, : predictions(length)],
            "nsp": tf.zeros((rows, 1), tf.int32),
        }
        weights = {
            name: tf.fill(labels.shape, 1 / np.prod(labels.shape, dtype="float32"))
            for name, labels in y.items()
        }
        batches = tf.data.Dataset.from_tensors((x, y, weights)).repeat()
        self.model.fit(batches, steps_per_epoch=2, verbose=0, shuffle=False)
        self._iterator = iter(batches)

    def __call__(self) -> None:
        self.model.train_function(self._iterator)
