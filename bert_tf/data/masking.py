# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Masks tokens for the masked language model, as TensorFlow graph functions.

B rows in a batch, S tokens in a row, P predictions.

Masks depend only on the seed and the number of the batch. All shapes are static. This
module does not require tensorflow-text.
"""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np

from bert_tf.lazy import lazy_import
from bert_tf.text import Vocabulary

tf = lazy_import("tensorflow")

# Each kind of random draw in a batch has its own random stream.
_SELECT, _REPLACE, _RANDOM_TOKEN = range(3)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Masker:
    """Masks batches for the masked language model (paper, section 3.1, task 1).

    As in google-research/bert, a row of n tokens gets round(n * rate) predictions, at
    least one and at most P = rate * S, rounded up. Special tokens are not selected and
    not drawn as random tokens.

    Args:
        vocabulary: The vocabulary of the records.
        mask_selection_rate: Share of the tokens to predict.
        whole_word_masking: Select all tokens of a word together.
        mask_token_rate: Share of the selected tokens that become [MASK].
        random_token_rate: Share that become a random token. The others are kept.

    Raises:
        ValueError: A rate is out of range.
    """

    vocabulary: Vocabulary
    mask_selection_rate: float = 0.15
    whole_word_masking: bool = False
    mask_token_rate: float = 0.8
    random_token_rate: float = 0.1

    def __post_init__(self):
        if not 0 < self.mask_selection_rate <= 1:
            raise ValueError(
                "`mask_selection_rate` must be above 0 and at most 1. Got "
                f"mask_selection_rate={self.mask_selection_rate}."
            )
        rates = self.mask_token_rate, self.random_token_rate
        if min(rates) < 0 or sum(rates) > 1:
            raise ValueError(
                "`mask_token_rate` and `random_token_rate` must be at least 0, and "
                f"their sum at most 1. Got {rates[0]} and {rates[1]}."
            )

    def __call__(self, batch: dict[str, tf.Tensor], seed: tuple[int, tf.Tensor]):
        """Masks a batch of rows.

        Args:
            batch: Inputs of the encoder, [B, S] and [B, Q] int32, and `is_random_next`
                [B, Q] int32, -1 in unused slots.
            seed: (seed of the run, number of the batch).

        Returns:
            `(x, y, sample_weight)`, see `bert_tf.data.records`.
        """
        token_ids = batch["token_ids"]
        is_token = batch["padding_mask"] > 0
        positions, selected = self._select(token_ids, is_token, _stream(seed, _SELECT))
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
        weights = {"mlm": selected, "nsp": is_random_next >= 0}
        for name, used in weights.items():
            weight = tf.cast(used, tf.float32)
            # Sums to one over the global batch, so that replicas add their losses.
            weights[name] = tf.math.divide_no_nan(weight, tf.reduce_sum(weight))
        return x, {"mlm": labels, "nsp": tf.maximum(is_random_next, 0)}, weights

    @functools.cached_property
    def _is_regular(self) -> np.ndarray:
        """Whether each token is not special, bool [V]."""
        return ~np.isin(range(self.vocabulary.size), self.vocabulary.special_ids)

    def _select(self, token_ids, is_token, seed):
        """Selects tokens to predict: the first ones in random order.

        Returns:
            Sorted positions [B, P] int32, and whether each is a prediction [B, P] bool.
            The positions of unused slots are 0.
        """
        batch_size, length = token_ids.shape  # [B, S]
        rate = self.mask_selection_rate
        limit = math.ceil(length * rate)
        selectable = tf.gather(self._is_regular, token_ids) & is_token
        # float64, as in Python, so that 30 * 0.15 rounds like 4.5.
        tokens = tf.reduce_sum(tf.cast(is_token, tf.float64), 1)
        wanted = tf.clip_by_value(tf.cast(tf.round(tokens * rate), tf.int32), 1, limit)
        available = tf.reduce_sum(tf.cast(selectable, tf.int32), 1)
        wanted = tf.minimum(wanted, available)[:, tf.newaxis]

        draws = tf.random.stateless_uniform((batch_size, length), seed)
        if self.whole_word_masking:
            order, selected = self._select_words(token_ids, selectable, draws, wanted)
        else:
            draws = tf.where(selectable, draws, 2.0)
            order = tf.math.top_k(-draws, limit).indices  # [B, P]
            selected = tf.range(limit)[tf.newaxis] < wanted
        # Ascending; unused slots are last and refer to [CLS].
        positions = tf.sort(tf.where(selected, order, length), 1)[:, :limit]
        return tf.where(positions < length, positions, 0), positions < length

    def _select_words(self, token_ids, selectable, draws, wanted):
        """Selects all tokens of words, in random order, that fit into `wanted` [B, 1].

        A word that does not fit is skipped, as in google-research/bert.

        Returns:
            All positions in random order, and whether each is selected, [B, S].
        """
        batch_size, length = token_ids.shape
        starts = ~tf.gather(self.vocabulary.is_continuation, token_ids)
        word = tf.cumsum(tf.cast(starts, tf.int32), axis=1)  # From 0 to S.
        # Number of tokens in each word, and of those that follow a token in its word.
        is_token = tf.cast(selectable, tf.int32)
        segments = word + tf.range(batch_size)[:, tf.newaxis] * (length + 1)
        sizes = tf.math.unsorted_segment_sum(
            tf.reshape(is_token, [-1]),
            tf.reshape(segments, [-1]),
            batch_size * (length + 1),
        )
        sizes = tf.reshape(sizes, [batch_size, length + 1])
        following = tf.gather(tf.cumsum(sizes, axis=1), word, batch_dims=1)
        following -= tf.cumsum(is_token, axis=1)
        # The tokens of a word have equal draws and stay in order: top_k is stable.
        draws = tf.gather(draws, word % length, batch_dims=1)
        order = tf.math.top_k(-tf.where(selectable, draws, 2.0), length).indices
        sizes, following, candidates = (
            tf.gather(values, order, batch_dims=1)
            for values in (tf.gather(sizes, word, batch_dims=1), following, selectable)
        )

        def skip(kept, _):
            """Drops the words that are longer than the room after the first ones."""
            ends = tf.cumsum(tf.cast(kept, tf.int32), axis=1) + following
            fits = kept & (ends <= wanted)
            taken = tf.reduce_max(tf.where(fits, ends, 0), 1, keepdims=True)
            fitting = fits | (kept & (sizes <= wanted - taken))
            return fitting, tf.reduce_any(fitting != kept)

        loop = (lambda _, is_changed: is_changed), skip, (candidates, True)
        return order, tf.while_loop(*loop)[0]

    def _replace(self, labels, seed):
        """Returns the tokens that replace `labels`, [B, P]."""
        shape = tf.shape(labels)
        draw = tf.random.stateless_uniform(shape, _stream(seed, _REPLACE))
        regular_ids = tf.constant(np.flatnonzero(self._is_regular), tf.int32)
        choice = tf.random.stateless_uniform(
            shape, _stream(seed, _RANDOM_TOKEN), maxval=len(regular_ids), dtype=tf.int32
        )
        random_ids = tf.gather(regular_ids, choice)
        is_replaced = draw < self.mask_token_rate + self.random_token_rate
        replaced = tf.where(is_replaced, random_ids, labels)
        return tf.where(draw < self.mask_token_rate, self.vocabulary.mask_id, replaced)


def _stream(seed: tuple[int, tf.Tensor], stream: int) -> tf.Tensor:
    """Returns the stateless seed [2] of one random stream of a batch."""
    base, step = seed
    pair = tf.stack([tf.constant(base, tf.int64), tf.cast(step, tf.int64)])
    return tf.random.fold_in(pair, stream) if stream else pair
