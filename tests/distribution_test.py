# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import distribution
from bert_tf.model import BertBackbone, BertPretrainer
from bert_tf.optimization import AdamW
from tests.input_pipeline_test import make_batch


def test_default_is_one_replica():
    assert distribution.strategy("default").num_replicas_in_sync == 1


def test_mirrored_takes_all_cpus_where_there_is_no_gpu():
    assert distribution.strategy("mirrored").num_replicas_in_sync == 2


def test_unknown_strategy_is_refused():
    with pytest.raises(ValueError, match="one of default, mirrored, tpu"):
        distribution.strategy("horovod")


def test_missing_tpu_is_said_in_one_line():
    with pytest.raises(ValueError, match="finds no TPU") as error:
        distribution.strategy("tpu")
    assert "\n" not in str(error.value)


def test_missing_gpu_is_said_in_one_line(monkeypatch):
    monkeypatch.setattr(
        tf.config,
        "list_logical_devices",
        lambda kind: ["CPU:0"] if kind == "CPU" else [],
    )
    with pytest.raises(ValueError, match="--strategy=mirrored needs GPUs"):
        distribution.strategy("mirrored")


def test_batch_that_does_not_divide_names_one_that_does():
    distribution.check_batch_size(16, 8)
    with pytest.raises(ValueError, match="use --batch_size=16"):
        distribution.check_batch_size(10, 8)


def test_two_devices_train_to_the_same_weights_as_one(tiny_config, vocabulary):
    # Rows with unequal numbers of masked tokens fall on the two devices.
    batches = [make_batch(vocabulary, batch_size=8, seed=s) for s in range(4)]
    stacked = tf.nest.map_structure(lambda *tensors: tf.stack(tensors), *batches)

    def train(strategy):
        keras.utils.set_random_seed(5)
        with strategy.scope():
            model = BertPretrainer(BertBackbone(tiny_config))
            model.compile(AdamW(1e-2), jit_compile=False)
        dataset = tf.data.Dataset.from_tensor_slices(stacked)
        history = model.fit(dataset, verbose=0).history
        return model.get_weights(), history

    (one, one_history) = train(distribution.strategy("default"))
    (two, two_history) = train(distribution.strategy("mirrored"))
    # Adam divides by the gradient's size, so rounding shows most where it is small.
    for a, b in zip(one, two, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5)
    for name in ("loss", "mlm_accuracy", "nsp_accuracy"):
        np.testing.assert_allclose(one_history[name], two_history[name], rtol=1e-5)


def test_replicas_draw_dropout_masks_of_their_own():
    strategy = distribution.strategy("mirrored")
    with strategy.scope():
        model = keras.Sequential([keras.Input((64,)), keras.layers.Dropout(0.5)])
        distribution.draw_dropout_per_replica(model)

    @tf.function
    def masks():
        outputs = strategy.run(lambda: model(tf.ones((1, 64)), training=True))
        return strategy.experimental_local_results(outputs)

    first, second = masks(), masks()
    draws = [np.asarray(mask) for mask in (*first, *second)]
    for i, a in enumerate(draws):
        for b in draws[:i]:
            assert (a != b).any()
