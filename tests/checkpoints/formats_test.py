# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import dataclasses

import huggingface_hub
import numpy as np
import pytest
from absl import logging

import bert_tf
from bert_tf.checkpoints import keras_hub, names, open_checkpoint, write_checkpoint
from bert_tf.modeling import BertBackbone, BertPretrainer
from tests.toy import checkpoints as toy


@pytest.fixture
def folder(tmp_path, vocabulary):
    return toy.write_hugging_face(tmp_path / "theirs", vocabulary)


@pytest.mark.parametrize(
    ("rows", "absent"),
    [
        (names.google_rows("classification"), ()),
        (names.hugging_face_rows("pretrainer"), ()),
        (names.KERAS_HUB_ROWS, ("nsp",)),
    ],
)
def test_tables_have_all_weights_and_their_shapes(tiny_config, rows, absent):
    model = BertPretrainer(BertBackbone(tiny_config))
    expected = {
        weight.path: tuple(weight.shape)
        for weight in model.weights
        if not weight.path.startswith(absent)
    }
    assert expected == {
        row.ours: names.to_shape(row.shape, tiny_config)
        for row in names.expand(rows, tiny_config.num_layers)
        if not row.ours.startswith("logits/")
    }


def test_from_checkpoint_loads_weights(folder, monkeypatch):
    warnings = []
    monkeypatch.setattr(logging, "warning", lambda text, *a: warnings.append(text % a))
    backbone = BertBackbone.from_checkpoint(folder, dtype="mixed_bfloat16")
    assert not warnings
    assert backbone.pooler.compute_dtype == "bfloat16"
    pretrainer = BertPretrainer.from_checkpoint(folder)
    weights = bert_tf.open_checkpoint(folder).read_weights()
    for weight in pretrainer.backbone.weights:
        np.testing.assert_array_equal(weight, weights[weight.path])
    (warning,) = warnings
    assert warning == f"{folder} has no weights for: mlm, nsp (newly initialized)"


def test_handles_are_downloaded(folder, monkeypatch):
    def download(repository, allow_patterns):
        assert repository == "somebody/bert"
        assert "*.safetensors" in allow_patterns
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    checkpoint = open_checkpoint("hf://somebody/bert")
    assert checkpoint.path == folder
    monkeypatch.setattr(keras_hub, "open_preset", lambda handle, kind: checkpoint)
    handle = "kaggle://keras/bert/keras/bert_base_en"
    assert open_checkpoint(handle) is checkpoint


def test_folder_without_checkpoint_raises(folder, tmp_path):
    with pytest.raises(ValueError, match=r"load_model\('.*film.keras'\) after"):
        open_checkpoint(tmp_path / "film.keras")
    with pytest.raises(ValueError, match=r"no checkpoint folder .*safetensors"):
        open_checkpoint(folder / "model.safetensors")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"empty is not .* neither the config"):
        open_checkpoint(tmp_path / "empty")
    (tmp_path / "empty" / "config.json").write_text('{"size": 3}')
    with pytest.raises(ValueError, match=r"empty is not .* neither the config\.json"):
        open_checkpoint(tmp_path / "empty")
    (tmp_path / "empty" / "config.json").write_text("[3]")
    with pytest.raises(ValueError, match=r"config\.json must contain a JSON object\. "):
        open_checkpoint(tmp_path / "empty")


def test_existing_folder_raises_and_failed_write_leaves_nothing(folder, tmp_path):
    checkpoint = open_checkpoint(folder)
    with pytest.raises(ValueError, match="theirs already exists"):
        write_checkpoint(checkpoint, folder)
    broken = dataclasses.replace(checkpoint, vocabulary=None)
    with pytest.raises(AttributeError):
        write_checkpoint(broken, tmp_path / "to", "hugging_face")
    assert [path.name for path in tmp_path.iterdir()] == ["theirs"]
