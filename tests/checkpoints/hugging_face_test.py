# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import dataclasses
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


# --- Round trips -----------------------------------------------------------------


HEADS = {
    "BertModel": {"kind": "encoder"},
    "BertForPreTraining": {"kind": "pretrainer"},
    "BertForMaskedLM": {"kind": "pretrainer", "newly_initialized": ["pooler", "nsp"]},
    "BertForNextSentencePrediction": {
        "kind": "pretrainer",
        "newly_initialized": ["mlm"],
    },
    "BertForSequenceClassification": {"kind": "classification", "labels": LABELS},
    "BertForMultipleChoice": {"kind": "multiple_choice"},
    "BertForTokenClassification": {
        "kind": "tagging",
        "labels": LABELS,
        "aggregation": "simple",
        "newly_initialized": ["pooler"],
    },
    "BertForQuestionAnswering": {
        "kind": "question_answering",
        "newly_initialized": ["pooler"],
    },
}


@pytest.mark.parametrize("class_name", toy.HUGGING_FACE_CLASSES)
def test_round_trip_through_a_model_directory_is_bit_equal(
    folder, vocabulary, class_name, tmp_path
):
    config = {"layer_norm_eps": 1e-7, "hidden_act": "gelu_new"}
    toy.write_hugging_face(folder, vocabulary, class_name, **config)
    theirs = open_checkpoint(folder)
    assert theirs.head == HEADS[class_name]
    assert theirs.architecture.activation == "gelu_tanh"
    assert write_checkpoint(theirs, tmp_path / "ours") == []
    ours = open_checkpoint(tmp_path / "ours")
    for name in ("architecture", "vocabulary", "lowercase", "head", "format"):
        assert getattr(ours, name) == getattr(theirs, name), name
    expected = safetensors.numpy.load_file(folder / "model.safetensors")
    written = safetensors.numpy.load_file(tmp_path / "ours" / "model.safetensors")
    assert written.keys() == expected.keys()
    for name, tensor in expected.items():
        np.testing.assert_array_equal(written[name], tensor)


def test_weights_that_the_class_cannot_hold_are_left_out(folder, vocabulary, tmp_path):
    tensors = toy.values(toy.hugging_face_shapes("BertForTokenClassification"))
    for name in ("weight", "bias"):
        tensors[f"bert.pooler.dense.{name}"] = np.ones([8, 8][: 1 + (name > "c")], "f")
    toy.write_hugging_face(
        folder, vocabulary, "BertForTokenClassification", tensors=tensors
    )
    checkpoint = open_checkpoint(folder)
    left_out = write_checkpoint(checkpoint, tmp_path / "to")
    assert left_out == ["pooler/bias", "pooler/kernel"]


# --- Variants of files -----------------------------------------------------------


def same_weights(folder, other):
    a, b = (open_checkpoint(f).read_weights() for f in (folder, other))
    assert a.keys() == b.keys()
    return all(np.array_equal(a[name], b[name]) for name in a)


def test_copies_of_tied_weights(folder, vocabulary, tmp_path, caplog):
    name = "BertForPreTraining"
    toy.write_hugging_face(folder, vocabulary, name)
    tensors = toy.values(toy.hugging_face_shapes(name))
    copy = tensors["bert.embeddings.word_embeddings.weight"].copy()
    tensors["cls.predictions.decoder.weight"] = copy
    tensors["cls.predictions.decoder.bias"] = tensors.pop("cls.predictions.bias")
    tensors["bert.embeddings.position_ids"] = np.arange(16)[np.newaxis]
    other = tmp_path / "other"
    toy.write_hugging_face(other, vocabulary, name, tensors=tensors)
    assert same_weights(folder, other)
    assert "not used" not in caplog.text
    copy[3, 1] += 1
    toy.write_hugging_face(other, vocabulary, name, tensors=tensors)
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
    stem = stem.replace("cls/pred", "mlm___cls/pred").replace(
        "cls/seq", "nsp___cls/seq"
    )
    return f"{stem}/{part}:0"


