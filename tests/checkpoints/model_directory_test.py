# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import json
import resource

import h5py
import keras
import numpy as np
import pytest

import bert_tf
from bert_tf.checkpoints import ModelDirectory
from bert_tf.modeling import (
    BertBackbone,
    BertPretrainer,
    EmbeddingConfig,
    FeatureTagger,
    SentenceEncoder,
)
from bert_tf.text import Vocabulary
from tests.toy.models import randomize_weights


def create(path, config, vocabulary, head=None, **options):
    return ModelDirectory.create(
        path,
        architecture=config,
        vocabulary=vocabulary,
        lowercase=True,
        head=head or {"kind": "pretrainer"},
        options=options,
        defaults={"stride": 1},
        resumable=("output",),
    )


@pytest.fixture
def directory(tmp_path, tiny_config, vocabulary):
    return create(tmp_path / "model", tiny_config, vocabulary, steps=5, output="a")


def test_open_returns_what_create_wrote(directory):
    assert ModelDirectory.open(directory.path) == directory


def test_weights_round_trip(directory, tiny_config):
    model = BertPretrainer(BertBackbone(tiny_config))
    directory.save_weights(model)
    for loaded, weight in zip(
        directory.load_pretrainer().get_weights(), model.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(loaded, weight)
    assert not list(directory.path.glob(".unfinished*"))


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
    nested = keras.Model(encoder.input, keras.layers.Dense(3)(pooled))
    head = {"kind": "classification"}
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
    loaded = ModelDirectory.open(tmp_path / "m").load_sentence_encoder()
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


def test_option_unknown_to_the_earlier_run_has_its_default(
    directory, tiny_config, vocabulary
):
    create(directory.path, tiny_config, vocabulary, steps=5, stride=1)
    with pytest.raises(ValueError, match="stride: 1 before, 2 now"):
        create(directory.path, tiny_config, vocabulary, steps=5, stride=2)


@pytest.mark.parametrize("trained", [True, False])
def test_next_sentence_of_an_earlier_run_is_a_weight(
    tmp_path, tiny_config, vocabulary, trained
):
    create(tmp_path / "m", tiny_config, vocabulary, next_sentence=trained)
    with pytest.raises(ValueError, match=f"weight: {float(trained)} before, 0.5 now"):
        create(tmp_path / "m", tiny_config, vocabulary, next_sentence_weight=0.5)
    weight = float(trained)
    create(tmp_path / "m", tiny_config, vocabulary, next_sentence_weight=weight)


def test_missing_files_raise(directory, tmp_path):
    with pytest.raises(ValueError, match=r"is not a model directory: it has no config"):
        ModelDirectory.open(tmp_path)
    with pytest.raises(ValueError, match=r"has no model\.weights\.h5"):
        directory.load_pretrainer()
    (directory.path / "model.weights.h5").write_bytes(b"half of a file")
    with pytest.raises(ValueError, match="is not a readable HDF5 file"):
        directory.load_pretrainer()


def test_config_that_contradicts_the_vocabulary_raises(directory, vocabulary):
    (directory.path / "vocab.txt").write_text("\n".join(vocabulary.tokens[:-1]))
    with pytest.raises(ValueError, match="has vocabulary size 40"):
        ModelDirectory.open(directory.path)
    (directory.path / "config.json").write_text(json.dumps({"architecture": {}}))
    with pytest.raises(ValueError, match="is not the config of a model directory"):
        ModelDirectory.open(directory.path)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"architecture": 3}, "architecture must have the type dict"),
        ({"head": {"kind": 3}}, "kind must have the type str"),
        ({"tokenizer": {"lowercase": 1}}, "lowercase must have the type bool"),
        ({"architecture": {"hidden_dim": 8}}, "not the fields of BERT"),
    ],
)
def test_invalid_config_raises(directory, edit, message):
    config = json.loads((directory.path / "config.json").read_text())
    (directory.path / "config.json").write_text(json.dumps(config | edit))
    with pytest.raises(ValueError, match=message):
        ModelDirectory.open(directory.path)


def test_config_is_checked_against_the_size_of_the_weights(directory, tiny_config):
    directory.save_weights(BertBackbone(tiny_config))
    config = json.loads((directory.path / "config.json").read_text())
    config["architecture"]["num_layers"] = 10**9
    (directory.path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="is too small for 1000000000 layers"):
        ModelDirectory.open(directory.path)


