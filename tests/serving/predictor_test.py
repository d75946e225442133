# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import functools

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf import serving
from tests.toy.models import randomize_weights

TEXTS = ["the cat sat", "a mat.", "the cat sat on the mat, the cats sat on mats"]
CLASSES = {"kind": "classification", "labels": ["bad", "good"]}
# Head in config.json, Keras class, and inputs. `tests/tasks` has the other kinds.
HEADS = {
    "pretrainer": (
        {"kind": "pretrainer"},
        bert_tf.BertPretrainer,
        [["the [MASK] sat", "no mask", "[MASK] [MASK]"]],
    ),
    "pairs": (
        CLASSES | {"problem": "classification", "pairs": True},
        functools.partial(bert_tf.SequenceClassifier, num_classes=2),
        [TEXTS, TEXTS[::-1]],
    ),
    "score": (
        {"kind": "classification", "problem": "regression", "pairs": False}
        | {"mean": 2.0, "deviation": 3.0},
        functools.partial(bert_tf.SequenceClassifier, num_classes=1),
        [TEXTS],
    ),
}


@pytest.fixture(scope="module", params=HEADS)
def directory(request, vocabulary, tiny_config, tmp_path_factory):
    head, model, inputs = HEADS[request.param]
    directory = bert_tf.ModelDirectory.create(
        tmp_path_factory.mktemp(request.param),
        architecture=tiny_config,
        vocabulary=vocabulary,
        lowercase=True,
        head=head,
        options={},
    )
    model = model(bert_tf.BertBackbone(tiny_config))
    directory.save_weights(randomize_weights(model, 0.2))
    return directory, inputs


def test_predictions_equal_the_export(directory, tmp_path):
    directory, inputs = directory
    model = bert_tf.load(directory.path)
    path = serving.export_saved_model(
        model.signatures, tmp_path / "served", directory=directory
    )
    exported = tf.saved_model.load(str(path)).signatures["serving_default"]
    names = [s.name for s in model.signatures["serving_default"].input_signature]
    expected = exported(**dict(zip(names, map(tf.constant, inputs), strict=True)))

    for batch_size in (32, 2):
        outputs = model.predict(*inputs, batch_size=batch_size)
        assert outputs.keys() == expected.keys()
        for name, value in expected.items():
            if value.dtype == tf.string:
                texts = np.vectorize(bytes.decode, otypes=[str])(value.numpy())
                assert outputs[name].tolist() == texts.tolist()
            else:
                np.testing.assert_allclose(outputs[name], value, atol=1e-5)


@pytest.fixture(scope="module")
def classifier(vocabulary, tiny_config, tmp_path_factory):
    directory = bert_tf.ModelDirectory.create(
        tmp_path_factory.mktemp("classifier"),
        architecture=tiny_config,
        vocabulary=vocabulary,
        lowercase=True,
        head=CLASSES,
        options={},
    )
    backbone = bert_tf.BertBackbone(tiny_config)
    directory.save_weights(bert_tf.SequenceClassifier(backbone, 2))
    return bert_tf.load(directory.path)


def test_single_string_empty_list_and_repr(classifier):
    one = classifier.predict("the cat")
    assert one["label"].shape == (1,)
    named = classifier.predict(text=["the cat"])
    np.testing.assert_array_equal(one["label"], named["label"])
    assert classifier.predict([])["probabilities"].shape == (0, 2)
    assert len(repr(classifier)) < 400


@pytest.mark.parametrize(
    ("columns", "named", "message"),
    [
        ([["a"], ["b"]], {}, "serving_default has the inputs text"),
        ([], {"texts": ["a"]}, r"the names \['texts'\]"),
        ([[1, 2]], {}, r"`text` must have dtype string .* Received: \[1, 2\]"),
        ([[["a"]]], {}, r"shape \(None,\). Received: \[\['a'\]\]"),
        ([["a"]], {"signature": "no"}, "must be one of serving_default, classify"),
    ],
)
def test_wrong_inputs_are_named(classifier, columns, named, message):
    with pytest.raises(ValueError, match=message):
        classifier.predict(*columns, **named)


def test_shorter_rows_are_padded(classifier):
    token_ids, ones = [[2, 5, 3], [2, 3]], [[1, 1, 1], [1, 1]]
    padded = [[2, 5, 3], [2, 3, 0]], np.zeros([2, 3]), [[1, 1, 1], [1, 1, 0]]
    found = classifier.predict(token_ids, [[0] * 3, [0] * 2], ones, signature="ids")
    expected = classifier.predict(*padded, signature="ids")
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)
