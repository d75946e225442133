# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import json

import keras
import numpy as np
import pytest

from bert_tf.checkpoint import ModelDirectory, TrainingState
from bert_tf.model import BertBackbone, BertPretrainer
from bert_tf.optimization import AdamW
from bert_tf.vocab import Vocabulary


def create(path, config, vocabulary, head=None, **options):
    return ModelDirectory.create(
        path,
        architecture=config,
        vocabulary=vocabulary,
        lowercase=True,
        head=head or {"kind": "pretrainer"},
        options=options,
        may_change=("output",),
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


def test_training_state_brings_back_weights_step_and_seeds(directory, tiny_config):
    def build():
        model = BertPretrainer(BertBackbone(tiny_config))
        model.compile(AdamW())
        seeds = [keras.random.SeedGenerator(1)]
        return model, seeds, TrainingState(directory, model, seeds)

    model, seeds, state = build()
    assert state.restore() == 0
    model.optimizer.apply(
        [np.ones(v.shape, "float32") for v in model.trainable_weights]
    )
    seeds[0].next()
    state.save()

    restored, restored_seeds, state = build()
    assert state.restore() == 1
    np.testing.assert_array_equal(restored_seeds[0].state, seeds[0].state)
    for a, b in zip(restored.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(restored.optimizer.variables, model.optimizer.variables):
        np.testing.assert_array_equal(a, b)
