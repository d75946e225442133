# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Custom encoder classes: pre-training, fine-tuning, model directories, exports."""

import dataclasses
import json
import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf import client, data, export, heads, serving
from bert_tf.checkpoints import open_checkpoint
from bert_tf.finetuning import fine_tune
from bert_tf.modeling import BertBackbone, BertPretrainer
from bert_tf.training import PretrainConfig, pretrain
from experiments.left_to_right import (
    LEFT_TO_RIGHT,
    LeftToRightBackbone,
    LeftToRightBiLstmBackbone,
)
from tasks.classification import Classification
from tests.toy.models import encoder_inputs, randomize_weights
from tests.toy.records import write_both_splits

IDS = np.arange(5, 17).reshape(2, 6)


def changed(ids, position):
    """Returns `ids` [B, S] with other tokens from a position on."""
    return np.where(np.arange(ids.shape[1]) >= position, ids + 10, ids)


@pytest.mark.parametrize("is_packed", [False, True])
def test_predicts_each_token_from_those_to_its_left(tiny_config, is_packed):
    model = randomize_weights(BertPretrainer(LeftToRightBackbone(tiny_config)))
    firsts = np.array([[0, 3]] * 2 if is_packed else [[0]] * 2, np.int32)
    positions = np.array([[1, 2, 4]] * 2, np.int32)
    further = {"mask_positions": positions, "first_positions": firsts}
    before = model(encoder_inputs(IDS) | further)["mlm"].numpy()
    after = model(encoder_inputs(changed(IDS, 4)) | further)["mlm"].numpy()
    np.testing.assert_allclose(after, before, atol=1e-5)
    after = model(encoder_inputs(changed(IDS, 1)) | further)["mlm"].numpy()
    is_equal = np.isclose(after, before, atol=1e-4).all(axis=(0, 2))
    assert is_equal.tolist() == [True, False, False]


def test_pools_the_last_token(tiny_config):
    encoder = randomize_weights(LeftToRightBackbone(tiny_config))
    ids = np.where(np.arange(6) < [[4], [6]], IDS, 0)
    outputs = encoder(encoder_inputs(ids))
    last = outputs["sequence_output"].numpy()[[0, 1], [3, 5]]
    np.testing.assert_allclose(outputs["pooled_output"], encoder.pooler(last), 1e-5)


def test_bilstm_ignores_padding_and_has_the_size_of_the_encoder(tiny_config):
    encoder = randomize_weights(LeftToRightBiLstmBackbone(tiny_config))
    padded = np.concatenate([IDS, 0 * IDS], axis=1)
    whole, short = (encoder(encoder_inputs(ids)) for ids in (padded, IDS))
    for name in ("pooled_output", "sequence_output"):
        wanted = short[name].numpy()
        found = whole[name].numpy()[:, :6] if wanted.ndim == 3 else whole[name]
        np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory, vocabulary, random_encoder):
    folder = tmp_path_factory.mktemp("left_to_right")
    write_both_splits(folder / "records", vocabulary)
    options = PretrainConfig(
        records=str(folder / "records"),
        output=str(folder / "model"),
        size=random_encoder(folder)["size"],
        batch_size=16,
        steps=2,
        **LEFT_TO_RIGHT,
    )
    tf.config.run_functions_eagerly(True)  # Tracing graphs would take longer.
    pretrain(options, encoder_class=LeftToRightBackbone)
    tf.config.run_functions_eagerly(False)
    return options


def test_model_directory_declares_its_encoder(pretrained, monkeypatch):
    folder = pathlib.Path(pretrained.output)
    config = json.loads((folder / "config.json").read_text())
    name = "experiments>LeftToRightBackbone"
    assert config["model_type"] == name
    assert "architectures" not in config
    checkpoint = open_checkpoint(folder)
    assert checkpoint.encoder == name
    assert checkpoint.architecture.model_type == "bert"
    assert checkpoint.head["newly_initialized"] == ["pooler", "nsp"]
    assert type(checkpoint.load_backbone()) is LeftToRightBackbone
    # With the finished model: the encoder is compared like an option.
    with pytest.raises(ValueError, match="encoder"):
        pretrain(pretrained, encoder_class=BertBackbone)
    # In a process that has not imported the class.
    monkeypatch.delitem(keras.saving.get_custom_objects(), name)
    with pytest.raises(
        ValueError, match=f"Import the module that defines the class {name!r}"
    ):
        bert_tf.load(str(folder))


@pytest.mark.slow
def test_fine_tuned_models_have_the_encoder(pretrained, tmp_path):
    rows = [{"text": "the cat sat", "label": "a"}, {"text": "on mat", "label": "b"}]
    data.write_table(tmp_path / "data.csv", rows * 4)
    options = dict.fromkeys(("train_file", "dev_file"), str(tmp_path / "data.csv"))
    options |= {"text_a": "text", "label": "label", "init_from": pretrained.output}
    options |= {"epochs": 1, "max_sequence_length": 16}
    texts = ["cat", "the cat sat on mat"]
    for encoder_class in (None, LeftToRightBiLstmBackbone):
        path = str(tmp_path / f"{encoder_class}")
        config = Classification.Config(output=path, **options)
        fine_tune(Classification, config, encoder_class=encoder_class)
        model = open_checkpoint(path).load_model(heads.SequenceClassifier)
        assert type(model.backbone) is (encoder_class or LeftToRightBackbone)
        exported = export.main(
            export.ExportConfig(model_dir=path, name="m", output=f"{path}-saved")
        )
        with serving.DevServer({"m": exported.parent}) as server:
            answer = client.predict({"text": texts}, "m", address=server.address)
        wanted = bert_tf.load(path).predict(texts)["probabilities"]
        np.testing.assert_allclose(answer["probabilities"], wanted, atol=1e-5)


def test_unregistered_classes_are_refused_before_anything_is_written(
    pretrained, tmp_path
):
    class Unregistered(BertBackbone):
        pass

    options = dataclasses.replace(pretrained, output=str(tmp_path / "model"))
    with pytest.raises(ValueError, match="Decorate Unregistered with"):
        pretrain(options, encoder_class=Unregistered)
    assert not (tmp_path / "model").exists()
