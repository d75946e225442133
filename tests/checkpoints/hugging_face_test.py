# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import dataclasses
import functools
import json

import huggingface_hub
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
import tokenizers

from bert_tf import convert, heads
from bert_tf.checkpoints import ModelDirectory, open_checkpoint, write_checkpoint
from bert_tf.modeling import BertBackbone
from bert_tf.text import Vocabulary
from tests.toy import checkpoints as toy
from tests.toy.models import model_directory

LABELS = ["no", "maybe", "yes"]
DEFAULT_LABELS = ["LABEL_0", "LABEL_1", "LABEL_2"]


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "theirs"


@pytest.fixture
def write(folder, vocabulary):
    """Returns `toy.write_hugging_face` for the class of a model."""
    return functools.partial(toy.write_hugging_face, folder, vocabulary)


def copied(folder, **changes):
    """Returns the model directory that `write_checkpoint` makes of a folder."""
    path = folder.with_name(f"{folder.name}-copy")
    checkpoint = dataclasses.replace(open_checkpoint(folder), **changes)
    assert write_checkpoint(checkpoint, path) == []
    return path


def edit(file, **changes):
    """Changes keys of a JSON file; those with the value None are removed."""
    values = json.loads(file.read_text()) | changes
    values = {key: value for key, value in values.items() if value is not None}
    file.write_text(json.dumps(values))


# --- Round trips -----------------------------------------------------------------

UNTRAINED = "newly_initialized"
HEADS = {
    "BertModel": {"kind": "encoder"},
    "BertForPreTraining": {"kind": "pretrainer"},
    "BertForMaskedLM": {"kind": "pretrainer", UNTRAINED: ["pooler", "nsp"]},
    "BertForNextSentencePrediction": {"kind": "pretrainer", UNTRAINED: ["mlm"]},
    "BertForSequenceClassification": {"kind": "classification", "labels": LABELS},
    "BertForMultipleChoice": {"kind": "multiple_choice"},
    "BertForTokenClassification": {
        "kind": "tagging",
        "labels": LABELS,
        "aggregation": "simple",
        UNTRAINED: ["pooler"],
    },
    "BertForQuestionAnswering": {"kind": "question_answering", UNTRAINED: ["pooler"]},
}


@pytest.mark.parametrize("class_name", toy.HUGGING_FACE_CLASSES)
def test_round_trip_through_a_model_directory_is_bit_equal(write, class_name):
    folder = write(class_name, layer_norm_eps=1e-7, hidden_act="gelu_new")
    theirs, ours = open_checkpoint(folder), open_checkpoint(copied(folder))
    assert theirs.head == HEADS[class_name]
    assert theirs.architecture.activation == "gelu_tanh"
    for name in ("architecture", "vocabulary", "lowercase", "head", "format"):
        assert getattr(ours, name) == getattr(theirs, name), name
    expected, written = (
        safetensors.numpy.load_file(path / "model.safetensors")
        for path in (folder, ours.path)
    )
    toy.assert_equal(written, expected)


def test_weights_that_the_class_cannot_hold_are_left_out(write, tmp_path):
    tensors = toy.values(toy.hugging_face_shapes("BertForTokenClassification"))
    tensors["bert.pooler.dense.weight"] = np.ones((8, 8), "f")
    tensors["bert.pooler.dense.bias"] = np.ones(8, "f")
    folder = write("BertForTokenClassification", tensors=tensors)
    left_out = write_checkpoint(open_checkpoint(folder), tmp_path / "to")
    assert left_out == ["pooler/bias", "pooler/kernel"]


# --- Names and types of weights ----------------------------------------------------


def assert_same_weights(folder, other):
    toy.assert_equal(*(open_checkpoint(x).read_weights() for x in (folder, other)))


def test_copies_of_tied_weights(write, tmp_path, vocabulary, caplog):
    name = "BertForPreTraining"
    tensors = toy.values(toy.hugging_face_shapes(name))
    copy = tensors["bert.embeddings.word_embeddings.weight"].copy()
    tensors["cls.predictions.decoder.weight"] = copy
    tensors["cls.predictions.decoder.bias"] = tensors.pop("cls.predictions.bias")
    tensors["bert.embeddings.position_ids"] = np.arange(16)[np.newaxis]
    expected = toy.write_hugging_face(tmp_path / "expected", vocabulary, name)
    assert_same_weights(expected, write(name, tensors=tensors))
    assert "not used" not in caplog.text
    copy[3, 1] += 1
    other = write(name, tensors=tensors)
    with pytest.raises(ValueError, match=r"are the same weight .* --head=encoder"):
        open_checkpoint(other).read_weights()
    assert open_checkpoint(other, head="encoder").read_weights()


