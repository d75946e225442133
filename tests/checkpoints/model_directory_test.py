# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import dataclasses
import json
import resource

import keras
import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

import bert_tf
from bert_tf import checkpoints
from bert_tf.checkpoints import (
    ModelDirectory,
    open_checkpoint,
)
from bert_tf.heads import (
    ChoiceScorer,
    EmbeddingConfig,
    FeatureTagger,
    SentenceEncoder,
    SequenceClassifier,
    SpanPredictor,
    TokenClassifier,
)
from bert_tf.modeling import BertBackbone, BertConfig, BertPretrainer
from bert_tf.text import TokenizerRules, Vocabulary
from tests.toy import checkpoints as toy
from tests.toy.models import randomize_weights


def create(path, config, vocabulary, head=None, **options):
    return ModelDirectory.create(
        path,
        architecture=config,
        vocabulary=vocabulary,
        lowercase=True,
        head=head or {"kind": "pretrainer"},
        options=options,
        resumable=("output",),
    )


@pytest.fixture
def directory(tmp_path, tiny_config, vocabulary):
    return create(tmp_path / "model", tiny_config, vocabulary, steps=5, output="a")


HEADS = [
    {"kind": "encoder"},
    {"kind": "pretrainer"},
    {"kind": "classification", "problem": "classification", "labels": ["b", "a"]},
    {"kind": "classification", "problem": "multi_label", "labels": ["b", "a"]},
    {"kind": "classification", "problem": "regression", "pairs": True},
    {"kind": "tagging", "labels": ["O", "B-X", "I-X"]},
    {"kind": "question_answering", "no_answer": True},
    {"kind": "multiple_choice", "example": {"prompt": ["a"]}},
    {"kind": "somebody's task", "labels": ["x"], "setting": {"a": [1, None]}},
    {"kind": "classification", "labels": ["b", "a"], "decision": {"temperature": 2.5}},
    {
        "kind": "embedding",
        **EmbeddingConfig(
            max_sequence_length=8,
            pooling="mean+cls",
            dense_dim=3,
            dense_bias=False,
            dense_activation="relu",
            normalize=False,
        ).to_dict(),
    },
]


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head["kind"])
def test_open_returns_what_create_wrote(tmp_path, tiny_config, vocabulary, head):
    for config in (
        tiny_config,
        dataclasses.replace(
            tiny_config, activation="relu", dropout=0.5, layer_norm_epsilon=1e-7
        ),
    ):
        path = tmp_path / config.activation
        options = {"max_sequence_length": head.get("max_sequence_length", 32)}
        written = create(path, config, vocabulary, head, output="a", **options)
        opened = open_checkpoint(path)
        names = ("architecture", "vocabulary", "lowercase", "head", "options", "rules")
        for name in names:
            assert getattr(opened, name) == getattr(written, name)
        with pytest.raises(ValueError, match="did not reach the first checkpoint"):
            opened.load_backbone()


@pytest.mark.parametrize(
    ("head", "class_name"),
    zip(
        HEADS,
        [
            "BertModel",
            "BertForPreTraining",
            *["BertForSequenceClassification"] * 3,
            "BertForTokenClassification",
            "BertForQuestionAnswering",
            "BertForMultipleChoice",
            None,
        ],
    ),
    ids=lambda x: x["kind"] if isinstance(x, dict) else str(x),
)
def test_names_and_shapes_are_those_of_transformers(
    tmp_path, tiny_config, vocabulary, head, class_name
):
    """`toy.hugging_face_shapes` lists what transformers 5.23 writes."""
    config = dataclasses.replace(tiny_config, **toy.ARCHITECTURE)
    backbone = BertBackbone(config)
    units = len(head.get("labels", "1"))
    model = {
        "encoder": lambda: backbone,
        "pretrainer": lambda: BertPretrainer(backbone),
        "classification": lambda: SequenceClassifier(backbone, units),
        "tagging": lambda: TokenClassifier(backbone, units),
        "question_answering": lambda: SpanPredictor(backbone),
        "multiple_choice": lambda: ChoiceScorer(backbone),
        "somebody's task": lambda: FeatureTagger(backbone, units, "last", 3),
    }[head["kind"]]()
    directory = create(tmp_path / "m", config, vocabulary, head)
    directory.save_weights(randomize_weights(model))

    written = json.loads((directory.path / "config.json").read_text())
    assert written.get("architectures") == ([class_name] if class_name else None)
    tensors = safetensors.numpy.load_file(directory.path / "model.safetensors")
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    if class_name:
        assert shapes == toy.hugging_face_shapes(class_name, units)
    else:
        encoder = toy.hugging_face_shapes("BertForNextSentencePrediction").items()
        encoder = {k: v for k, v in encoder if k.startswith("bert.")}
        assert encoder.items() <= shapes.items()
        assert shapes["lstm_1/forward_lstm/lstm_cell/kernel"] == (6, 12)
    before = [weight.numpy() for weight in model.weights]
    for weight in model.weights:
        weight.assign(tf.zeros_like(weight))
    directory.load_weights(model)
    is_unused = head["kind"] in ("question_answering", "tagging")
    for weight, value in zip(model.weights, before, strict=True):
        if not is_unused or "pooler" not in weight.path:
            np.testing.assert_array_equal(weight, value)


