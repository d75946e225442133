# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Windows, spans and answers against plain loops over the rules of the originals."""

import random

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.text import passages
from bert_tf.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tokenizer(vocabulary):
    return Tokenizer(vocabulary)


def letters(count: int, seed: int = 0) -> str:
    """A text of `count` tokens."""
    return " ".join(random.Random(seed).choices("abcdefghijklmnopqrstuvwxyz", k=count))


def cut(tokenizer, questions, contexts, **options):
    limits = {"max_sequence_length": 24, "max_question_length": 8, "stride": 5}
    return passages.cut(
        tokenizer, tf.constant(questions), tf.constant(contexts), **(limits | options)
    )


# --- Windows ---------------------------------------------------------------------


def windows_of_google(size: int, capacity: int, stride: int) -> list[tuple[int, int]]:
    """(first piece, size) of the windows in run_squad.py of google-research/bert."""
    found, first = [], 0
    while not found or sum(found[-1]) < size:
        found.append((first, min(capacity, size - first)))
        first += min(stride, capacity)
    return found


def window_of_google(windows: list[tuple[int, int]], piece: int) -> int:
    """The window in which `piece` has its greatest context there."""

    def context(first, size):
        if not first <= piece < first + size:
            return -1
        return min(piece - first, first + size - 1 - piece) + 0.01 * size

    contexts = [context(*window) for window in windows]
    return contexts.index(max(contexts))


@pytest.mark.parametrize("max_sequence_length", [12, 24])
@pytest.mark.parametrize("stride", [1, 5, 100])
def test_windows_are_those_of_google(tokenizer, max_sequence_length, stride):
    sizes = [0, 1, 4, 12, 13, 14, 20, 37, 64]
    question_sizes = [3, 0, 8, 4, 9, 20, 1, 2, 8]
    _, windows = cut(
        tokenizer,
        [letters(size) for size in question_sizes],
        [letters(size) for size in sizes],
        max_sequence_length=max_sequence_length,
        stride=stride,
    )
    expected = []
    for row, (size, question_size) in enumerate(zip(sizes, question_sizes)):
        capacity = max_sequence_length - 3 - min(question_size, 8)
        for window in windows_of_google(size, capacity, stride):
            expected.append((row, *window))
    found = zip(
        *(x.numpy().tolist() for x in (windows.row, windows.first, windows.size))
    )
    assert list(found) == expected


@pytest.mark.parametrize(("size", "stride"), [(61, 7), (61, 6), (25, 12), (27, 1)])
def test_each_piece_starts_spans_where_it_has_most_context(tokenizer, size, stride):
    _, windows = cut(tokenizer, ["a b"], [letters(size)], stride=stride)
    plan = list(zip(windows.first.numpy().tolist(), windows.size.numpy().tolist()))
    # Spans of one piece; every piece is among so many.
    logits = tf.zeros([len(plan), 24])
    found = passages.spans(windows, logits, logits, max_answer_length=1, n_best=24)
    starters = {
        (window, int(piece))
        for window in range(len(plan))
        for piece, logit in zip(
            found.starts[window].numpy(), found.start_logits[window].numpy()
        )
        if logit == 0
    }
    assert starters == {(window_of_google(plan, p), p) for p in range(size)}


def test_long_windows_that_differ_in_size_by_more_than_a_hundred(tokenizer):
    """There the size counts for more than a piece of context."""
    limits = {"max_sequence_length": 384, "max_question_length": 64, "stride": 128}
    size = 384 - 3 - 2 + 1  # One more than fits.
    _, windows = cut(tokenizer, ["a b"], [letters(size)], **limits)
    plan = list(zip(windows.first.numpy().tolist(), windows.size.numpy().tolist()))
    assert plan == [(0, 379), (128, 252)]
    logits = tf.zeros([2, 384])
    found = passages.spans(windows, logits, logits, max_answer_length=1, n_best=384)
    in_second = found.starts[1].numpy()[found.start_logits[1].numpy() == 0]
    expected = [p for p in range(size) if window_of_google(plan, p) == 1]
    assert sorted(in_second) == expected
    assert expected == [379]