def tensorflow_name(name):
    """Returns the name of a weight in transformers 4's TFBert models.

    Its `save_pretrained(safe_serialization=True)` writes them without the model's name.
    """
    stem, _, part = name.rpartition(".")
    if "_embeddings" in stem:
        part = "weight" if "word" in stem else "embeddings"
    elif "LayerNorm" in stem:
        part = {"weight": "gamma", "bias": "beta"}[part]
    elif part == "weight":
        part = "kernel"
    stem = stem.replace(".", "/").replace("encoder/layer/", "encoder/layer_._")
    stem = stem.replace("cls/p", "mlm___cls/p").replace("cls/s", "nsp___cls/s")
    return f"{stem}/{part}:0"


def early_name(name):
    """Returns the name of a weight in early versions of transformers."""
    return name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta")


@pytest.mark.parametrize("class_name", ["BertModel", "BertForPreTraining"])
@pytest.mark.parametrize(
    "rename",
    [tensorflow_name, early_name, lambda name: f"module.{name}"],
    ids=["tensorflow", "early", "DataParallel"],
)
def test_other_names_of_weights(write, vocabulary, class_name, rename, tmp_path):
    renamed = {}
    for name, tensor in toy.values(toy.hugging_face_shapes(class_name)).items():
        new = rename(name)
        if class_name == "BertModel" and rename is tensorflow_name:
            new = f"bert/{new}"
        is_kernel = new.endswith(("kernel", "kernel:0"))
        renamed[new] = np.ascontiguousarray(tensor.T) if is_kernel else tensor
    expected = toy.write_hugging_face(tmp_path / "expected", vocabulary, class_name)
    folder = write(class_name, tensors=renamed)
    assert_same_weights(expected, folder)
    assert open_checkpoint(folder).head == open_checkpoint(expected).head


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_half_precision_is_read_as_float32(write, dtype):
    tensors = toy.values(toy.hugging_face_shapes("BertModel"))
    halves = {name: tensor.astype(dtype) for name, tensor in tensors.items()}
    weight = open_checkpoint(write(tensors=halves)).read_weights()["pooler/kernel"]
    expected = halves["pooler.dense.weight"].astype(np.float32).T
    np.testing.assert_array_equal(weight, expected)


@pytest.mark.parametrize("size", [37, 40])
def test_padding_of_token_embedding_is_dropped(folder, vocabulary, size, caplog):
    fewer = Vocabulary(vocabulary.tokens[:37])
    toy.write_hugging_face(folder, fewer, "BertForMaskedLM", vocab_size=size)
    checkpoint = open_checkpoint(folder)
    assert checkpoint.architecture.vocabulary_size == 37
    weights = checkpoint.read_weights()
    assert weights["embeddings/token_embedding/embeddings"].shape == (37, 8)
    assert weights["mlm/bias"].shape == (37,)
    assert "The last 3 of the 40 rows" in caplog.text


# --- Settings that are read ----------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "labels"),
    [
        ({"id2label": {"0": "x", "1": "y"}, "num_labels": 3}, DEFAULT_LABELS),
        ({"id2label": {"0": 1, "1": 2.5, "2": True}}, ["1", "2.5", "True"]),
        ({"id2label": {"2": "c", "0": "a", "1": "b"}}, ["a", "b", "c"]),
    ],
)
def test_labels(write, config, labels):
    folder = write("BertForTokenClassification", **config)
    assert open_checkpoint(folder).head["labels"] == labels


def test_labels_that_transformers_does_not_write(write):
    name = "BertForTokenClassification"
    tensors = toy.values(toy.hugging_face_shapes(name, 2))
    folder = write(name, tensors=tensors, id2label=None)
    ours = copied(folder)
    edit(ours / "config.json", id2label=None, label2id=None)
    assert open_checkpoint(ours).head == open_checkpoint(folder).head


def test_decisions_count_for_the_weights_they_were_fitted_for(write, caplog):
    ours = open_checkpoint(copied(write("BertForSequenceClassification")))
    shared = {name: getattr(ours, name) for name in ("architecture", "vocabulary")}
    shared |= {"lowercase": True, "head": ours.head, "options": {}}
    ModelDirectory(ours.path, **shared).write_decision({"thresholds": 0.25})
    copy = copied(ours.path)
    assert open_checkpoint(copy).head["decision"]["thresholds"] == 0.25
    assert not caplog.text
    # As save_pretrained of transformers after more training.
    tensors = safetensors.numpy.load_file(copy / "model.safetensors")
    tensors["classifier.bias"] += 1e-6
    safetensors.numpy.save_file(tensors, copy / "model.safetensors")
    assert "decision" not in open_checkpoint(copy).head
    assert "dropped {'thresholds': 0.25" in caplog.text


