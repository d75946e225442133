# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import dataclasses
import string

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.special import softmax
from seqeval.metrics.sequence_labeling import get_entities

from bert_tf.finetuning import to_iob2
from bert_tf.heads import TaggingHead
from bert_tf.heads.tagging import FeatureTagger, FrozenEncoder, WeightedSum
from bert_tf.modeling import BertBackbone
from bert_tf.text import SPECIAL_TOKENS, Tokenizer, Vocabulary
from tests.toy.models import encoder_inputs

# --- Features of a frozen encoder ------------------------------------------------


def test_padding_does_not_change_the_logits(tiny_config):
    keras.utils.set_random_seed(1)
    model = FeatureTagger(BertBackbone(tiny_config), 3, "weighted_sum_all", units=4)
    variables = model.trainable_variables
    with tf.GradientTape() as tape:
        short = model(encoder_inputs([[7, 8, 9]]))
    gradients = tape.gradient(short, [variable.value for variable in variables])
    pairs = zip(variables, gradients)
    names = {v.path.split("/")[0] for v, gradient in pairs if gradient is not None}
    assert names == {"combine_layers", "lstm_0", "lstm_1", "tag_logits"}
    padded = model(encoder_inputs([[7, 8, 9, 0, 0, 0]]))
    np.testing.assert_allclose(padded[:, :3], short, atol=1e-5)
    # Both directions matter.
    np.testing.assert_array_less(
        1e-7, np.abs(model(encoder_inputs([[7, 8, 10]])) - short).max(axis=-1)
    )


def test_features_of_table_7(tiny_config):
    rates = {"dropout": 0.5, "attention_dropout": 0.5}
    config = dataclasses.replace(tiny_config, num_layers=5, **rates)
    backbone, inputs = BertBackbone(config), encoder_inputs([[7, 8, 9]])
    # Call the layers one by one, without the functional graph.
    states = [keras.Model(backbone.input, backbone.hidden_states[0])(inputs)]
    for layer in backbone.encoder_layers:
        states.append(layer(states[-1], attention_mask=inputs["padding_mask"]))
    for name, layers in (
        ("embeddings", [0]),
        ("second_to_last", [4]),
        ("last", [5]),
        ("weighted_sum_last_four", [2, 3, 4, 5]),
        ("concat_last_four", [2, 3, 4, 5]),
        ("weighted_sum_all", [1, 2, 3, 4, 5]),
    ):
        expected = np.stack([states[index] for index in layers], axis=2)
        # There is no dropout in training either.
        found = FrozenEncoder(backbone, name)(inputs, training=True)
        np.testing.assert_allclose(found, expected, atol=1e-5, err_msg=name)


def test_only_the_encoder_has_no_dropout(one_layer):
    config = dataclasses.replace(one_layer, dropout=0.5)
    model = FeatureTagger(BertBackbone(config), 3, "last", units=4)
    inputs = encoder_inputs([[7, 8, 9]])
    first, second = (model(inputs, training=True) for _ in range(2))
    assert np.abs(first - second).max() > 1e-3


def test_weighted_sum_of_layers():
    layers = np.random.default_rng(0).normal(size=(2, 3, 4, 5)).astype("float32")
    weighted = WeightedSum()
    np.testing.assert_allclose(weighted(layers), layers.mean(axis=2), atol=1e-6)
    weighted.layer_logits.assign(np.log([1, 2, 3, 4]))
    expected = np.einsum("bskh,k->bsh", layers, [0.1, 0.2, 0.3, 0.4])
    np.testing.assert_allclose(weighted(layers), expected, atol=1e-6)


def test_feature_set_of_more_layers_than_the_encoder_has(tiny_config):
    message = "needs .* at least four layers. .*num_layers=2"
    with pytest.raises(ValueError, match=message):
        FrozenEncoder(BertBackbone(tiny_config), "concat_last_four")


# --- Entities --------------------------------------------------------------------


