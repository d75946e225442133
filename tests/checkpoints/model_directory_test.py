# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import dataclasses
import functools
import json

import huggingface_hub
import keras
import numpy as np
import pytest
import safetensors.numpy

import bert_tf
from bert_tf import heads
from bert_tf.checkpoints import open_checkpoint, write_checkpoint
from bert_tf.finetuning import ScoreScale
from bert_tf.heads import (
    EmbeddingConfig,
    FeatureTagger,
    SentenceEncoder,
    SequenceClassifier,
    TokenClassifier,
)
from bert_tf.modeling import BertBackbone, BertConfig, BertPretrainer
from bert_tf.text import TokenizerRules, Vocabulary
from tests.toy import checkpoints as toy
from tests.toy.models import model_directory, randomize_weights

DENSE = {"dense_dim": 3, "dense_activation": "relu"}
EMBEDDING = EmbeddingConfig(
    max_sequence_length=8, pooling="cls", normalize=False, **DENSE
)
HEADS = [
    {"kind": "pretrainer"},
    {"kind": "classification", "problem": "multi_label", "labels": ["b", "a"]},
    {"kind": "classification", "problem": "regression", "pairs": True},
    {"kind": "tagging", "labels": ["O", "B-X", "I-X"]},
    {"kind": "question_answering", "no_answer": True},
    {"kind": "somebody's task", "labels": ["x"], "setting": {"a": [1, None]}},
    {"kind": "classification", "labels": ["b", "a"], "decision": {"thresholds": 0.25}},
    {"kind": "embedding", **dataclasses.asdict(EMBEDDING)},
]


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head["kind"])
def test_open_returns_what_create_wrote(tmp_path, tiny_config, vocabulary, head):
    changes = {"activation": "relu", "dropout": 0.5, "layer_norm_epsilon": 1e-7}
    config = dataclasses.replace(tiny_config, **changes)
    options = {"max_sequence_length": head.get("max_sequence_length", 32)}
    written = model_directory(tmp_path, config, vocabulary, head, options=options)
    opened = open_checkpoint(tmp_path)
    for name in ("architecture", "vocabulary", "lowercase", "head", "options", "rules"):
        assert getattr(opened, name) == getattr(written, name)
    with pytest.raises(ValueError, match="did not reach the first checkpoint"):
        opened.load_backbone()
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(ValueError, match=r"no model\.safetensors\. .* If you trust"):
        open_checkpoint(tmp_path)


def test_weights_of_ours_keep_their_names(tmp_path, tiny_config, vocabulary):
    directory = model_directory(tmp_path / "m", tiny_config, vocabulary, HEADS[5])
    model = FeatureTagger(BertBackbone(tiny_config), 1, "last", 3)
    directory.save_weights(randomize_weights(model))
    written = json.loads((directory.path / "config.json").read_text())
    assert "architectures" not in written
    names = {*safetensors.numpy.load_file(directory.path / "model.safetensors")}
    encoder = toy.hugging_face_shapes("BertForNextSentencePrediction")
    assert {name for name in encoder if name.startswith("bert.")} <= names
    assert "lstm_1/forward_lstm/lstm_cell/kernel" in names
    before = model.get_weights()
    model.set_weights([np.zeros_like(weight) for weight in before])
    directory.load_into(model)
    toy.assert_equal(model.get_weights(), before)
    first = directory.fingerprint()
    assert first == open_checkpoint(directory.path).fingerprint()
    directory.save_weights(randomize_weights(model))
    assert directory.fingerprint() != first


def test_unnamed_layers_of_another_process_match(tmp_path, tiny_config, vocabulary):
    def build():
        encoder = BertBackbone(tiny_config)
        hidden = encoder(encoder.input)["pooled_output"]
        hidden = keras.layers.Dense(3)(keras.layers.Dense(4)(hidden))
        return keras.Model(encoder.input, hidden)

    first, second = randomize_weights(build()), build()
    assert [w.path for w in first.weights] != [w.path for w in second.weights]
    head = {"kind": "mine"}
    directory = model_directory(tmp_path / "m", tiny_config, vocabulary, head)
    directory.save_weights(first)
    directory.load_weights(second)
    toy.assert_equal(first.get_weights(), second.get_weights())
    directory.save_weights(BertBackbone(tiny_config))
    with pytest.raises(ValueError, match="has no weights for dense"):
        directory.load_weights(second)


