# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Questions about passages -> windows -> logits -> answers, as graph functions.

The same functions make the training data, score dev, and answer inside a SavedModel.
In: strings, question [N] and context [N], the passage. Out: `Answers`, each an exact
substring of its context. In between:

    cut              strings -> word pieces and the W windows of the passages (W >= N)
    inputs           windows -> what the model takes, [W, S]
    spans            logits [W, S] -> the K best spans of each window
    spans_of         the two above, with a model in between, a few windows at a time
    merge            spans of windows -> the K best spans of each question
    answers          spans of pieces -> substrings, with their probabilities
    chosen           the one of them to give

A window holds the question and as many pieces of the passage as fit; the next one
begins `stride` pieces later. A piece can be the start of an answer only in the window
where it has most context on both sides, by the rule of google-research/bert, so that no
span counts twice. Beyond that code, all valid spans compete, not only those between the
20 best starts and the 20 best ends.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert_tf.text.spans import characters, substrings
from bert_tf.text.tokenizer import Pieces, Tokenizer

# The logit of what is not in the passage. Finite, so that nothing becomes NaN.
NO_SCORE = -1e9
_WORST = -math.inf

# Windows that a model sees at once, which bounds the memory that a passage takes.
_WINDOWS_AT_ONCE = 32


class Windows(NamedTuple):
    """W windows in the order of their N questions. All [W] int32.

    Attributes:
        row: The number of the question.
        question_start: Its first piece, counted through all texts.
        question_size: Pieces of the question.
        context_start: The first piece of the passage, counted through all texts.
        first: The first piece of the window, counted in the passage.
        size: Pieces of the passage in the window.
        previous_size: `size` of the window before, 0 at the beginning of a passage.
        next_size: `size` of the window behind, 0 at the end of a passage.
        stride: Pieces from the beginning of one window to that of the next.
    """

    row: tf.Tensor
    question_start: tf.Tensor
    question_size: tf.Tensor
    context_start: tf.Tensor
    first: tf.Tensor
    size: tf.Tensor
    previous_size: tf.Tensor
    next_size: tf.Tensor
    stride: tf.Tensor

    @property
    def passage_start(self) -> tf.Tensor:
        """The place of the first piece of the passage in each row."""
        return self.question_size + 2  # [CLS] and [SEP].


class Spans(NamedTuple):
    """The K best spans of each of R windows or questions, the best first.

    Attributes:
        starts: First piece, counted in the passage, [R, K] int32.
        ends: Last piece [R, K] int32.
        start_logits: [R, K] float32; with `end_logits`, at most `NO_SCORE` where there
            are fewer than K spans.
        end_logits: [R, K] float32.
        null_start_logits: Those of "no answer", the span of [CLS] alone, [R] float32.
        null_end_logits: [R] float32.
    """

    starts: tf.Tensor
    ends: tf.Tensor
    start_logits: tf.Tensor
    end_logits: tf.Tensor
    null_start_logits: tf.Tensor
    null_end_logits: tf.Tensor


