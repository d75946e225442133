# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Optimizers on the other Keras backends, each in a process of its own."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parents[2]

# Trains a small model with each optimizer and prints all weights.
TRAIN = """
import json, sys
import keras, numpy as np
from bert_tf.training import AdamW, Lamb, Muon, WarmupDecay

rng = np.random.default_rng(0)
x, y = (rng.normal(size=(8, n)).astype("float32") for n in (4, 2))
weights = {}
for optimizer_class in (AdamW, Lamb, Muon):
    initializer = keras.initializers.Constant(rng.normal(size=(4, 6)))
    hidden = keras.layers.Dense(6, "tanh", kernel_initializer=initializer,
                                name="encoder_layer_0")
    output = keras.layers.Dense(2, kernel_initializer="ones")
    model = keras.Sequential([keras.Input((4,)), hidden, output])
    optimizer = optimizer_class(WarmupDecay(0.1, 2, 6))
    if optimizer_class is Muon:
        optimizer.orthogonalization_dtype = "float32"
    model.compile(optimizer, "mse")
    model.fit(x, y, batch_size=4, epochs=2, shuffle=False, verbose=0)
    weights[optimizer_class.__name__] = [w.tolist() for w in model.get_weights()]
print(json.dumps(weights))
"""


def train(backend: str) -> dict[str, list]:
    environment = {"KERAS_BACKEND": backend, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", TRAIN],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_optimizers_train_as_on_tensorflow(backend):
    if not importlib.util.find_spec(backend):
        pytest.skip(f"{backend} is not installed.")
    expected, actual = train("tensorflow"), train(backend)
    for name, weights in expected.items():
        for ours, theirs in zip(weights, actual[name], strict=True):
            np.testing.assert_allclose(theirs, ours, atol=1e-4, err_msg=name)
