# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import json
import shutil

import keras
import keras_hub
import numpy as np
import pytest

from bert_tf import serving
from bert_tf.checkpoints import open_checkpoint, write_checkpoint
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


def test_round_trip_is_bit_equal(preset, tmp_path):
    model, folder = preset
    write_checkpoint(open_checkpoint(folder), tmp_path / "ours")
    ours = open_checkpoint(tmp_path / "ours")
    assert write_checkpoint(ours, tmp_path / "back", "keras_hub") == []
    back = keras_hub.models.BertMaskedLM.from_preset(str(tmp_path / "back"))
    for a, b in zip(back.weights, model.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    assert back.preprocessor.tokenizer.get_vocabulary() == list(ours.vocabulary.tokens)


def test_classifier_round_trip(tmp_path, vocabulary):
    name = "BertForSequenceClassification"
    tokenizer = {"do_lower_case": True, "model_max_length": 12}
    toy.write_hugging_face(tmp_path / "theirs", vocabulary, name, tokenizer=tokenizer)
    checkpoint = open_checkpoint(tmp_path / "theirs")
    assert write_checkpoint(checkpoint, tmp_path / "to", "keras_hub") == []
    back = open_checkpoint(tmp_path / "to")
    labels = ["LABEL_0", "LABEL_1", "LABEL_2"]
    assert back.head == {"kind": "classification", "labels": labels}
    assert back.options == {"max_sequence_length": 12}
    expected, weights = checkpoint.read_weights(), back.read_weights()
    assert weights.keys() == expected.keys()
    for name, weight in expected.items():
        np.testing.assert_array_equal(weights[name], weight)


@pytest.fixture(scope="module")
def classifier(preset):
    """Returns a function that saves a BertTextClassifier."""

    def save(folder, num_classes, activation):
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

    return save


@pytest.mark.parametrize(
    ("num_classes", "activation"),
    [(1, "sigmoid"), (1, "tanh"), (1, None), (3, "softmax"), (3, "sigmoid")],
)
def test_answers_equal_keras_hub(classifier, tmp_path, num_classes, activation):
    model = classifier(tmp_path / "theirs", num_classes, activation)
    texts = ["the cat sat", "on"]
    expected = model.predict(texts, verbose=0)
    checkpoint = open_checkpoint(tmp_path / "theirs")
    ours = serving.Predictor(checkpoint, serving.load_signatures(checkpoint))
    answers = ours.predict(texts)
    if num_classes == 1:
        np.testing.assert_allclose(answers["score"], expected[:, 0], atol=2e-6)
    else:
        np.testing.assert_allclose(answers["probabilities"], expected, atol=2e-6)
    write_checkpoint(checkpoint, tmp_path / "back", "keras_hub")
    assert open_checkpoint(tmp_path / "back").head == checkpoint.head


@pytest.mark.parametrize(
    ("num_classes", "activation", "message"),
    [
        (1, "softmax", "a single output must be a score"),
        (3, "relu", "several labels must be linear, softmax or sigmoid.*relu"),
    ],
)
def test_unsupported_activations_raise(
    classifier, tmp_path, num_classes, activation, message
):
    classifier(tmp_path, num_classes, activation)
    with pytest.raises(ValueError, match=message):
        open_checkpoint(tmp_path)


def test_unknown_task_must_be_chosen(preset, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(preset[1], folder)
    task = json.loads((folder / "task.json").read_text())
    (folder / "task.json").write_text(json.dumps(task | {"class_name": "MyTagger"}))
    checkpoint = open_checkpoint(folder)
    with pytest.raises(ValueError, match="the class MyTagger, which is not supported"):
        write_checkpoint(checkpoint, tmp_path / "to")
    assert open_checkpoint(folder, head="encoder").head == {"kind": "encoder"}


def test_other_architecture_raises(preset, tmp_path):
    config = json.loads((preset[1] / "config.json").read_text())
    config["class_name"] = "RobertaBackbone"
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="preset of RobertaBackbone; only Bert"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_layers": 10**9}, "is too small for 1000000000 layers of hidden size 8"),
        ({"hidden_dim": {"a": 1}}, "`hidden_dim` must be a positive integer"),
        ({"dtype": 7}, "KerasHub cannot read"),
    ],
)
def test_invalid_config_raises(preset, tmp_path, settings, message):
    folder = tmp_path / "copy"
    shutil.copytree(preset[1], folder)
    config = json.loads((folder / "config.json").read_text())
    config["config"] |= settings
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=message):
        open_checkpoint(folder)


def test_preset_without_tokenizer_raises(preset, tmp_path):
    preset[0].backbone.save_to_preset(str(tmp_path))
    with pytest.raises(ValueError, match="KerasHub cannot read "):
        open_checkpoint(tmp_path)