def test_failed_save_keeps_old_weights(directory, tiny_config):
    model = BertPretrainer(BertBackbone(tiny_config))
    directory.save_weights(model)
    before = (directory.path / "model.weights.h5").read_bytes()
    # A quota. HDF5 would crash the process if it wrote the file.
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            directory.save_weights(model)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (directory.path / "model.weights.h5").read_bytes() == before
    assert not list(directory.path.glob(".unfinished*"))


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
def tagger(tmp_path_factory, tiny_config, vocabulary):
    """Returns a model directory of a `TokenClassifier`, and the model."""
    head = {"kind": "tagging", "labels": ["O", "B", "I"]}
    path = tmp_path_factory.mktemp("tagger")
    directory = create(path, tiny_config, vocabulary, head=head, output="a")
    model = bert_tf.TokenClassifier(BertBackbone(tiny_config), num_tags=3)
    directory.save_weights(model)
    return path, model


def test_head_from_checkpoint(tagger):
    path, model = tagger
    again = bert_tf.TokenClassifier.from_checkpoint(
        path, dtype="mixed_bfloat16", name="mine"
    )
    for loaded, weight in zip(again.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(loaded, weight)
    assert again.name == "mine"
    assert again.backbone.embeddings.compute_dtype == "bfloat16"


@pytest.mark.parametrize(
    ("head", "arguments"),
    [
        (bert_tf.SequenceClassifier, {"num_classes": 2}),
        (bert_tf.ChoiceScorer, {}),
        (bert_tf.SpanPredictor, {}),
        (SentenceEncoder, {"config": EmbeddingConfig(max_sequence_length=8)}),
        (FeatureTagger, {"num_tags": 4, "feature_set": "last", "units": 4}),
    ],
)
def test_head_for_another_task_is_newly_initialized(tagger, caplog, head, arguments):
    path, model = tagger
    again = head.from_checkpoint(path, **arguments)
    for loaded, weight in zip(
        again.backbone.get_weights(), model.backbone.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(loaded, weight)
    new = {w.path.partition("/")[0] for w in again.weights}
    new -= {w.path.partition("/")[0] for w in again.backbone.weights}
    shown = caplog.text.partition("no weights for: ")[2]
    assert all(name in shown for name in new)
    for name in arguments.keys() & {"num_classes", "num_tags", "config"}:
        rest = {k: v for k, v in arguments.items() if k != name}
        with pytest.raises(ValueError, match=f"Pass the argument {name} to"):
            head.from_checkpoint(path, **rest)


def test_head_of_another_size_is_refused(tagger):
    with pytest.raises(ValueError, match=r"\[16, 3\] in .* but \[16, 5\] in the model"):
        bert_tf.TokenClassifier.from_checkpoint(tagger[0], num_tags=5)
    with pytest.raises(ValueError, match="has no pre-training heads"):
        BertPretrainer.from_checkpoint(tagger[0])


def test_two_encoders_fit_into_one_model(tagger):
    query, document = (
        BertBackbone.from_checkpoint(tagger[0], name=name) for name in ("q", "d")
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


def test_keras_files_are_no_checkpoints(tagger, tmp_path):
    tagger[1].save(tmp_path / "film.keras")
    for load in (BertBackbone.from_checkpoint, bert_tf.open_checkpoint):
        with pytest.raises(ValueError, match=r"load_model\('.*film.keras'\) after"):
            load(tmp_path / "film.keras")


def test_weights_file_has_no_optimizer(directory, tiny_config, recwarn):
    model = BertPretrainer(BertBackbone(tiny_config))
    directory.save_weights(model)
    size = (directory.path / "model.weights.h5").stat().st_size
    model.compile("adam")
    model.optimizer.build(model.trainable_variables)
    directory.save_weights(model)
    with h5py.File(directory.path / "model.weights.h5") as file:
        assert "optimizer" not in file
    assert (directory.path / "model.weights.h5").stat().st_size < 1.1 * size
    directory.load_weights(model)
    assert not [w for w in recwarn if "optimizer" in str(w.message)]
