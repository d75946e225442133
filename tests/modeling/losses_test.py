# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import functools

import keras
import numpy as np
import pytest
import scipy.special
import sklearn.metrics

from bert_tf.heads import SequenceClassifier, SpanPredictor, TokenClassifier
from bert_tf.modeling import BertBackbone
from tests.toy.models import encoder_inputs

losses, metrics = keras.losses, keras.metrics
INPUTS = encoder_inputs([[2, 7, 8, 3], [2, 9, 8, 3], [2, 7, 9, 3]])
BINARY = losses.BinaryCrossentropy(from_logits=True)


class OwnPrecision(metrics.Precision):
    """A metric of probabilities that takes logits."""

    def update_state(self, y_true, y_pred, sample_weight=None):
        super().update_state(y_true, keras.ops.sigmoid(y_pred), sample_weight)


@pytest.fixture(scope="module")
def models(one_layer):
    backbone = BertBackbone(one_layer)
    return {
        "score": SequenceClassifier(backbone, 1),
        "classes": SequenceClassifier(backbone, 3),
        "labels": SequenceClassifier(backbone, 3, multi_label=True),
        "tags": TokenClassifier(backbone, 3),
        "spans": SpanPredictor(backbone),
    }


@pytest.mark.parametrize(
    "loss",
    [
        "bce",
        "BinaryCrossentropy",
        "kld",
        losses.binary_crossentropy,
        losses.SparseCategoricalCrossentropy,
        losses.KLDivergence(),
        losses.Dice,
        keras.ops.categorical_crossentropy,
        functools.partial(losses.binary_crossentropy, label_smoothing=0.1),
        [losses.poisson],
        {"start_logits": "kl_divergence"},
    ],
)
def test_losses_of_probabilities_are_refused(models, loss):
    for model in models.values():
        with pytest.raises(ValueError, match="returns logits, but a loss or metric"):
            model.compile("sgd", loss)


@pytest.mark.parametrize(
    "metric",
    [
        "accuracy",
        metrics.BinaryAccuracy,
        metrics.binary_accuracy,
        "precision",
        metrics.AUC,
        metrics.F1Score(threshold=0.5),
        metrics.BinaryIoU(),
        losses.binary_crossentropy,
    ],
)
@pytest.mark.parametrize("argument", ["metrics", "weighted_metrics"])
def test_metrics_of_probabilities_are_refused(models, metric, argument):
    for name, loss in (("score", BINARY), ("labels", None), ("spans", None)):
        given = {"start_logits": metric} if name == "spans" else [metric]
        if name == "spans" and metric == "accuracy":
            continue  # The most probable token.
        with pytest.raises(ValueError, match="returns logits, but a loss or metric"):
            models[name].compile("sgd", loss, **{argument: given})


def test_losses_and_metrics_of_logits_and_scores_are_accepted(models):
    partial = functools.partial(losses.categorical_crossentropy, from_logits=True)
    single = [metrics.AUC(from_logits=True), OwnPrecision(), metrics.Recall(0.0)]
    for name, loss, given in (
        ("score", None, ["accuracy", metrics.Precision()]),  # Trained to be 0 or 1.
        ("score", losses.Huber, ["mae"]),
        ("score", BINARY, [metrics.BinaryAccuracy(threshold=0.0), *single]),
        ("classes", partial, ["accuracy", metrics.F1Score(), "cosine_similarity"]),
        ("classes", lambda y, logits: logits, [metrics.Precision(top_k=1)]),
        ("classes", "categorical_hinge", ["acc"]),
        ("labels", None, [metrics.F1Score()]),
        ("tags", None, ["accuracy", metrics.SparseTopKCategoricalAccuracy(2)]),
        ("spans", None, {"start_logits": ["accuracy"]}),
    ):
        models[name].compile("sgd", loss, metrics=given)


def test_metrics_of_one_logit_equal_scikit_learn(one_layer):
    keras.utils.set_random_seed(3)
    model, labels = SequenceClassifier(BertBackbone(one_layer), 1), np.array([0, 1, 1])
    # Large kernels, so that the logits differ: about 0.1, 1.4 and -0.1.
    model.set_weights([20 * w if w.ndim > 1 else w for w in model.get_weights()])
    model.layers[-1].bias.assign([0.2])
    given = [
        metrics.BinaryAccuracy("accuracy", threshold=0.0),
        metrics.Recall(thresholds=0.0, name="recall"),
        metrics.AUC(from_logits=True, name="auc"),
    ]
    model.compile("sgd", BINARY, metrics=given, run_eagerly=True)
    found = model.evaluate(INPUTS, labels[:, None], verbose=0, return_dict=True)
    logits = model.predict(INPUTS, verbose=0)[:, 0]
    expected = {
        "loss": sklearn.metrics.log_loss(labels, scipy.special.expit(logits)),
        "accuracy": sklearn.metrics.accuracy_score(labels, logits > 0),
        "recall": sklearn.metrics.recall_score(labels, logits > 0),
        "auc": sklearn.metrics.roc_auc_score(labels, logits),
    }
    assert found == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("classes", np.array([0, 1, 2])),
        ("labels", np.ones((3, 3))),
        ("tags", np.ones((3, 4))),
    ],
)
def test_class_weights_need_one_class_per_example(models, name, labels):
    model, weights = models[name], {0: 1.0, 1: 2.0, 2: 4.0}
    model.compile("sgd", run_eagerly=True)
    if name == "classes":
        logits = model.predict(INPUTS, verbose=0)
        entropies = scipy.special.logsumexp(logits, 1) - np.diagonal(logits)
        loss = model.train_on_batch(INPUTS, labels, class_weight=weights)[0]
        assert loss == pytest.approx(np.mean([1, 2, 4] * entropies), rel=1e-4)
        return
    for call in (model.fit, model.train_on_batch):
        with pytest.raises(ValueError, match="each label as `sample_weight`"):
            call(INPUTS, labels, class_weight=weights)


def test_each_label_may_have_a_weight(one_layer):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, (3, 3)).astype("float32")
    weights = rng.random((3, 3)).astype("float32")
    for given in (weights, weights[:, 0]):
        model = SequenceClassifier(BertBackbone(one_layer), 3, multi_label=True)
        model.compile("sgd", run_eagerly=True)
        logits = model.predict(INPUTS, verbose=0)
        entropies = np.logaddexp(0, logits) - labels * logits
        loss = model.evaluate(INPUTS, labels, sample_weight=given, verbose=0)
        expected = np.mean(entropies * given.reshape(3, -1))
        assert loss == pytest.approx(expected, rel=1e-5)
