# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import dataclasses
import subprocess
import sys

import huggingface_hub
import keras
import numpy as np
import pytest
from absl import logging

import bert_tf
from bert_tf import convert
from bert_tf.checkpoints import formats, keras_hub, names
from bert_tf.checkpoints.model_directory import ModelDirectory
from bert_tf.convert import ConvertConfig
from bert_tf.modeling.bert import BertBackbone, BertPretrainer
from bert_tf.modeling.config import BertConfig
from tests import toy_checkpoints as toy


@pytest.fixture
def folder(tmp_path, vocabulary):
    return toy.write_hugging_face(tmp_path / "theirs", vocabulary)


# --- Names -----------------------------------------------------------------------


def test_every_weight_has_a_name_and_a_shape(tiny_config):
    model = BertPretrainer(BertBackbone(tiny_config))
    rows = names.expand(
        [names.Row(ours, (ours,)) for ours in names._SHAPES], tiny_config.num_layers
    )
    expected = {
        row.ours: names.stored_shape(row, tiny_config, 3)
        for row in rows
        if not row.ours.startswith("logits/")
    }
    assert {weight.path: tuple(weight.shape) for weight in model.weights} == expected


# --- In a script -----------------------------------------------------------------


def test_models_from_checkpoints(folder, monkeypatch):
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
    assert warning == f"{folder} has no mlm, nsp: random values stand there."


def test_a_shape_that_does_not_fit_is_named_with_both(folder, tiny_config):
    checkpoint = formats.open_checkpoint(folder)
    with pytest.raises(
        ValueError, match=r"embeddings has shape \[40, 8\].* fill it is \[40, 16\]"
    ):
        checkpoint.load_into(BertBackbone(tiny_config))


def test_handles_are_fetched(folder, monkeypatch):
    def download(repository, allow_patterns):
        assert repository == "somebody/bert"
        assert "*.safetensors" in allow_patterns
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert formats.open_checkpoint("hf://somebody/bert").path == folder
    monkeypatch.setattr(keras_hub, "open_preset", lambda handle: handle)
    handle = "kaggle://keras/bert/keras/bert_base_en"
    assert formats.open_checkpoint(handle) == handle


# --- Writing ---------------------------------------------------------------------


def test_model_directory_of_a_task_fits_its_model(tmp_path, vocabulary):
    toy.write_hugging_face(tmp_path / "a", vocabulary, "BertForSequenceClassification")
    checkpoint = formats.open_checkpoint(tmp_path / "a")
    formats.write_checkpoint(checkpoint, tmp_path / "b")
    directory = ModelDirectory.open(tmp_path / "b")
    encoder = BertBackbone(directory.architecture)
    pooled = keras.layers.Dropout(0.1)(encoder(encoder.input)["pooled_output"])
    model = keras.Model(encoder.input, keras.layers.Dense(3, name="logits")(pooled))
    directory.load_weights(model)
    weights = checkpoint.read_weights()
    for weight in model.weights:
        np.testing.assert_array_equal(weight, weights[weight.path])


def test_nothing_is_replaced_and_nothing_half_written(folder, tmp_path):
    checkpoint = formats.open_checkpoint(folder)
    with pytest.raises(ValueError, match="theirs exists, and nothing is replaced"):
        formats.write_checkpoint(checkpoint, folder)
    broken = dataclasses.replace(checkpoint, vocabulary=None)
    with pytest.raises(AttributeError):
        formats.write_checkpoint(broken, tmp_path / "to", "hugging_face")
    assert [path.name for path in tmp_path.iterdir()] == ["theirs"]


# --- The command -----------------------------------------------------------------


def test_an_encoder_that_others_cannot_compute_is_not_written(folder, tmp_path):
    checkpoint = formats.open_checkpoint(folder)
    config = dataclasses.replace(checkpoint.architecture, left_to_right=True)
    checkpoint = dataclasses.replace(checkpoint, architecture=config)
    with pytest.raises(ValueError, match="is left_to_right is not a BERT"):
        formats.write_checkpoint(checkpoint, tmp_path / "google", "google")
    formats.write_checkpoint(checkpoint, tmp_path / "ours")
    assert ModelDirectory.open(tmp_path / "ours").architecture.left_to_right


def test_the_command_accounts_for_everything(tmp_path, vocabulary, capsys):
    tensors = toy.values(toy.hugging_face_shapes("BertForMaskedLM"))
    tensors["bert.extra"] = np.zeros(3, np.float32)
    source = toy.write_hugging_face(
        tmp_path / "theirs", vocabulary, "BertForMaskedLM", tensors=tensors
    )
    options = ConvertConfig(
        from_=str(source), to=str(tmp_path / "to"), format="keras_hub"
    )
    convert.main(options)
    printed = capsys.readouterr().out
    for line in (
        f"Read: {source}, Hugging Face BertForMaskedLM.",
        "  2 layers, hidden 8, 2 heads, 16 positions, gelu_erf; 40 tokens, uncased.",
        "  Unused: bert.extra",
        "  Not in it: pooler, nsp",
        "computes with activation='gelu_tanh'; the checkpoint has 'gelu_erf'.",
        f"KerasHub on {tmp_path / 'to'}: ",
    ):
        assert line in printed, line


def test_flags_of_the_command(tmp_path):
    command = [sys.executable, "-m", "bert_tf.convert"]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    assert outcome.returncode == 1
    assert "error: --from is required" in outcome.stderr
    flags = [f"--from={tmp_path}", "--to=nowhere", "--format=onnx"]
    outcome = subprocess.run(
        command + flags, capture_output=True, text=True, check=False
    )
    assert "--format must be one of bert_tf, hugging_face" in outcome.stderr


def test_what_is_no_checkpoint_is_refused(folder, tmp_path):
    with pytest.raises(ValueError, match=r"safetensors is not .* no such folder"):
        formats.open_checkpoint(folder / "model.safetensors")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"empty is not .* it has no config\.json"):
        formats.open_checkpoint(tmp_path / "empty")
    (tmp_path / "empty" / "config.json").write_text('{"size": 3}')
    with pytest.raises(ValueError, match="not the config of a model directory"):
        formats.open_checkpoint(tmp_path / "empty")


def test_activations_are_told_apart():
    config = BertConfig.from_size("tiny", 40, activation="relu")
    assert convert._assumed("google", config) == {}
    assert convert._assumed("keras_hub", config) == {"activation": "gelu_tanh"}
    assert convert._assumed("hugging_face", config) == {}