def tag(vocabulary, texts, tags, labels, **settings):
    """Returns the outputs of `tag_text`, as lists without padding, and the scores.

    Args:
        vocabulary: The vocabulary.
        texts: N texts.
        tags: The label of each piece of all texts.
        labels: The labels.
        **settings: Other settings of the head.
    """
    text = tf.constant(texts, tf.string)
    tokenizer = Tokenizer(vocabulary)
    logits = np.random.default_rng(0).random((len(tags), len(labels)))
    for row, label in zip(logits, tags, strict=True):
        row[labels.index(label)] += 1
    head = TaggingHead({"labels": labels, **settings}, {}, tokenizer)
    pieces = tokenizer.tokenize_with_offsets(text)
    outputs = head.tag_text(text, pieces, tf.constant(logits, tf.float32))
    keys = {name: "entity_types" if "entit" in name else "tags" for name in outputs}
    exists = {key: outputs[key] != "" for key in ("tags", "entity_types")}
    outputs = {
        name: tf.ragged.boolean_mask(value, exists[keys[name]]).to_list()
        for name, value in outputs.items()
    }
    return outputs, softmax(logits, axis=1).max(axis=1)


@pytest.mark.parametrize("words", [0, 1, 200])
@pytest.mark.parametrize("aggregation", ["", "simple"])
def test_entities_match_seqeval(vocabulary, words, aggregation):
    labels = ["B-A", "I-B", "I-A", "O", "B-B"]
    rng = np.random.default_rng(words)
    tags = rng.choice(labels, words, p=[0.1, 0.2, 0.3, 0.3, 0.1])
    rows = np.sort(rng.integers(0, 40, words))  # Some texts are empty.
    texts = [" ".join("a" * (rows == row).sum()) for row in range(40)]
    found, scores = tag(vocabulary, texts, tags, labels, aggregation=aggregation)
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
    by_piece, _ = tag(vocabulary, texts, tags, labels, aggregation="simple")
    assert by_piece["entities"] == [[b"a cat", b"sat"]]
    assert by_piece["words"] == [[b"a", b"cat", b"s", b"sat"]]


WORDS = {
    "": "",
    "  the cat\tsat\n": "the cat sat",
    "\"It's Mr. O'Neil,\" she (1-0).": "\" It ' s Mr . O ' Neil , \" she ( 1 - 0 ) .",
    "“Hello”… (http://a.b)!": "“ Hello ” … ( http : / / a . b ) !",
    "Thé\u0301 naïve é.": "Thé\u0301 naïve é .",
    "in東京,now": "in 東 京 , now",
    "xyz\u200bxyz.": "xyz\u200bxyz .",
    "\u200b \x00": "",
    "a\u00a0b\u3000c": "a b c",
}


def test_words_are_those_of_the_basic_tokenizer():
    letters, marks = string.ascii_lowercase + string.digits, "\"'.,:!?()-/…“”東京"
    continued = (f"##{letter}" for letter in letters)
    vocabulary = Vocabulary((*SPECIAL_TOKENS, *letters, *continued, *marks))
    texts = [*(text.encode() for text in WORDS), b"a\xff\xfeb. \xff"]
    num_pieces = Tokenizer(vocabulary).tokenize(texts).values.shape[0]
    found, _ = tag(vocabulary, texts, ["O"] * num_pieces, ["O"])
    expected = [words.encode().split() for words in WORDS.values()]
    assert found["words"] == [*expected, [b"a\xff\xfeb", b"."]]


@pytest.mark.parametrize(
    ("tags", "entities"),
    [
        # As in transformers' pipeline, which groups labels without prefix, see #13325.
        ("B-X NOUN NOUN O", {"a": "X", "b c": "NOUN"}),
        ("B-X I-X I-Y [CLS]", {"a b": "X", "c": "Y", "d": "[CLS]"}),
        # U is B and L is I, see deeppavlov/DeepPavlov#1132.
        ("B-X I-X L-X U-X", {"a b c": "X", "d": "X"}),
        ("S-X B-X E-X W-X", {"a": "X", "b c": "X", "d": "X"}),
    ],
)
def test_labels_of_other_schemes(vocabulary, tags, entities):
    tags = tags.split()
    found, _ = tag(vocabulary, ["a b c d"], tags, sorted({*tags}))
    assert found["tags"] == [[t.replace("I-Y", "B-Y").encode() for t in tags]]
    assert found["entities"] == [[x.encode() for x in entities]]
    assert found["entity_types"] == [[x.encode() for x in entities.values()]]