def flax_name(name):
    """Returns the name of a weight in transformers 4's FlaxBert models."""
    stem, _, part = name.rpartition(".")
    if part == "weight":
        part = "embedding" if stem.endswith("_embeddings") else "kernel"
        part = "scale" if stem.endswith("LayerNorm") else part
    return f"{stem}.{part}"


def early_name(name):
    """Returns the name of a weight in early versions of transformers."""
    return name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta")


@pytest.mark.parametrize("class_name", ["BertModel", "BertForPreTraining"])
@pytest.mark.parametrize(
    "rename",
    [tensorflow_name, flax_name, early_name, lambda name: f"module.{name}"],
    ids=["tensorflow", "flax", "early", "DataParallel"],
)
def test_other_names_of_weights(folder, vocabulary, class_name, rename, tmp_path):
    toy.write_hugging_face(folder, vocabulary, class_name)
    renamed = {}
    for name, tensor in toy.values(toy.hugging_face_shapes(class_name)).items():
        new = rename(name)
        if class_name == "BertModel" and rename is tensorflow_name:
            new = f"bert/{new}"
        is_kernel = new.endswith(("kernel", "kernel:0"))
        renamed[new] = np.ascontiguousarray(tensor.T) if is_kernel else tensor
    other = toy.write_hugging_face(
        tmp_path / "other", vocabulary, class_name, tensors=renamed
    )
    assert same_weights(folder, other)
    assert open_checkpoint(other).head == open_checkpoint(folder).head


def test_two_encoders_raise(folder, vocabulary):
    tensors = toy.values(toy.hugging_face_shapes("BertModel"))
    both = {f"{tower}.{n}": x for n, x in tensors.items() for tower in ("a", "b")}
    toy.write_hugging_face(folder, vocabulary, tensors=both)
    with pytest.raises(ValueError, match=r"several encoders: a\.emb.*, b\.emb"):
        open_checkpoint(folder)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_half_precision_is_read_as_float32(folder, vocabulary, dtype):
    tensors = toy.values(toy.hugging_face_shapes("BertModel"))
    halves = {name: tensor.astype(dtype) for name, tensor in tensors.items()}
    toy.write_hugging_face(folder, vocabulary, tensors=halves)
    weight = open_checkpoint(folder).read_weights()["pooler/kernel"]
    expected = halves["pooler.dense.weight"].astype(np.float32).T
    np.testing.assert_array_equal(weight, expected)


def test_padding_of_token_embedding_is_dropped(folder, vocabulary, caplog):
    fewer = Vocabulary(vocabulary.tokens[:37])
    toy.write_hugging_face(folder, fewer, "BertForMaskedLM")
    checkpoint = open_checkpoint(folder)
    assert checkpoint.architecture.vocabulary_size == 37
    weights = checkpoint.read_weights()
    assert weights["embeddings/token_embedding/embeddings"].shape == (37, 8)
    assert weights["mlm/bias"].shape == (37,)
    assert "The last 3 of the 40 rows" in caplog.text
    toy.write_hugging_face(folder, fewer, "BertForMaskedLM", vocab_size=37)
    assert open_checkpoint(folder).read_weights()["mlm/bias"].shape == (37,)
    toy.write_hugging_face(folder, Vocabulary((*vocabulary.tokens, "more")))
    with pytest.raises(ValueError, match="40 rows, but the vocabulary has 41 tokens"):
        open_checkpoint(folder)


