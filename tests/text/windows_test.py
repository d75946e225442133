# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of bert_tf.text.rows, also against run_squad.py of google-research/bert."""

import itertools
import random

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.text import rows as rows_module
from bert_tf.text.rows import cut_windows
from bert_tf.text.tokenizer import Tokenizer
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
    ids = windows.inputs()["token_ids"]
    both = ids, windows.owned_pieces(ids.shape[1])
    lengths = windows.lengths
    return [tf.RaggedTensor.from_tensor(x, lengths).to_list() for x in both]


def plan(windows):
    return list(zip(windows.start.numpy().tolist(), windows.size.numpy().tolist()))


# --- Texts -----------------------------------------------------------------------


@pytest.mark.parametrize("length", [3, 10, 33, 100])
def test_each_piece_is_owned_once_and_in_order(tokenizer, length):
    cls, sep = tokenizer.vocabulary.cls_id, tokenizer.vocabulary.sep_id
    token_ids, owned = unpadded(cut_windows(tokenizer, ragged(SIZES), length))
    pieces = [piece for row in owned for piece in row if piece >= 0]
    assert pieces == list(range(sum(SIZES)))
    for ids, row in zip(token_ids, owned, strict=True):
        assert len(ids) <= length
        assert (ids[0], ids[-1]) == (cls, sep)
        for token, piece in zip(ids, row, strict=True):
            assert piece < 0 or token == 100 + piece
    if length == 100:  # Each text is one window.
        assert token_ids[:2] == [[cls, sep], [cls, 100, 101, 102, sep]]
        assert owned[1] == [-1, 0, 1, 2, -1]


def test_windows_give_pieces_context_on_both_sides(tokenizer):
    """Two windows share their overlap equally."""
    token_ids, owned = unpadded(cut_windows(tokenizer, ragged([100]), 34))
    contexts = []
    for ids, pieces in zip(token_ids, owned, strict=True):
        positions = [i for i, piece in enumerate(pieces) if piece >= 0]
        contexts.append((positions[0] - 1, len(ids) - 2 - positions[-1]))
    for (_, right), (left, _) in itertools.pairwise(contexts):
        assert abs(right - left) <= 1
        assert min(right, left) >= 3  # An eighth of a window, rounded down.


@pytest.mark.parametrize("batch_size", [3, 64])
def test_map_concatenates_batches(tokenizer, monkeypatch, batch_size):
    monkeypatch.setattr(rows_module, "_BATCH_SIZE", batch_size)
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
    ids = 100 + np.arange(sum(SIZES))
    np.testing.assert_array_equal(found["ids"], np.stack([ids, 2 * ids], axis=1))
    np.testing.assert_array_equal(found["row"], windows.row)
    assert max(calls) <= batch_size
    np.testing.assert_array_equal(np.bincount(windows.row), [1, 1, 3, 1, 2, 1, 10])


# --- Questions and passages ------------------------------------------------------


@pytest.mark.parametrize(
    ("length", "strides"),
    [
        (12, (1, 5, 100)),
        (24, (1, 5, 100)),
        # The last window can be shorter by more than 100 or 200 pieces. Then its size
        # costs one or two pieces of context.
        (384, (25, 128, 250)),
    ],
)
def test_windows_and_ownership_match_google(tokenizer, length, strides):
    rng = random.Random(length)
    sizes = [0, 1, 4, 12, 13, 14, 20, length - 4, 428]
    sizes += [rng.randrange(3 * length) for _ in range(6)]
    question_sizes = [3, 0, 8, 4, 9, 20, 1, 2, 2, *[1] * 6]
    for stride in strides:
        windows = cut_windows(
            tokenizer,
            ragged([*question_sizes, *sizes]),
            length,
            max_question_length=8,
            stride=stride,
        )
        rows = windows.row.numpy()
        for row, (size, question_size) in enumerate(zip(sizes, question_sizes)):
            mine = windows[np.argmax(rows == row) :][: np.sum(rows == row)]
            capacity = length - 3 - min(question_size, 8)
            assert plan(mine) == list(google_windows(size, capacity, stride))
            owned = mine.own_end - mine.own_start
            expected = [max_context_window(plan(mine), p) for p in range(size)]
            owners = np.repeat(np.arange(len(mine)), owned)
            np.testing.assert_array_equal(owners, expected, (size, stride))


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
