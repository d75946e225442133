# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Toy checkpoints in the formats of other projects, with the original weight names.

Each tensor's values are a function of its name. Other projects' code can thus compute
with the same weights; the golden outputs in the tests come from there.
"""

import json
import pathlib
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import safetensors.numpy
import tensorflow as tf
import tokenizers

from bert_tf.checkpoints import Checkpoint
from bert_tf.modeling import BertConfig
from bert_tf.text import Vocabulary

# Two layers, two heads.
V, S, T, H, I = 40, 16, 2, 8, 16  # noqa: E741, as in the code.

CONFIG = {
    "vocab_size": V,
    "hidden_size": H,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": I,
    "max_position_embeddings": S,
    "type_vocab_size": T,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "initializer_range": 0.02,
}

# The fields of `BertConfig` with these sizes.
ARCHITECTURE = {
    "vocabulary_size": V,
    "max_sequence_length": S,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": H,
    "intermediate_dim": I,
}

ENCODER = {"kind": "encoder"}

_IDS = np.array([[2, 10, 20, 30, 3, 39, 3], [2, 11, 4, 3, 0, 0, 0]], np.int32)
INPUTS = {
    "token_ids": _IDS,
    "segment_ids": np.array([[0, 0, 0, 0, 0, 1, 1], [0] * 7], np.int32),
    "padding_mask": (_IDS != 0).astype(np.int32),
}
MASK_POSITIONS = np.array([[1, 2], [2, 0]], np.int32)
PRETRAINER_INPUTS = INPUTS | {
    "mask_positions": MASK_POSITIONS,
    "first_positions": np.zeros((2, 1), np.int32),
}


def encoder(vocabulary: Vocabulary, head: Mapping[str, object] = ENCODER) -> Checkpoint:
    """Returns an encoder without weights."""
    architecture = BertConfig.from_size("tiny", vocabulary.size)
    return Checkpoint(pathlib.Path(), architecture, vocabulary, True, head, {})


def value(name: str, shape: Sequence[int]) -> np.ndarray:
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    x = rng.normal(0, 0.3, shape).astype(np.float32)
    return x + 1 if name.endswith(("gamma", "LayerNorm.weight")) else x


def assert_equal(a: Any, b: Any, **tolerance: float) -> None:
    """Checks that nested dictionaries or lists of arrays are equal.

    That is bit by bit, or within a `tolerance` of `np.testing.assert_allclose`.
    """
    check = np.testing.assert_allclose if tolerance else np.testing.assert_array_equal
    keras.tree.map_structure(lambda x, y: check(x, y, **tolerance), a, b)


def values(shapes: Mapping[str, Sequence[int]]) -> dict[str, np.ndarray]:
    return {name: value(name, shape) for name, shape in shapes.items()}


# --- Hugging Face ----------------------------------------------------------------

# The last parts of names in google-research/bert -> in transformers.
_PARTS = {"beta": "bias", "output_bias": "bias", "bias": "bias"}
_PARTS |= dict.fromkeys(("kernel", "gamma", "output_weights"), "weight")

# Each class: the parts of the pre-trained model that it lacks, and its output layer.
_CLASSES = {
    "BertModel": (("cls.",), ""),
    "BertForPreTraining": ((), ""),
    "BertForMaskedLM": (("bert.pooler", "cls.seq_relationship"), ""),
    "BertForNextSentencePrediction": (("cls.predictions",), ""),
    "BertForSequenceClassification": (("cls.",), "classifier"),
    "BertForMultipleChoice": (("cls.",), "classifier"),
    "BertForTokenClassification": (("bert.pooler", "cls."), "classifier"),
    "BertForQuestionAnswering": (("bert.pooler", "cls."), "qa_outputs"),
}
HUGGING_FACE_CLASSES = tuple(_CLASSES)


def hugging_face_shapes(class_name: str, classes: int = 3) -> dict[str, Sequence[int]]:
    """Returns names and shapes as transformers 5.23 writes them."""
    lacks, layer = _CLASSES[class_name]
    shapes = {}
    for theirs, shape in google_shapes().items():
        stem, _, part = theirs.replace("/layer_", "/layer/").rpartition("/")
        if part not in _PARTS:
            stem, part = theirs, "gamma"  # An embedding.
        weight = f"{stem.replace('/', '.')}.{_PARTS[part]}"
        if not weight.startswith(lacks):
            shapes[weight] = shape[::-1] if part == "kernel" else shape
    if layer:
        sizes = {"BertForMultipleChoice": 1, "BertForQuestionAnswering": 2}
        size = sizes.get(class_name, classes)
        shapes |= {f"{layer}.weight": (size, H), f"{layer}.bias": (size,)}
    prefix = "bert." if class_name == "BertModel" else ""
    return {weight.removeprefix(prefix): shape for weight, shape in shapes.items()}


NORMALIZER = {
    "type": "BertNormalizer",
    "clean_text": True,
    "handle_chinese_chars": True,
    "strip_accents": None,
    "lowercase": True,
}


def tokenizer_json(tokens: Sequence[str], **changes) -> dict:
    """Returns the contents of a tokenizer.json."""
    ids = {token: number for number, token in enumerate(tokens)}
    return json.loads(tokenizers.BertWordPieceTokenizer(ids).to_str()) | changes


def write_hugging_face(
    folder: pathlib.Path,
    vocabulary: Vocabulary,
    class_name: str = "BertModel",
    *,
    tensors: Mapping[str, np.ndarray] | None = None,
    tokenizer: Mapping | None = None,
    **config,
) -> pathlib.Path:
    """Writes `config.json`, `model.safetensors`, `vocab.txt`, `tokenizer_config`."""
    folder.mkdir(parents=True, exist_ok=True)
    if tensors is None:
        tensors = values(hugging_face_shapes(class_name))
    safetensors.numpy.save_file(dict(tensors), folder / "model.safetensors")
    labels = {"0": "no", "1": "maybe", "2": "yes"}
    whole = CONFIG | {"architectures": [class_name], "model_type": "bert"}
    whole |= {"layer_norm_eps": 1e-12, "id2label": labels} | config
    (folder / "config.json").write_text(json.dumps(whole))
    tokenizer = {"do_lower_case": True} if tokenizer is None else tokenizer
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    vocabulary.write(folder / "vocab.txt")
    return folder


def write_sentence_transformers(
    folder: pathlib.Path,
    vocabulary: Vocabulary,
    modules: Mapping[str, Mapping],
    **hugging_face,
) -> pathlib.Path:
    """Writes a BertModel with modules, given the configs of their classes.

    The weights of a module `Dense` have the shapes in its config.
    """
    write_hugging_face(folder, vocabulary, **hugging_face)
    listed = [("", "Transformer")]
    for i, (name, config) in enumerate(modules.items(), start=1):
        listed.append((f"{i}_{name}", name))
        path = folder / f"{i}_{name}"
        path.mkdir()
        (path / "config.json").write_text(json.dumps(config))
        if name == "Dense":
            shapes = {
                "linear.weight": (config["out_features"], config["in_features"]),
                "linear.bias": (config["out_features"],),
            }
            file = path / "model.safetensors"
            safetensors.numpy.save_file(values(shapes), file)
    module = "sentence_transformers.models"
    described = [
        {"idx": i, "name": str(i), "path": path, "type": f"{module}.{name}"}
        for i, (path, name) in enumerate(listed)
    ]
    (folder / "modules.json").write_text(json.dumps(described))
    transformer = {"max_seq_length": 8, "do_lower_case": False}
    (folder / "sentence_bert_config.json").write_text(json.dumps(transformer))
    return folder


# --- Google ----------------------------------------------------------------------


def _dense(name, inputs, outputs):
    return {f"{name}/kernel": (inputs, outputs), f"{name}/bias": (outputs,)}


def _layer_norm(name):
    return {f"{name}/gamma": (H,), f"{name}/beta": (H,)}


def google_shapes() -> dict[str, Sequence[int]]:
    """Returns the variables of run_pretraining.py in google-research/bert."""
    shapes = {
        "bert/embeddings/word_embeddings": (V, H),
        "bert/embeddings/token_type_embeddings": (T, H),
        "bert/embeddings/position_embeddings": (S, H),
        **_layer_norm("bert/embeddings/LayerNorm"),
    }
    for i in range(2):
        layer = f"bert/encoder/layer_{i}"
        for part in ("query", "key", "value"):
            shapes |= _dense(f"{layer}/attention/self/{part}", H, H)
        shapes |= _dense(f"{layer}/attention/output/dense", H, H)
        shapes |= _layer_norm(f"{layer}/attention/output/LayerNorm")
        shapes |= _dense(f"{layer}/intermediate/dense", H, I)
        shapes |= _dense(f"{layer}/output/dense", I, H)
        shapes |= _layer_norm(f"{layer}/output/LayerNorm")
    shapes |= _dense("bert/pooler/dense", H, H)
    shapes |= _dense("cls/predictions/transform/dense", H, H)
    shapes |= _layer_norm("cls/predictions/transform/LayerNorm")
    return shapes | {
        "cls/predictions/output_bias": (V,),
        "cls/seq_relationship/output_weights": (2, H),
        "cls/seq_relationship/output_bias": (2,),
    }


def write_google(
    folder: pathlib.Path,
    vocabulary: Vocabulary,
    tensors: Mapping[str, np.ndarray] | None = None,
    **config,
) -> pathlib.Path:
    """Writes a TensorFlow 1 checkpoint with `bert_config.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = values(google_shapes()) if tensors is None else tensors
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variables = [
            tf.compat.v1.get_variable(name, initializer=x, use_resource=False)
            for name, x in tensors.items()
        ]
        session.run([variable.initializer for variable in variables])
        saver = tf.compat.v1.train.Saver(variables)
        saver.save(session, str(folder / "bert_model.ckpt"))
    (folder / "checkpoint").unlink()
    (folder / "bert_config.json").write_text(json.dumps(CONFIG | config))
    vocabulary.write(folder / "vocab.txt")
    return folder


# --- Model Garden ----------------------------------------------------------------


def model_garden_shapes() -> dict[str, Sequence[int]]:
    """Returns the variables of Model Garden encoders (tf-models-official 2.20)."""
    shapes = {
        "word_embeddings/embeddings": (V, H),
        "position_embedding/embeddings": (S, H),
        "type_embeddings/embeddings": (T, H),
        **_layer_norm("embeddings/layer_norm"),
        **_dense("pooler_transform", H, H),
    }
    for i in range(2):
        layer = f"transformer/layer_{i}"
        shapes |= _layer_norm(f"{layer}/self_attention_layer_norm")
        shapes |= _dense(f"{layer}/intermediate", H, I)
        shapes |= _dense(f"{layer}/output", I, H)
        shapes |= _layer_norm(f"{layer}/output_layer_norm")
        for part in ("query", "key", "value"):
            shapes[f"{layer}/self_attention/{part}/kernel"] = (H, 2, H // 2)
            shapes[f"{layer}/self_attention/{part}/bias"] = (2, H // 2)
        shapes[f"{layer}/self_attention/attention_output/kernel"] = (2, H // 2, H)
        shapes[f"{layer}/self_attention/attention_output/bias"] = (H,)
    return shapes


def write_model_garden(
    folder: pathlib.Path, vocabulary: Vocabulary, prefix: str = ""
) -> pathlib.Path:
    """Writes an object-based checkpoint whose variable names start with `prefix`."""
    folder.mkdir(parents=True, exist_ok=True)
    encoder = tf.Module()
    encoder.layers = [
        tf.Variable(x, name=prefix + name)
        for name, x in values(model_garden_shapes()).items()
    ]
    step = tf.Variable(7, dtype=tf.int64, name="iteration")
    optimizer = tf.Module()
    optimizer.step = step
    checkpoint = tf.train.Checkpoint(model=encoder, optimizer=optimizer)
    checkpoint.save(str(folder / "bert_model.ckpt"))
    (folder / "bert_config.json").write_text(json.dumps(CONFIG))
    vocabulary.write(folder / "vocab.txt")
    return folder