def test_rows_hold_the_question_and_a_part_of_the_passage(tokenizer, vocabulary):
    pieces, windows = cut(
        tokenizer, ["the cat", ""], ["a b c d", "x"], max_sequence_length=8,
        max_question_length=2, stride=2,
    )  # fmt: skip
    inputs = passages.inputs(tokenizer, pieces, windows)
    tokens = [
        " ".join(vocabulary.tokens[i] for i in row) for row in inputs["token_ids"]
    ]
    assert tokens == [
        "[CLS] the cat [SEP] a b c [SEP]",
        "[CLS] the cat [SEP] c d [SEP] [PAD]",
        "[CLS] [SEP] x [SEP] [PAD] [PAD] [PAD] [PAD]",
    ]
    np.testing.assert_array_equal(
        inputs["segment_ids"],
        [[0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 1, 1, 1, 0], [0, 0, 1, 1, 0, 0, 0, 0]],
    )
    np.testing.assert_array_equal(
        inputs["padding_mask"], np.not_equal(inputs["token_ids"], 0)
    )


# --- Spans -----------------------------------------------------------------------


def random_logits(windows, seed):
    rng = np.random.default_rng(seed)
    shape = [len(windows.row), 24]
    return [tf.constant(rng.normal(size=shape).astype(np.float32)) for _ in range(2)]


def spans_by_loops(windows, start_logits, end_logits, row, max_answer_length):
    """(score, first piece, last piece) of all valid spans of a question, best first."""
    windows = passages.Windows(*(x.numpy() for x in windows))
    mine = np.flatnonzero(windows.row == row)
    plan = [(windows.first[w], windows.size[w]) for w in mine]
    found = []
    for number, window in enumerate(mine):
        first, size = plan[number]
        offset = windows.question_size[window] + 2 - first
        for start in range(first, first + size):
            if window_of_google(plan, start) != number:
                continue
            for end in range(start, min(start + max_answer_length, first + size)):
                score = start_logits[window, start + offset]
                score += end_logits[window, end + offset]
                found.append((float(score), start, end))
    null = min(float(start_logits[w, 0] + end_logits[w, 0]) for w in mine)
    return sorted(found, reverse=True), null


def test_the_best_of_all_valid_spans(tokenizer):
    contexts = [letters(50), letters(3), "", letters(20)]
    _, windows = cut(tokenizer, ["a b", "", "c", letters(9)], contexts)
    logits = random_logits(windows, 0)
    found = passages.spans(windows, *logits, max_answer_length=4, n_best=7)
    best = passages.merge(windows, found, 4)
    scores = (best.start_logits + best.end_logits).numpy()
    for row in range(4):
        expected, null = spans_by_loops(windows, *logits, row, 4)
        count = min(7, len(expected))
        assert [
            (score, start, end)
            for score, start, end in zip(
                scores[row], best.starts[row].numpy(), best.ends[row].numpy()
            )
        ][:count] == [(pytest.approx(s, abs=1e-6), *span) for s, *span in expected[:7]]
        assert (scores[row, count:] <= passages.NO_SCORE / 2).all()
        null_score = best.null_start_logits[row] + best.null_end_logits[row]
        assert float(null_score) == pytest.approx(null, abs=1e-6)


def test_more_candidates_than_spans(tokenizer):
    _, windows = cut(tokenizer, ["a"], ["b"], max_sequence_length=12)
    logits = tf.zeros([1, 5])
    found = passages.spans(windows, logits, logits, max_answer_length=1, n_best=9)
    scores = (found.start_logits + found.end_logits).numpy()[0]
    assert scores[0] == 0
    assert (scores[1:] <= passages.NO_SCORE).all()


class Model:
    """Logits that depend on token, place and segment; counts how often it is called."""

    rows = ()

    def __call__(self, inputs, training):
        assert training is False
        self.rows = (*self.rows, len(inputs["token_ids"]))
        place = tf.range(tf.shape(inputs["token_ids"])[1]) * inputs["padding_mask"]
        x = tf.cast(inputs["token_ids"] * 7 + place * 3, tf.float32)
        return {"start_logits": tf.sin(x), "end_logits": tf.cos(x)}


