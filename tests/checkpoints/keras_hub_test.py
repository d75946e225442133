# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import functools
import json
import shutil

import keras
import keras_hub
import numpy as np
import pytest

from bert_tf import serving, storage
from bert_tf.checkpoints import open_checkpoint, write_checkpoint
from bert_tf.heads import SequenceClassifier
from bert_tf.text import Tokenizer
from tests.toy import checkpoints as toy


@pytest.fixture(scope="module")
def preset(tmp_path_factory, vocabulary):
    """A BertMaskedLM with random weights, and its folder."""
    folder = tmp_path_factory.mktemp("preset")
    keras.utils.set_random_seed(3)
    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=vocabulary.size,
        num_layers=2,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=16,
        max_sequence_length=16,
    )
    tokenizer = keras_hub.models.BertTokenizer(list(vocabulary.tokens), lowercase=True)
    preprocessor = keras_hub.models.BertMaskedLMPreprocessor(tokenizer)
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
    ours = checkpoint.load_pretrainer()
    outputs = ours(toy.PRETRAINER_INPUTS)
    theirs = model(toy.INPUTS | {"mask_positions": toy.MASK_POSITIONS})
    # KerasHub's head uses the exact GELU and epsilon 1e-5, unlike its own encoder and
    # google's head, so the outputs differ slightly.
    np.testing.assert_allclose(outputs["mlm"], theirs, atol=1e-3)
    for name, expected in model.backbone(toy.INPUTS).items():
        np.testing.assert_allclose(
            ours.backbone(toy.INPUTS)[name], expected, atol=2e-6, err_msg=name
        )


def written(folder, vocabulary, class_name, lowercase=True):
    """Returns a Hugging Face checkpoint, and the path of the preset written from it."""
    theirs, preset = folder / "theirs", folder / "preset"
    tokenizer = {"do_lower_case": lowercase, "model_max_length": 12}
    toy.write_hugging_face(
        theirs, vocabulary, class_name, tokenizer=tokenizer, hidden_act="gelu_new"
    )
    checkpoint = open_checkpoint(theirs)
    write_checkpoint(checkpoint, preset, "keras_hub")
    return checkpoint, str(preset)


@pytest.mark.parametrize(
    "lowercase", [True, pytest.param(False, marks=pytest.mark.slow)]
)
def test_keras_hub_opens_a_written_classifier(tmp_path, vocabulary, lowercase):
    class_name = "BertForSequenceClassification"
    checkpoint, path = written(tmp_path, vocabulary, class_name, lowercase)
    theirs = keras_hub.models.BertTextClassifier.from_preset(path)
    texts = ["Thé Çat sät, on [MASK] the\tmats.", "cats 中文", "a" * 5 + " b" * 20]
    inputs = Tokenizer.from_checkpoint(checkpoint).encode(
        texts, max_sequence_length=12, padded_length=12
    )
    for name, expected in theirs.preprocessor(texts).items():
        np.testing.assert_array_equal(inputs[name], expected, err_msg=name)
    ours = checkpoint.load_model(SequenceClassifier, dtype="float32")
    np.testing.assert_allclose(ours(inputs), theirs(inputs), atol=2e-6)
    back = open_checkpoint(path)
    assert back.lowercase == lowercase
    assert back.options == checkpoint.options == {"max_sequence_length": 12}
    assert back.head["labels"] == ["LABEL_0", "LABEL_1", "LABEL_2"]
    weights = back.read_weights()
    for name, expected in checkpoint.read_weights().items():
        np.testing.assert_array_equal(weights.pop(name), expected, err_msg=name)
    assert not weights


def test_keras_hub_opens_a_written_masked_lm(tmp_path, vocabulary, caplog):
    checkpoint, path = written(tmp_path, vocabulary, "BertForMaskedLM")
    assert "no pooled_dense/kernel, which is newly initialized" in caplog.text
    theirs = keras_hub.models.BertMaskedLM.from_preset(path)
    ours = checkpoint.load_pretrainer("float32")
    states = theirs.backbone(toy.INPUTS)["sequence_output"]
    expected = ours.backbone(toy.INPUTS)["sequence_output"]
    np.testing.assert_allclose(states, expected, atol=2e-6)
    inputs = toy.INPUTS | {"mask_positions": toy.MASK_POSITIONS}
    expected = ours(toy.PRETRAINER_INPUTS)["mlm"]
    np.testing.assert_allclose(theirs(inputs), expected, atol=2e-3)
    # KerasHub's head always has these other settings. They are the only difference.
    head = theirs.masked_lm_head
    head._intermediate_dense.activation = functools.partial(
        keras.activations.gelu, approximate=True
    )
    head._intermediate_layer_norm.epsilon = 1e-12
    np.testing.assert_allclose(theirs(inputs), expected, atol=2e-6)


def test_round_trip_is_bit_equal(preset, tmp_path):
    model, folder = preset
    write_checkpoint(open_checkpoint(folder), tmp_path / "ours")
    ours = open_checkpoint(tmp_path / "ours")
    assert write_checkpoint(ours, tmp_path / "back", "keras_hub") == []
    back = keras_hub.models.BertMaskedLM.from_preset(str(tmp_path / "back"))
    for a, b in zip(back.weights, model.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    assert back.preprocessor.tokenizer.get_vocabulary() == list(ours.vocabulary.tokens)


def save_classifier(preset, folder, num_classes, activation):
    """Saves a BertTextClassifier with the encoder and the tokenizer of `preset`."""
    model = keras_hub.models.BertTextClassifier(
        preset[0].backbone,
        num_classes=num_classes,
        activation=activation,
        preprocessor=keras_hub.models.BertTextClassifierPreprocessor(
            preset[0].preprocessor.tokenizer, sequence_length=16
        ),
    )
    for variable in model.get_layer("logits").weights:
        variable.assign(toy.value(variable.path, variable.shape))
    model.save_to_preset(str(folder))
    return model


@pytest.mark.parametrize(
    ("num_classes", "activation"),
    [(1, "sigmoid"), pytest.param(3, "sigmoid", marks=pytest.mark.slow)],
)
def test_answers_equal_keras_hub(preset, tmp_path, num_classes, activation):
    model = save_classifier(preset, tmp_path / "theirs", num_classes, activation)
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
        np.testing.assert_allclose(answers["score"], expected[:, 0], atol=2e-6)
    else:
        np.testing.assert_allclose(answers["probabilities"], expected, atol=2e-6)
    bucket = f"ram:/{tmp_path}"
    write_checkpoint(checkpoint, bucket, "keras_hub")
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
        ({"config": {"dtype": 7}}, "KerasHub cannot read"),
    ],
)
def test_invalid_config_raises(preset, tmp_path, changes, message):
    folder = edited(preset, tmp_path / "copy", "config.json", **changes)
    with pytest.raises(ValueError, match=message):
        open_checkpoint(folder)
