# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import types

import numpy as np
import pytest
import scipy.special
import sklearn.metrics
import tensorflow as tf
from sklearn.utils import class_weight

from bert_tf.finetuning import Split, train


@pytest.mark.parametrize(
    ("hidden_dim", "rate"), [(1024, 5e-5), (768, 5e-5), (384, 1e-4), (256, 3e-4)]
)
def test_default_learning_rate(hidden_dim, rate):
    assert train.default_learning_rate(hidden_dim) == rate


@pytest.mark.parametrize("per_token", [False, True])
def test_balanced_classes_match_scikit_learn(per_token):
    classes, weights = np.array([0, 2, 2, 2, 1, 1]), None
    targets = tf.constant(classes)
    if per_token:
        targets = tf.RaggedTensor.from_row_lengths(targets, [2, 4])
        weights = targets.with_values(tf.constant([1.0, 1, 0, 0, 1, 1]))
        classes = np.array([0, 2, 1, 1])
    split = train._balance_classes(Split("train", None, {}, targets, weights))
    values = split.weights.flat_values if per_token else split.weights
    values = values.numpy()
    expected = class_weight.compute_sample_weight("balanced", classes)
    np.testing.assert_allclose(values[values > 0], expected, rtol=1e-6)


def test_loss_of_several_labels_is_the_mean_over_texts_and_labels():
    task = types.SimpleNamespace(target_kind="labels")
    rng = np.random.default_rng(0)
    logits = rng.normal(size=[4, 3]).astype("float32")
    labels = rng.integers(0, 2, [4, 3]).astype("float32")
    loss = train._losses(task)["loss"](labels, logits, np.full(4, 0.25, "float32"))
    expected = sklearn.metrics.log_loss(
        labels.ravel(), scipy.special.expit(logits).ravel()
    )
    np.testing.assert_allclose(loss, expected, rtol=1e-6)
