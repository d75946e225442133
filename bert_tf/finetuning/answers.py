# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Start and end logits of windows -> answers to questions; graph functions.

Evaluation and the exported model share them. An answer is an exact substring of its
passage. A span may start only at a piece that its window owns (see `text.Windows`), so
that no span counts twice. google-research/bert combines only the 20 best starts and the
20 best ends; here all valid spans compete.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert_tf.finetuning.passages import Passages
from bert_tf.modeling import MASKED_SCORE
from bert_tf.text import Windows, character_offsets, substrings

# Windows whose spans are scored at once in evaluation.
_WINDOWS_AT_ONCE = 1024


class Spans(NamedTuple):
    """The K best spans of each of R windows or questions, best first.

    Attributes:
        starts: First piece, counted in the passage [R, K] int32.
        ends: Last piece, inclusive [R, K] int32.
        start_logits, end_logits: [R, K] float32. With fewer than K spans, the sum of
            both is at most `MASKED_SCORE` for the missing ones.
        null_start_logits, null_end_logits: Logits of "no answer", the span of [CLS]
            alone [R] float32.
    """

    starts: tf.Tensor
    ends: tf.Tensor
    start_logits: tf.Tensor
    end_logits: tf.Tensor
    null_start_logits: tf.Tensor
    null_end_logits: tf.Tensor

    @staticmethod
    def specs(n_best: int) -> Spans:
        """Returns `tf.TensorSpec`s for an unknown R and K = `n_best`."""
        pieces = tf.TensorSpec([None, n_best], tf.int32)
        logits, null_logits = tf.TensorSpec([None, n_best]), tf.TensorSpec([None])
        return Spans(pieces, pieces, logits, logits, null_logits, null_logits)


class Answers(NamedTuple):
    """Candidate answers to N questions, the most probable first.

    There are K candidates, plus one with an empty text if "no answer" is allowed.
    Missing candidates have an empty text and probability 0.

    Attributes:
        texts: Substrings of the passages [N, K] string.
        starts: Offset of the first character (code point) [N, K] int32.
        ends: Offset after the last character [N, K] int32.
        start_bytes: Offset of the first byte of UTF-8 [N, K] int32.
        end_bytes: Offset after the last byte [N, K] int32.
        start_logits, end_logits: [N, K] float32.
        probabilities: Softmax over the sums of both logits [N, K] float32.
        null_odds: Score of "no answer" minus that of the best answer [N] float32.
    """

    texts: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor
    start_bytes: tf.Tensor
    end_bytes: tf.Tensor
    start_logits: tf.Tensor
    end_logits: tf.Tensor
    probabilities: tf.Tensor
    null_odds: tf.Tensor

    def to_n_best(self) -> list[list[dict[str, Any]]]:
        """Returns the n-best list of each question, see `Predictions`; eager only."""
        columns = {
            "text": [
                [text.decode(errors="replace") for text in row]
                for row in self.texts.numpy()
            ],
            "probability": self.probabilities.numpy().tolist(),
            "start_logit": self.start_logits.numpy().tolist(),
            "end_logit": self.end_logits.numpy().tolist(),
        }
        n_best = (
            [dict(zip(columns, values)) for values in zip(*rows)]
            for rows in zip(*columns.values())
        )
        # Missing candidates have probability 0.
        return [[c for c in row if c["probability"] > 0] for row in n_best]


# --- Spans -----------------------------------------------------------------------


