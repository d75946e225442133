# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Spans and answers against plain loops over the rules of google-research/bert."""

import random

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.heads import QuestionAnsweringHead
from bert_tf.heads.question_answering import Spans, best_spans, extract, merge
from bert_tf.modeling import MASKED_SCORE
from bert_tf.text import Tokenizer
from tests.toy.google_windows import max_context_window

LENGTH = 24


@pytest.fixture(scope="module")
def tokenizer(vocabulary):
    return Tokenizer(vocabulary)


def letters(count: int, seed: int = 0) -> str:
    """A text of `count` tokens."""
    return " ".join(random.Random(seed).choices("abcdefghijklmnopqrstuvwxyz", k=count))


def cut(tokenizer, questions, contexts):
    limits = {"max_sequence_length": LENGTH, "max_question_length": 8, "stride": 5}
    head = QuestionAnsweringHead({}, {**limits, "max_answer_length": 3}, tokenizer)
    return head.passages(tf.constant(questions), tf.constant(contexts))


# --- Spans -----------------------------------------------------------------------


def spans_by_loops(windows, start_logits, end_logits, row, max_answer_length):
    """(score, first piece, last piece) of all valid spans of a question, best first."""
    mine = np.flatnonzero(windows.row == row)
    plan = [(int(windows.start[w]), int(windows.size[w])) for w in mine]
    found = []
    for number, window in enumerate(mine):
        first, size = plan[number]
        offset = int(windows.first_token[window]) - first
        for start in range(first, first + size):
            if max_context_window(plan, start) != number:
                continue
            for end in range(start, min(start + max_answer_length, first + size)):
                score = start_logits[window, start + offset]
                score += end_logits[window, end + offset]
                found.append((float(score), start, end))
    null = min(float(start_logits[w, 0] + end_logits[w, 0]) for w in mine)
    return sorted(found, reverse=True), null


def test_best_of_all_valid_spans(tokenizer):
    contexts = [letters(50), letters(3), "", letters(20)]
    passages = cut(tokenizer, ["a b", "", "c", letters(9)], contexts)
    rng = np.random.default_rng(0)
    shape = [len(passages.windows), LENGTH]
    logits = [rng.normal(size=shape).astype(np.float32) for _ in range(2)]
    best = merge(passages, best_spans(passages.windows, 4, *logits))
    scores = best.scores.numpy()
    for row in range(4):
        expected, null = spans_by_loops(passages.windows, *logits, row, 4)
        count = min(20, len(expected))
        assert [
            (score, start, end)
            for score, (start, end) in zip(scores[row], best.pieces[row].numpy())
        ][:count] == [(pytest.approx(s, abs=1e-6), *span) for s, *span in expected[:20]]
        assert (scores[row, count:] <= MASKED_SCORE / 2).all()
        assert best.null_scores[row].numpy() == pytest.approx(null, abs=1e-6)


# --- Answers ---------------------------------------------------------------------


def answers_of(tokenizer, context, spans, *, no_answer=True, null=0.0):
    """The answers for spans (score, first piece, last piece) of one passage."""
    best = Spans(
        pieces=tf.constant([[pieces for _, *pieces in spans]]),
        scores=tf.constant([[score for score, *_ in spans]]),
        null_scores=tf.constant([null]),
    )
    return extract(cut(tokenizer, ["the"], [context]), best, no_answer)


OFFSETS = ("answer", "start", "end", "start_byte", "end_byte")


def test_offsets_in_characters_and_bytes(tokenizer):
    context = "Ünïted  Ça,  th\u0301e CAT\u200b sat 🙂 on the c mat"
    sizes = cut(tokenizer, ["the"], [context]).pieces.ids.row_lengths().numpy()
    spans = [(1.0, first, first + 1) for first in range(sizes[1] - 1)]
    found = answers_of(tokenizer, context, spans)
    encoded = context.encode()
    seen = set()
    for text, start, end, start_byte, end_byte in zip(
        *(found.columns[name][0].numpy() for name in OFFSETS)
    ):
        assert text == encoded[start_byte:end_byte]
        assert text.decode() == context[start:end]
        seen.add(text.decode())
    assert {"Ünïted  Ça", "Ça,", ",  th\u0301e", "sat 🙂", "🙂 on", "c mat", ""} <= seen


def test_candidates_are_distinct_and_sorted_by_probability(tokenizer):
    context = "a b a c"
    spans = [(3.0, 0, 0), (2.0, 2, 2), (1.0, 3, 3), (2 * MASKED_SCORE, 0, 0)]
    found = answers_of(tokenizer, context, spans, null=2.5)
    # The second "a" is a duplicate.
    assert found.columns["answer"].numpy()[0].tolist() == [b"a", b"", b"c", b"", b""]
    assert found.columns["start"].numpy()[0].tolist() == [0, 0, 6, 0, 0]
    expected = np.exp([3.0, 2.5, 1.0]) / np.exp([3.0, 2.5, 1.0]).sum()
    np.testing.assert_allclose(found.columns["score"][0], [*expected, 0, 0], rtol=1e-5)
    np.testing.assert_allclose(found.null_odds, [-0.5])
    found = answers_of(tokenizer, context, spans, null=2.5, no_answer=False)
    assert found.columns["answer"].numpy()[0].tolist() == [b"a", b"c", b"", b""]
    np.testing.assert_allclose(tf.reduce_sum(found.columns["score"]), 1, rtol=1e-5)


@pytest.mark.parametrize(
    ("null", "threshold", "text"),
    [(2.0, None, b"a"), (2.0, 0.5, b""), (2.0, 1.0, b"a"), (0.5, -0.75, b"")],
)
def test_threshold_selects_no_answer(tokenizer, null, threshold, text):
    found = answers_of(tokenizer, "b a", [(1.0, 1, 1)], null=null)
    answer = found.best(threshold)
    assert answer["answer"].numpy() == [text]
    assert answer["start"].numpy() == [2 if text else 0]
    expected = np.exp(1.0 if text else null) / (np.exp(1.0) + np.exp(null))
    np.testing.assert_allclose(answer["score"], [expected], rtol=1e-5)


def test_empty_passage_has_no_answer(tokenizer):
    spans = [(2 * MASKED_SCORE, -3, 5)] * 2
    for no_answer in (False, True):
        found = answers_of(tokenizer, " \n", spans, no_answer=no_answer)
        answer = found.best(0.0 if no_answer else None)
        assert answer["answer"].numpy() == [b""]
        np.testing.assert_allclose(answer["score"], [float(no_answer)])
        assert np.isfinite(found.null_odds).all()