def test_unnamed_layers_of_another_process_match(tmp_path, tiny_config, vocabulary):
    def build():
        encoder = BertBackbone(tiny_config)
        hidden = encoder(encoder.input)["pooled_output"]
        hidden = keras.layers.Dense(3)(keras.layers.Dense(4)(hidden))
        return keras.Model(encoder.input, hidden)

    first, second = randomize_weights(build()), build()
    assert [w.path for w in first.weights] != [w.path for w in second.weights]
    directory = create(tmp_path / "m", tiny_config, vocabulary, {"kind": "mine"})
    directory.save_weights(first)
    directory.load_weights(second)
    for a, b in zip(first.get_weights(), second.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_scores_are_not_standardized_in_the_folder(tmp_path, tiny_config, vocabulary):
    head = {"kind": "classification", "problem": "regression"}
    scaled = {**head, "mean": 3.0, "deviation": 2.0}
    directory = create(tmp_path / "m", tiny_config, vocabulary, scaled)
    model = randomize_weights(SequenceClassifier(BertBackbone(tiny_config), 1))
    inputs = model.backbone.input
    inputs = {name: np.ones((2, 3), np.int32) for name in inputs}
    standardized = model(inputs)
    directory.save_weights(model)
    opened = open_checkpoint(directory.path)
    assert opened.head == head
    opened.load_into(model)
    np.testing.assert_allclose(model(inputs), standardized * 2 + 3, atol=1e-6)
    checkpoints.standardized(opened, scaled).load_into(model)
    np.testing.assert_allclose(model(inputs), standardized, atol=1e-6)


def test_config_of_ours_in_a_model_that_transformers_changed(
    tmp_path, tiny_config, vocabulary
):
    """transformers keeps the key "bert_tf" when it saves a model of another class."""
    head = {"kind": "classification", "labels": ["a", "b"], "pairs": True}
    directory = create(tmp_path / "m", tiny_config, vocabulary, head, steps=5)
    directory.save_weights(SequenceClassifier(BertBackbone(tiny_config), 2))
    config = json.loads((directory.path / "config.json").read_text())
    config["architectures"] = ["BertForTokenClassification"]
    (directory.path / "config.json").write_text(json.dumps(config))
    opened = open_checkpoint(directory.path)
    assert opened.head["kind"] == "tagging"
    assert "pairs" not in opened.head
    assert "steps" not in opened.options


def test_load_into_returns_missing_layers_and_weights(
    directory, tiny_config, monkeypatch
):
    model = BertPretrainer(BertBackbone(tiny_config))
    weights = {weight.path: weight.numpy() for weight in model.weights}
    for name in ("pooler/bias", "nsp/kernel", "nsp/bias"):
        del weights[name]
    monkeypatch.setattr(ModelDirectory, "read_weights", lambda _: weights)
    assert directory.load_into(model) == ["pooler/bias", "nsp"]


def test_backbone_of_a_fine_tuned_model(tmp_path, tiny_config, vocabulary):
    encoder = BertBackbone(tiny_config)
    pooled = encoder(encoder.input)["pooled_output"]
    logits = keras.layers.Dense(3, name="logits")(pooled)
    nested = keras.Model(encoder.input, logits)
    head = {"kind": "classification", "labels": list("abc")}
    directory = create(tmp_path / "m", tiny_config, vocabulary, head)
    directory.save_weights(nested)
    for loaded, weight in zip(
        directory.load_backbone().get_weights(), encoder.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(loaded, weight)
    with pytest.raises(ValueError, match="is a model for classification"):
        directory.load_pretrainer()


def test_sentence_encoder_round_trip(tmp_path, tiny_config, vocabulary):
    config = EmbeddingConfig(max_sequence_length=8, pooling="cls", dense_dim=3)
    model = randomize_weights(SentenceEncoder(BertBackbone(tiny_config), config))
    head = {"kind": "embedding", **config.to_dict()}
    create(tmp_path / "m", tiny_config, vocabulary, head).save_weights(model)
    loaded = SentenceEncoder.from_checkpoint(tmp_path / "m")
    assert loaded.sentence_embedding.config == config
    for a, b in zip(loaded.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_resumes_with_same_options_and_rejects_others(
    directory, tiny_config, vocabulary
):
    create(directory.path, tiny_config, vocabulary, steps=5, output="b")
    with pytest.raises(ValueError, match="steps: 5 before, 6 now"):
        create(directory.path, tiny_config, vocabulary, steps=6, output="a")
    other = Vocabulary((*vocabulary.tokens[:-1], "dog"))
    with pytest.raises(ValueError, match=r"vocabulary: '\w+' before"):
        create(directory.path, tiny_config, other, steps=5, output="a")


def test_resuming_keeps_class_and_decision(tmp_path, tiny_config, vocabulary):
    head = {"kind": "tagging", "labels": ["O", "B-X"]}
    directory = create(tmp_path / "m", tiny_config, vocabulary, head)
    model = FeatureTagger(BertBackbone(tiny_config), 2, "last", 3)
    directory.save_weights(model)
    directory.write_decision({"temperature": 3.0})
    before = (directory.path / "config.json").read_text()
    create(tmp_path / "m", tiny_config, vocabulary, head).load_weights(model)
    assert (directory.path / "config.json").read_text() == before


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"bert_tf": 3}, "bert_tf must have the type dict"),
        ({"bert_tf": {"head": {"kind": 3}}}, "bert_tf: kind must have the type str"),
        ({"bert_tf": {"head": [], "options": 3}}, "head must have the type dict"),
        ({"bert_tf": {"tokenizer": 3}}, "bert_tf: tokenizer must have the type dict"),
        ({"hidden_size": "x"}, "`hidden_dim` must be a positive integer"),
        ({"architectures": 3}, "architectures must have the type list"),
    ],
)
def test_invalid_config_raises(directory, edit, message):
    config = json.loads((directory.path / "config.json").read_text())
    (directory.path / "config.json").write_text(json.dumps(config | edit))
    with pytest.raises(ValueError, match=message):
        open_checkpoint(directory.path)


