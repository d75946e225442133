# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Models of all families equal transformers, and open there again.

transformers is not a requirement: without it, the tests are skipped.
"""

import importlib.util

import numpy as np
import pytest
import safetensors.numpy

import bert_tf
from bert_tf.checkpoints import ModelDirectory, open_checkpoint, write_checkpoint
from bert_tf.families import families
from bert_tf.heads import Discriminator
from bert_tf.lazy import lazy_import
from tests.toy import checkpoints as toy

PEERS = ("torch", "transformers")
pytestmark = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, PEERS)), reason=f"Needs {', '.join(PEERS)}."
)
torch, transformers = map(lazy_import, PEERS)

SIZES = {**toy.ARCHITECTURE, "max_sequence_length": 32, "num_segments": 2}
SIZES |= {"activation": "gelu", "embedding_dim": 4}
LABELS = {"id2label": {0: "no", 1: "maybe", 2: "yes"}}
FAMILIES = [*families().values()]
CLASSES = [
    f"{x.name}{y}" for x in FAMILIES for names in x.classes.values() for y in names
]

# The outputs of ours and theirs that are equal, by the end of the class name.
LOGITS = {"logits": "logits"}
PRETRAINING = ("prediction_logits", "seq_relationship_logits")
OUTPUTS = {
    "Model": {"sequence_output": "last_hidden_state"},
    "MaskedLM": {"mlm": "logits"},
    "Prediction": {"nsp": "logits"},
    "BertForPreTraining": {
        "mlm": "prediction_logits",
        "nsp": "seq_relationship_logits",
    },
    "Answering": {"start_logits": "start_logits", "end_logits": "end_logits"},
    **dict.fromkeys(("Training", "Classification", "Choice"), LOGITS),
}
PAIRS = [["the cat sat on the mat", "a mat"], ["a b c", "the mats"]]
NAMES = {
    "token_ids": "input_ids",
    "segment_ids": "token_type_ids",
    "padding_mask": "attention_mask",
}


@pytest.fixture(scope="module")
def theirs(tmp_path_factory, vocabulary):
    """Returns a function from a class name to a model, a tokenizer, their folder."""

    def write(class_name, **settings):
        (family,) = (x for x in FAMILIES if class_name.startswith(x.name))
        fields = {
            key: SIZES[ours] for ours, key in family.keys.items() if ours in SIZES
        }
        fields |= {} if class_name.endswith("Answering") else LABELS
        config = getattr(transformers, f"{family.name}Config")(**fields | settings)
        torch.manual_seed(0)
        model = getattr(transformers, class_name)(config).eval()
        for weight in model.parameters():
            weight.data += 0.3 * torch.randn_like(weight)
        folder = tmp_path_factory.mktemp(class_name)
        model.save_pretrained(folder)
        vocabulary.write(folder / "vocab.txt")
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return model, tokenizer, folder

    return write


def compare(model, inputs, outputs):
    """Compares our outputs with those of their model for our inputs."""
    inputs = {name: np.array(x) for name, x in inputs.items()}
    is_token = inputs["padding_mask"]
    with torch.no_grad():
        theirs = {NAMES[name]: torch.tensor(x) for name, x in inputs.items()}
        expected = model(**theirs)
    name = type(model).__name__
    names = next(x for end, x in OUTPUTS.items() if name.endswith(end))
    for ours, name in names.items():
        ours, theirs = np.squeeze(outputs[ours]), np.squeeze(expected[name].numpy())
        assert ours.shape == theirs.shape
        if ours.shape[:2] == is_token.shape:
            ours, theirs = ours[is_token > 0], theirs[is_token > 0]
        np.testing.assert_allclose(ours, theirs, atol=1e-5, rtol=1e-5)
        assert np.std(ours) > 1e-3


@pytest.mark.parametrize("class_name", CLASSES)
def test_outputs_equal_transformers(theirs, class_name, tmp_path):
    model, tokenizer, folder = theirs(class_name)
    checkpoint = open_checkpoint(folder)
    inputs = bert_tf.Tokenizer.from_checkpoint(checkpoint).encode(*PAIRS)
    encoded = tokenizer(*PAIRS, padding=True, return_tensors="np")
    for ours, name in NAMES.items():
        if ours != "segment_ids" or not class_name.startswith("DistilBert"):
            np.testing.assert_array_equal(inputs[ours], encoded[name])
    head = checkpoint.head["kind"]
    signatures = bert_tf.load(folder).signatures
    if head == "multiple_choice":
        inputs = {name: x[:, None] for name, x in inputs.items()}
    if head == "pretrainer":
        inputs = {name: np.array(x) for name, x in inputs.items()}
        positions = np.tile(np.arange(inputs["token_ids"].shape[1]), (2, 1))
        more = {"first_positions": positions[:, :1], "mask_positions": positions}
        outputs = checkpoint.load_model(bert_tf.BertPretrainer)(inputs | more)
    elif head == "discriminator":
        outputs = {"logits": checkpoint.load_model(Discriminator)(inputs)}
        answer = signatures["serving_default"](PAIRS[0])
        single = bert_tf.Tokenizer.from_checkpoint(checkpoint).encode(PAIRS[0])
        scores = np.clip(answer["scores"], 1e-9, 1)
        compare(model, single, {"logits": np.log(scores) - np.log1p(-scores)})
        assert answer["tokens"][0, 1] == b"the"
        assert (answer["tokens"][1] == b"").numpy().sum() == 4
    else:
        outputs = signatures["ids"](*(inputs[name] for name in NAMES))
    compare(model, inputs, outputs)

    # It stays the same kind of folder, bit by bit.
    assert write_checkpoint(checkpoint, tmp_path / "ours") == []
    weights, again = (
        safetensors.numpy.load_file(path / "model.safetensors")
        for path in (folder, tmp_path / "ours")
    )
    toy.assert_equal(weights, again)
    assert open_checkpoint(tmp_path / "ours").head == checkpoint.head
    again = getattr(transformers, class_name).from_pretrained(tmp_path / "ours")
    compare(again.eval(), inputs, outputs)


@pytest.mark.parametrize("name", ["DistilBert", "Electra"])
def test_trained_models_open_in_transformers(theirs, name, tmp_path):
    _, _, folder = theirs(f"{name}Model")
    checkpoint = open_checkpoint(folder)
    model = bert_tf.SequenceClassifier.from_checkpoint(folder, num_classes=3)
    model.compile(bert_tf.AdamW(1e-2))
    inputs = bert_tf.Tokenizer.from_checkpoint(folder).encode(*PAIRS)
    before = model(inputs)
    model.train_on_batch(inputs, np.array([0, 2]))
    assert np.abs(model(inputs) - before).max() > 0.01
    directory = ModelDirectory.create(
        tmp_path / "model",
        architecture=checkpoint.architecture,
        vocabulary=checkpoint.vocabulary,
        lowercase=True,
        rules=checkpoint.rules,
        head={"kind": "classification", "labels": ["a", "b", "c"]},
        options={},
    )
    directory.save_weights(model)
    again = transformers.AutoModelForSequenceClassification.from_pretrained(
        directory.path
    )
    assert type(again).__name__ == f"{name}ForSequenceClassification"
    compare(again.eval(), inputs, {"logits": model(inputs)})


@pytest.mark.parametrize(
    ("class_name", "settings"),
    [
        ("BertForSequenceClassification", {"id2label": {0: "a"}}),  # A regression.
        ("ElectraModel", {"embedding_size": 8}),
        ("ElectraForMaskedLM", {"hidden_act": "relu"}),
        ("ElectraForPreTraining", {"hidden_act": "gelu_new", "layer_norm_eps": 1e-3}),
        ("DistilBertForMaskedLM", {"activation": "relu"}),
        ("DistilBertModel", {"sinusoidal_pos_embds": True}),
    ],
)
def test_settings(theirs, class_name, settings, tmp_path):
    test_outputs_equal_transformers(
        lambda name: theirs(name, **settings), class_name, tmp_path
    )


def test_other_settings_raise(theirs):
    _, _, folder = theirs("ElectraForMultipleChoice", summary_type="mean")
    with pytest.raises(ValueError, match=r"must be 'first'\. .*'mean'"):
        open_checkpoint(folder)
