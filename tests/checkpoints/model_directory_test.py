# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import json
import resource
import shutil

import keras
import numpy as np
import pytest

from bert_tf.checkpoints.model_directory import ModelDirectory
from bert_tf.modeling.bert import BertBackbone, BertPretrainer
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.training.checkpoint import TrainingState
from bert_tf.training.optimizers import AdamW


def create(path, config, vocabulary, head=None, **options):
    return ModelDirectory.create(
        path,
        architecture=config,
        vocabulary=vocabulary,
        lowercase=True,
        head=head or {"kind": "pretrainer"},
        options=options,
        defaults={"stride": 1},
        resumable=("output",),
    )


@pytest.fixture
def directory(tmp_path, tiny_config, vocabulary):
    return create(tmp_path / "model", tiny_config, vocabulary, steps=5, output="a")


def test_open_returns_what_create_wrote(directory):
    assert ModelDirectory.open(directory.path) == directory


def test_weights_round_trip(directory, tiny_config):
    model = BertPretrainer(BertBackbone(tiny_config))
    directory.save_weights(model)
    for loaded, weight in zip(
        directory.load_pretrainer().get_weights(), model.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(loaded, weight)
    assert not list(directory.path.glob(".unfinished*"))


def test_fill_names_layers_and_weights_that_are_missing(
    directory, tiny_config, monkeypatch
):
    model = BertPretrainer(BertBackbone(tiny_config))
    weights = {weight.path: weight.numpy() for weight in model.weights}
    for name in ("pooler/bias", "nsp/kernel", "nsp/bias"):
        del weights[name]
    monkeypatch.setattr(ModelDirectory, "read_weights", lambda _: weights)
    assert directory.load_into(model) == ["pooler/bias", "nsp"]


def test_backbone_of_a_fine_tuned_model(tmp_path, tiny_config, vocabulary):
    encoder = BertBackbone(tiny_config)
    pooled = encoder(encoder.input)["pooled_output"]
    nested = keras.Model(encoder.input, keras.layers.Dense(3)(pooled))
    head = {"kind": "classification"}
    directory = create(tmp_path / "m", tiny_config, vocabulary, head)
    directory.save_weights(nested)
    for loaded, weight in zip(
        directory.load_backbone().get_weights(), encoder.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(loaded, weight)
    with pytest.raises(ValueError, match="holds a model for classification"):
        directory.load_pretrainer()


def test_same_options_are_taken_up_and_others_refused(
    directory, tiny_config, vocabulary
):
    create(directory.path, tiny_config, vocabulary, steps=5, output="b")
    with pytest.raises(ValueError, match="steps: 5 before, 6 now"):
        create(directory.path, tiny_config, vocabulary, steps=6, output="a")
    other = Vocabulary((*vocabulary.tokens[:-1], "dog"))
    with pytest.raises(ValueError, match=r"vocabulary: '\w+' before"):
        create(directory.path, tiny_config, other, steps=5, output="a")


def test_an_option_that_an_earlier_version_lacked_was_at_its_default(
    directory, tiny_config, vocabulary
):
    create(directory.path, tiny_config, vocabulary, steps=5, stride=1)
    with pytest.raises(ValueError, match="stride: 1 before, 2 now"):
        create(directory.path, tiny_config, vocabulary, steps=5, stride=2)


def test_missing_parts_are_named(directory, tmp_path):
    with pytest.raises(ValueError, match=r"is not a model directory: it has no config"):
        ModelDirectory.open(tmp_path)
    with pytest.raises(ValueError, match=r"has no model\.weights\.h5"):
        directory.load_pretrainer()
    (directory.path / "model.weights.h5").write_bytes(b"half of a file")
    with pytest.raises(ValueError, match="not a readable HDF5 file"):
        directory.load_pretrainer()


def test_config_that_contradicts_the_vocabulary_is_refused(directory, vocabulary):
    (directory.path / "vocab.txt").write_text("\n".join(vocabulary.tokens[:-1]))
    with pytest.raises(ValueError, match="says 40 tokens"):
        ModelDirectory.open(directory.path)
    (directory.path / "config.json").write_text(json.dumps({"architecture": {}}))
    with pytest.raises(ValueError, match="not the config of a model directory"):
        ModelDirectory.open(directory.path)


def test_failed_save_leaves_the_old_weights(directory, tiny_config):
    model = BertPretrainer(BertBackbone(tiny_config))
    directory.save_weights(model)
    before = (directory.path / "model.weights.h5").read_bytes()

    class Failing:
        def save_weights(self, path):
            path.write_bytes(b"half")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        directory.save_weights(Failing())
    assert (directory.path / "model.weights.h5").read_bytes() == before
    assert not list(directory.path.glob(".unfinished*"))


def training(directory, tiny_config):
    """Returns a compiled model, its random states, and their `TrainingState`."""
    model = BertPretrainer(BertBackbone(tiny_config))
    model.compile(AdamW())
    seeds = [keras.random.SeedGenerator(1)]
    return model, seeds, TrainingState(directory, model, seeds)


def step(model):
    ones = [np.ones(v.shape, "float32") for v in model.trainable_weights]
    model.optimizer.apply(ones)


def test_training_state_brings_back_weights_step_and_seeds(directory, tiny_config):
    model, seeds, state = training(directory, tiny_config)
    assert state.restore() == 0
    step(model)
    seeds[0].next()
    state.save()

    restored, restored_seeds, state = training(directory, tiny_config)
    assert state.restore() == 1
    np.testing.assert_array_equal(restored_seeds[0].state, seeds[0].state)
    for a, b in zip(restored.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(restored.optimizer.variables, model.optimizer.variables):
        np.testing.assert_array_equal(a, b)


def test_damaged_newest_state_is_left_out(directory, tiny_config, caplog):
    model, _, state = training(directory, tiny_config)
    for _ in range(2):
        step(model)
        state.save()
    states = directory.path / "training_state"
    newest = states / "ckpt-2.data-00000-of-00001"
    newest.write_bytes(newest.read_bytes()[:1000])
    assert training(directory, tiny_config)[2].restore() == 1
    assert "ckpt-2 is damaged and left out" in caplog.text
    oldest = states / "ckpt-1.index"
    oldest.write_bytes(oldest.read_bytes()[:50])
    with pytest.raises(ValueError, match="no state that can be read"):
        training(directory, tiny_config)[2].restore()


@pytest.fixture
def saved_once(directory, tiny_config):
    model, _, state = training(directory, tiny_config)
    step(model)
    state.save()
    step(model)
    return state


def test_full_disk_is_said_before_anything_is_written(
    saved_once, directory, tiny_config, monkeypatch
):
    usage = shutil.disk_usage(directory.path)._replace(free=100_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(OSError, match=r"step 2 needs 0 MB, and 0 MB are free"):
        saved_once.save()
    assert training(directory, tiny_config)[2].restore() == 1


def test_failed_write_keeps_the_state_before_it(
    saved_once, directory, tiny_config, monkeypatch
):
    monkeypatch.setattr(ModelDirectory, "save_weights", lambda *_: None)
    # No file may grow beyond this: a write fails as it does on a full disk.
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(OSError, match="state of step 2 could not be written"):
            saved_once.save()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert training(directory, tiny_config)[2].restore() == 1
