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

import bert_tf
from benchmarks import parity
from bert_tf import evaluate
from bert_tf.checkpoints import open_checkpoint, write_checkpoint
from bert_tf.lazy import lazy_import
from tests.toy import checkpoints as toy
from tests.toy.tasks import write_model

PEERS = ("torch", "transformers", "sentence_transformers")
pytestmark = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, PEERS)), reason=f"Needs {', '.join(PEERS)}."
)
torch, transformers, sentence_transformers = map(lazy_import, PEERS)
TEXTS = ["the cat sat on the mat", "a b cat, on"]
NAMES = ("input_ids", "token_type_ids", "attention_mask")
PAIRS = [TEXTS, ["a b c", "the mats"]]


@pytest.fixture(scope="module")
def theirs(tmp_path_factory, vocabulary):
    """A folder that `save_pretrained` wrote."""
    folder = tmp_path_factory.mktemp("theirs")
    torch.manual_seed(0)
    config = transformers.BertConfig(**toy.CONFIG | {"max_position_embeddings": 32})
    model = transformers.BertForPreTraining(config)
    for weight in model.parameters():
        weight.data += 0.2 * torch.randn_like(weight)
    model.save_pretrained(folder)
    vocabulary.write(folder / "vocab.txt")
    transformers.BertTokenizer.from_pretrained(folder).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def pretrained(theirs, tmp_path_factory):
    """Their folder as a model directory."""
    folder = tmp_path_factory.mktemp("pretrained") / "model"
    write_checkpoint(open_checkpoint(theirs), folder)
    return folder


def test_next_sentence_of_a_pretrained_model(pretrained):
    inputs = transformers.AutoTokenizer.from_pretrained(pretrained)(
        *PAIRS, padding=True, return_tensors="pt"
    )
    model = transformers.AutoModelForPreTraining.from_pretrained(pretrained).eval()
    with torch.no_grad():
        theirs = torch.softmax(model(**inputs).seq_relationship_logits, -1)
    ours = bert_tf.load(pretrained).predict(*PAIRS, signature="next_sentence")
    np.testing.assert_allclose(ours["probabilities"], theirs, atol=1e-5)


def test_masked_lm_loss(pretrained, tmp_path):
    (tmp_path / "text.txt").write_text("\n\n".join(TEXTS * 20))
    rows = tmp_path / "masked.jsonl"
    options = {"input": str(tmp_path / "text.txt"), "output": str(rows)}
    metrics = evaluate.main(
        evaluate.EvaluateConfig(model_dir=str(pretrained), **options)
    )
    model = transformers.AutoModelForMaskedLM.from_pretrained(pretrained).eval()
    losses, count = 0.0, 0
    for line in rows.read_text().splitlines():
        row = {k: torch.tensor([v]) for k, v in json.loads(line).items()}
        with torch.no_grad():
            predicted = int((row["labels"] >= 0).sum())
            losses += float(model(**row).loss) * predicted
            count += predicted
    assert metrics["predictions"] == count
    assert metrics["loss"] == pytest.approx(losses / count, abs=1e-5)


def test_saving_with_transformers_and_opening_again(pretrained, tmp_path):
    transformers.AutoModelForPreTraining.from_pretrained(pretrained).save_pretrained(
        tmp_path
    )
    transformers.AutoTokenizer.from_pretrained(pretrained).save_pretrained(tmp_path)
    first, second = open_checkpoint(pretrained), open_checkpoint(tmp_path)
    for name in ("architecture", "vocabulary", "lowercase", "rules", "head", "options"):
        assert getattr(first, name) == getattr(second, name)
    weights = second.read_weights()
    for name, value in first.read_weights().items():
        np.testing.assert_array_equal(value, weights[name])


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
    "name", ["pretrained", "classes", "scores", "tags", "spans", "choices", "vectors"]
)
def test_folders_equal_the_peers(name, pretrained, folders):
    folder = pretrained if name == "pretrained" else folders(name)
    found = dict(parity.compare(folder, TEXTS, parity.their_outputs))
    assert len(found) > 3
    for what, difference in found.items():
        assert difference < 1e-5, what


def test_head_that_transformers_lacks(folders):
    folder = folders("features")
    assert "architectures" not in json.loads((folder / "config.json").read_text())
    encoder = transformers.AutoModel.from_pretrained(folder, add_pooling_layer=False)
    encoder_here = open_checkpoint(folder).load_backbone()
    inputs = transformers.AutoTokenizer.from_pretrained(folder)(
        TEXTS[0], return_tensors="pt"
    )
    with torch.no_grad():
        expected = encoder.eval()(**inputs).last_hidden_state
    names = dict(zip(("token_ids", "segment_ids", "padding_mask"), NAMES))
    inputs = {ours: inputs[name].int().numpy() for ours, name in names.items()}
    outputs = encoder_here(inputs)["sequence_output"]
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
