# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning and prediction of all tasks, on TensorFlow and on JAX.

JAX runs in a process of its own. `tests/tasks/training_test.py` needs no JAX.
"""

import importlib.util
import json
import shutil
import subprocess
import sys

import keras
import pytest
import tensorflow as tf

from tests.toy import all_tasks, workers

pytestmark = pytest.mark.skipif(
    not importlib.util.find_spec("jax"), reason="JAX is not installed."
)


def assert_equal(found, expected):
    """Asserts that nested values are equal, and numbers within 1e-4, also in text."""
    pairs = map(keras.tree.flatten_with_path, (found, expected))
    for (path, value), (other_path, other) in zip(*pairs, strict=True):
        assert path == other_path
        for word, wanted in zip(str(value).split(), str(other).split(), strict=True):
            if word != wanted:
                close = pytest.approx(float(wanted), abs=1e-4, rel=1e-4)
                assert float(word) == close, path


@pytest.fixture(scope="module")
def models(tmp_path_factory, one_layer, vocabulary):
    """Returns a folder with random weights for each task."""
    folder = tmp_path_factory.mktemp("tasks")
    all_tasks.write_models(folder / "tensorflow", one_layer, vocabulary)
    return shutil.copytree(folder / "tensorflow", folder / "jax").parent


@pytest.fixture(scope="module")
def on_tensorflow(models):
    tf.config.run_functions_eagerly(True)  # Tracing graphs would take longer.
    results = all_tasks.train(models / "tensorflow")
    tf.config.run_functions_eagerly(False)
    return results


@pytest.fixture(scope="module")
def on_jax(models):
    done = subprocess.run(
        [sys.executable, "-m", "tests.toy.all_tasks", models / "jax"],
        env=workers.on_jax(devices=2),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", all_tasks.TASKS)
def test_learns_and_predicts_files_as_in_the_training(on_tensorflow, name):
    first, *_, last = on_tensorflow[name]["epochs"]
    assert last["loss"] < first["loss"]
    found, expected = (on_tensorflow[name][key] for key in ("file", "predictions"))
    # Others have a row for each word, or ranks in all texts.
    if "predictions_dev.conll" not in expected and name != "search":
        assert_equal(found, expected["predictions_dev.tsv"])


@pytest.mark.parametrize("name", all_tasks.TASKS)
def test_scores_and_answers_equal_tensorflow(on_tensorflow, on_jax, name):
    assert_equal(on_jax[name], on_tensorflow[name])


def test_export_on_jax_names_the_command():
    options = ["--init_from=x", "--output=y", "--export=z"]
    options += ["--train_file=a", "--dev_file=b"]
    done = subprocess.run(
        [sys.executable, "-m", "tasks.tagging", *options],
        env=workers.on_jax(devices=2),
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    message = "--export needs Keras with the backend tensorflow. Set KERAS_BACKEND="
    assert message in done.stderr
    assert "export the model later, with python -m bert_tf.export" in done.stderr