def test_many_windows_are_run_a_few_at_a_time(tokenizer):
    pieces, windows = cut(tokenizer, ["a", "b"], [letters(300), letters(9)], stride=4)
    model, options = Model(), {"max_answer_length": 3, "n_best": 4}
    found = passages.spans_of(model, tokenizer, pieces, windows, **options)
    assert len(windows.row) == 72
    assert model.rows == (32, 32, 8)
    logits = Model()(passages.inputs(tokenizer, pieces, windows), training=False)
    expected = passages.spans(windows, **logits, **options)
    for values, others in zip(found, expected):
        np.testing.assert_allclose(values, others, atol=1e-6)


# --- Answers ---------------------------------------------------------------------


def answers(tokenizer, context, spans, *, no_answer=True, null=0.0):
    """The answers for spans (score, first piece, last piece) of one passage."""
    pieces, _ = cut(tokenizer, ["the"], [context])
    scores, starts, ends = zip(*spans)
    best = passages.Spans(
        tf.constant([starts]),
        tf.constant([ends]),
        tf.constant([scores], tf.float32),
        tf.zeros([1, len(spans)]),
        tf.constant([null]),
        tf.zeros([1]),
    )
    return passages.answers(tf.constant([context]), pieces, best, no_answer=no_answer)


def test_answers_are_substrings_with_offsets_in_characters_and_bytes(tokenizer):
    context = "Ünïted  Ça,  th\u0301e CAT\u200b sat 🙂 on the c mat"
    pieces, _ = cut(tokenizer, ["the"], [context])
    sizes = pieces.ids.row_lengths().numpy()
    spans = [(1.0, first, first + 1) for first in range(sizes[1] - 1)]
    found = answers(tokenizer, context, spans)
    encoded = context.encode()
    seen = set()
    for text, start, end, start_byte, end_byte in zip(
        *(x[0].numpy() for x in found[:5])
    ):
        assert text == encoded[start_byte:end_byte]
        assert text.decode() == context[start:end]
        seen.add(text.decode())
    assert {"Ünïted  Ça", "Ça,", ",  th\u0301e", "sat 🙂", "🙂 on", "c mat", ""} <= seen


def test_probabilities_and_the_order_of_candidates(tokenizer):
    context = "a b a c"
    spans = [(3.0, 0, 0), (2.0, 2, 2), (1.0, 3, 3), (2 * passages.NO_SCORE, 0, 0)]
    found = answers(tokenizer, context, spans, null=2.5)
    # The second "a" is left out.
    assert found.texts.numpy()[0].tolist() == [b"a", b"", b"c", b"", b""]
    assert found.starts.numpy()[0].tolist() == [0, 0, 6, 0, 0]
    expected = np.exp([3.0, 2.5, 1.0]) / np.exp([3.0, 2.5, 1.0]).sum()
    np.testing.assert_allclose(found.probabilities[0], [*expected, 0, 0], rtol=1e-5)
    np.testing.assert_allclose(found.null_odds, [-0.5])
    found = answers(tokenizer, context, spans, null=2.5, no_answer=False)
    assert found.texts.numpy()[0].tolist() == [b"a", b"c", b"", b""]
    np.testing.assert_allclose(tf.reduce_sum(found.probabilities), 1, rtol=1e-5)


@pytest.mark.parametrize(
    ("null", "threshold", "text"),
    [(2.0, None, b"a"), (2.0, 0.5, b""), (2.0, 1.0, b"a"), (0.5, -0.75, b"")],
)
def test_the_threshold_decides(tokenizer, null, threshold, text):
    found = answers(tokenizer, "b a", [(1.0, 1, 1)], null=null)
    answer = passages.chosen(found, threshold)
    assert answer.texts.numpy() == [text]
    assert answer.starts.numpy() == [2 if text else 0]
    expected = np.exp(1.0 if text else null) / (np.exp(1.0) + np.exp(null))
    np.testing.assert_allclose(answer.probabilities, [expected], rtol=1e-5)


def test_a_passage_without_pieces_has_no_answer(tokenizer):
    spans = [(2 * passages.NO_SCORE, -3, 5)] * 2
    for no_answer in (False, True):
        found = answers(tokenizer, " \n", spans, no_answer=no_answer)
        answer = passages.chosen(found, 0.0 if no_answer else None)
        assert answer.texts.numpy() == [b""]
        np.testing.assert_allclose(answer.probabilities, [float(no_answer)])
        assert np.isfinite(answer.null_odds).all()
