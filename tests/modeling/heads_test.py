# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import keras
import numpy as np
import pytest

from bert_tf.modeling import (
    BertBackbone,
    ChoiceScorer,
    SequenceClassifier,
    SpanPredictor,
    TokenClassifier,
)

HEADS = [
    pytest.param(SequenceClassifier, {"num_classes": 3}, id="classes"),
    pytest.param(SequenceClassifier, {"num_classes": 1}, id="score"),
    pytest.param(ChoiceScorer, {}, id="choices"),
    pytest.param(SpanPredictor, {}, id="span"),
    pytest.param(TokenClassifier, {"num_tags": 3}, id="tags"),
]


def batch(model, shape):
    return {name: np.ones(shape, np.int32) for name in model.input}


@pytest.mark.parametrize(("head", "arguments"), HEADS)
def test_config_round_trip(head, arguments, tiny_config):
    model = head(BertBackbone(tiny_config), **arguments)
    again = head.from_config(model.get_config())
    again.set_weights(model.get_weights())
    inputs = batch(model, (2, 3, 5) if head is ChoiceScorer else (2, 5))
    keras.tree.map_structure(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6),
        again(inputs),
        model(inputs),
    )


@pytest.mark.parametrize(
    ("num_classes", "targets", "loss"),
    [
        (1, [[0.5], [-1.0]], lambda x, y: (x[:, 0] - y[:, 0]) ** 2),
        (3, [2, 0], lambda x, y: np.log(np.exp(x).sum(axis=1)) - x[[0, 1], y]),
    ],
)
def test_loss_of_classes_is_a_weighted_sum(tiny_config, num_classes, targets, loss):
    model = SequenceClassifier(BertBackbone(tiny_config), num_classes)
    model.compile("sgd", run_eagerly=True)
    inputs = batch(model, (2, 5))
    inputs["token_ids"] *= np.array([[7], [9]], np.int32)
    targets, weights = np.array(targets), np.array([0.75, 0.25])
    found = model.test_on_batch(inputs, targets, weights, return_dict=True)["loss"]
    expected = (loss(model(inputs).numpy(), targets) * weights).sum()
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_loss_of_choices_is_a_weighted_sum(tiny_config):
    model = ChoiceScorer(BertBackbone(tiny_config))
    model.compile("sgd", run_eagerly=True)
    inputs = batch(model, (2, 3, 5))
    inputs["token_ids"] = np.arange(30, dtype=np.int32).reshape(2, 3, 5) + 7
    targets, weights = np.array([2, 0]), np.array([0.75, 0.25])
    found = model.test_on_batch(inputs, targets, weights, return_dict=True)["loss"]
    logits = model(inputs).numpy()
    losses = np.log(np.exp(logits).sum(axis=1)) - logits[[0, 1], targets]
    np.testing.assert_allclose(found, (losses * weights).sum(), rtol=1e-5)


def test_loss_is_the_mean_if_weights_sum_to_one(tiny_config):
    model = SpanPredictor(BertBackbone(tiny_config))
    model.compile("sgd")
    inputs, ends = batch(model, (2, 5)), np.array([1, 2])
    logits = model.predict(inputs, verbose=0)
    expected = np.mean(
        [
            np.log(np.exp(of).sum(axis=1)) - of[[0, 1], ends]
            for of in (logits["start_logits"], logits["end_logits"])
        ]
    )
    targets = dict.fromkeys(logits, ends)
    weights = dict.fromkeys(logits, np.array([0.5, 0.5], np.float32))
    loss = model.evaluate(inputs, targets, sample_weight=weights, verbose=0)
    assert np.isclose(np.ravel(loss)[0], expected, rtol=1e-5)


def test_sequence_classifier_is_a_dense_layer_on_the_pooled_output(tiny_config):
    backbone = BertBackbone(tiny_config)
    model = SequenceClassifier(backbone, num_classes=3)
    inputs = batch(model, (2, 5))
    inputs["token_ids"] *= np.array([[7], [9]], np.int32)
    dense = model.get_layer("logits")
    pooled = backbone(inputs)["pooled_output"]
    np.testing.assert_allclose(model(inputs), dense(pooled), atol=1e-6)
    assert dense.kernel.shape == (tiny_config.hidden_dim, 3)


def test_choice_scorer_multiplies_each_pooled_output_with_one_vector(tiny_config):
    backbone = BertBackbone(tiny_config)
    model = ChoiceScorer(backbone)
    inputs = batch(model, (2, 3, 5))
    inputs["token_ids"] = np.random.default_rng(0).integers(5, 40, (2, 3, 5))
    inputs["padding_mask"][1, 2] = 0
    logits = model(inputs).numpy()
    vector = model.get_layer("logits").kernel.numpy()[:, 0]
    for row, choice in np.ndindex(2, 3):
        alone = {name: x[row, choice][np.newaxis] for name, x in inputs.items()}
        expected = backbone(alone)["pooled_output"].numpy()[0] @ vector
        if (row, choice) == (1, 2):
            expected = -1e9
        np.testing.assert_allclose(logits[row, choice], expected, atol=1e-5)


def test_token_classifier_is_a_dense_layer_on_every_token(tiny_config):
    backbone = BertBackbone(tiny_config)
    model = TokenClassifier(backbone, num_tags=3)
    inputs = batch(model, (2, 5))
    inputs["token_ids"] *= np.array([[7], [9]], np.int32)
    dense = model.get_layer("logits")
    hidden = backbone(inputs)["sequence_output"]
    np.testing.assert_allclose(model(inputs), dense(hidden), atol=1e-6)
    assert dense.kernel.shape == (tiny_config.hidden_dim, 3)
    # The pooler is frozen, as it would get no gradient.
    assert not {id(w) for w in model.trainable_weights} & {
        id(w) for w in backbone.pooler.weights
    }