def test_scores_are_not_standardized_in_the_folder(tmp_path, tiny_config, vocabulary):
    head, scale = {"kind": "classification", "problem": "regression"}, ScoreScale(3, 2)
    directory = model_directory(tmp_path / "m", tiny_config, vocabulary, head)
    model = randomize_weights(SequenceClassifier(BertBackbone(tiny_config), 1))
    inputs = dict.fromkeys(model.backbone.input, np.ones((2, 3), np.int32))
    standardized = model(inputs)
    directory.save_weights(model, scale.restore_weights)
    opened = open_checkpoint(directory.path)
    assert opened.head == head
    opened.load_into(model)
    np.testing.assert_allclose(model(inputs), standardized * 2 + 3, atol=1e-6)
    scale.standardize_layer(model.get_layer("logits"))
    np.testing.assert_allclose(model(inputs), standardized, atol=1e-6)


def test_weights_of_lora_are_added(tmp_path, one_layer, vocabulary):
    model = SequenceClassifier(BertBackbone(one_layer), 2)
    model.backbone.encoder_layers[0].query.enable_lora(2)
    model.backbone.embeddings.token_embedding.enable_lora(2)
    randomize_weights(model)
    model_directory(tmp_path, one_layer, vocabulary, HEADS[1]).save_weights(model)
    again = SequenceClassifier.from_checkpoint(tmp_path)
    inputs = dict.fromkeys(model.input, np.ones([1, 4], np.int32))
    np.testing.assert_allclose(again(inputs), model(inputs), atol=1e-6)


def test_model_that_transformers_changed(tmp_path, tiny_config, vocabulary):
    """transformers keeps the key "bert_tf" when it saves a model of another class."""
    head = {"kind": "classification", "labels": ["a", "b"], "pairs": True}
    parts, options = (tmp_path / "m", tiny_config, vocabulary, head), {"steps": 5}
    directory = model_directory(*parts, options=options)
    directory.save_weights(SequenceClassifier(BertBackbone(tiny_config), 2))
    config = json.loads((directory.path / "config.json").read_text())
    config["architectures"] = ["BertForTokenClassification"]
    (directory.path / "config.json").write_text(json.dumps(config))
    opened = open_checkpoint(directory.path)
    assert opened.head["kind"] == "tagging"
    assert "pairs" not in opened.head
    assert "steps" not in opened.options


def test_resuming_keeps_class_and_decision(tmp_path, tiny_config, vocabulary):
    head = {"kind": "tagging", "labels": ["O", "B-X"]}
    arguments = tmp_path / "m", tiny_config, vocabulary
    model_directory(*arguments)  # Of a command that saved nothing.
    directory = model_directory(*arguments, head)
    model = FeatureTagger(BertBackbone(tiny_config), 2, "last", 3)
    directory.save_weights(model)
    directory.write_decision({"thresholds": 0.75})
    before = (directory.path / "config.json").read_text()
    model_directory(*arguments, head).load_into(model)
    assert (directory.path / "config.json").read_text() == before
    with pytest.raises(ValueError, match="kind: 'tagging' before, 'pretrainer' now"):
        model_directory(*arguments)


def test_google_rules_are_kept_until_tokens_are_added(tmp_path, vocabulary):
    rules = TokenizerRules(split_chinese=False, strip_accents=False)
    config = BertConfig.from_size("tiny", vocabulary.size)
    model_directory(tmp_path, config, vocabulary, {"kind": "encoder"}, rules=rules)
    assert open_checkpoint(tmp_path).rules == rules
    # As `AutoTokenizer.from_pretrained(...).add_tokens(["cat"])` saves it.
    file = tmp_path / "tokenizer_config.json"
    added = {str(vocabulary.ids(["cat"])[0]): {"content": "cat", "special": False}}
    changed = json.loads(file.read_text()) | {"added_tokens_decoder": added}
    file.write_text(json.dumps(changed))
    theirs = open_checkpoint(tmp_path).rules
    assert theirs.library == "tokenizers"
    assert (theirs.split_chinese, theirs.strip_accents) == (False, False)
    assert "cat" in [token.content for token in theirs.added_tokens]


@pytest.fixture(scope="module")
def classifier(tmp_path_factory, tiny_config, vocabulary):
    """Returns a model directory of a `SequenceClassifier`, and the model."""
    head = {"kind": "classification", "labels": ["a", "b", "c"]}
    path = tmp_path_factory.mktemp("classifier")
    directory = model_directory(path, tiny_config, vocabulary, head)
    model = SequenceClassifier(BertBackbone(tiny_config), num_classes=3)
    directory.save_weights(model)
    return path, model