# --- Invalid input -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "roberta"}, "Received: model_type='roberta'"),
        ({"is_decoder": True}, "is_decoder must be False. Received: is_decoder=True"),
        ({"hidden_act": "silu"}, r"config\.json: `activation` must be one of"),
        (
            {"hidden_size": 16},
            r"has shape \[40, 8\] in .*, but \[40, 16\] in the model",
        ),
        ({"num_hidden_layers": 1}, "has 1 layers, but the file has more: bert.encoder"),
        ({"num_hidden_layers": 3}, r"missing \(16\): bert.encoder.layer.2"),
        ({"vocab_size": 41}, "size 41, the token embedding 40 .* vocabulary has 40"),
        ({"hidden_size": "8"}, "`hidden_dim` must be a positive integer. .*='8'"),
        ({"id2label": {"1": "a", "2": "b"}}, "id2label must map the numbers from 0"),
        ({"num_labels": 4, "id2label": None}, "declares 4 labels .* layer has 3"),
        ({"problem_type": "regression"}, "must have one score; .*regression, 3 outp"),
        ({"bert_tf": {"head": []}}, r"config\.json: bert_tf: head must have the type"),
        ({"bert_tf": {"head": {"kind": 1}}}, "head: kind must .* str.*kind=1"),
    ],
)
def test_invalid_config_raises(folder, vocabulary, config, message):
    name = "BertForSequenceClassification"
    toy.write_hugging_face(folder, vocabulary, name, **config)
    with pytest.raises(ValueError, match=message):
        open_checkpoint(folder).load_backbone()


@pytest.mark.parametrize(
    ("config", "labels"),
    [
        (
            {"id2label": {"0": "LABEL_0", "1": "LABEL_1"}, "num_labels": 3},
            DEFAULT_LABELS,
        ),
        ({"id2label": {"0": 1, "1": 2.5, "2": True}}, ["1", "2.5", "True"]),
        ({"id2label": {"2": "c", "0": "a", "1": "b"}}, ["a", "b", "c"]),
    ],
)
def test_labels(folder, vocabulary, config, labels):
    toy.write_hugging_face(folder, vocabulary, "BertForTokenClassification", **config)
    assert open_checkpoint(folder).head["labels"] == labels


def test_labels_that_transformers_does_not_write(folder, vocabulary, tmp_path):
    name = "BertForTokenClassification"
    tensors = toy.values(toy.hugging_face_shapes(name, 2))
    toy.write_hugging_face(folder, vocabulary, name, tensors=tensors, id2label=None)
    expected = open_checkpoint(folder)
    write_checkpoint(expected, tmp_path / "ours")
    config = json.loads((tmp_path / "ours/config.json").read_text())
    del config["id2label"], config["label2id"]
    (tmp_path / "ours/config.json").write_text(json.dumps(config))
    assert open_checkpoint(tmp_path / "ours").head == expected.head


def test_thresholds_of_other_labels_do_not_count(folder, vocabulary, tmp_path):
    toy.write_hugging_face(folder, vocabulary, "BertForSequenceClassification")
    opened = open_checkpoint(folder)
    head = {**opened.head, "decision": {"thresholds": [0.1, 0.2]}}
    write_checkpoint(dataclasses.replace(opened, head=head), tmp_path / "ours")
    assert "decision" not in open_checkpoint(tmp_path / "ours").head


def test_decisions_count_for_the_weights_they_were_fitted_for(
    folder, vocabulary, tmp_path, caplog
):
    toy.write_hugging_face(folder, vocabulary, "BertForSequenceClassification")
    write_checkpoint(open_checkpoint(folder), tmp_path / "ours")
    opened = open_checkpoint(tmp_path / "ours")
    attributes = {
        name: getattr(opened, name) for name in ("architecture", "vocabulary")
    }
    directory = ModelDirectory(
        opened.path, **attributes, lowercase=True, head=opened.head, options={}
    )
    directory.write_decision({"thresholds": 0.25})
    write_checkpoint(open_checkpoint(opened.path), tmp_path / "copy")
    copy = open_checkpoint(tmp_path / "copy")
    assert copy.head["decision"]["thresholds"] == 0.25
    assert not caplog.text
    # As save_pretrained of transformers after more training.
    file = tmp_path / "copy/model.safetensors"
    tensors = safetensors.numpy.load_file(file)
    tensors["classifier.bias"] += 1e-6
    safetensors.numpy.save_file(tensors, file)
    assert "decision" not in open_checkpoint(tmp_path / "copy").head
    assert "dropped {'thresholds': 0.25" in caplog.text


