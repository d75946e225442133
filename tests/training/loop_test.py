# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The state of a training, and failures of its loop, with a small model."""

import resource
import types

import keras
import numpy as np
import pytest

from bert_tf.modeling import Dropout
from bert_tf.training import AdamW, TrainingLoop, TrainingState, create_devices
from tests.toy.checkpoints import assert_equal


@pytest.fixture
def directory(tmp_path):
    return types.SimpleNamespace(path=tmp_path)


def training(directory):
    """Returns a compiled model with two dropout layers, and its `TrainingState`."""
    inputs = keras.Input((4,))
    outputs = Dropout(0.2)(Dropout(0.1)(keras.layers.Dense(2000)(inputs)))
    model = keras.Model(inputs, outputs)
    model.compile(AdamW(), "mse")
    return model, TrainingState(directory, model)


def step(model):
    ones = [np.ones(v.shape, "float32") for v in model.trainable_weights]
    model.optimizer.apply(ones)


# --- State -----------------------------------------------------------------------


def test_restores_weights_step_and_seeds(directory):
    model, state = training(directory)
    assert state.restore() == 0
    state.progress["history"] = [{"loss": 0.1}]
    step(model)
    model.layers[-1].seed_generator.next()
    state.save()

    restored, state = training(directory)
    state.progress["other"] = 1
    assert state.restore() == 1
    assert state.progress == {"history": [{"loss": 0.1}], "other": 1}
    for found, expected in ((restored, model), (restored.optimizer, model.optimizer)):
        # With the seeds of the layers.
        values = ([np.array(v) for v in x.variables] for x in (found, expected))
        assert_equal(*values)


def test_restores_older_state_if_newest_is_damaged(directory, caplog):
    model, state = training(directory)
    for _ in range(2):
        step(model)
        state.save()
    newest, oldest = state.path / "ckpt-2.npz", state.path / "ckpt-1.npz"
    content = bytearray(newest.read_bytes())
    content[1000] ^= 1
    newest.write_bytes(content)
    assert training(directory)[1].restore() == 1
    assert "ckpt-2.npz is damaged" in caplog.text
    oldest.write_bytes(oldest.read_bytes()[:50])
    with pytest.raises(ValueError, match="no readable training state"):
        training(directory)[1].restore()


def test_removes_what_killed_processes_left(directory):
    model, state = training(directory)
    for _ in range(3):
        step(model)
        state.save()
    (state.path / ".unfinished-12345678-ckpt-4.npz").touch()
    step(model)
    state.save()
    found = sorted(path.name for path in state.path.iterdir())
    assert found == ["ckpt-3.npz", "ckpt-4.npz"]


def test_another_worker_writes_nothing(directory):
    model, _ = training(directory)
    TrainingState(directory, model, write=False).save(weights=True)
    assert not list(directory.path.iterdir())


def test_failed_write_keeps_previous_state(directory):
    model, state = training(directory)
    step(model)
    state.save()
    step(model)
    # Limits the file size, so that a write fails as on a full disk.
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(OSError, match="training state of step 2 cannot be written"):
            state.save()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert training(directory)[1].restore() == 1


# --- Failures --------------------------------------------------------------------


@pytest.fixture
def loop(directory):
    """A loop at step 20 of a training that saved no state yet."""
    loop = TrainingLoop(create_devices("default"), training(directory)[1], 1000)
    loop.step = 20
    return loop


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (np.nan, r"loss of step 22 is not finite \(nan\)\. No checkpoint was"),
        (1.0, "gradients of step 22 are not finite"),
    ],
)
def test_failure_names_the_step_among_several(loop, loss, message):
    epoch = {"logs": {}, "steps": 20, "gradient_norms": []}
    norms = np.array([1, np.nan, np.nan, np.nan])
    with pytest.raises(ValueError, match=message):
        loop._add(epoch, {"loss": loss}, norms)


def test_weights_that_are_not_finite_are_not_saved(loop):
    loop.save()
    weight = loop.model.trainable_weights[0]
    weight.assign(np.full(weight.shape, np.inf))
    message = "weights after step 20 are not finite. The checkpoint of step 20 is kept"
    with pytest.raises(ValueError, match=message):
        loop.save()