def test_head_from_checkpoint(classifier):
    path, model = classifier
    toy.assert_equal(open_checkpoint(path).load().get_weights(), model.get_weights())
    options = {"dtype": "mixed_bfloat16", "name": "mine"}
    again = SequenceClassifier.from_checkpoint(path, **options)
    toy.assert_equal(again.get_weights(), model.get_weights())
    assert again.name == "mine"
    assert again.backbone.embeddings.compute_dtype == "bfloat16"
    tokenizer = bert_tf.Tokenizer.from_checkpoint(path)
    assert (tokenizer.lowercase, tokenizer.max_sequence_length) == (True, 32)
    assert "uncased" in repr(open_checkpoint(path))


@pytest.mark.parametrize(
    ("head", "arguments", "required"),
    [
        (TokenClassifier, {"num_tags": 2}, "num_tags"),
        (SentenceEncoder, {"config": EMBEDDING}, "config"),
        (FeatureTagger, {"num_tags": 4, "feature_set": "last", "units": 4}, "num_tags"),
    ],
)
def test_head_for_another_task_is_random(classifier, caplog, head, arguments, required):
    path, model = classifier
    again = head.from_checkpoint(path, **arguments)
    toy.assert_equal(again.backbone.get_weights(), model.backbone.get_weights())
    layers, encoder = (
        {w.path.partition("/")[0] for w in x.weights} for x in (again, again.backbone)
    )
    shown = caplog.text.partition("no weights for: ")[2]
    assert all(name in shown for name in layers - encoder)
    rest = {k: v for k, v in arguments.items() if k != required}
    with pytest.raises(ValueError, match=f"Pass .*: '{required}'"):
        head.from_checkpoint(path, **rest)


def test_head_of_another_size_is_refused(classifier):
    with pytest.raises(ValueError, match=r"\[16, 3\] in .* but \[16, 5\] in the model"):
        SequenceClassifier.from_checkpoint(classifier[0], num_classes=5)


# --- Derived checkpoints -----------------------------------------------------------


def test_layers_are_kept(classifier):
    checkpoint = open_checkpoint(classifier[0])
    fewer = checkpoint.keep_layers([2])
    assert fewer.architecture.num_layers == 1
    before, after = checkpoint.read_weights(), fewer.read_weights()
    assert not any(name.startswith("encoder_layer_1") for name in after)
    for name, values in after.items():
        old = before[name.replace("encoder_layer_0/", "encoder_layer_1/")]
        np.testing.assert_array_equal(values, old)
    repeated = checkpoint.keep_layers([1, 2, 1]).load_backbone()
    weight = repeated.encoder_layers[2].query.kernel
    np.testing.assert_array_equal(weight, before["encoder_layer_0/query/kernel"])


def test_new_tokens_are_the_mean_of_their_pieces(tmp_path, tiny_config, vocabulary):
    tokens = list(vocabulary.tokens)
    tokens[5] = "[unused0]"
    directory = model_directory(tmp_path / "a", tiny_config, Vocabulary(tuple(tokens)))
    directory.save_weights(randomize_weights(BertPretrainer(BertBackbone(tiny_config))))
    tokens[5] = "cats"
    checkpoint = open_checkpoint(directory.path)
    extended = checkpoint.extend_vocabulary(Vocabulary((*tokens, "mats", "##dog")))
    assert write_checkpoint(extended, tmp_path / "b") == []
    before = checkpoint.read_weights()
    after = open_checkpoint(tmp_path / "b").read_weights()
    ids = checkpoint.vocabulary.ids
    pieces = {5: ["cat", "##s"], 40: ["mat", "##s"], 41: ["[UNK]"]}
    for name, old in before.items():
        new = after[name]
        if name in ("embeddings/token_embedding/embeddings", "mlm/bias"):
            assert len(new) == 42
            for token, parts in pieces.items():
                mean = old[ids(parts)].mean(axis=0)
                np.testing.assert_allclose(new[token], mean, rtol=1e-5)
            new, old = np.delete(new, [*pieces], axis=0), np.delete(old, 5, axis=0)
        np.testing.assert_array_equal(new, old)


# --- Heads of users --------------------------------------------------------------


