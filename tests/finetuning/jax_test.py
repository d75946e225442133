# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning and prediction on the JAX backend of Keras, in a process of its own."""

import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
import tensorflow as tf

from tests.toy import all_tasks

ROOT = pathlib.Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(
    not importlib.util.find_spec("jax"), reason="JAX is not installed."
)
ON_JAX = {
    "KERAS_BACKEND": "jax",
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
    "PYTHONPATH": str(ROOT),
}


def assert_equal(found, expected, where):
    """Asserts that nested values are equal, and numbers within 1e-4."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), where
        for name, value in expected.items():
            assert_equal(found[name], value, f"{where}, {name}")
    elif isinstance(expected, list):
        for i, values in enumerate(zip(found, expected, strict=True)):
            assert_equal(*values, f"{where}, {i}")
    elif isinstance(expected, str):
        words = found.split(), expected.split()
        for word, other in zip(*words, strict=True):
            if word != other:
                assert float(word) == pytest.approx(float(other), abs=1e-4), where
    else:
        assert found == pytest.approx(expected, abs=1e-4, rel=1e-4), where


@pytest.fixture(scope="module")
def trained(tmp_path_factory, one_layer, vocabulary):
    """Returns the results of all tasks on JAX and on TensorFlow."""
    folder = tmp_path_factory.mktemp("tensorflow")
    all_tasks.write_models(folder, one_layer, vocabulary)
    copy = shutil.copytree(folder, tmp_path_factory.mktemp("jax") / "copy")
    with subprocess.Popen(
        [sys.executable, "-m", "tests.toy.all_tasks", copy],
        env=os.environ | ON_JAX,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        tf.config.run_functions_eagerly(True)  # Tracing graphs would take longer.
        expected = all_tasks.train(folder)
        tf.config.run_functions_eagerly(False)
        output = process.communicate()[0]
    assert process.returncode == 0, output
    return json.loads(output.splitlines()[-1]), expected


@pytest.mark.parametrize("name", all_tasks.TASKS)
def test_scores_and_answers_equal_tensorflow(trained, name):
    found, expected = (results[name] for results in trained)
    assert_equal(found, expected, name)


def test_export_on_jax_names_the_command():
    options = ["--init_from=x", "--output=y", "--export=z"]
    options += ["--train_file=a", "--dev_file=b"]
    done = subprocess.run(
        [sys.executable, "-m", "tasks.tagging", *options],
        env=os.environ | ON_JAX,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    message = "--export needs Keras with the backend tensorflow. Set KERAS_BACKEND="
    assert message in done.stderr
    assert "export the model later, with python -m bert_tf.export" in done.stderr