def test_dropout_of_the_head(folder, vocabulary, tmp_path):
    name = "BertForSequenceClassification"
    toy.write_hugging_face(folder, vocabulary, name, classifier_dropout=0.0)
    write_checkpoint(open_checkpoint(folder), tmp_path / "ours")
    config = json.loads((tmp_path / "ours/config.json").read_text())
    assert config["classifier_dropout"] == 0
    model = open_checkpoint(tmp_path / "ours").load()
    assert model.get_layer("dropout").rate == 0
    assert model.backbone.embeddings.dropout.rate == 0.1


def test_encoder_with_one_segment(folder, vocabulary, tmp_path, caplog):
    tensors = toy.values(toy.hugging_face_shapes("BertModel"))
    name = "embeddings.token_type_embeddings.weight"
    tensors[name] = tensors[name][:1]
    toy.write_hugging_face(folder, vocabulary, tensors=tensors, type_vocab_size=1)
    write_checkpoint(open_checkpoint(folder), tmp_path / "ours")
    assert "one segment: both texts of a pair" in caplog.text
    tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "ours/tokenizer.json"))
    assert not any(tokenizer.encode("the cat", "on").type_ids)
    config = json.loads((tmp_path / "ours/tokenizer_config.json").read_text())
    assert "token_type_ids" not in config["model_input_names"]
    caplog.clear()
    assert open_checkpoint(tmp_path / "ours").rules.second_segment == 0
    assert not caplog.text


# --- Folders to publish ------------------------------------------------------------


def test_folder_to_publish(tmp_path, tiny_config, vocabulary):
    paths = {
        "init_from": "hf://google-bert/bert-base-uncased",
        "teacher": "../models/teacher/",
        "train_file": "data/train.csv",
        "records": "/mnt/records128,/mnt/records512",
        "size": "/home/me/config.json",
        "lexicon": "/home/me/words.txt",  # Of somebody's own task.
        "output": "models/verdict",
    }
    others = {"text_a": "he/she", "label_separator": "/", "layers": "1,2", "epochs": 3}
    head = {"kind": "classification", "labels": ["a", "b"]}
    directory = model_directory(
        tmp_path / "m", tiny_config, vocabulary, head, options=paths | others
    )
    directory.save_weights(heads.SequenceClassifier(BertBackbone(tiny_config), 2))
    metrics = {"accuracy": 0.75, "f1": 0.5}
    directory.write_metrics({"training": {"score": 0.5}, "dev": metrics})
    (directory.path / "logs").mkdir()
    (directory.path / ".lock").touch()
    convert.main(
        convert.ConvertConfig(
            from_=str(directory.path),
            to=str(tmp_path / "share/verdict"),
            data="stanfordnlp/sst2, our tickets",
        )
    )
    shared = open_checkpoint(tmp_path / "share/verdict")
    assert shared.options == {
        **others,
        "init_from": "hf://google-bert/bert-base-uncased",
        "teacher": "teacher",
        "train_file": "train.csv",
        "records": "records128,records512",
        "size": "config.json",
        "lexicon": "words.txt",
        "output": "verdict",
        "max_sequence_length": 32,
    }
    files = {path.name for path in shared.path.iterdir()}
    assert files == {
        *("README.md", "config.json", "model.safetensors"),
        *("tokenizer.json", "tokenizer_config.json", "vocab.txt"),
    }
    card = huggingface_hub.ModelCard.load(shared.path / "README.md")
    assert card.data.license is None
    assert card.data.base_model == "google-bert/bert-base-uncased"
    assert card.data.datasets == ["stanfordnlp/sst2"]
    assert card.data.pipeline_tag == "text-classification"
    found = {r.metric_type: r.metric_value for r in card.data.eval_results}
    assert found == metrics
    assert "- dev: accuracy 0.75\n" in card.text
    assert "# verdict\n" in card.text
    assert "our tickets" in card.text


def test_card_of_a_folder_of_another_project(folder, vocabulary, tmp_path):
    toy.write_hugging_face(folder, vocabulary)
    write_checkpoint(open_checkpoint(folder), tmp_path / "to")
    card = huggingface_hub.ModelCard.load(tmp_path / "to/README.md")
    assert card.data.base_model == folder.name
    assert card.data.eval_results is None