def test_dropout_of_the_head(write):
    ours = copied(write("BertForSequenceClassification", classifier_dropout=0.0))
    assert json.loads((ours / "config.json").read_text())["classifier_dropout"] == 0
    model = open_checkpoint(ours).load()
    assert type(model) is heads.SequenceClassifier
    assert model.get_layer("dropout").rate == 0
    assert model.backbone.embeddings.dropout.rate == 0.1


def test_encoder_with_one_segment(write, caplog):
    tensors = toy.values(toy.hugging_face_shapes("BertModel"))
    name = "embeddings.token_type_embeddings.weight"
    tensors[name] = tensors[name][:1]
    ours = copied(write(tensors=tensors, type_vocab_size=1))
    assert "one segment: both texts of a pair" in caplog.text
    tokenizer = tokenizers.Tokenizer.from_file(str(ours / "tokenizer.json"))
    assert not any(tokenizer.encode("the cat", "on").type_ids)
    config = json.loads((ours / "tokenizer_config.json").read_text())
    assert "token_type_ids" not in config["model_input_names"]
    caplog.clear()
    assert open_checkpoint(ours).rules.second_segment == 0
    assert not caplog.text


# --- Folders that are refused --------------------------------------------------------

POOLER = "bert.pooler.dense.weight"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "roberta"}, "Received: model_type='roberta'"),
        ({"is_decoder": True}, "is_decoder must be False. Received: is_decoder=True"),
        ({"hidden_size": 16}, r"has shape \[40, 8\] in .*, but \[40, 16\] in the mod"),
        ({"num_hidden_layers": 1}, "has 1 layers, but the file has more: bert.encoder"),
        ({"vocab_size": 41}, "size 41, the token embedding 40 .* vocabulary has 40"),
        ({"id2label": {"1": "a", "2": "b"}}, "id2label must map the numbers from 0"),
        ({"num_labels": 4, "id2label": None}, "declares 4 labels .* layer has 3"),
        ({"problem_type": "regression"}, "must have one score; .*regression, 3 outp"),
        ({"bert_tf": {"head": {"kind": 1}}}, "head: kind must .* str.*kind=1"),
    ],
)
def test_invalid_config_raises(write, config, message):
    folder = write("BertForSequenceClassification", **config)
    with pytest.raises(ValueError, match=message):
        open_checkpoint(folder).load_backbone()


TWO_TOWERS = r"several encoders: a\.bert\.emb.*, b\.bert\.emb"


@pytest.mark.parametrize(
    ("prefixes", "pooler", "message"),
    [
        (("a.", "b."), np.ones((8, 8), "f"), TWO_TOWERS),
        ([""], None, r"missing \(1\): bert"),
        ([""], np.full((8, 8), 1e300), "contains NaN or infinite"),
        ([""], np.ones((8, 8), np.int8), "floats of at least 16 bits. Received: I8"),
    ],
)
def test_unusable_weights_raise(write, prefixes, pooler, message):
    name = "BertForSequenceClassification"
    tensors = toy.values(toy.hugging_face_shapes(name)) | {POOLER: pooler}
    if pooler is None:
        del tensors[POOLER]
    tensors = {f"{p}{k}": x for p in prefixes for k, x in tensors.items()}
    with pytest.raises(ValueError, match=message):
        open_checkpoint(write(name, tensors=tensors)).read_weights()


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("model.safetensors", None, r"has no model\.safetensors.*from_tf=True"),
        ("model.safetensors", lambda x: x[:5000], "tensors is damaged.*lfs pull"),
        ("vocab.txt", None, r"vocab\.txt"),
        ("vocab.txt", lambda x: x + b"more\n", "40 rows, but .* has 41 tokens"),
    ],
)
def test_damaged_and_missing_files_raise(write, name, change, message):
    file = write() / name
    contents = file.read_bytes()
    file.unlink()
    if change:
        file.write_bytes(change(contents))
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        open_checkpoint(file.parent)


@pytest.mark.parametrize("name", ["onnx/model.onnx", "model.fp16.safetensors"])
def test_other_files_with_weights_are_named(write, name):
    weights = write() / "model.safetensors"
    (weights.parent / name).parent.mkdir(exist_ok=True)
    weights.rename(weights.parent / name)
    with pytest.raises(ValueError, match=rf"has no model\.safetensors, but {name}\."):
        open_checkpoint(weights.parent)