def test_failed_save_keeps_old_weights(directory, tiny_config):
    model = BertPretrainer(BertBackbone(tiny_config))
    directory.save_weights(model)
    before = (directory.path / "model.safetensors").read_bytes()
    # A quota. safetensors' own writer would crash the process.
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            directory.save_weights(model)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (directory.path / "model.safetensors").read_bytes() == before
    assert not list(directory.path.glob(".unfinished*"))


def test_google_rules_are_kept_until_tokens_are_added(tmp_path, vocabulary):
    rules = TokenizerRules(split_chinese=False, strip_accents=False)
    config = BertConfig.from_size("tiny", vocabulary.size)
    ModelDirectory.create(
        tmp_path,
        architecture=config,
        vocabulary=vocabulary,
        lowercase=True,
        rules=rules,
        head={"kind": "encoder"},
        options={},
    )
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


@pytest.mark.parametrize("lowercase", [True, False])
def test_tokenizer_from_checkpoint_has_casing_and_length(
    tmp_path, vocabulary, tiny_config, lowercase
):
    path = tmp_path / "model"
    attributes = {"architecture": tiny_config, "vocabulary": vocabulary}
    attributes |= {"lowercase": lowercase, "head": {"kind": "encoder"}, "options": {}}
    ModelDirectory.create(path, **attributes)
    tokenizer = bert_tf.Tokenizer.from_checkpoint(path)
    assert tokenizer.lowercase == lowercase
    assert tokenizer.vocabulary == vocabulary
    assert tokenizer.max_sequence_length == tiny_config.max_sequence_length
    shown = repr(bert_tf.open_checkpoint(path))
    assert "cased" in shown
    assert len(shown) < 300