@pytest.mark.parametrize("base", heads.HEADS.values(), ids=lambda head: head.kind)
def test_heads_of_users_are_declared_as_themselves(
    tmp_path, one_layer, vocabulary, monkeypatch, base
):
    """transformers and other processes must not use the network of the base class."""
    own = type("OwnHead", (base,), {"kind": "own"})
    settings = {"kind": "own", "labels": ["no", "yes"], "pooling": "cls"}
    monkeypatch.setitem(heads.HEADS, "own", own)
    model_directory(tmp_path, one_layer, vocabulary, settings)
    config = json.loads((tmp_path / "config.json").read_text())
    assert "architectures" not in config
    assert open_checkpoint(tmp_path).head == settings
    monkeypatch.delitem(heads.HEADS, "own")  # As in a process that does not know it.
    assert open_checkpoint(tmp_path).head == settings
    with pytest.raises(ValueError, match="no head of the kind 'own'"):
        bert_tf.load(tmp_path)
    monkeypatch.setitem(heads.HEADS, base.kind, own)
    settings |= {"kind": base.kind, "max_sequence_length": 8}
    with pytest.raises(ValueError, match=f"must be {base.__name__}.* another `kind`"):
        model_directory(tmp_path / "b", one_layer, vocabulary, settings)


# --- Folders of other projects ---------------------------------------------------


@pytest.fixture
def theirs(tmp_path, vocabulary):
    return toy.write_hugging_face(tmp_path / "theirs", vocabulary)


def test_handles_are_downloaded(theirs, tmp_path, monkeypatch):
    def download(repository, allow_patterns, revision):
        assert repository == "somebody/bert"
        assert revision in (None, "refs/pr/1", "v9")
        assert "*.safetensors" in allow_patterns
        if revision == "v9":
            raise FileNotFoundError("Not in the cache.")
        return str(theirs)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    checkpoint = open_checkpoint("hf://somebody/bert")
    assert checkpoint.path == theirs
    pinned = open_checkpoint("hf://somebody/bert@refs/pr/1")
    assert pinned.source == f"hf://somebody/bert@{theirs.name}"
    write_checkpoint(pinned, tmp_path / "kept")
    assert open_checkpoint(tmp_path / "kept").source == pinned.source
    card = (tmp_path / "kept/README.md").read_text()
    assert "base_model: somebody/bert\n" in card
    assert f"Base model: somebody/bert@{theirs.name}." in card
    with pytest.raises(ValueError, match="somebody/bert@v9 cannot be downloaded: Not"):
        open_checkpoint("hf://somebody/bert@v9")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, r"is not .* neither the config"),
        ({"config.json": '{"size": 3}'}, r"is not .* neither the config\.json"),
        ({"config.json": "[3]"}, r"config\.json must contain a JSON object\. "),
        # Folders of PEFT and of SetFit.
        ({"adapter_config.json": ""}, "adapter_config.json is not supported. Merge"),
        ({"model_head.pkl": ""}, "model_head.pkl is not supported. Merge"),
    ],
)
def test_other_folders_are_refused(tmp_path, files, message):
    for name, contents in files.items():
        (tmp_path / name).write_text(contents)
    with pytest.raises(ValueError, match=message):
        open_checkpoint(tmp_path)
    with pytest.raises(ValueError, match=r"There is no checkpoint folder .*missing"):
        open_checkpoint(tmp_path / "missing")


def test_folder_without_weights_is_written_anew(tmp_path, tiny_config, vocabulary):
    create = functools.partial(model_directory, tmp_path, tiny_config, vocabulary)
    create({"kind": "embedding", **dataclasses.asdict(EMBEDDING)})
    assert open_checkpoint(tmp_path).head["kind"] == "embedding"
    head = {"kind": "classification", "labels": ["a", "b"]}
    create(head, options={"epochs": 1}, write=False)  # A worker may be first.
    assert open_checkpoint(tmp_path).head["kind"] == "embedding"
    create(head, options={"epochs": 1})
    assert open_checkpoint(tmp_path).head["kind"] == "classification"


def test_existing_folder_raises_and_failed_write_leaves_nothing(theirs, tmp_path):
    checkpoint = open_checkpoint(theirs)
    with pytest.raises(ValueError, match="theirs already exists"):
        write_checkpoint(checkpoint, theirs)
    broken = dataclasses.replace(checkpoint, vocabulary=None)
    with pytest.raises(AttributeError):
        write_checkpoint(broken, tmp_path / "to")
    assert [path.name for path in tmp_path.iterdir()] == ["theirs"]
