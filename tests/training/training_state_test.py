# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import dataclasses
import resource

import numpy as np
import pytest

from bert_tf.checkpoints import ModelDirectory
from bert_tf.modeling import BertBackbone, BertPretrainer
from bert_tf.training import AdamW, TrainingState


@pytest.fixture
def directory(tmp_path, tiny_config, vocabulary):
    return ModelDirectory.create(
        tmp_path / "model",
        architecture=tiny_config,
        vocabulary=vocabulary,
        lowercase=True,
        head={"kind": "pretrainer"},
        options={},
    )


def training(directory, tiny_config):
    """Returns a compiled model with dropout, and its `TrainingState`."""
    config = dataclasses.replace(tiny_config, num_layers=1, dropout=0.1)
    model = BertPretrainer(BertBackbone(config))
    model.compile(AdamW())
    return model, TrainingState(directory, model)


def seeds(model):
    (layer,) = model.backbone.encoder_layers
    dropouts = layer.attention_output_dropout, layer.output_dropout
    layers = model.backbone.embeddings.dropout, *dropouts
    return [layer.seed_generator for layer in layers]


def step(model):
    ones = [np.ones(v.shape, "float32") for v in model.trainable_weights]
    model.optimizer.apply(ones)


def test_restores_weights_step_and_seeds(directory, tiny_config):
    model, state = training(directory, tiny_config)
    assert state.restore() == 0
    state.progress["history"] = [{"loss": 0.1}]
    step(model)
    for number, seed in enumerate(seeds(model)):
        for _ in range(number):
            seed.next()
    state.save()

    restored, state = training(directory, tiny_config)
    state.progress["other"] = 1
    assert state.restore() == 1
    assert state.progress == {"history": [{"loss": 0.1}], "other": 1}
    for a, b in zip(seeds(restored), seeds(model), strict=True):
        np.testing.assert_array_equal(a.state, b.state)
    for a, b in zip(restored.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(restored.optimizer.variables, model.optimizer.variables):
        np.testing.assert_array_equal(a, b)


def test_restores_older_state_if_newest_is_damaged(directory, tiny_config, caplog):
    model, state = training(directory, tiny_config)
    for _ in range(2):
        step(model)
        state.save()
    states = directory.path / "training_state"
    newest = states / "ckpt-2.npz"
    content = bytearray(newest.read_bytes())
    content[1000] ^= 1
    newest.write_bytes(content)
    assert training(directory, tiny_config)[1].restore() == 1
    assert "ckpt-2.npz is damaged" in caplog.text
    oldest = states / "ckpt-1.npz"
    oldest.write_bytes(oldest.read_bytes()[:50])
    with pytest.raises(ValueError, match="no readable training state"):
        training(directory, tiny_config)[1].restore()


def test_removes_what_killed_processes_left(directory, tiny_config):
    model, state = training(directory, tiny_config)
    for _ in range(3):
        step(model)
        state.save()
    (state.path / ".unfinished-12345678-ckpt-4.npz").touch()
    model, state = training(directory, tiny_config)
    assert state.restore() == 3
    step(model)
    state.save()
    found = sorted(path.name for path in state.path.iterdir())
    assert found == ["ckpt-3.npz", "ckpt-4.npz"]


def test_another_worker_writes_nothing(directory, tiny_config):
    model, _ = training(directory, tiny_config)
    TrainingState(directory, model, write=False).save(weights=True)
    assert not (directory.path / "training_state").exists()
    assert not (directory.path / "model.safetensors").exists()


def test_failed_write_keeps_previous_state(directory, tiny_config):
    model, state = training(directory, tiny_config)
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
    assert training(directory, tiny_config)[1].restore() == 1
