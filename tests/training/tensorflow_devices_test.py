# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import keras
import pytest
import tensorflow as tf

from bert_tf.modeling import BertBackbone, BertPretrainer
from bert_tf.training import AdamW, create_devices, create_training_variables
from bert_tf.training.tensorflow_devices import tensorflow_step
from tests.toy.checkpoints import assert_equal
from tests.toy.records import make_batch


@pytest.fixture(scope="module", autouse=True)
def without_fusion():
    """Compiling groups of ops for each shape would take most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bert_tf.modeling.backend.cpu_only", lambda: False)
        yield


@pytest.fixture(scope="module")
def batches(vocabulary):
    """Three batches of eight rows, with unequal numbers of masked tokens."""
    made = [make_batch(vocabulary, batch_size=8, seed=seed) for seed in range(3)]
    return tf.nest.map_structure(lambda *tensors: tf.stack(tensors), *made)


def train(batches, config, strategy="default", wrap=tf.function, **arguments):
    """Returns the weights after three steps, the metrics, and the last norm."""
    keras.utils.set_random_seed(5)
    strategy = create_devices(strategy).strategy
    with strategy.scope():
        model = BertPretrainer(BertBackbone(config))
        model.compile(AdamW(1e-2))
        create_training_variables(model)
    step = tensorflow_step(model, **arguments)
    run = wrap(lambda *batch: strategy.run(step, args=(batch,)))
    dataset = tf.data.Dataset.from_tensor_slices(batches)
    for batch in strategy.experimental_distribute_dataset(dataset):
        run(*batch)
    # Adam and clipping hide a constant factor in all gradients; their norm does not.
    metrics = {"gradient_norm": model.optimizer.gradient_norm.numpy()}
    return model.get_weights(), model.get_metrics_result() | metrics


@pytest.mark.parametrize(
    ("xla", "strategy"),
    [(False, "default"), pytest.param(True, "mirrored", marks=pytest.mark.slow)],
)
def test_micro_batches_and_xla_train_like_the_whole_batch(
    batches, one_layer, xla, strategy
):
    weights, metrics = train(batches, one_layer, wrap=lambda step: step)  # Eager.
    found = train(batches, one_layer, strategy, micro_batch_size=2, xla=xla)
    # Adam normalizes gradients, so rounding errors of small ones are visible.
    assert_equal(found[0], weights, atol=2e-5)
    assert_equal(found[1], metrics, rtol=1e-4)
