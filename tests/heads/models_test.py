# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import sys

import keras
import numpy as np
import pytest

import tasks
from bert_tf import heads
from bert_tf.modeling import BertBackbone
from bert_tf.training import AdamW, create_training_variables
from tests.toy.checkpoints import assert_equal
from tests.toy.models import encoder_inputs


def cross_entropy(logits, targets):
    return np.log(np.exp(logits).sum(axis=1)) - logits[[0, 1], targets]


def squared_error(scores, targets):
    return (scores[:, 0] - targets[:, 0]) ** 2


def binary_cross_entropy(logits, targets):
    return np.mean(np.log1p(np.exp(logits)) - targets * logits, axis=1)


def spans_cross_entropy(logits, targets):
    return sum(cross_entropy(logits[name], targets[name]) for name in logits) / 2


SPANS = {"start_logits": np.array([1, 0]), "end_logits": np.array([3, 0])}
SCORES, LABELS = np.array([[0.5], [-1.0]]), np.array([[1, 0, 1], [0, 0, 0]])


@pytest.mark.parametrize(
    ("build", "shape", "targets", "loss"),
    [
        (lambda x: heads.SequenceClassifier(x, 1), (2, 5), SCORES, squared_error),
        (lambda x: heads.SequenceClassifier(x, 3, multi_label=True), (2, 5), LABELS,
         binary_cross_entropy),
        (heads.ChoiceScorer, (2, 3, 5), np.array([2, 0]), cross_entropy),
        (heads.SpanPredictor, (2, 5), SPANS, spans_cross_entropy),
    ],
    ids=["scores", "labels", "choices", "spans"],
)  # fmt: skip
def test_loss_is_divided_by_the_batch(one_layer, build, shape, targets, loss):
    model = build(BertBackbone(one_layer))
    model.compile("sgd", run_eagerly=True)
    inputs = encoder_inputs(np.arange(np.prod(shape)).reshape(shape) + 7)
    weights = np.array([0.75, 0.25], np.float32)
    weights_of_outputs = keras.tree.map_structure(lambda _: weights, targets)
    arguments = inputs, targets, weights_of_outputs
    found = model.test_on_batch(*arguments, return_dict=True)["loss"]
    outputs = keras.tree.map_structure(np.asarray, model(inputs))
    total = (loss(outputs, targets) * weights).sum()
    np.testing.assert_allclose(found, total / 2, rtol=1e-5)
    create_training_variables(model)  # Weights of a training sum to one.
    model.make_test_function(force=True)
    model.reset_metrics()
    found = model.test_on_batch(*arguments, return_dict=True)["loss"]
    np.testing.assert_allclose(found, total, rtol=1e-5)


@pytest.mark.filterwarnings("error:Gradients do not exist")
def test_heads_without_a_pooler_leave_it_as_it_is(one_layer):
    backbone = BertBackbone(one_layer)
    trained = [w.path for w in backbone.trainable_weights]
    targets, vectors = np.ones([2, 5], np.int32), np.ones([2, 16])
    pooler = backbone.pooler
    spans = dict.fromkeys(("start_logits", "end_logits"), targets[:, 0])
    embedding = heads.EmbeddingConfig(max_sequence_length=8)
    for model, y, loss, unused in (
        (heads.FeatureTagger(backbone, 3, "last", units=4), targets, None, backbone),
        (heads.SpanPredictor(backbone), spans, None, pooler),
        (heads.TokenClassifier(backbone, num_tags=3), targets, None, pooler),
        (heads.SentenceEncoder(backbone, embedding), vectors, "mse", pooler),
    ):
        before = unused.get_weights()
        model.compile(AdamW(0.1), loss, run_eagerly=True)
        model.train_on_batch(encoder_inputs(np.ones((2, 5))), y)
        assert_equal(unused.get_weights(), before)
    assert [w.path for w in backbone.trainable_weights] == trained


def test_span_labels_as_a_tuple_are_refused(one_layer):
    model = heads.SpanPredictor(BertBackbone(one_layer))
    model.compile()
    labels = np.full(2, 1), np.full(2, 3)
    keys = "a dictionary with the keys start_logits, end_logits.* Received: tuple of 2"
    for call in (model.evaluate, model.fit):
        with pytest.raises(ValueError, match=keys):
            call(encoder_inputs(np.ones((2, 5))), labels, verbose=0)


# --- Kinds of users --------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("from bert_tf import heads\nheads.HEADS['ratings'] = heads.Head\n", None),
        ("", ValueError),  # It adds no head.
        (None, ValueError),
        ("import no_such_module\n", ModuleNotFoundError),  # Not hidden.
    ],
)
def test_kind_of_a_user_is_imported_by_its_name(tmp_path, monkeypatch, source, error):
    if source is not None:
        (tmp_path / "ratings.py").write_text(source)
    monkeypatch.setattr(tasks, "__path__", [str(tmp_path)])
    monkeypatch.setitem(heads.HEADS, "ratings", None)
    del heads.HEADS["ratings"]  # `monkeypatch` removes what the import adds.
    monkeypatch.delitem(sys.modules, "tasks.ratings", raising=False)
    if error:
        with pytest.raises(error, match=r"ratings|no_such_module"):
            heads.find_head("ratings")
    else:
        assert heads.find_head("ratings") is heads.Head
    sys.modules.pop("tasks.ratings", None)