def test_code_of_the_folder_is_refused(write):
    auto_map = {"AutoModel": "modeling.MyBert"}
    with pytest.raises(ValueError, match=r"config\.json.*auto_map"):
        open_checkpoint(write(auto_map=auto_map))


@pytest.mark.parametrize(
    ("changes", "class_name", "chosen"),
    [
        ({"architectures": ["BertForX"]}, "BertForMultipleChoice", "multiple_choice"),
        ({"architectures": None}, "BertForTokenClassification", "tagging"),
    ],
)
def test_head_must_be_chosen(write, changes, class_name, chosen):
    folder = write(class_name, **changes)
    assert open_checkpoint(folder).load_backbone().count_params()
    named = "the class BertForX.*" * bool(changes["architectures"])
    with pytest.raises(ValueError, match=rf"{named}classifier\.weight.*--head=encoder"):
        copied(folder)
    for head in (chosen, "encoder"):
        assert open_checkpoint(folder, head=head).head["kind"] == head


def test_head_is_validated(write):
    folder = write()
    with pytest.raises(ValueError, match="no head of the kind 'ner', only encoder"):
        open_checkpoint(folder, head="ner")
    with pytest.raises(ValueError, match=r"must have the modules.json .* Choose enco"):
        open_checkpoint(folder, head="embedding")
    with pytest.raises(ValueError, match="must not be set, because"):
        open_checkpoint(copied(folder), head="encoder")


def test_head_of_a_task_of_the_user(write, monkeypatch):
    class Verdicts(heads.ClassificationHead):
        kind = "verdicts"

    monkeypatch.setitem(heads.HEADS, "verdicts", Verdicts)
    folder = write("BertForSequenceClassification")
    head = {"kind": "verdicts", "labels": ["no", "maybe", "yes"]}
    assert open_checkpoint(folder, head="verdicts").head == head


# --- Folders to publish ------------------------------------------------------------


# Options of a training, and as they are published.
BASE = "google-bert/bert-base-uncased"
OPTIONS = {
    "init_from": (f"hf://{BASE}", f"hf://{BASE}"),
    "teacher": ("../models/teacher/", "teacher"),
    "train_file": ("data/train.csv", "train.csv"),
    "records": ("/mnt/records128,/mnt/records512", "records128,records512"),
    "size": ("/home/me/config.json", "config.json"),
    "lexicon": ("/home/me/words.txt", "words.txt"),  # Of somebody's own task.
    "output": ("models/verdict", "verdict"),
}
UNCHANGED = {"text_a": "he/she", "label_separator": "/", "layers": "1,2"}
UNCHANGED["max_sequence_length"] = 32
OPTIONS |= {name: (value, value) for name, value in UNCHANGED.items()}


def test_folder_to_publish(tmp_path, tiny_config, vocabulary):
    head = {"kind": "classification", "labels": ["a", "b"]}
    options = {name: value for name, (value, _) in OPTIONS.items()}
    parts = (tmp_path / "m", tiny_config, vocabulary, head)
    directory = model_directory(*parts, options=options)
    directory.save_weights(heads.SequenceClassifier(BertBackbone(tiny_config), 2))
    metrics = {"accuracy": 0.75, "f1": 0.5}
    directory.write_metrics({"training": {"score": 0.5}, "dev": metrics})
    (directory.path / "logs").mkdir()
    (directory.path / ".lock").touch()
    to, data = tmp_path / "share/verdict", "stanfordnlp/sst2, our tickets"
    options = convert.ConvertConfig(from_=str(directory.path), to=str(to), data=data)
    convert.main(options)
    shared = open_checkpoint(to)
    assert shared.options == {name: value for name, (_, value) in OPTIONS.items()}
    files = {path.name for path in shared.path.iterdir()}
    assert files == {
        *("README.md", "config.json", "model.safetensors"),
        *("tokenizer.json", "tokenizer_config.json", "vocab.txt"),
    }
    card = huggingface_hub.ModelCard.load(shared.path / "README.md")
    assert card.data.license is None
    assert card.data.base_model == BASE
    assert card.data.datasets == ["stanfordnlp/sst2"]
    assert card.data.pipeline_tag == "text-classification"
    found = {r.metric_type: r.metric_value for r in card.data.eval_results}
    assert found == metrics
    assert "- dev: accuracy 0.75\n" in card.text
    assert "# verdict\n" in card.text
    assert "our tickets" in card.text


def test_card_of_a_folder_of_another_project(write, folder):
    card = huggingface_hub.ModelCard.load(copied(write()) / "README.md")
    assert card.data.base_model == folder.name
    assert card.data.eval_results is None