@pytest.fixture(scope="module")
def classifier(tmp_path_factory, tiny_config, vocabulary):
    """Returns a model directory of a `SequenceClassifier`, and the model."""
    head = {"kind": "classification", "labels": ["a", "b", "c"]}
    path = tmp_path_factory.mktemp("classifier")
    directory = create(path, tiny_config, vocabulary, head=head, output="a")
    model = SequenceClassifier(BertBackbone(tiny_config), num_classes=3)
    directory.save_weights(model)
    return path, model


def test_head_from_checkpoint(classifier):
    path, model = classifier
    again = SequenceClassifier.from_checkpoint(
        path, dtype="mixed_bfloat16", name="mine"
    )
    for loaded, weight in zip(again.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(loaded, weight)
    assert again.name == "mine"
    assert again.backbone.embeddings.compute_dtype == "bfloat16"


@pytest.mark.parametrize(
    ("head", "arguments"),
    [
        (TokenClassifier, {"num_tags": 2}),
        (ChoiceScorer, {}),
        (SpanPredictor, {}),
        (SentenceEncoder, {"config": EmbeddingConfig(max_sequence_length=8)}),
        (FeatureTagger, {"num_tags": 4, "feature_set": "last", "units": 4}),
    ],
)
def test_head_for_another_task_is_random(classifier, caplog, head, arguments):
    path, model = classifier
    again = head.from_checkpoint(path, **arguments)
    for loaded, weight in zip(
        again.backbone.get_weights(), model.backbone.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(loaded, weight)
    new = {w.path.partition("/")[0] for w in again.weights}
    new -= {w.path.partition("/")[0] for w in again.backbone.weights}
    shown = caplog.text.partition("no weights for: ")[2]
    assert all(name in shown for name in new)
    for name in arguments.keys() & {"num_tags", "config"}:
        rest = {k: v for k, v in arguments.items() if k != name}
        with pytest.raises(ValueError, match=f"Pass the argument {name} to"):
            head.from_checkpoint(path, **rest)


def test_head_of_another_size_is_refused(classifier):
    with pytest.raises(ValueError, match=r"\[16, 3\] in .* but \[16, 5\] in the model"):
        SequenceClassifier.from_checkpoint(classifier[0], num_classes=5)
    with pytest.raises(ValueError, match="has no pre-training heads"):
        BertPretrainer.from_checkpoint(classifier[0])


def test_two_encoders_fit_into_one_model(classifier):
    query, document = (
        BertBackbone.from_checkpoint(classifier[0], name=name) for name in ("q", "d")
    )
    inputs = {
        encoder.name: {
            key: keras.Input((None,), dtype="int32", name=f"{encoder.name}_{key}")
            for key in encoder.input
        }
        for encoder in (query, document)
    }
    vectors = [e(inputs[e.name])["pooled_output"] for e in (query, document)]
    model = keras.Model(inputs, keras.layers.Dot(1, normalize=True)(vectors))
    ids = np.array([[2, 7, 8, 3], [2, 9, 3, 0]])
    one = {"token_ids": ids, "segment_ids": 0 * ids, "padding_mask": np.sign(ids)}
    np.testing.assert_allclose(model({"q": one, "d": one}), [[1], [1]], rtol=1e-5)
    other = one | {"token_ids": ids[::-1], "padding_mask": np.sign(ids[::-1])}
    cosines = model({"q": one, "d": other}).numpy()
    np.testing.assert_allclose(cosines, cosines[::-1], rtol=1e-5)
    assert cosines.max() < 1


def test_weights_file_has_no_optimizer(directory, tiny_config):
    model = BertPretrainer(BertBackbone(tiny_config))
    directory.save_weights(model)
    size = (directory.path / "model.safetensors").stat().st_size
    model.compile("adam")
    model.optimizer.build(model.trainable_variables)
    directory.save_weights(model)
    assert (directory.path / "model.safetensors").stat().st_size == size
