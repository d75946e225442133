# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of bert_tf.text.windows, also against run_squad.py of google-research/bert."""

import random

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.text import windows as windows_module
from bert_tf.text.tokenizer import Tokenizer
from bert_tf.text.windows import cut_windows
from tests.toy.google_windows import google_windows, max_context_window

SIZES = [0, 3, 20, 8, 9, 0, 57]


@pytest.fixture(scope="module")
def tokenizer(vocabulary):
    return Tokenizer(vocabulary)


def ragged(sizes):
    """Returns texts of these sizes with the ids 100, 101, ..., without repetition."""
    return tf.RaggedTensor.from_row_lengths(
        100 + tf.range(sum(sizes)), tf.constant(sizes, tf.int64)
    )


def unpadded(windows):
    """Returns token ids and `owned_pieces` of each window."""
    ids = windows.ragged_inputs()["token_ids"]
    owned = windows.owned_pieces(int(ids.bounding_shape()[1]))
    return ids.to_list(), tf.RaggedTensor.from_tensor(
        owned, ids.row_lengths()
    ).to_list()


def plan(windows):
    return list(zip(windows.start.numpy().tolist(), windows.size.numpy().tolist()))


# --- Texts -----------------------------------------------------------------------


@pytest.mark.parametrize("length", [3, 4, 10, 33, 100])
def test_each_piece_is_owned_once_and_in_order(tokenizer, length):
    vocabulary = tokenizer.vocabulary
    token_ids, owned = unpadded(cut_windows(tokenizer, ragged(SIZES), length))
    assert [piece for row in owned for piece in row if piece >= 0] == list(
        range(sum(SIZES))
    )
    for ids, row in zip(token_ids, owned, strict=True):
        assert len(ids) <= length
        assert (ids[0], ids[-1]) == (vocabulary.cls_id, vocabulary.sep_id)
        assert all(
            token == 100 + piece
            for token, piece in zip(ids, row, strict=True)
            if piece >= 0
        )


def test_text_that_fits_is_one_window(tokenizer):
    token_ids, owned = unpadded(cut_windows(tokenizer, ragged([0, 3, 8]), 10))
    cls, sep = tokenizer.vocabulary.cls_id, tokenizer.vocabulary.sep_id
    assert token_ids == [
        [cls, sep],
        [cls, 100, 101, 102, sep],
        [cls, *range(103, 111), sep],
    ]
    assert owned[1] == [-1, 0, 1, 2, -1]


def test_window_with_most_context_owns_a_piece(tokenizer):
    size, length = 100, 34
    token_ids, owned = unpadded(cut_windows(tokenizer, ragged([size]), length))

    def context(piece, row):
        """Pieces on the shorter side; the ends of the text do not count as short."""
        position = row.index(100 + piece)
        left = np.inf if 100 in row else position - 1
        right = np.inf if 100 + size - 1 in row else len(row) - 2 - position
        return min(left, right)

    for row, pieces in zip(token_ids, owned, strict=True):
        for piece in filter(lambda p: p >= 0, pieces):
            others = [context(piece, r) for r in token_ids if 100 + piece in r]
            # The boundary between two windows is rounded to whole pieces.
            assert context(piece, row) >= max(others) - 1
            assert context(piece, row) >= 3  # An eighth of a window, rounded down.


def test_ranges_of_windows_and_ragged_inputs(tokenizer, monkeypatch):
    windows = cut_windows(tokenizer, ragged(SIZES), 10)
    expected = windows.inputs()
    assert len(windows[3:7]) == 4
    np.testing.assert_array_equal(
        windows[3:7].owned_pieces(10), windows.owned_pieces(10)[3:7]
    )
    monkeypatch.setattr(windows_module, "_PACKED_AT_ONCE", 4)
    for name, rows in windows.ragged_inputs().items():
        np.testing.assert_array_equal(rows.to_tensor(), expected[name])
        np.testing.assert_array_equal(
            rows.row_lengths(), tf.reduce_sum(expected["padding_mask"], axis=1)
        )


@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_map_concatenates_batches(tokenizer, monkeypatch, batch_size):
    monkeypatch.setattr(windows_module, "_BATCH_SIZE", batch_size)
    windows = cut_windows(tokenizer, ragged(SIZES), 10)
    calls = []

    def function(batch):
        calls.append(len(batch))
        ids = batch.inputs()["token_ids"]
        owned = tf.boolean_mask(ids, batch.owned_pieces(tf.shape(ids)[1]) >= 0)
        return {"ids": tf.stack([owned, 2 * owned], axis=1), "row": batch.row}

    specs = {
        "ids": tf.TensorSpec([None, 2], tf.int32),
        "row": tf.TensorSpec([None], tf.int32),
    }
    found = windows.map(function, specs)
    expected = 100 + np.arange(sum(SIZES))
    np.testing.assert_array_equal(
        found["ids"], np.stack([expected, 2 * expected], axis=1)
    )
    np.testing.assert_array_equal(found["row"], windows.row)
    assert max(calls) <= batch_size
    np.testing.assert_array_equal(np.bincount(windows.row), [1, 1, 3, 1, 2, 1, 10])


