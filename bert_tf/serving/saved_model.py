# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Exports graph functions as a SavedModel that stock TensorFlow Serving loads.

Input: `tf.function`s by signature name, see `bert_tf.heads`, or a Keras model of
strings. Output:

    <folder>/<version>/saved_model.pb, variables/
        The model. The graph contains the vocabulary.
    <folder>/<version>/batching_params.pbtxt
        Parameters of TensorFlow Serving's batching, for models whose requests can share
        a batch.
    <folder>/<version>/assets.extra/
        tf_serving_warmup_requests
            Requests that a server runs before it serves the version: one text and
            eight texts for each signature. The export runs them too.
        vocab.txt
            The vocabulary, for reference only.

A version is written to a temporary directory and renamed, so that a server that polls
the folder never loads an incomplete model. Exports to one folder wait for each other.
The graph is checked against the ops that TensorFlow Serving 2.13 to 2.20 support
(`tf_serving_ops.txt`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
from collections.abc import Iterator, Mapping

import keras
import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import prediction_log_pb2

from bert_tf import keras_private, lazy, storage
from bert_tf.checkpoints import Checkpoint
from bert_tf.heads import Signature, signature, string_input
from bert_tf.modeling import BertBackbone
from bert_tf.serving.servable import check_model_name, version_number
from bert_tf.text import Tokenizer

# Rows and tokens of the warm-up requests of a signature. The initialization that slows
# down the first request does not depend on its size.
_WARMUP = ((1, 8), (8, 32))

# Requests of up to 256 rows run in batches of up to 32 (BatchingParameters).
_BATCHING = """\
max_batch_size { value: 256 }
max_execution_batch_size { value: 32 }
enable_large_batch_splitting { value: true }
batch_timeout_micros { value: 2000 }
max_enqueued_batches { value: 100 }
"""


def export_saved_model(
    signatures: Mapping[str, Signature] | keras.Model,
    folder: str | os.PathLike,
    *,
    checkpoint: Checkpoint | None = None,
    version: int = 0,
) -> pathlib.Path | str:
    """Writes `<folder>/<version>/` and returns its path.

    Args:
        signatures: Functions that `signature` decorates, or `tf.function`s with an
            `input_signature` of named inputs, by name. Dimension 0 of all inputs and
            outputs is the batch. The export adds the signature `metadata`: text [N],
            ignored -> json [N] string, a description of the model that includes its
            labels. TensorFlow Serving's REST API and its batching require an input.
            Or a Keras model with a `Tokenizer` and a `BertBackbone`: its signature has
            the names of the input layers and of the layers that return the outputs.
        folder: The folder of the served model, e.g. saved_models/sst2. May be remote.
        checkpoint: The checkpoint that the model comes from; not needed for a Keras
            model.
        version: A positive integer, or 0 for the newest version plus one.

    Raises:
        ValueError: REST cannot address the name of the folder, the version exists or
            is out of range, a signature has no named inputs, the Keras model lacks a
            layer or is not functional, two of its outputs have one name, or stock
            TensorFlow Serving cannot run the model; the message names the op.
        OSError: The folder cannot be written.
    """
    lazy.require_backend("Export", "tensorflow")
    check_model_name(os.path.basename(os.path.abspath(folder)))
    if isinstance(signatures, keras.Model):
        checkpoint = checkpoint or _described(signatures)
        signatures = {"serving_default": _keras_signature(signatures)}
    if checkpoint is None:
        raise ValueError("Functions need `checkpoint`, where their model comes from.")
    local = storage.local_copy(folder, skip=("*",))
    local.mkdir(parents=True, exist_ok=True)
    with storage.exclusive(local, wait=True):
        name = _new_version(os.fspath(folder), version)
        with storage.atomic_path(local / name) as path:
            path.mkdir()
            functions = _save({**signatures, "metadata": _metadata(checkpoint)}, path)
            if _can_batch(functions):
                (path / "batching_params.pbtxt").write_text(_BATCHING, encoding="ascii")
            distinct = _distinct(signatures)
            _make_servable(path, distinct)
            (extra := path / "assets.extra").mkdir()
            checkpoint.vocabulary.write(extra / "vocab.txt")
            max_length = checkpoint.architecture.max_sequence_length
            warmed = {name: signatures[name] for name in distinct.values()}
            _write_warmup(extra / "tf_serving_warmup_requests", warmed, max_length)
    return storage.upload(local / name)


def _described(model: keras.Model) -> Checkpoint:
    """Returns what the `metadata` of a Keras model tells about its layers."""
    layers = [*keras_private.nested_layers(model)]
    tokenizers = [layer for layer in layers if isinstance(layer, Tokenizer)]
    encoders = [layer for layer in layers if isinstance(layer, BertBackbone)]
    if not tokenizers or not encoders or not model.built:
        raise ValueError(
            "The model must have a bert_tf.Tokenizer and a bert_tf.BertBackbone among "
            f"its layers. Received: {', '.join(layer.name for layer in layers)}"
        )
    path, tokenizer = pathlib.Path(model.name), tokenizers[0]
    parts = path, encoders[0].config, tokenizer.vocabulary, tokenizer.lowercase
    return Checkpoint(*parts, {"kind": "keras"}, {}, rules=tokenizer.rules)


def _keras_signature(model: keras.Model) -> Signature:
    """Returns the signature of a functional model.

    The names of inputs and outputs are those of dictionaries, or of the layers.

    Raises:
        ValueError: The model is not functional, or two outputs have the same name.
    """
    if not getattr(model, "inputs", None):
        raise ValueError(f"{model.name} must be a functional model, or Sequential.")
    flat = keras.Model(model.inputs, model.outputs)  # A `Sequential` has no names.
    if isinstance(model, keras.Sequential):
        model = flat
    inputs, outputs = model.input, model.output
    if not isinstance(inputs, Mapping):
        inputs = {x.name: x for x in model.inputs}
    if not isinstance(outputs, Mapping):
        outputs = dict(zip(flat.output_names, flat.outputs, strict=True))
        if len(outputs) < len(flat.outputs):
            raise ValueError(
                "Outputs of one layer must have names: make the outputs of the model a "
                f"dictionary. Received: {flat.output_names}"
            )
    named = keras.Model(inputs, outputs)

    @signature(*(tf.TensorSpec(x.shape, x.dtype, name) for name, x in inputs.items()))
    def serving_default(*tensors):
        return named(dict(zip(inputs, tensors)), training=False)

    return serving_default


def _new_version(folder: str, version: int) -> str:
    if version and version_number(str(version)) is None:
        raise ValueError(f"Versions are from 1 to 2^63 - 1. Received: {version}")
    names = [os.path.basename(path) for path in storage.glob("*", folder)]
    if str(version) in names:
        raise ValueError(
            f"{os.path.join(folder, str(version))} exists, and exports never replace a "
            "version. Choose another --version, or 0 for the newest version plus one."
        )
    numbers = [version_number(name) or 0 for name in names]
    return str(version or max(numbers, default=0) + 1)


def _save(
    signatures: Mapping[str, Signature], path: pathlib.Path
) -> dict[str, tf.types.experimental.ConcreteFunction]:
    functions = {}
    for name, function in signatures.items():
        specs = getattr(function, "input_signature", None)
        if not specs or not all(spec.name for spec in specs):
            raise ValueError(
                f"The signature {name} must have named inputs. Decorate its function "
                f"with `serving.signature`. Received: {function!r}"
            )
        # Plain `tf.function`s do not check the ranks of their inputs.
        functions[name] = signature(*specs)(function).get_concrete_function()
    module = tf.Module()
    # Only variables that the functions use, without an optimizer's, for example.
    used = {id(v): v for function in functions.values() for v in function.variables}
    module.weights = list(used.values())
    with storage.tensorflow_files():  # The disk may be full.
        tf.saved_model.save(module, str(path), signatures=functions)
    return functions


def _can_batch(functions: Mapping[str, tf.types.experimental.ConcreteFunction]) -> bool:
    """Returns whether TensorFlow Serving may join and split requests.

    It concatenates the inputs and, of split requests, the outputs along the batch axis.
    Inputs with other axes of different sizes fail. Outputs are not checked: the values
    would be wrong, or the server would abort. So `serving_default` must have one string
    per row, and no output's width may depend on the strings. With other inputs, such as
    token ids, it depends on their width only, which is the same within a request.
    """

    def reads_texts(function: tf.types.experimental.ConcreteFunction) -> bool:
        specs = tf.nest.flatten(function.structured_input_signature)
        return all(spec.shape.rank == 1 for spec in specs)

    text_functions = list(filter(reads_texts, functions.values()))
    return functions.get("serving_default") in text_functions and all(
        output.shape.rank and output.shape[1:].is_fully_defined()
        for function in text_functions
        for output in function.outputs
    )


def _metadata(checkpoint: Checkpoint) -> Signature:
    metadata = {
        "architecture": dataclasses.asdict(checkpoint.architecture),
        "head": dict(checkpoint.head),
        "lowercase": checkpoint.lowercase,
        "tokenizer_rules": dataclasses.asdict(checkpoint.rules),
        "vocabulary_sha256": checkpoint.vocabulary.fingerprint,
    }

    @signature(string_input("text"))
    def metadata_function(text):
        return {"json": tf.fill(tf.shape(text), json.dumps(metadata))}

    return metadata_function


def _distinct(signatures: Mapping[str, Signature]) -> dict[str, str]:
    """Returns for each signature the first one with the same function."""
    first = {}
    for name, function in signatures.items():
        first.setdefault(id(function), name)
    return {name: first[id(function)] for name, function in signatures.items()}


# --- Op check --------------------------------------------------------------------


def _make_servable(path: pathlib.Path, distinct: Mapping[str, str]) -> None:
    """Makes the graph suit servers, and checks it.

    Signatures with the same function get the same tensors, because a server optimizes
    the graph again for each set of tensors. An attribute that makes old servers log
    errors is removed.

    Args:
        path: Folder of the SavedModel.
        distinct: See `_distinct`.
    """
    file = path / tf.saved_model.SAVED_MODEL_FILENAME_PB
    saved_model = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    meta_graph = saved_model.meta_graphs[0]
    for name, same in distinct.items():
        meta_graph.signature_def[name].CopyFrom(meta_graph.signature_def[same])
    graph = meta_graph.graph_def
    for node in graph.node:
        if node.op == "VarHandleOp":
            # TensorFlow 2.12 does not know the attribute and ignores it with an error.
            node.attr.pop("debug_name", None)
    _check_graph(graph)
    file.write_bytes(saved_model.SerializeToString())
    # The fingerprint of the original graph. Optional.
    (path / "fingerprint.pb").unlink()


def _check_graph(graph: graph_pb2.GraphDef) -> None:
    """Checks that stock TensorFlow Serving 2.13 to 2.20 can run a graph.

    Checks ops and attributes, but not whether the kernels support all dtypes.

    Raises:
        ValueError: The graph contains an unknown op, an op with an unknown attribute,
            or a function that requires XLA, which these servers do not link.
    """
    known = _servable_ops()
    functions, problems = graph.library.function, {}
    for function in functions:
        # `attr[...]` would add an empty value, and other graphs could not call it.
        if (xla := function.attr.get("_XlaMustCompile")) and xla.b:
            problems["jit_compile=True"] = f"function {function.signature.name}"
    for node in itertools.chain(graph.node, *(f.node_def for f in functions)):
        unknown = [] if node.op in known else [f"the op {node.op}"]
        # Attributes with default values are not stored. A leading _ marks optional
        # hints.
        for name in sorted(node.attr):
            if name not in known.get(node.op, node.attr) and not name.startswith("_"):
                unknown.append(f"the attribute {name} of {node.op}")
        problems |= dict.fromkeys(unknown, f"node {node.name}")
    if problems:
        lines = (f"\n  {what} ({where})" for what, where in problems.items())
        raise ValueError(
            "TensorFlow Serving 2.13 to 2.20 cannot run this model. Unsupported:"
            + "".join(lines)
        )


def _servable_ops() -> dict[str, list[str]]:
    """Returns the ops that all supported servers have, with their attributes."""
    path = pathlib.Path(__file__).with_name("tf_serving_ops.txt")
    lines = path.read_text(encoding="ascii").splitlines()
    entries = (line.split() for line in lines if not line.startswith("#"))
    return {op: attributes for op, *attributes in entries}


# --- Warm-up ---------------------------------------------------------------------


def _write_warmup(
    path: pathlib.Path, signatures: Mapping[str, Signature], max_length: int
) -> None:
    """Runs requests and writes them as a TFRecord file of `PredictionLog`.

    A server does not load a model whose warm-up fails. Running the requests here finds
    such a model before it is exported.
    """
    logs = []
    for name, (rows, length) in itertools.product(signatures, _WARMUP):
        inputs = _warmup_inputs(signatures[name], min(length, max_length), rows)
        with _unoptimized():
            signatures[name](*inputs.values())
        protos = {key: tf.make_tensor_proto(x) for key, x in inputs.items()}
        request = {"model_spec": {"signature_name": name}, "inputs": protos}
        logs.append(prediction_log_pb2.PredictionLog(predict_log={"request": request}))
    with storage.tensorflow_files(), tf.io.TFRecordWriter(str(path)) as writer:
        for log in logs:
            writer.write(log.SerializeToString())


@contextlib.contextmanager
def _unoptimized() -> Iterator[None]:
    """Disables graph optimization, which takes longer than a few requests."""
    options = tf.config.optimizer.get_experimental_options()
    disabled = options.get("disable_meta_optimizer", False)
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    try:
        yield
    finally:
        options = {"disable_meta_optimizer": disabled}
        tf.config.optimizer.set_experimental_options(options)


def _warmup_inputs(
    function: Signature, length: int, batch: int
) -> dict[str, np.ndarray]:
    """Returns inputs of a signature with `length` tokens per text.

    Additional dimensions, such as choices, have size 2 if they have none.
    """
    # Every vocabulary has tokens for single letters. [CLS] and [SEP] are added.
    text = " ".join(["[MASK]", *["a"] * (length - 3)]).encode()
    inputs = {}
    for spec in function.input_signature:
        shape = [batch, *(2 if size is None else size for size in spec.shape[1:])]
        if spec.dtype == tf.string:
            value = text
        else:
            # Id 0 is valid for tokens and segments. The padding mask is 1.
            value = int(spec.name == "padding_mask")
            if spec.shape.rank > 1 and spec.shape[-1] is None:
                shape[-1] = length
        inputs[spec.name] = np.full(shape, value, spec.dtype.as_numpy_dtype)
    return inputs
