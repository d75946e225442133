# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Selects and replaces tokens for the masked language model.

Shapes: B rows in a batch, S tokens in a row, P predictions, Q pairs.
"""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np
import tensorflow as tf

from bert_tf.text import Vocabulary

# Each kind of random draw in a batch has its own random stream.
_SELECT, _REPLACE, _RANDOM_TOKEN = range(3)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Masker:
    """Masks batches for the masked language model (paper, section 3.1, task 1).

    As in google-research/bert, a row of n tokens gets round(n * rate) predictions, at
    least one and at most P. Special tokens are not selected and not drawn as random
    tokens.

    Args:
        vocabulary: The vocabulary of the records.
        mask_selection_rate: Share of the tokens to predict.
        mask_selection_length: Maximum number of predictions per row, P. Default:
            `mask_selection_rate` times S, rounded up.
        mask_token_rate: Share of the selected tokens replaced with [MASK].
        random_token_rate: Share of the selected tokens replaced with a random token.
            The other selected tokens are kept.
        whole_word_masking: Select all tokens of a word together.

    Raises:
        ValueError: A rate is out of range.
    """

    vocabulary: Vocabulary
    mask_selection_rate: float = 0.15
    mask_selection_length: int | None = None
    mask_token_rate: float = 0.8
    random_token_rate: float = 0.1
    whole_word_masking: bool = False

    def __post_init__(self):
        if not 0 < self.mask_selection_rate <= 1:
            raise ValueError(
                "`mask_selection_rate` must be above 0 and at most 1. Got "
                f"mask_selection_rate={self.mask_selection_rate}."
            )
        rates = self.mask_token_rate, self.random_token_rate
        if min(rates) < 0 or sum(rates) > 1:
            raise ValueError(
                "`mask_token_rate` and `random_token_rate` must not be negative, and "
                f"their sum must not exceed 1. Got mask_token_rate={rates[0]}, "
                f"random_token_rate={rates[1]}."
            )

    def __call__(self, batch: dict[str, tf.Tensor], seed: tuple[int, tf.Tensor]):
        """Masks a batch of rows.

        Args:
            batch: Inputs of the encoder, [B, S] and [B, Q] int32, and `is_random_next`
                [B, Q] int32, -1 in unused slots.
            seed: (seed of the run, number of the batch).

        Returns:
            `(x, y, sample_weight)`, see `bert_tf.data.input_pipeline`.
        """
        token_ids = batch["token_ids"]
        positions, selected = self._select(batch, _stream(seed, _SELECT))
        labels = tf.gather(token_ids, positions, batch_dims=1)  # [B, P]
        shown = tf.where(selected, self._replace(labels, seed), labels)
        rows = tf.broadcast_to(
            tf.range(tf.shape(token_ids)[0])[:, tf.newaxis], tf.shape(positions)
        )
        token_ids = tf.tensor_scatter_nd_update(
            token_ids, tf.stack([rows, positions], -1), shown
        )
        x = batch | {"token_ids": token_ids, "mask_positions": positions}
        is_random_next = x.pop("is_random_next")
        # Weights sum to one over the global batch, so that replicas add their losses.
        mask_weights = tf.cast(selected, tf.float32)
        pair_weights = tf.cast(is_random_next >= 0, tf.float32)
        weights = {
            "mlm": tf.math.divide_no_nan(mask_weights, tf.reduce_sum(mask_weights)),
            "nsp": pair_weights / tf.reduce_sum(pair_weights),
        }
        return x, {"mlm": labels, "nsp": tf.maximum(is_random_next, 0)}, weights

    @functools.cached_property
    def _is_regular(self) -> np.ndarray:
        """Whether each token is not special, bool [V]."""
        return ~np.isin(range(self.vocabulary.size), self.vocabulary.special_ids)

    def _select(self, batch, seed):
        """Selects tokens to predict.

        Shuffles the words and selects them until the number of predictions is reached.
        The first word that would exceed the number ends the selection. Without
        whole-word masking every token counts as a word.

        Returns:
            Sorted positions [B, P] int32, and whether each is a prediction [B, P] bool.
            The positions of unused slots are 0.
        """
        token_ids, padding_mask = batch["token_ids"], batch["padding_mask"]
        batch_size, length = token_ids.shape  # [B, S]
        rate = self.mask_selection_rate
        limit = min(self.mask_selection_length or math.ceil(length * rate), length)
        selectable = tf.gather(self._is_regular, token_ids) & (padding_mask > 0)
        draws = tf.random.stateless_uniform((batch_size, length), seed)
        if self.whole_word_masking:
            starts = ~tf.gather(self.vocabulary.is_continuation, token_ids)
            word = tf.cumsum(tf.cast(starts, tf.int32), axis=1)
            draws = tf.gather(draws, word % length, batch_dims=1)
        else:
            word = tf.broadcast_to(tf.range(length)[tf.newaxis], token_ids.shape)
        # The tokens of a word have equal draws and stay in order: top_k is stable.
        draws = tf.where(selectable, draws, 2.0)
        ranked = min(limit + 1, length)
        order = tf.math.top_k(-draws, ranked).indices  # [B, ranked]

        # float64, as in Python, so that 30 * 0.15 rounds like 4.5.
        tokens = tf.reduce_sum(tf.cast(padding_mask > 0, tf.float64), 1)
        wanted = tf.clip_by_value(tf.cast(tf.round(tokens * rate), tf.int32), 1, limit)
        available = tf.reduce_sum(tf.cast(selectable, tf.int32), 1)
        wanted = tf.minimum(wanted, available)[:, tf.newaxis]
        # The first n tokens can be selected if token n + 1 begins another word.
        ordered_word = tf.gather(word, order, batch_dims=1)
        last_of_word = ordered_word[:, :-1] != ordered_word[:, 1:]
        last_of_word = tf.pad(last_of_word, [[0, 0], [0, 1]], constant_values=True)
        taken = tf.range(1, ranked + 1)[tf.newaxis]
        allowed = last_of_word & (taken <= wanted)
        count = tf.reduce_max(tf.where(allowed, taken, 0), 1, keepdims=True)

        selected = tf.range(limit)[tf.newaxis] < count
        # Ascending; unused slots are last and refer to [CLS].
        positions = tf.sort(tf.where(selected, order[:, :limit], length), 1)
        return tf.where(selected, positions, 0), selected

    def _replace(self, labels, seed):
        """Returns the tokens that replace `labels`, [B, P]."""
        shape = tf.shape(labels)
        draw = tf.random.stateless_uniform(shape, _stream(seed, _REPLACE))
        regular_ids = tf.constant(np.flatnonzero(self._is_regular), tf.int32)
        choice = tf.random.stateless_uniform(
            shape,
            _stream(seed, _RANDOM_TOKEN),
            maxval=len(regular_ids),
            dtype=tf.int32,
        )
        random_ids = tf.gather(regular_ids, choice)
        replaced = tf.where(
            draw < self.mask_token_rate + self.random_token_rate, random_ids, labels
        )
        return tf.where(draw < self.mask_token_rate, self.vocabulary.mask_id, replaced)


def _stream(seed: tuple[int, tf.Tensor], stream: int) -> tf.Tensor:
    """Returns the stateless seed [2] of one random stream of a batch."""
    base, step = seed
    pair = tf.stack([tf.constant(base, tf.int64), tf.cast(step, tf.int64)])
    return tf.random.fold_in(pair, stream) if stream else pair