def best_spans(
    windows: Windows,
    start_logits: tf.Tensor,
    end_logits: tf.Tensor,
    *,
    max_answer_length: int,
    n_best: int,
) -> Spans:
    """Returns the best spans of each window.

    Args:
        windows: W windows.
        start_logits: [W, S] float32.
        end_logits: [W, S] float32.
        max_answer_length: Maximum pieces of a span, L.
        n_best: K.
    """
    length = tf.shape(start_logits)[1]
    first_token = windows.first_token[:, tf.newaxis]
    piece = tf.range(length) - first_token  # Counted in the window [W, S].
    in_passage = (piece >= 0) & (piece < windows.size[:, tf.newaxis])
    is_owned = windows.owned_pieces(length) >= 0
    start = tf.where(is_owned, start_logits, MASKED_SCORE)
    end = tf.where(in_passage, end_logits, MASKED_SCORE)
    padding = [[0, 0], [0, max_answer_length - 1]]
    end = tf.pad(end, padding, constant_values=MASKED_SCORE)
    band = tf.range(length)[:, tf.newaxis] + tf.range(max_answer_length)  # [S, L]
    scores = start[:, :, tf.newaxis] + tf.gather(end, band, axis=1)  # [W, S, L]
    scores = tf.reshape(scores, [tf.shape(start)[0], length * max_answer_length])
    best = _top_k(scores, n_best)  # [W, K]
    # Missing spans start at the last token, [SEP] or padding, whose logit is masked.
    first = tf.minimum(best // max_answer_length, length - 1)
    last = first + best % max_answer_length
    to_piece = windows.start[:, tf.newaxis] - first_token
    return Spans(
        starts=first + to_piece,
        ends=last + to_piece,
        start_logits=tf.gather(start, first, batch_dims=1),
        end_logits=tf.gather(end, last, batch_dims=1),
        null_start_logits=start_logits[:, 0],
        null_end_logits=end_logits[:, 0],
    )


def merge(passages: Passages, spans: Spans) -> Spans:
    """Returns the best spans of each question, from those of its windows.

    The logits of "no answer" are those of the window where their sum is lowest, as in
    google-research/bert: a passage has no answer if none of its windows has one.
    """

    def best(scores: tf.Tensor) -> tf.Tensor:
        """Flat indices [N, k] of each question's k best of scores [W, k]."""
        k = scores.shape[1]
        rows = tf.RaggedTensor.from_value_rowids(
            scores,
            tf.cast(passages.windows.row, tf.int64),
            tf.size(passages.context, tf.int64),
            validate=False,
        )
        scores = rows.to_tensor(-math.inf)  # [N, windows, k]
        scores = tf.reshape(scores, [tf.shape(scores)[0], tf.shape(scores)[1] * k])
        first = tf.cast(rows.row_starts(), tf.int32)[:, tf.newaxis] * k
        return first + _top_k(scores, k)

    def take(values: tf.Tensor, indices: tf.Tensor) -> tf.Tensor:
        return tf.gather(tf.reshape(values, [-1]), indices)

    indices = best(spans.start_logits + spans.end_logits)
    null_scores = spans.null_start_logits + spans.null_end_logits
    null_indices = best(-null_scores[:, tf.newaxis])[:, 0]
    return Spans(
        *(take(values, indices) for values in spans[:4]),
        *(take(values, null_indices) for values in spans[4:]),
    )


def _top_k(scores: tf.Tensor, k: int) -> tf.Tensor:
    """Column indices of the k best scores; those of missing ones are too large."""
    scores = tf.pad(scores, [[0, 0], [0, k]], constant_values=-math.inf)
    return tf.math.top_k(scores, k).indices


# --- Answers ---------------------------------------------------------------------


def answers_from_model(
    model: keras.Model,
    passages: Passages,
    *,
    max_answer_length: int,
    n_best: int,
    no_answer: bool,
) -> Answers:
    """Runs a model on all windows and returns the candidate answers.

    Args:
        model: Returns `start_logits` and `end_logits`, [W, S] float32 each.
        passages: From `cut_passages`.
        max_answer_length: Maximum pieces of an answer.
        n_best: Number of candidates.
        no_answer: Whether "no answer" is one more candidate.
    """

    def spans(windows: Windows) -> Spans:
        logits = model(windows.inputs(), training=False)
        return best_spans(
            windows, **logits, max_answer_length=max_answer_length, n_best=n_best
        )

    spans = passages.windows.map(spans, Spans.specs(n_best))
    return extract(passages, merge(passages, spans), no_answer)


def answers_from_logits(
    outputs: Sequence[Mapping[str, np.ndarray]],
    passages: Passages,
    *,
    max_answer_length: int,
    n_best: int,
    no_answer: bool,
) -> Answers:
    """As `answers_from_model`, from the model's outputs for each of W windows."""
    parts = []
    for begin in range(0, len(outputs), _WINDOWS_AT_ONCE):
        part = slice(begin, begin + _WINDOWS_AT_ONCE)
        logits = {
            name: keras.utils.pad_sequences(
                [output[name] for output in outputs[part]], None, "float32", "post"
            )
            for name in ("start_logits", "end_logits")
        }
        parts.append(
            best_spans(
                passages.windows[part],
                **logits,
                max_answer_length=max_answer_length,
                n_best=n_best,
            )
        )
    spans = Spans(*(tf.concat(columns, axis=0) for columns in zip(*parts)))
    return extract(passages, merge(passages, spans), no_answer)


def extract(passages: Passages, spans: Spans, no_answer: bool) -> Answers:
    """Extracts the spans' texts from the passages; of equal texts, keeps the best.

    Args:
        passages: N passages.
        spans: The spans of each question, from `merge`.
        no_answer: Whether "no answer" is a candidate.
    """
    columns = _substrings(passages, spans)
    scores = spans.start_logits + spans.end_logits  # [N, K]
    texts = columns["texts"]
    is_equal = texts[:, :, tf.newaxis] == texts[:, tf.newaxis]  # [N, K, K]
    is_earlier = np.tri(texts.shape[1], k=-1, dtype=bool)
    is_duplicate = tf.reduce_any(is_equal & is_earlier, axis=2)
    # Only a missing span has an empty text: every piece has at least one byte.
    is_answer = (texts != "") & ~is_duplicate
    scores = tf.where(is_answer, scores, MASKED_SCORE)
    columns = {
        name: tf.where(is_answer, values, tf.zeros([], values.dtype))
        for name, values in columns.items()
    }
    columns["start_logits"] = spans.start_logits
    columns["end_logits"] = spans.end_logits

    null_score = spans.null_start_logits + spans.null_end_logits  # [N]
    null_odds = null_score - scores[:, 0]
    if no_answer:
        scores = tf.concat([scores, null_score[:, tf.newaxis]], axis=1)
        null_logits = {
            "start_logits": spans.null_start_logits[:, tf.newaxis],
            "end_logits": spans.null_end_logits[:, tf.newaxis],
        }
        columns = {
            name: tf.concat(
                [values, null_logits.get(name, tf.zeros_like(values[:, :1]))], axis=1
            )
            for name, values in columns.items()
        }
    columns["probabilities"] = tf.where(
        scores > MASKED_SCORE / 2, tf.nn.softmax(scores), 0.0
    )
    order = tf.math.top_k(scores, scores.shape[1]).indices
    return Answers(
        **{name: tf.gather(x, order, batch_dims=1) for name, x in columns.items()},
        null_odds=null_odds,
    )


def _substrings(passages: Passages, spans: Spans) -> dict[str, tf.Tensor]:
    """Texts and offsets of spans, each [N, K]; "" and 0 for missing spans."""
    is_span = tf.reshape(spans.start_logits + spans.end_logits > MASKED_SCORE / 2, [-1])
    shape = tf.shape(spans.starts)
    row = tf.repeat(tf.range(shape[0]), shape[1])  # [N * K], as all below.

    def offset(offsets: tf.RaggedTensor, piece: tf.Tensor) -> tf.Tensor:
        index = tf.gather(passages.starts, row) + tf.reshape(piece, [-1])
        offsets = tf.concat([offsets.values, [0]], axis=0)  # Never empty.
        return tf.where(is_span, tf.gather(offsets, tf.where(is_span, index, 0)), 0)

    start = offset(passages.pieces.starts, spans.starts)
    end = offset(passages.pieces.ends, spans.ends)
    columns = {
        "texts": substrings(passages.context, row, start, end),
        "starts": character_offsets(passages.context, row, start),
        "ends": character_offsets(passages.context, row, end),
        "start_bytes": start,
        "end_bytes": end,
    }
    return {name: tf.reshape(x, shape) for name, x in columns.items()}


def choose_answers(candidates: Answers, threshold: float | None) -> Answers:
    """Returns the answer to each question: all columns [N].

    Args:
        candidates: Candidates [N, K].
        threshold: Questions with higher `null_odds` get the answer ""; None answers
            all.
    """
    is_wanted = candidates.texts != ""
    if threshold is not None:
        is_wanted ^= (candidates.null_odds > threshold)[:, tf.newaxis]
    column = tf.argmax(tf.cast(is_wanted, tf.int32), axis=1)[:, tf.newaxis]
    *columns, null_odds = candidates
    columns = (tf.gather(values, column, batch_dims=1)[:, 0] for values in columns)
    return Answers(*columns, null_odds)
