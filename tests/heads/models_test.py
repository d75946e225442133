# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import keras
import numpy as np
import pytest

from bert_tf.heads import (
    ChoiceScorer,
    EmbeddingConfig,
    FeatureTagger,
    SentenceEncoder,
    SequenceClassifier,
    SpanPredictor,
    TokenClassifier,
)
from bert_tf.modeling import BertBackbone
from bert_tf.training import AdamW


def batch(model, shape):
    return {name: np.ones(shape, np.int32) for name in model.input}


def cross_entropy(logits, targets):
    return np.log(np.exp(logits).sum(axis=1)) - logits[[0, 1], targets]


@pytest.mark.parametrize(
    ("head", "arguments", "shape", "targets", "loss"),
    [
        (
            SequenceClassifier,
            {"num_classes": 1},
            (2, 5),
            [[0.5], [-1.0]],
            lambda x, y: (x[:, 0] - y[:, 0]) ** 2,
        ),
        (
            SequenceClassifier,
            {"num_classes": 3, "multi_label": True},
            (2, 5),
            [[1, 0, 1], [0, 0, 0]],
            lambda x, y: np.mean(np.log1p(np.exp(x)) - y * x, axis=1),
        ),
        (ChoiceScorer, {}, (2, 3, 5), [2, 0], cross_entropy),
        (
            SpanPredictor,
            {},
            (2, 5),
            {"start_logits": [1, 0], "end_logits": [3, 0]},
            lambda x, y: sum(cross_entropy(x[name], y[name]) for name in x) / 2,
        ),
    ],
)
def test_loss_is_divided_by_the_batch(
    tiny_config, head, arguments, shape, targets, loss
):
    model = head(BertBackbone(tiny_config), **arguments)
    model.compile("sgd", run_eagerly=True)
    inputs = batch(model, shape)
    inputs["token_ids"] = np.arange(np.prod(shape), dtype=np.int32).reshape(shape) + 7
    numpy = keras.tree.map_structure
    weights = np.array([0.75, 0.25], np.float32)
    if isinstance(targets, dict):
        targets = {name: np.array(values) for name, values in targets.items()}
        given = dict.fromkeys(targets, weights)
    else:
        targets, given = np.array(targets), weights
    found = model.test_on_batch(inputs, targets, given, return_dict=True)["loss"]
    outputs = numpy(np.asarray, model(inputs))
    expected = (loss(outputs, targets) * weights).sum() / 2
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.filterwarnings("error:Gradients do not exist")
def test_heads_without_a_pooler_leave_it_as_it_is(tiny_config):
    backbone = BertBackbone(tiny_config)
    trained = [w.path for w in backbone.trainable_weights]
    targets, vectors = np.ones([2, 5], np.int32), np.ones([2, 16])
    pooler = backbone.pooler
    spans = dict.fromkeys(("start_logits", "end_logits"), targets[:, 0])
    embedding = EmbeddingConfig(max_sequence_length=8)
    for model, y, loss, unused in (
        (FeatureTagger(backbone, 3, "last", units=4), targets, None, backbone),
        (SpanPredictor(backbone), spans, None, pooler),
        (TokenClassifier(backbone, num_tags=3), targets, None, pooler),
        (SentenceEncoder(backbone, embedding), vectors, "mse", pooler),
    ):
        before = unused.get_weights()
        model.compile(AdamW(0.1), loss, run_eagerly=True)
        model.train_on_batch(batch(model, (2, 5)), y)
        for weight, value in zip(unused.get_weights(), before, strict=True):
            np.testing.assert_array_equal(weight, value)
    assert [w.path for w in backbone.trainable_weights] == trained


def test_span_labels_as_a_tuple_are_refused(tiny_config):
    model = SpanPredictor(BertBackbone(tiny_config))
    model.compile()
    labels = np.full(2, 1), np.full(2, 3)
    keys = "a dictionary with the keys start_logits, end_logits.* Received: tuple of 2"
    for call in (model.evaluate, model.fit):
        with pytest.raises(ValueError, match=keys):
            call(batch(model, (2, 5)), labels, verbose=0)
