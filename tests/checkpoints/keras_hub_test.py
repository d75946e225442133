# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import json
import shutil

import keras
import numpy as np
import pytest

from bert_tf import serving, storage
from bert_tf.checkpoints import open_checkpoint, write_checkpoint
from bert_tf.modeling import BertPretrainer
from bert_tf.text import Tokenizer
from tests.toy import checkpoints as toy

if ".dev" in keras.__version__:  # KerasHub may not work with a nightly build.
    keras_hub = pytest.importorskip("keras_hub", exc_type=ImportError)
else:
    import keras_hub


@pytest.fixture(scope="module")
def preset(tmp_path_factory, vocabulary):
    """A BertMaskedLM with random weights, and its folder."""
    folder = tmp_path_factory.mktemp("preset")
    keras.utils.set_random_seed(3)
    backbone = keras_hub.models.BertBackbone(**toy.ARCHITECTURE)
    tokenizer = keras_hub.models.BertTokenizer(list(vocabulary.tokens), lowercase=True)
    preprocessor = keras_hub.models.BertMaskedLMPreprocessor(
        tokenizer, sequence_length=12
    )
    model = keras_hub.models.BertMaskedLM(backbone, preprocessor=preprocessor)
    for variable in model.weights:
        variable.assign(toy.value(variable.path, variable.shape))
    model.save_to_preset(str(folder))
    return model, folder


def test_outputs_equal_keras_hub(preset):
    model, folder = preset
    checkpoint = open_checkpoint(folder)
    assert checkpoint.head == {"kind": "pretrainer", "newly_initialized": ["nsp"]}
    assert checkpoint.lowercase
    assert checkpoint.max_sequence_length == 12
    ours = checkpoint.load_model(BertPretrainer)
    outputs = ours(toy.PRETRAINER_INPUTS)
    theirs = model(toy.INPUTS | {"mask_positions": toy.MASK_POSITIONS})
    # KerasHub's head uses the exact GELU and epsilon 1e-5, unlike its own encoder and
    # google's head, so the outputs differ slightly.
    np.testing.assert_allclose(outputs["mlm"], theirs, atol=1e-3)
    for name, expected in model.backbone(toy.INPUTS).items():
        found = ours.backbone(toy.INPUTS)[name]
        np.testing.assert_allclose(found, expected, atol=2e-6, err_msg=name)


def test_handles_are_read_like_their_folders(preset, monkeypatch):
    kagglehub = pytest.importorskip("kagglehub")
    folders = {"keras/bert/keras/tiny": str(preset[1])}
    monkeypatch.setattr(kagglehub, "model_download", folders.__getitem__)
    found = open_checkpoint("kaggle://keras/bert/keras/tiny")
    assert found.source == "kaggle://keras/bert/keras/tiny"
    assert found.head == open_checkpoint(preset[1]).head
    assert found.max_sequence_length == 12
    for handle in ("kaggle://keras/bert/keras/huge", "modelscope://keras/tiny"):
        with pytest.raises(ValueError, match=f"{handle} cannot be downloaded: "):
            open_checkpoint(handle)


def test_preset_without_a_preprocessor(preset, tmp_path):
    preset[0].backbone.save_to_preset(str(tmp_path))
    preset[0].preprocessor.tokenizer.save_to_preset(str(tmp_path))
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.vocabulary == open_checkpoint(preset[1]).vocabulary
    assert checkpoint.max_sequence_length == checkpoint.architecture.max_sequence_length


def test_keras_hub_opens_model_directories(tmp_path, vocabulary):
    # Older versions need sentencepiece, and Python 3.10 has no newer one.
    pytest.importorskip("keras_hub", minversion="0.32")
    theirs = toy.write_hugging_face(
        tmp_path / "theirs", vocabulary, hidden_act="gelu_new"
    )
    path = str(tmp_path / "model")
    write_checkpoint(open_checkpoint(theirs), path)
    encoder = keras_hub.models.BertBackbone.from_preset(path)
    ours = open_checkpoint(path).load_backbone("float32")
    for name, expected in encoder(toy.INPUTS).items():
        np.testing.assert_allclose(ours(toy.INPUTS)[name], expected, atol=2e-6)
    tokenizer = keras_hub.models.BertTokenizer.from_preset(path, strip_accents=True)
    texts = ["Thé Çat sät, on the\tmats.", "cats 中文", "a" * 5 + " b" * 20]
    expected = tokenizer(texts)
    assert Tokenizer.from_checkpoint(path).tokenize(texts).to_list() == expected


@pytest.mark.parametrize("num_classes", [1, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.usefixtures("plain_encoder")
def test_answers_equal_keras_hub(preset, tmp_path, num_classes):
    model = keras_hub.models.BertTextClassifier(
        preset[0].backbone,
        num_classes=num_classes,
        activation="sigmoid",
        preprocessor=keras_hub.models.BertTextClassifierPreprocessor(
            preset[0].preprocessor.tokenizer, sequence_length=16
        ),
    )
    for variable in model.get_layer("logits").weights:
        variable.assign(toy.value(variable.path, variable.shape))
    model.save_to_preset(str(tmp_path / "theirs"))
    # The old name, an alias: keras-team/keras-hub#2063.
    task = tmp_path / "theirs/task.json"
    name = '"BertTextClassifier"'
    assert name in task.read_text()
    task.write_text(task.read_text().replace(name, '"BertClassifier"'))
    texts = ["the cat sat", "on"]
    expected = model(model.preprocessor(texts)).numpy()
    checkpoint = open_checkpoint(tmp_path / "theirs")
    answers = serving.load_signatures(checkpoint)["serving_default"](texts)
    if num_classes == 1:
        answers["probabilities"] = answers["score"][:, np.newaxis]
    np.testing.assert_allclose(answers["probabilities"], expected, atol=2e-6)
    bucket = f"ram:/{tmp_path}"
    write_checkpoint(checkpoint, bucket)
    storage._copies.clear()
    assert open_checkpoint(bucket).head == checkpoint.head


def edited(preset, folder, name, **changes):
    """Returns a copy of the preset with changes to a file."""
    shutil.copytree(preset[1], folder)
    values = json.loads((folder / name).read_text())
    values["config"] |= changes.pop("config", {})
    (folder / name).write_text(json.dumps(values | changes))
    return folder


def test_unknown_task_must_be_chosen(preset, tmp_path):
    folder = edited(preset, tmp_path / "copy", "task.json", class_name="MyTagger")
    with pytest.raises(ValueError, match="the class MyTagger, which is not supported"):
        write_checkpoint(open_checkpoint(folder), tmp_path / "to")
    assert open_checkpoint(folder, head="encoder").head == {"kind": "encoder"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"class_name": "RobertaBackbone"}, "class_name='RobertaBackbone'"),
        ({"config": {"num_layers": "two"}}, "KerasHub cannot read"),
    ],
)
def test_invalid_config_raises(preset, tmp_path, changes, message):
    folder = edited(preset, tmp_path / "copy", "config.json", **changes)
    with pytest.raises(ValueError, match=message):
        open_checkpoint(folder, head="encoder")  # Reads config.json, not task.json.
