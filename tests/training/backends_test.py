# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Models and optimizers on the JAX backend of Keras, in a process of its own."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from tests.toy import backends

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("jax"), reason="JAX is not installed.")
def test_models_and_optimizers_train_as_on_tensorflow(tmp_path):
    expected = backends.train(str(tmp_path / "model.keras"))
    done = subprocess.run(
        [sys.executable, "-m", "tests.toy.backends", str(tmp_path / "model.keras")],
        env=os.environ | {"KERAS_BACKEND": "jax", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        check=True,
    )
    actual = json.loads(done.stdout)
    assert actual.keys() == expected.keys()
    for name, losses in expected.items():
        np.testing.assert_allclose(actual[name], losses, rtol=1e-4, err_msg=name)
