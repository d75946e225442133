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
TEXTS = ["the cat sat on the mat", "a mats, Cats"]  # 6 tokens each, no padding.
NAMES = ("input_ids", "token_type_ids", "attention_mask")
PAIRS = [TEXTS, ["a b c", "the mats"]]

# Tasks with a class in transformers.
CLASSES = {
    "classes": "SequenceClassification",
    "scores": "SequenceClassification",
    "tags": "TokenClassification",
    "spans": "QuestionAnswering",
    "choices": "MultipleChoice",
}


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


def run_theirs(class_name, folder, *texts):
    """Returns the inputs and the outputs of a model class."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(*texts, padding=True, return_tensors="pt")
    model = getattr(transformers, class_name).from_pretrained(folder).eval()
    if class_name.endswith("MultipleChoice"):
        inputs = {name: tensor[:, None] for name, tensor in inputs.items()}
    with torch.no_grad():
        return inputs, model(**inputs)


def run_ours(folder, inputs):
    """Returns the outputs for the same inputs here."""
    inputs = [inputs[name].int().numpy() for name in NAMES]
    outputs = bert_tf.load(folder).signatures["ids"](*inputs)
    return {name: tensor.numpy() for name, tensor in outputs.items()}


def test_pretrained_model(pretrained):
    fill = transformers.pipeline("fill-mask", model=str(pretrained))
    answer = bert_tf.load(pretrained).predict(["the [MASK] sat"])
    expected = fill("the [MASK] sat")
    scores = [candidate["score"] for candidate in expected]
    np.testing.assert_allclose(answer["scores"][0, 0, :5], scores, atol=1e-5)
    tokens = [candidate["token_str"] for candidate in expected]
    assert answer["tokens"][0, 0, :5].tolist() == tokens
    _, outputs = run_theirs("AutoModelForPreTraining", pretrained, *PAIRS)
    ours = bert_tf.load(pretrained).predict(*PAIRS, signature="next_sentence")
    theirs = torch.softmax(outputs.seq_relationship_logits, -1)
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


@pytest.mark.parametrize("name", CLASSES)
def test_logits_of_tasks(name, folders):
    folder = folders(name)
    inputs, outputs = run_theirs(f"AutoModelFor{CLASSES[name]}", folder, *PAIRS)
    ours = run_ours(folder, inputs)
    for key in ours:
        np.testing.assert_allclose(ours[key], outputs[key], atol=1e-5)
    assert len({*np.ravel([*ours.values()])}) > 1


def test_pipeline_of_a_classifier(folders):
    folder = folders("classes")
    classify = transformers.pipeline("text-classification", model=str(folder))
    pairs = [{"text": a, "text_pair": b} for a, b in zip(*PAIRS)]
    answers = bert_tf.load(folder).predict(*PAIRS)
    for answer, label, scores in zip(
        classify(pairs), answers["label"], answers["probabilities"]
    ):
        assert answer["label"] == label
        assert answer["score"] == pytest.approx(scores.max(), abs=1e-5)


def test_pipeline_of_a_tagger(folders):
    folder = folders("tags")
    tag = transformers.pipeline("ner", model=str(folder), ignore_labels=[])
    answer = bert_tf.load(folder).predict(TEXTS[:1])
    expected = tag(TEXTS[0])
    assert answer["words"][0].tolist() == [piece["word"] for piece in expected]
    assert answer["tags"][0].tolist() == [piece["entity"] for piece in expected]
    scores = [piece["score"] for piece in expected]
    np.testing.assert_allclose(answer["scores"][0], scores, atol=1e-5)


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


def test_sentence_encoder(folders, tmp_path):
    folder = folders("vectors")
    model = sentence_transformers.SentenceTransformer(str(folder))
    ours = bert_tf.load(folder).predict(TEXTS)["sentence_embedding"]
    np.testing.assert_allclose(ours, model.encode(TEXTS), atol=1e-5)
    model.save_pretrained(str(tmp_path / "again"))
    again = bert_tf.load(tmp_path / "again").predict(TEXTS)["sentence_embedding"]
    np.testing.assert_array_equal(ours, again)