# --- Heads that are not declared ---------------------------------------------------


@pytest.mark.parametrize(
    ("architectures", "tensors", "chosen", "message"),
    [
        (
            ["BertForSequenceClassificationWithFocalLoss"],
            "BertForSequenceClassification",
            "classification",
            "the class BertForSequenceClassificationWithFocalLoss.*classifier",
        ),
        (None, "BertForTokenClassification", "tagging", r"classifier\.weight"),
    ],
)
def test_head_must_be_chosen(
    folder, vocabulary, architectures, tensors, chosen, message, tmp_path
):
    tensors = toy.values(toy.hugging_face_shapes(tensors))
    toy.write_hugging_face(
        folder, vocabulary, tensors=tensors, architectures=architectures
    )
    checkpoint = open_checkpoint(folder)
    assert checkpoint.load_backbone().count_params()
    with pytest.raises(ValueError, match=f"{message}.*--head=encoder"):
        write_checkpoint(checkpoint, tmp_path / "to")
    for head in (chosen, "encoder"):
        assert open_checkpoint(folder, head=head).head["kind"] == head


def test_head_is_validated(folder, vocabulary, tmp_path):
    toy.write_hugging_face(folder, vocabulary)
    with pytest.raises(ValueError, match="`head` must be one of encoder, pretrainer"):
        open_checkpoint(folder, head="ner")
    write_checkpoint(open_checkpoint(folder), tmp_path / "ours")
    with pytest.raises(
        ValueError, match=r"`head` must not be set, because .* declares"
    ):
        open_checkpoint(tmp_path / "ours", head="encoder")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.float64(1e300), "contains NaN or infinite values"),
        (np.int8(1), "must have floats of at least 16 bits. Received: I8"),
        (ml_dtypes.float8_e4m3fn(1), r"must .* Received: F8_E4M3"),
    ],
)
def test_unusable_values_raise(folder, vocabulary, values, message):
    tensors = toy.values(toy.hugging_face_shapes("BertModel"))
    tensors["pooler.dense.weight"] = np.full((8, 8), values)
    toy.write_hugging_face(folder, vocabulary, tensors=tensors)
    with pytest.raises(ValueError, match=f"pooler.dense.weight {message}"):
        open_checkpoint(folder).read_weights()


def test_vocabularies_must_be_equal(folder, vocabulary):
    toy.write_hugging_face(folder, vocabulary)
    tokenizer = toy.tokenizer_json(vocabulary.tokens)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    tokens = list(vocabulary.tokens)
    tokens[7], tokens[9] = tokens[9], tokens[7]
    Vocabulary(tuple(tokens)).write(folder / "vocab.txt")
    message = f"id 7 is '{tokens[7]}' in vocab.txt, but '{tokens[9]}' in tokenizer.json"
    with pytest.raises(ValueError, match=message):
        open_checkpoint(folder)


def test_damaged_files_raise(folder, vocabulary):
    toy.write_hugging_face(folder, vocabulary)
    weights = folder / "model.safetensors"
    for contents in (
        weights.read_bytes()[:5000],
        b"version https://git-lfs.github.com",
    ):
        weights.write_bytes(contents)
        with pytest.raises(
            ValueError, match=r"model\.safetensors is damaged.*lfs pull"
        ):
            open_checkpoint(folder)


def test_missing_files_and_weights_raise(folder, vocabulary):
    tensors = toy.values(toy.hugging_face_shapes("BertForMaskedLM"))
    del tensors["cls.predictions.bias"]
    toy.write_hugging_face(folder, vocabulary, "BertForMaskedLM", tensors=tensors)
    with pytest.raises(ValueError, match=r"missing \(1\): cls"):
        open_checkpoint(folder)
    (folder / "vocab.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"vocab\.txt"):
        open_checkpoint(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"has no model\.safetensors.*from_tf=True"):
        open_checkpoint(folder)
