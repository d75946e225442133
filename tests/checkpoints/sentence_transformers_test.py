# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of sentence-transformers folders.

Golden values: `SentenceTransformer.encode` of version 6.2 with torch 2.13, on folders
of `tests.toy.checkpoints.write_sentence_transformers`.
"""

import json

import numpy as np
import pytest

from bert_tf import serving
from bert_tf.checkpoints import open_checkpoint, write_checkpoint
from tests.toy import checkpoints as toy

pytestmark = pytest.mark.usefixtures("plain_encoder")
H = toy.H
# The second text has more than 8 tokens.
TEXTS = ["the cat sat", "the cat sat on the mat, a b c d e f g"]

PACKAGE = "sentence_transformers"
ENCODER = "sentence_bert_config.json"
MODEL = "config_sentence_transformers.json"

MEAN = {  # The format of versions before 6.
    "word_embedding_dimension": H,
    "pooling_mode_cls_token": False,
    "pooling_mode_mean_tokens": True,
    "pooling_mode_max_tokens": False,
    "pooling_mode_mean_sqrt_len_tokens": False,
}
CLS = {"embedding_dimension": H, "pooling_mode": "cls", "include_prompt": True}
TANH = {"in_features": H, "out_features": 3, "bias": True}
GELU = TANH | {"activation_function": "torch.nn.modules.activation.GELU"}

FOLDERS = [
    pytest.param(
        {"Pooling": MEAN, "Normalize": {}},
        [[0.0935116, 0.5013101, -0.3227752], [-0.1201238, 0.4697656, -0.2278458]],
        id="mean",
    ),
    pytest.param(
        {"Pooling": MEAN, "Dropout": {"dropout": 0.2}, "Dense": GELU},
        [[0.7795442, -0.0634074, -0.0083237], [0.8203837, 0.0741067, -0.0758511]],
        id="mean-dense",
    ),
    pytest.param(
        {"Pooling": CLS, "Dense": TANH, "Normalize": {}},
        [[0.7803958, 0.2564031, 0.5702980], [0.9390900, 0.2285789, 0.2566355]],
        id="cls-dense",
    ),
]


@pytest.mark.parametrize(("modules", "golden"), FOLDERS)
def test_vectors_and_round_trip(tmp_path, vocabulary, modules, golden):
    source = toy.write_sentence_transformers(tmp_path / "a", vocabulary, modules)
    # After the normalization.
    (source / MODEL).write_text('{"truncate_dim": 3, "similarity_fn_name": "dot"}')
    opened = open_checkpoint(source)
    assert opened.head["similarity_fn_name"] == "dot"
    signatures = serving.load_signatures(opened)
    found = signatures["sentence_embedding"](TEXTS)["sentence_embedding"]
    np.testing.assert_allclose(found, golden, rtol=2e-6, atol=2e-6)
    assert write_checkpoint(opened, tmp_path / "b") == []
    back = open_checkpoint(tmp_path / "b")
    assert back.head == opened.head
    (tmp_path / "b/modules.json").rename(tmp_path / "modules.json")  # As AutoModel.
    assert open_checkpoint(tmp_path / "b").head == {"kind": "encoder"}
    toy.assert_equal(back.read_weights(), opened.read_weights())


def test_length_in_the_config_of_the_tokenizer(tmp_path, vocabulary):
    """Version 6 writes it there."""
    config = {"do_lower_case": True, "model_max_length": 9}
    modules = {"Pooling": CLS}
    toy.write_sentence_transformers(tmp_path, vocabulary, modules, tokenizer=config)
    output = {"method": "forward", "method_output_name": "last_hidden_state"}
    output = {"modality_config": {"text": output}}
    (tmp_path / ENCODER).write_text(json.dumps(output))
    assert open_checkpoint(tmp_path).head["max_sequence_length"] == 9


def test_encoder_in_a_folder_of_its_own(tmp_path, vocabulary):
    toy.write_hugging_face(tmp_path / "0_Transformer", vocabulary)
    (tmp_path / "1_Pooling").mkdir()
    paths = ("0_Transformer", "1_Pooling")
    modules = [{"path": path, "type": f"{PACKAGE}.models.{path[2:]}"} for path in paths]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    # CLS-pooled models are often copied without that folder: ddalcu/mlx-serve#116.
    with pytest.raises(ValueError, match="Pooling must have a file 1_Pooling/config"):
        open_checkpoint(tmp_path)
    (tmp_path / "1_Pooling/config.json").write_text("{}")
    head = open_checkpoint(tmp_path).head
    assert (head["pooling"], head["normalize"]) == ("mean", False)


PROMPTS = {"query": "on the ", "passage-2": "a mat"}


def write_with_prompts(folder, vocabulary, **config):
    modules = {"Pooling": MEAN, "Normalize": {}}
    toy.write_sentence_transformers(folder, vocabulary, modules)
    config = {"prompts": PROMPTS, "default_prompt_name": "query", **config}
    (folder / MODEL).write_text(json.dumps(config))
    return folder


# encode(TEXTS, prompt_name=...)[:, 0] of sentence-transformers 6.2.
WITH_PROMPTS = {
    "sentence_embedding": [-0.1292695, -0.1286426],
    "query": [-0.1292695, -0.1286426],
    "passage_2": [0.0056010, -0.2011900],
}


def test_prompts_are_signatures(tmp_path, vocabulary):
    checkpoint = open_checkpoint(write_with_prompts(tmp_path / "a", vocabulary))
    assert f"prompts: {PROMPTS}" in checkpoint.describe()
    write_checkpoint(checkpoint, tmp_path / "b")
    assert open_checkpoint(tmp_path / "b").head == checkpoint.head
    signatures = serving.load_signatures(checkpoint)
    assert signatures["serving_default"] is signatures["sentence_embedding"]
    for name, golden in WITH_PROMPTS.items():
        found = signatures[name](TEXTS)["sentence_embedding"]
        np.testing.assert_allclose(found[:, 0], golden, atol=2e-6)


@pytest.mark.parametrize("names", [["a b", "a-b"], ["ids"], ["metadata"]])
def test_names_of_prompts_must_give_new_signatures(tmp_path, vocabulary, names):
    prompts = dict.fromkeys(names, "on the ")
    write_with_prompts(tmp_path, vocabulary, prompts=prompts, default_prompt_name=None)
    with pytest.raises(ValueError, match=rf"prompt '{names[-1]}' .*Rename the prompt"):
        serving.load_signatures(open_checkpoint(tmp_path))


def test_without_default_no_prompt_is_added(tmp_path, vocabulary):
    prompts = {"query": "Find: ", "document": ""}
    config = {"prompts": prompts, "default_prompt_name": None}
    folder = write_with_prompts(tmp_path / "a", vocabulary, **config)
    signatures = serving.load_signatures(open_checkpoint(folder))
    for name in ("sentence_embedding", "document"):
        found = signatures[name](TEXTS)["sentence_embedding"][:, :3]
        np.testing.assert_allclose(found, FOLDERS[0].values[1], rtol=2e-6, atol=2e-6)
    # Version 6 writes empty prompts for all models.
    empty = {"query": "", "document": ""}
    folder = write_with_prompts(tmp_path / "b", vocabulary, prompts=empty)
    assert "prompts" not in open_checkpoint(folder).head


# --- Cross-encoders ----------------------------------------------------------------


def write_cross_encoder(
    folder, vocabulary, outputs=1, saved=None, modules=("Transformer",), **config
):
    """Writes a folder of version 6 if `saved` is set, else of an earlier version."""
    name = "BertForSequenceClassification"
    tensors = toy.values(toy.hugging_face_shapes(name, outputs))
    config["id2label"] = {str(i): f"l{i}" for i in range(outputs)}
    toy.write_hugging_face(folder, vocabulary, name, tensors=tensors, **config)
    if saved:
        listed = [{"path": "", "type": f"{PACKAGE}.base.modules.{m}"} for m in modules]
        (folder / "modules.json").write_text(json.dumps(listed))
        (folder / MODEL).write_text(json.dumps(saved))
    return folder


OLD, NEW = "sbert_ce_default_activation_function", PACKAGE
IDENTITY = "torch.nn.modules.linear.Identity"
SIGMOID, SOFTMAX, TORCH_TANH = (
    f"torch.nn.modules.activation.{name}" for name in ("Sigmoid", "Softmax", "Tanh")
)
VERSION_6 = {"model_type": "CrossEncoder"}
WITH_TANH = VERSION_6 | {"activation_fn": TORCH_TANH}
PROBABILITIES = [[0.2932369, 0.5056138, 0.2011493], [0.2863838, 0.5153866, 0.1982295]]
SIGMOIDS = [[0.5103560, 0.6424979, 0.4169021], [0.5039728, 0.6464512, 0.4128937]]


@pytest.mark.parametrize(
    ("files", "golden", "activation"),
    [
        ({NEW: {"activation_fn": IDENTITY}}, [0.0414299, 0.0158917], IDENTITY),
        ({"saved": VERSION_6}, [0.5103560, 0.5039728], SIGMOID),
        ({"saved": WITH_TANH}, [0.0414062, 0.0158903], TORCH_TANH),
        ({"outputs": 3, NEW: {"activation_fn": SIGMOID}}, SIGMOIDS, SIGMOID),
        # CrossEncoder.predict(apply_softmax=True)
        ({"outputs": 3, OLD: IDENTITY}, PROBABILITIES, IDENTITY),
        ({"outputs": 3, NEW: {"activation_fn": SOFTMAX}}, PROBABILITIES, SOFTMAX),
    ],
)
def test_scores_equal_cross_encoder(tmp_path, vocabulary, files, golden, activation):
    """Golden values: CrossEncoder.predict of version 6.2."""
    folder = write_cross_encoder(tmp_path / "a", vocabulary, **files)
    checkpoint = open_checkpoint(folder)
    answer = serving.load_signatures(checkpoint)["serving_default"]
    answers = answer(["the cat sat", "a cat"], ["on the mat", "the"])
    name = "score" if np.ndim(golden) == 1 else "probabilities"
    np.testing.assert_allclose(answers[name], golden, atol=2e-6)
    write_checkpoint(checkpoint, tmp_path / "b")
    back = open_checkpoint(tmp_path / "b").head
    assert back | {"labels": 0} == checkpoint.head | {"labels": 0}
    config = json.loads((tmp_path / "b/config.json").read_text())
    assert config[NEW] == {"activation_fn": activation}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({OLD: "my.Activation"}, "activation_fn must be .*='my.Activation'"),
        ({OLD: SOFTMAX}, "single output must be a score.*softmax"),
        ({"saved": VERSION_6, "modules": ["Transformer", "Dense"]}, "mer, Dens"),
        ({"saved": VERSION_6 | {"prompts": PROMPTS}}, "prompts must be null.*query"),
    ],
)
def test_unsupported_cross_encoders_are_named(tmp_path, vocabulary, files, message):
    write_cross_encoder(tmp_path, vocabulary, **files)
    with pytest.raises(ValueError, match=message):
        open_checkpoint(tmp_path)


def dense(**changes):
    return {"Pooling": CLS, "Dense": TANH | changes}


OUTSIDE = [{"path": "../a", "type": "sentence_transformers.models.Pooling"}]
HIDDEN = {"method": "forward", "method_output_name": ["hidden_states", 0]}
HIDDEN = {"modality_config": {"text": HIDDEN}}
MISSING = {"prompts": {"query": "Find: "}, "default_prompt_name": "passage"}


@pytest.mark.parametrize(
    ("modules", "files", "message"),
    [
        ({"Pooling": CLS, "Normalize": {}, "Dense": TANH}, {}, "Normalize, Dense"),
        ({"Pooling": CLS | {"pooling_mode": "lasttoken"}}, {}, "pooling='lasttoken'"),
        ({"Pooling": CLS | {"include_prompt": False}}, {}, "include_prompt must be Tr"),
        (dense(activation_function="my.Act"), {}, "activation_function .*'my.Act'"),
        ({"SpladePooling": {}}, {}, "modules must match .* Transformer, SpladePooling"),
        ({"Pooling": CLS}, {"modules.json": OUTSIDE}, r"in subfolders.*\.\./a"),
        ({"Pooling": CLS}, {ENCODER: {"query_length": 8}}, "query_length must be null"),
        (
            {"Pooling": CLS},
            {ENCODER: HIDDEN},
            "modality_config must be .*hidden_states",
        ),
        ({"Pooling": CLS}, {MODEL: MISSING}, "default_prompt_name must .*'passage'"),
    ],
)
def test_unsupported_settings_are_named(tmp_path, vocabulary, modules, files, message):
    toy.write_sentence_transformers(tmp_path, vocabulary, modules)
    for name, contents in files.items():
        (tmp_path / name).write_text(json.dumps(contents))
    with pytest.raises(ValueError, match=message):
        open_checkpoint(tmp_path)
