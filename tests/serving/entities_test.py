# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import softmax
from seqeval.metrics.sequence_labeling import get_entities

from bert_tf.finetuning import to_iob2
from bert_tf.serving.entities import tag_text
from bert_tf.text import Tokenizer, join_features


def tag(vocabulary, texts, tags, labels, **options):
    """Returns the outputs of `tag_text`, as lists without padding, and the scores.

    Args:
        vocabulary: The vocabulary.
        texts: N texts.
        tags: The label of each piece of all texts.
        labels: The labels.
        **options: Of `tag_text`.
    """
    text = tf.constant(texts, tf.string)
    pieces = Tokenizer(vocabulary).tokenize_with_offsets(text)
    logits = np.random.default_rng(0).random((len(tags), len(labels)))
    for row, label in zip(logits, tags, strict=True):
        row[labels.index(label)] += 1
    outputs = tag_text(
        text,
        pieces,
        tf.constant(logits, tf.float32),
        vocabulary=vocabulary,
        labels=labels,
        **options,
    )
    keys = {name: "entity_types" if "entit" in name else "tags" for name in outputs}
    exists = {key: outputs[key] != "" for key in ("tags", "entity_types")}
    outputs = {
        name: tf.ragged.boolean_mask(value, exists[keys[name]]).to_list()
        for name, value in outputs.items()
    }
    return outputs, softmax(logits, axis=1).max(axis=1)


@pytest.mark.parametrize("words", [0, 1, 200])
@pytest.mark.parametrize("by_word", [True, False])
def test_entities_match_seqeval(vocabulary, words, by_word):
    labels = ["B-A", "I-B", "I-A", "O", "B-B"]
    rng = np.random.default_rng(words)
    tags = rng.choice(labels, words, p=[0.1, 0.2, 0.3, 0.3, 0.1])
    rows = np.sort(rng.integers(0, 40, words))  # Some texts are empty.
    texts = [" ".join("a" * (rows == row).sum()) for row in range(40)]
    found, scores = tag(vocabulary, texts, tags, labels, by_word=by_word)
    for row in range(40):
        row_tags, row_scores = tags[rows == row].tolist(), scores[rows == row]
        assert [t.decode() for t in found["tags"][row]] == to_iob2(row_tags)
        entities = get_entities(row_tags)
        assert found["entity_types"][row] == [e[0].encode() for e in entities]
        assert found["entity_starts"][row] == [2 * e[1] for e in entities]
        assert found["entity_ends"][row] == [2 * e[2] + 1 for e in entities]
        expected = [row_scores[first : last + 1].mean() for _, first, last in entities]
        np.testing.assert_allclose(found["entity_scores"][row], expected, atol=1e-6)


def test_first_piece_decides_unless_every_piece_is_tagged(vocabulary):
    texts, labels = ["a cats sat"], ["O", "I-X", "B-X"]
    tags = ["I-X", "I-X", "O", "I-X"]  # Of a, cat, ##s, sat.
    by_word, _ = tag(vocabulary, texts, tags, labels)
    assert by_word["entities"] == [[b"a cats sat"]]
    by_piece, _ = tag(vocabulary, texts, tags, labels, by_word=False)
    assert by_piece["entities"] == [[b"a cat", b"sat"]]
    assert by_piece["words"] == [[b"a", b"cat", b"s", b"sat"]]


def test_first_piece_decides_the_tag_of_joined_words(vocabulary):
    tokenizer = Tokenizer(vocabulary)
    features, _ = join_features(tokenizer.tokenize(tf.constant(["."])), vocabulary)
    is_stop = features[0, 3]
    labels = ["O", "B-X", "I-X"]
    tags = ["B-X", "O", "O", "O", "B-X", "I-X", "O", "O"]
    found, _ = tag(
        vocabulary, ["a.cats . the b."], tags, labels, join_weights=f"{is_stop}:1"
    )
    assert found["words"] == [[b"a.", b"cats", b".", b"the", b"b."]]
    assert found["tags"] == [[b"B-X", b"O", b"B-X", b"I-X", b"O"]]
    assert found["entities"] == [[b"a.", b". the"]]
    assert found["entity_ends"] == [[2, 12]]


def test_other_labels_are_not_grouped(vocabulary):
    labels = ["NOUN", "O", "B-X"]
    tags = ["B-X", "NOUN", "NOUN", "O"]
    found, _ = tag(vocabulary, ["a b c d"], tags, labels)
    assert found["tags"] == [[t.encode() for t in tags]]
    assert found["entities"] == [[b"a", b"b", b"c"]]
    assert found["entity_types"] == [[b"B-X", b"NOUN", b"NOUN"]]
