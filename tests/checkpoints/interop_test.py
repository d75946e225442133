# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""transformers and sentence-transformers open what the commands write, and reversed.

These packages are not requirements: without them, the tests are skipped.
"""

import functools
import importlib.util
import json

import numpy as np
import pytest
import safetensors.numpy

import bert_tf
from benchmarks import parity
from bert_tf import evaluate
from bert_tf.checkpoints import open_checkpoint, write_checkpoint
from bert_tf.families import FAMILIES
from bert_tf.lazy import lazy_import
from tests.toy import checkpoints as toy
from tests.toy.models import model_directory
from tests.toy.tasks import write_model

PEERS = ("torch", "transformers", "sentence_transformers")
pytestmark = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, PEERS)), reason=f"Needs {', '.join(PEERS)}."
)
torch, transformers, sentence_transformers = map(lazy_import, PEERS)
TEXTS = ["the cat sat on the mat", "a b cat, on"]
PAIRS = [TEXTS, ["a b c", "the mats"]]


FAMILIES = [*FAMILIES.values()]
CLASSES = [
    f"{x.name}{y}" for x in FAMILIES for names in x.classes.values() for y in names
]
SIZES = {**toy.ARCHITECTURE, "max_sequence_length": 32, "num_segments": 2}
SIZES |= {"activation": "gelu", "embedding_dim": 4}
LABELS = {"id2label": {0: "no", 1: "maybe", 2: "yes"}}
TANH = {"hidden_act": "gelu_pytorch_tanh"}
REGRESSION = {"id2label": {0: "score"}, "problem_type": "regression"}


@pytest.fixture(scope="module")
def theirs(tmp_path_factory, vocabulary):
    """Returns a function from a class name to a folder that transformers wrote."""

    def write(class_name, **settings):
        (family,) = (x for x in FAMILIES if class_name.startswith(x.name))
        fields = {key: SIZES[x] for x, key in family.keys.items() if x in SIZES}
        fields |= {} if class_name.endswith("Answering") else LABELS
        config = getattr(transformers, f"{family.name}Config")(**fields | settings)
        torch.manual_seed(0)
        model = getattr(transformers, class_name)(config)
        for weight in model.parameters():
            weight.data += 0.3 * torch.randn_like(weight)
        folder = tmp_path_factory.mktemp(class_name)
        model.save_pretrained(folder)
        vocabulary.write(folder / "vocab.txt")
        transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(folder)
        return folder

    return write


@pytest.fixture(scope="module")
def pretrained(theirs, tmp_path_factory):
    """A folder of theirs as a model directory."""
    folder = tmp_path_factory.mktemp("pretrained") / "model"
    write_checkpoint(open_checkpoint(theirs("BertForPreTraining")), folder)
    return folder


def assert_equal_to_peers(folder):
    """Compares outputs and answers, also those of a converted folder."""
    found = dict(parity.compare(folder, TEXTS, parity.their_outputs))
    assert len(found) > 2
    for what, difference in found.items():
        assert difference < 1e-5, what


# --- Folders of transformers -------------------------------------------------------


@pytest.mark.parametrize(
    ("class_name", "settings"),
    [
        *((x, {}) for x in CLASSES if x != "ElectraForPreTraining"),
        ("BertForSequenceClassification", REGRESSION),
        ("ElectraModel", {"embedding_size": 8}),
        ("ElectraForMaskedLM", {"hidden_act": "relu"}),
        ("DistilBertForMaskedLM", {"activation": "relu"}),
        ("DistilBertModel", {"sinusoidal_pos_embds": True}),
    ],
)
def test_every_class_equals_transformers(theirs, class_name, settings, tmp_path):
    folder = theirs(class_name, **settings)
    assert_equal_to_peers(folder)
    # It stays the same kind of folder, bit by bit.
    checkpoint, copy = open_checkpoint(folder), tmp_path / "ours"
    assert write_checkpoint(checkpoint, copy) == []
    files = (path / "model.safetensors" for path in (folder, copy))
    toy.assert_equal(*map(safetensors.numpy.load_file, files))
    assert open_checkpoint(copy).head == checkpoint.head


def test_electra_discriminator_opens_as_encoder(theirs, caplog):
    folder = theirs("ElectraForPreTraining", **TANH, layer_norm_eps=1e-3)
    checkpoint = open_checkpoint(folder)
    assert checkpoint.head == {"kind": "encoder", "newly_initialized": ["pooler"]}
    assert "not used: discriminator_predictions" in caplog.text
    inputs = toy.INPUTS
    hidden = checkpoint.load_backbone()(inputs)["sequence_output"]
    model = transformers.ElectraModel.from_pretrained(folder).eval()
    names = ("input_ids", "token_type_ids", "attention_mask")
    theirs = model(**dict(zip(names, map(torch.tensor, inputs.values()))))
    expected = theirs.last_hidden_state.detach().numpy()
    np.testing.assert_allclose(hidden, expected, atol=1e-5)


def test_other_settings_raise(theirs):
    folder = theirs("ElectraForMultipleChoice", summary_type="mean")
    with pytest.raises(ValueError, match=r"must be 'first'\. .*'mean'"):
        open_checkpoint(folder)


@pytest.mark.parametrize("name", ["DistilBert", "Electra"])
def test_trained_models_open_in_transformers(theirs, name, tmp_path):
    folder = theirs(f"{name}Model")
    checkpoint = open_checkpoint(folder)
    model = bert_tf.SequenceClassifier.from_checkpoint(folder, num_classes=3)
    model.compile(bert_tf.AdamW(1e-2))
    inputs = bert_tf.Tokenizer.from_checkpoint(folder).encode(*PAIRS)
    before = model(inputs)
    model.train_on_batch(inputs, np.array([0, 2]))
    assert np.abs(model(inputs) - before).max() > 0.01
    head = {"kind": "classification", "labels": ["a", "b", "c"]}
    directory = model_directory(
        tmp_path / "model",
        checkpoint.architecture,
        checkpoint.vocabulary,
        head,
        rules=checkpoint.rules,
    )
    directory.save_weights(model)
    config = transformers.AutoConfig.from_pretrained(directory.path)
    assert config.architectures == [f"{name}ForSequenceClassification"]
    assert_equal_to_peers(directory.path)


# --- Folders of the commands -------------------------------------------------------


def test_masked_lm_loss(pretrained, tmp_path):
    (tmp_path / "text.txt").write_text("\n\n".join(TEXTS * 20))
    rows = tmp_path / "masked.jsonl"
    paths = (str(x) for x in (pretrained, tmp_path / "text.txt", rows))
    options = dict(zip(("model_dir", "input", "output"), paths))
    metrics = evaluate.main(evaluate.EvaluateConfig(**options))
    model = transformers.AutoModelForMaskedLM.from_pretrained(pretrained).eval()
    losses, count = 0.0, 0
    for line in rows.read_text().splitlines():
        row = {k: torch.tensor([v]) for k, v in json.loads(line).items()}
        with torch.no_grad():
            predicted = int((row["labels"] >= 0).sum())
            losses += float(model(**row).loss) * predicted
            count += predicted
    assert metrics["loss"] == pytest.approx(losses / count, abs=1e-5)


def test_saving_with_transformers_and_opening_again(pretrained, tmp_path):
    transformers.AutoModelForPreTraining.from_pretrained(pretrained).save_pretrained(
        tmp_path
    )
    transformers.AutoTokenizer.from_pretrained(pretrained).save_pretrained(tmp_path)
    first, second = open_checkpoint(pretrained), open_checkpoint(tmp_path)
    for name in ("architecture", "vocabulary", "lowercase", "rules", "head", "options"):
        assert getattr(first, name) == getattr(second, name)
    toy.assert_equal(first.read_weights(), second.read_weights())


@pytest.fixture(scope="module")
def folders(pretrained, tmp_path_factory, vocabulary):
    """Returns a function that returns the folder of an untrained task."""

    @functools.cache
    def write(name):
        source, folder = open_checkpoint(pretrained), tmp_path_factory.mktemp(name)
        return write_model(
            name, folder, source.architecture, vocabulary, rules=source.rules
        ).path

    return write


@pytest.mark.parametrize(
    "name", ["classes", "scores", "tags", "spans", "choices", "vectors"]
)
def test_folders_equal_the_peers(name, folders):
    assert_equal_to_peers(folders(name))


def test_head_that_transformers_lacks(folders):
    folder = folders("features")
    assert "architectures" not in json.loads((folder / "config.json").read_text())
    encoder = transformers.AutoModel.from_pretrained(folder, add_pooling_layer=False)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        inputs = tokenizer(TEXTS[0], return_tensors="pt")
        expected = encoder.eval()(**inputs).last_hidden_state
    inputs = bert_tf.Tokenizer.from_checkpoint(folder).encode(TEXTS[:1])
    outputs = open_checkpoint(folder).load_backbone()(inputs)["sequence_output"]
    np.testing.assert_allclose(outputs, expected, atol=1e-5)


def test_sentence_encoder_that_a_peer_saved(folders, tmp_path):
    folder = folders("vectors")
    model = sentence_transformers.SentenceTransformer(str(folder))
    model.save_pretrained(str(tmp_path / "again"))
    ours, again = (
        bert_tf.load(path).predict(TEXTS)["sentence_embedding"]
        for path in (folder, tmp_path / "again")
    )
    np.testing.assert_array_equal(ours, again)