def test_no_texts_in_a_graph(tokenizer):
    @tf.function(input_signature=[tf.RaggedTensorSpec([None, None], tf.int32)])
    def function(ids):
        windows = cut_windows(tokenizer, ids, 8)
        rows = windows.map(lambda w: w.row, tf.TensorSpec([None], tf.int32))
        return windows.inputs()["token_ids"], rows

    token_ids, rows = function(ragged([]))
    assert len(token_ids) == len(rows) == 0


# --- Questions and passages ------------------------------------------------------


def cut_passages(tokenizer, question_sizes, sizes, **options):
    limits = {"max_sequence_length": 24, "max_question_length": 8, "stride": 5}
    return cut_windows(
        tokenizer, ragged([*question_sizes, *sizes]), **(limits | options)
    )


@pytest.mark.parametrize("max_sequence_length", [12, 24])
@pytest.mark.parametrize("stride", [1, 5, 100])
def test_windows_match_google(tokenizer, max_sequence_length, stride):
    sizes = [0, 1, 4, 12, 13, 14, 20, 37, 64]
    question_sizes = [3, 0, 8, 4, 9, 20, 1, 2, 8]
    windows = cut_passages(
        tokenizer,
        question_sizes,
        sizes,
        max_sequence_length=max_sequence_length,
        stride=stride,
    )
    expected = [
        (row, *window)
        for row, (size, question_size) in enumerate(zip(sizes, question_sizes))
        for window in google_windows(
            size, max_sequence_length - 3 - min(question_size, 8), stride
        )
    ]
    found = zip(windows.row.numpy().tolist(), *zip(*plan(windows)))
    assert list(found) == expected


@pytest.mark.parametrize("max_sequence_length", [6, 9, 24, 384])
def test_ownership_matches_google(tokenizer, max_sequence_length):
    rng = random.Random(max_sequence_length)
    sizes = [rng.randrange(3 * max_sequence_length) for _ in range(12)]
    for stride in (1 + max_sequence_length // 16, 1 + max_sequence_length // 3, 1000):
        windows = cut_passages(
            tokenizer,
            [1] * len(sizes),
            sizes,
            max_sequence_length=max_sequence_length,
            max_question_length=2,
            stride=stride,
        )
        for row, size in enumerate(sizes):
            mine = windows[np.argmax(windows.row == row) :][
                : np.sum(windows.row == row)
            ]
            owners = [
                number
                for number, (begin, end) in enumerate(zip(mine.own_start, mine.own_end))
                for _ in range(begin, end)
            ]
            expected = [max_context_window(plan(mine), p) for p in range(size)]
            assert owners == expected, (size, stride)


def test_last_window_can_be_shorter_by_more_than_100_pieces(tokenizer):
    """Then its size costs more than one piece of context."""
    size = 384 - 3 - 2 + 1  # One more than fits.
    windows = cut_passages(
        tokenizer,
        [2],
        [size],
        max_sequence_length=384,
        max_question_length=64,
        stride=128,
    )
    assert plan(windows) == [(0, 379), (128, 252)]
    assert windows.own_start.numpy().tolist() == [0, 379]
    assert max_context_window(plan(windows), 378) == 0


def test_last_window_shorter_by_200_pieces_matches_google(tokenizer):
    """Then its size costs two pieces of context."""
    windows = cut_passages(
        tokenizer,
        [2],
        [428],
        max_sequence_length=384,
        max_question_length=64,
        stride=250,
    )
    assert plan(windows) == [(0, 379), (250, 178)]
    assert windows.own_start.numpy().tolist() == [0, 316]
    assert [max_context_window(plan(windows), p) for p in (315, 316)] == [0, 1]


def test_rows_hold_the_question_and_part_of_the_passage(tokenizer):
    vocabulary = tokenizer.vocabulary
    ids = tokenizer.tokenize(tf.constant(["the cat sat", "", "a b c d", "x"]))
    windows = cut_windows(tokenizer, ids, 8, max_question_length=2, stride=2)
    inputs = windows.inputs()
    rows = [" ".join(vocabulary.tokens[i] for i in row) for row in inputs["token_ids"]]
    assert rows == [
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
    np.testing.assert_array_equal(windows.first_token, [4, 4, 2])
    # Indices in all pieces: three of the question come first.
    np.testing.assert_array_equal(
        windows.owned_pieces(8),
        [
            [-1, -1, -1, -1, 3, 4, 5, -1],
            [-1, -1, -1, -1, -1, 6, -1, -1],
            [-1, -1, 7, -1, -1, -1, -1, -1],
        ],
    )