class Answers(NamedTuple):
    """Candidates for the answers to N questions, the most probable first.

    There are K of them, and one more if "no answer" is one, whose text is empty. Where
    a passage has fewer, the last ones have probability 0 and an empty text.

    Attributes:
        texts: Substrings of the contexts [N, K] string.
        starts: First character (code point), [N, K] int32.
        ends: The character behind [N, K] int32.
        start_bytes: First byte of the context's UTF-8 [N, K] int32.
        end_bytes: The byte behind [N, K] int32.
        start_logits: [N, K] float32.
        end_logits: [N, K] float32.
        probabilities: Softmax over the sums of the logits [N, K] float32.
        null_odds: By how much the score of "no answer" exceeds that of the best
            answer [N] float32.
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


# --- Windows ---------------------------------------------------------------------


def cut(
    tokenizer: Tokenizer,
    question: tf.Tensor,
    context: tf.Tensor,
    *,
    max_sequence_length: int,
    max_question_length: int,
    stride: int,
) -> tuple[Pieces, Windows]:
    """Tokenises questions and their passages and plans the windows.

    Args:
        tokenizer: The tokenizer of the encoder.
        question: Strings [N]; an empty one is a question without pieces.
        context: Strings [N]; an empty one has one window without pieces.
        max_sequence_length: Most tokens of a window, question and special tokens
            included; at least `max_question_length` + 4.
        max_question_length: Most pieces of a question; the rest of it is left out.
        stride: Pieces from window to window, or as many as fit if that is less.

    Returns:
        The pieces of 2N texts, all questions before all contexts, and the windows.

    Raises:
        tf.errors.InvalidArgumentError: There are not as many contexts as questions.
    """
    tf.debugging.assert_equal(
        tf.size(question), tf.size(context), "`context` must have a text per question."
    )
    pieces = tokenizer.tokenize_with_offsets(tf.concat([question, context], axis=0))
    starts = tf.cast(pieces.ids.row_starts(), tf.int32)
    sizes = tf.cast(pieces.ids.row_lengths(), tf.int32)
    question_start, context_start = tf.split(starts, 2)  # [N] each, as all below.
    question_size, context_size = tf.split(sizes, 2)
    question_size = tf.minimum(question_size, max_question_length)
    capacity = max_sequence_length - 3 - question_size
    stride = tf.minimum(stride, capacity)
    count = 1 + (tf.maximum(context_size - capacity, 0) + stride - 1) // stride

    number = tf.ragged.range(count)  # Of a window among those of its passage.
    row = tf.cast(number.value_rowids(), tf.int32)  # [W], as all below.
    number = number.values
    capacity, stride, count = (tf.gather(x, row) for x in (capacity, stride, count))
    context_size = tf.gather(context_size, row)

    def size(number: tf.Tensor) -> tf.Tensor:
        exists = (number >= 0) & (number < count)
        return tf.where(exists, tf.minimum(context_size - number * stride, capacity), 0)

    return pieces, Windows(
        row=row,
        question_start=tf.gather(question_start, row),
        question_size=tf.gather(question_size, row),
        context_start=tf.gather(context_start, row),
        first=number * stride,
        size=size(number),
        previous_size=size(number - 1),
        next_size=size(number + 1),
        stride=stride,
    )


def inputs(
    tokenizer: Tokenizer, pieces: Pieces, windows: Windows
) -> dict[str, tf.Tensor]:
    """Returns `token_ids`, `segment_ids` and `padding_mask`, each [W, S] int32."""
    return tokenizer.pack(
        Pieces(pieces.ids, None, None),
        [windows.question_start, windows.context_start + windows.first],
        [windows.question_size, windows.size],
    )


def _has_most_context(windows: Windows, place: tf.Tensor) -> tf.Tensor:
    """Whether pieces have more context in their window than in its neighbours.

    Among windows of equal size, what a piece has rises and then falls, and the last
    one, which may be shorter, only has less: so no other window has more than both
    neighbours. Of two that have equally much, it is the earlier one.

    Args:
        windows: W windows.
        place: Of the pieces, counted from the first one in the window [W, S].
    """

    def context(place: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
        size = size[:, tf.newaxis]
        smaller_side = tf.minimum(place, size - 1 - place)
        # A hundredth of a piece for each piece in the window, in whole numbers.
        return tf.where(smaller_side >= 0, 100 * smaller_side + size, -1)

    stride = windows.stride[:, tf.newaxis]
    here = context(place, windows.size)
    before = context(place + stride, windows.previous_size)
    behind = context(place - stride, windows.next_size)
    return (here > before) & (here >= behind)


# --- Spans -----------------------------------------------------------------------


def spans(
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
        max_answer_length: Most pieces of a span, L.
        n_best: K.
    """
    length = tf.shape(start_logits)[1]
    passage_start = windows.passage_start[:, tf.newaxis]
    place = tf.range(length) - passage_start  # [W, S]
    in_passage = (place >= 0) & (place < windows.size[:, tf.newaxis])
    may_start = in_passage & _has_most_context(windows, place)
    start = tf.where(may_start, start_logits, NO_SCORE)
    end = tf.where(in_passage, end_logits, NO_SCORE)
    end = tf.pad(end, [[0, 0], [0, max_answer_length - 1]], constant_values=NO_SCORE)
    band = tf.range(length)[:, tf.newaxis] + tf.range(max_answer_length)  # [S, L]
    scores = start[:, :, tf.newaxis] + tf.gather(end, band, axis=1)  # [W, S, L]
    scores = tf.reshape(scores, [tf.shape(start)[0], length * max_answer_length])
    best = _top_k(scores, n_best)  # [W, K]
    # Where there are too few, the last token, which is not in the passage.
    first = tf.minimum(best // max_answer_length, length - 1)
    last = first + best % max_answer_length
    to_piece = windows.first[:, tf.newaxis] - passage_start
    return Spans(
        starts=first + to_piece,
        ends=last + to_piece,
        start_logits=tf.gather(start, first, batch_dims=1),
        end_logits=tf.gather(end, last, batch_dims=1),
        null_start_logits=start_logits[:, 0],
        null_end_logits=end_logits[:, 0],
    )


def spans_of(
    model: keras.Model,
    tokenizer: Tokenizer,
    pieces: Pieces,
    windows: Windows,
    *,
    max_answer_length: int,
    n_best: int,
) -> Spans:
    """Runs a model on all windows, a few at a time, for `spans` of them.

    Args:
        model: From `inputs` to `start_logits` and `end_logits`, [W, S] each.
        tokenizer: The tokenizer of the encoder.
        pieces: From `cut`.
        windows: From `cut`.
        max_answer_length: See `spans`.
        n_best: See `spans`.
    """

    def some(begin: tf.Tensor) -> Spans:
        few = Windows(*(x[begin : begin + _WINDOWS_AT_ONCE] for x in windows))
        logits = model(inputs(tokenizer, pieces, few), training=False)
        return spans(
            few,
            logits["start_logits"],
            logits["end_logits"],
            max_answer_length=max_answer_length,
            n_best=n_best,
        )

    def step(begin: tf.Tensor, found: Spans) -> tuple[tf.Tensor, Spans]:
        pairs = zip(found, some(begin))
        return begin + _WINDOWS_AT_ONCE, Spans(*(tf.concat(p, axis=0) for p in pairs))

    dtypes = [tf.int32] * 2 + [tf.float32] * 4
    shapes = [[n_best]] * 4 + [[]] * 2
    nothing = Spans(*(tf.zeros([0, *s], d) for s, d in zip(shapes, dtypes)))
    _, found = tf.while_loop(
        lambda begin, _: begin < tf.size(windows.row),
        step,
        (tf.constant(0), nothing),
        (tf.TensorShape([]), Spans(*(tf.TensorShape([None, *s]) for s in shapes))),
        parallel_iterations=1,
    )
    return found


def merge(windows: Windows, found: Spans, num_questions: int | tf.Tensor) -> Spans:
    """Returns the best spans of each question, out of those of its windows.

    The logits of "no answer" are those of the window where they are lowest, as in
    google-research/bert: a passage has no answer if none of its windows has one.

    Args:
        windows: W windows.
        found: Their spans [W, K].
        num_questions: N.
    """

    def best(scores: tf.Tensor) -> tf.Tensor:
        """From scores [W, k] to the places of the k best of each question [N, k]."""
        k = scores.shape[1]
        rows = tf.RaggedTensor.from_value_rowids(
            scores, tf.cast(windows.row, tf.int64), num_questions, validate=False
        )
        scores = rows.to_tensor(_WORST)  # [N, windows, k]
        scores = tf.reshape(scores, [tf.shape(scores)[0], tf.shape(scores)[1] * k])
        begin = tf.cast(rows.row_starts(), tf.int32)[:, tf.newaxis] * k
        return begin + _top_k(scores, k)  # The windows of a question are neighbours.

    def take(values: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
        return tf.gather(tf.reshape(values, [-1]), places)

    num_questions = tf.cast(num_questions, tf.int64)
    places = best(found.start_logits + found.end_logits)
    null_scores = found.null_start_logits + found.null_end_logits
    null_places = best(-null_scores[:, tf.newaxis])[:, 0]
    return Spans(
        *(take(values, places) for values in found[:4]),
        *(take(values, null_places) for values in found[4:]),
    )


def _top_k(scores: tf.Tensor, k: int) -> tf.Tensor:
    """Columns of the k best scores, also where there are fewer columns."""
    scores = tf.pad(scores, [[0, 0], [0, k]], constant_values=_WORST)
    return tf.math.top_k(scores, k).indices


# --- Answers ---------------------------------------------------------------------


def answers(
    context: tf.Tensor, pieces: Pieces, best: Spans, *, no_answer: bool
) -> Answers:
    """Cuts the answers out of the passages; of equal texts only the best stays.

    Args:
        context: Strings [N].
        pieces: From `cut`.
        best: The spans of each question, from `merge`.
        no_answer: Whether "no answer" is a candidate.
    """
    columns = _cut_out(context, pieces, best)
    scores = best.start_logits + best.end_logits  # [N, K]
    texts = columns["texts"]
    is_equal = texts[:, :, tf.newaxis] == texts[:, tf.newaxis]  # [N, K, K]
    is_earlier = np.tri(texts.shape[1], k=-1, dtype=bool)
    is_repeated = tf.reduce_any(is_equal & is_earlier, axis=2)
    # What is no span has no text, and a span has some: a piece has bytes.
    is_answer = (texts != "") & ~is_repeated
    scores = tf.where(is_answer, scores, NO_SCORE)
    columns = {
        name: tf.where(is_answer, values, tf.zeros([], values.dtype))
        for name, values in columns.items()
    }
    columns["start_logits"] = best.start_logits
    columns["end_logits"] = best.end_logits

    null_score = best.null_start_logits + best.null_end_logits  # [N]
    null_odds = null_score - scores[:, 0]
    if no_answer:
        scores = tf.concat([scores, null_score[:, tf.newaxis]], axis=1)
        null_logits = {
            "start_logits": best.null_start_logits[:, tf.newaxis],
            "end_logits": best.null_end_logits[:, tf.newaxis],
        }
        columns = {
            name: tf.concat(
                [values, null_logits.get(name, tf.zeros_like(values[:, :1]))], axis=1
            )
            for name, values in columns.items()
        }
    columns["probabilities"] = tf.where(
        scores > NO_SCORE / 2, tf.nn.softmax(scores), 0.0
    )
    order = tf.math.top_k(scores, scores.shape[1]).indices
    return Answers(
        **{name: tf.gather(x, order, batch_dims=1) for name, x in columns.items()},
        null_odds=null_odds,
    )


def _cut_out(context: tf.Tensor, pieces: Pieces, best: Spans) -> dict[str, tf.Tensor]:
    """Texts, bytes and characters of spans [N, K]; "" and 0 for what is no span."""
    is_span = tf.reshape(best.start_logits + best.end_logits > NO_SCORE / 2, [-1])
    row_starts = tf.cast(pieces.ids.row_starts(), tf.int32)
    _, context_start = tf.split(row_starts, 2)  # Contexts come behind questions.
    shape = tf.shape(best.starts)
    row = tf.repeat(tf.range(shape[0]), shape[1])  # [N * K], as all below.

    def byte(offsets: tf.RaggedTensor, piece: tf.Tensor) -> tf.Tensor:
        place = tf.gather(context_start, row) + tf.reshape(piece, [-1])
        # Whole batches may be without pieces.
        offsets = tf.concat([offsets.values, [0]], axis=0)
        return tf.where(is_span, tf.gather(offsets, tf.where(is_span, place, 0)), 0)

    start = byte(pieces.starts, best.starts)
    end = byte(pieces.ends, best.ends)
    columns = {
        "texts": substrings(context, row, start, end),
        "starts": characters(context, row, start),
        "ends": characters(context, row, end),
        "start_bytes": start,
        "end_bytes": end,
    }
    return {name: tf.reshape(x, tf.shape(best.starts)) for name, x in columns.items()}


def chosen(found: Answers, threshold: float | None) -> Answers:
    """The answer to give to each question: all [N], and `null_odds` as it is.

    Args:
        found: Candidates [N, K].
        threshold: The highest `null_odds` of a question that is answered; None: all
            are.
    """
    is_wanted = found.texts != ""
    if threshold is not None:
        is_wanted ^= (found.null_odds > threshold)[:, tf.newaxis]
    column = tf.argmax(tf.cast(is_wanted, tf.int32), axis=1)[:, tf.newaxis]
    *columns, null_odds = found
    columns = (tf.gather(values, column, batch_dims=1)[:, 0] for values in columns)
    return Answers(*columns, null_odds)
