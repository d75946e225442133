# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling.bert import BertBackbone, BertPretrainer
from bert_tf.training import step as train_step
from bert_tf.training import strategy as distribution
from bert_tf.training.optimizers import AdamW
from tests.modeling.gradients_test import kept
from tests.toy.records import make_batch

STRATEGIES = ["default", pytest.param("mirrored", marks=pytest.mark.slow)]


@pytest.fixture(scope="module")
def batches(vocabulary):
    """Three batches of eight rows, with unequal numbers of masked tokens."""
    made = [make_batch(vocabulary, batch_size=8, seed=seed) for seed in range(3)]
    return tf.nest.map_structure(lambda *tensors: tf.stack(tensors), *made)


def train(batches, config, change=None, strategy="default"):
    """Returns the weights after three steps; losses, accuracies, the last norm."""
    keras.utils.set_random_seed(5)
    with distribution.strategy(strategy).scope():
        model = BertPretrainer(BertBackbone(config))
        model.compile(AdamW(1e-2), jit_compile=False)
        if change:
            change(model)
        distribution.prepare(model)
    dataset = tf.data.Dataset.from_tensor_slices(batches)
    history = model.fit(dataset, shuffle=False, verbose=0).history
    # Adam and the clipping hide a factor of all gradients; their norm does not.
    norm = model.optimizer.gradient_norm.numpy()
    return model.get_weights(), history | {"gradient_norm": norm}


def assert_same(one, other, atol=2e-5):
    # Adam divides by the gradient's size, so rounding shows most where it is small.
    for a, b in zip(one[0], other[0], strict=True):
        np.testing.assert_allclose(a, b, atol=atol)
    assert one[1].keys() == other[1].keys()
    for name, values in one[1].items():
        np.testing.assert_allclose(values, other[1][name], rtol=1e-4, err_msg=name)


@pytest.fixture(scope="module")
def whole(batches, tiny_config):
    return train(batches, tiny_config)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    ("size", "xla"),
    [
        (2, False),
        pytest.param(0, True, marks=pytest.mark.slow),
        pytest.param(2, True, marks=pytest.mark.slow),
    ],
)
def test_parts_of_a_batch_train_as_the_whole(
    whole, batches, tiny_config, size, xla, strategy
):
    def change(model):
        train_step.micro_batches(model, size, xla=xla)

    assert_same(whole, train(batches, tiny_config, change, strategy))


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_recomputed_layers_train_as_kept_ones_with_the_same_dropout(
    batches, tiny_config, strategy
):
    config = dataclasses.replace(tiny_config, dropout=0.3, attention_dropout=0.3)
    kept = train(batches, config, strategy=strategy)
    recomputed = train(
        batches, config, lambda model: train_step.recompute(model.backbone), strategy
    )
    assert_same(kept, recomputed)


def test_of_recomputed_layers_only_the_input_is_kept(tiny_config):
    config = dataclasses.replace(tiny_config, dropout=0.3, attention_dropout=0.3)
    backbone = BertBackbone(config)
    layer = backbone.encoder_layers[0]
    x, mask = tf.ones([16, 8, 16]), tf.ones([16, 8])  # Larger than any of the weights.

    def large():
        tensors = kept(lambda x: layer(x, mask, training=True), x)
        return [t for t in tensors if t.shape.num_elements() >= 16 * 8 * 16]

    assert len(large()) > 10
    train_step.recompute(backbone)
    (only,) = large()
    assert only.shape == x.shape


@pytest.mark.slow
def test_recomputation_and_micro_batches_go_together(whole, batches, tiny_config):
    def change(model):
        train_step.recompute(model.backbone)
        train_step.micro_batches(model, 4)

    assert_same(whole, train(batches, tiny_config, change))
