# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.text import windows

SIZES = [0, 3, 20, 8, 9, 0, 57]


def cut(vocabulary, sizes, max_sequence_length):
    pieces = tf.RaggedTensor.from_row_lengths(100 + tf.range(sum(sizes)), sizes)
    rows = windows.cut(pieces, vocabulary, max_sequence_length)
    return rows.token_ids.to_list(), rows.piece.to_list()


@pytest.mark.parametrize("length", [3, 4, 10, 33, 100])
def test_every_piece_belongs_to_one_window_in_order(vocabulary, length):
    token_ids, pieces = cut(vocabulary, SIZES, length)
    found = [piece for row in pieces for piece in row if piece >= 0]
    assert found == list(range(sum(SIZES)))
    for ids, row in zip(token_ids, pieces, strict=True):
        assert len(ids) == len(row) <= length
        assert (ids[0], ids[-1]) == (vocabulary.cls_id, vocabulary.sep_id)
        assert all(
            token == 100 + piece
            for token, piece in zip(ids, row, strict=True)
            if piece >= 0
        )


def test_what_fits_is_one_window(vocabulary):
    token_ids, pieces = cut(vocabulary, [0, 3, 8], 10)
    cls, sep = vocabulary.cls_id, vocabulary.sep_id
    assert token_ids == [
        [cls, sep],
        [cls, 100, 101, 102, sep],
        [cls, *range(103, 111), sep],
    ]
    assert pieces[1] == [-1, 0, 1, 2, -1]


def test_a_piece_has_most_context_where_it_belongs(vocabulary):
    size, length = 100, 34
    token_ids, pieces = cut(vocabulary, [size], length)

    def context(piece, row):
        """How many pieces stand on the side where fewer do; text ends are no loss."""
        place = row.index(100 + piece)
        left = np.inf if 100 in row else place - 1
        right = np.inf if 100 + size - 1 in row else len(row) - 2 - place
        return min(left, right)

    for row, owned in zip(token_ids, pieces, strict=True):
        for piece in filter(lambda p: p >= 0, owned):
            others = [context(piece, r) for r in token_ids if 100 + piece in r]
            # Two windows may have as much, up to one piece.
            assert context(piece, row) >= max(others) - 1
            assert context(piece, row) >= 3  # An eighth of a window, rounded down.


@pytest.mark.parametrize("at_once", [1, 3, 64])
def test_run(vocabulary, monkeypatch, at_once):
    monkeypatch.setattr(windows, "_AT_ONCE", at_once)
    pieces = tf.RaggedTensor.from_row_lengths(100 + tf.range(sum(SIZES)), SIZES)
    cut = windows.cut(pieces, vocabulary, 10)
    calls = []

    def two_of_each_piece(inputs, piece):
        calls.append(len(piece))
        mine = tf.boolean_mask(inputs["token_ids"], piece >= 0)
        return tf.cast(tf.stack([mine, 2 * mine], axis=1), tf.float32)

    rows = windows.run(two_of_each_piece, cut, width=2)
    expected = 100 + np.arange(sum(SIZES))
    np.testing.assert_array_equal(rows, np.stack([expected, 2 * expected], axis=1))
    assert max(calls) <= at_once
    np.testing.assert_array_equal(np.bincount(cut.text), [1, 1, 3, 1, 2, 1, 10])


def test_in_a_graph_without_texts(vocabulary):
    function = tf.function(
        lambda pieces: windows.cut(pieces, vocabulary, 8).token_ids,
        input_signature=[tf.RaggedTensorSpec([None, None], tf.int32)],
    )
    nothing = tf.RaggedTensor.from_row_lengths(
        tf.zeros([0], tf.int32), tf.zeros([0], tf.int64)
    )
    assert function(nothing).nrows() == 0
