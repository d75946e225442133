# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Graph functions -> a version folder that stock TensorFlow Serving loads.

In: `tf.function`s by signature name (`bert_tf.signatures`). Out:

    <folder>/<version>/saved_model.pb, variables/
        All that it takes to answer: the vocabulary is in the graph.
    <folder>/<version>/assets.extra/tf_serving_warmup_requests
        What a server asks the model before clients may, of several lengths and batch
        sizes for each signature. It has been answered once when the folder appears.
    <folder>/<version>/assets.extra/example_request.json, example_response.json
        A request for `serving_default` over REST, and what the model answers to it.
    <folder>/<version>/assets.extra/example_request.pb
        The same request for gRPC: a serialized PredictRequest.
    <folder>/<version>/assets.extra/vocab.txt
        For people.

A version is written beside its place and renamed, so that a server that watches the
folder never sees half of one; what a killed export has left there goes with the next
one. It is checked against the ops that TensorFlow Serving 2.13
to 2.20 have (`tf_serving_ops.txt`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import itertools
import json
import os
import pathlib
import shutil
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2, node_def_pb2
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

from bert_tf import storage
from bert_tf.checkpoints.model_directory import ModelDirectory
from bert_tf.serving.signatures import Signature, signature

# Longer and larger requests need no warm-up of their own: what is slow in the first
# request is what does not depend on its size.
_WARMUP_BATCH_SIZES = (1, 8)
_WARMUP_LENGTHS = (8, 32, 128)


def export_saved_model(
    signatures: Mapping[str, Signature],
    folder: str | os.PathLike,
    *,
    directory: ModelDirectory,
    version: int | None = None,
) -> pathlib.Path:
    """Writes `<folder>/<version>/` and returns its path.

    Args:
        signatures: By name, `tf.function`s with an `input_signature` that return
            dictionaries. Batch is dimension 0 of all inputs and outputs. The signature
            `metadata` is added: no input -> json [1], what `directory` says of the
            model, its labels included.
        folder: The folder of the served model, e.g. saved_models/sst2.
        directory: Where the model comes from.
        version: A positive integer; the one after the newest if None.

    Raises:
        ValueError: The version exists, or stock TensorFlow Serving could not load
            the model; the message names the op.
        OSError: The folder cannot be written.
    """
    folder = pathlib.Path(folder)
    final = folder / str(_newest_version(folder) + 1 if version is None else version)
    if final.exists():
        raise ValueError(
            f"{final} exists, and a version is never replaced. Choose another "
            "--version, or 0 for the next one."
        )
    functions = {**signatures, "metadata": _metadata(directory)}
    with _beside(final) as unfinished:
        traced = {
            name: _checked(f).get_concrete_function() for name, f in functions.items()
        }
        module = tf.Module()
        # The variables that the functions use and no others, such as an optimizer's.
        variables = {id(v): v for f in traced.values() for v in f.variables}
        module.weights = list(variables.values())
        tf.saved_model.save(module, str(unfinished), signatures=traced)
        _make_servable(unfinished)
        extra = unfinished / "assets.extra"
        extra.mkdir()
        directory.vocabulary.write(extra / "vocab.txt")
        max_length = directory.architecture.max_sequence_length
        _write_warmup(extra / "tf_serving_warmup_requests", functions, max_length)
        if "serving_default" in functions:
            _write_example(extra, functions["serving_default"], folder.name)
    return final


def _checked(function: Signature) -> Signature:
    """`function`, but inputs of another rank are an error of the request's.

    TensorFlow Serving looks at names and dtypes only, and tf_text's ops read beyond
    the end of a scalar.
    """

    @signature(*function.input_signature)
    def checked(*inputs):
        specs = function.input_signature
        return function(*map(tf.ensure_shape, inputs, [spec.shape for spec in specs]))

    return checked


def _metadata(directory: ModelDirectory) -> Signature:
    metadata = {
        "architecture": dataclasses.asdict(directory.architecture),
        "head": dict(directory.head),
        "lowercase": directory.lowercase,
        "vocabulary_sha256": directory.vocabulary.fingerprint,
    }

    @signature()
    def metadata_function():
        return {"json": tf.constant([json.dumps(metadata)])}

    return metadata_function


# --- Version folders -------------------------------------------------------------


def _newest_version(folder: pathlib.Path) -> int:
    if not folder.exists():
        return 0
    return max((int(p.name) for p in folder.iterdir() if p.name.isdecimal()), default=0)


@contextlib.contextmanager
def _beside(final: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields a folder to fill, which becomes `final` when all went well."""
    is_first = not final.parent.exists()
    # TensorFlow Serving looks only at names that are numbers.
    unfinished = final.with_name(
        f"{storage.TEMPORARY_PREFIX}{uuid.uuid4().hex}-{final.name}"
    )
    _remove_leftovers(final.parent)
    unfinished.mkdir(parents=True)
    with _locked(unfinished):
        try:
            yield unfinished
            unfinished.rename(final)
        except BaseException:
            shutil.rmtree(unfinished)
            if is_first:
                final.parent.rmdir()
            raise


def _remove_leftovers(folder: pathlib.Path) -> None:
    """Removes what killed exports have left. Those under way hold a lock on theirs."""
    for path in folder.glob(f"{storage.TEMPORARY_PREFIX}*"):
        with contextlib.suppress(BlockingIOError), _locked(path):
            shutil.rmtree(path)


@contextlib.contextmanager
def _locked(folder: pathlib.Path) -> Iterator[None]:
    """Holds a lock, which ends with the process however that ends.

    Raises:
        BlockingIOError: Another process holds it.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


# --- What TensorFlow Serving can load --------------------------------------------


@functools.cache
def _servable_ops() -> dict[str, frozenset[str]]:
    """Ops that all promised releases of TensorFlow Serving have, with attributes."""
    path = pathlib.Path(__file__).with_name("tf_serving_ops.txt")
    lines = path.read_text(encoding="ascii").splitlines()
    entries = (line.split() for line in lines if not line.startswith("#"))
    return {op: frozenset(attributes) for op, *attributes in entries}


def check_graph(graph: graph_pb2.GraphDef) -> None:
    """Checks that stock TensorFlow Serving 2.13 to 2.20 can run a graph.

    Ops and attributes are looked at, not whether an old kernel takes every dtype.

    Raises:
        ValueError: An op is not known there, or has an attribute that would be ignored,
            or must be compiled with XLA, which these servers do not do.
    """
    functions = {f.signature.name: f for f in graph.library.function}
    problems = {}
    for name, function in functions.items():
        if function.attr["_XlaMustCompile"].b:
            problems["jit_compile=True"] = f"function {name}"
    for nodes in (graph.node, *(f.node_def for f in functions.values())):
        for node in nodes:
            if node.op not in functions:  # One may be called as if it were an op.
                problems |= dict.fromkeys(_unknown(node), f"node {node.name}")
    if problems:
        lines = (f"\n  {what} ({where})" for what, where in problems.items())
        raise ValueError(
            "TensorFlow Serving 2.13 to 2.20 cannot run this model, which uses"
            + "".join(lines)
        )


def _unknown(node: node_def_pb2.NodeDef) -> list[str]:
    known = _servable_ops().get(node.op)
    if known is None:
        return [f"the op {node.op}"]
    # What has its default value is not written, and a leading _ is but a hint.
    return [
        f"the attribute {name} of {node.op}"
        for name in sorted(node.attr)
        if name not in known and not name.startswith("_")
    ]


def _make_servable(path: pathlib.Path) -> None:
    """Checks the graph, without what old servers would only complain of."""
    file = path / tf.saved_model.SAVED_MODEL_FILENAME_PB
    saved_model = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    graph = saved_model.meta_graphs[0].graph_def
    for node in graph.node:
        if node.op == "VarHandleOp":
            # Newer than TensorFlow 2.12, which ignores it with a line in the error log.
            node.attr.pop("debug_name", None)
    check_graph(graph)
    file.write_bytes(saved_model.SerializeToString())
    # Holds hashes of the file as it was. Nothing needs it.
    (path / "fingerprint.pb").unlink()


# --- Warm-up ---------------------------------------------------------------------


def _write_warmup(
    path: pathlib.Path, signatures: Mapping[str, Signature], max_length: int
) -> None:
    """Writes requests, each as a `PredictionLog`, after trying them.

    A server does not load a model that fails on one of them.
    """
    lengths = sorted({min(length, max_length) for length in _WARMUP_LENGTHS})
    with tf.io.TFRecordWriter(str(path)) as writer:
        for name, function in signatures.items():
            if not function.input_signature:
                continue
            for length, batch in itertools.product(lengths, _WARMUP_BATCH_SIZES):
                inputs = _inputs(name, signatures, batch, length)
                function(*inputs.values())
                log = prediction_log_pb2.PredictionLog()
                request = log.predict_log.request
                request.model_spec.signature_name = name
                for key, value in inputs.items():
                    request.inputs[key].CopyFrom(tf.make_tensor_proto(value))
                writer.write(log.SerializeToString())


def _inputs(
    name: str, signatures: Mapping[str, Signature], batch: int, length: int
) -> dict[str, np.ndarray]:
    """Returns a request for the signature `name`, of `length` tokens in each row.

    What has more dimensions than the rows and their tokens, has two of everything.
    """
    # A letter is one token in any vocabulary, and so is [MASK] where it is asked for.
    text = " ".join(["[MASK]", *["a"] * (length - 3)])  # [CLS] and [SEP] are added.
    inputs = {}
    for spec in signatures[name].input_signature:
        if spec.name == "inputs":  # Serialized examples for Classify or Regress.
            example = tf.train.Example()
            for feature in signatures["serving_default"].input_signature:
                value = example.features.feature[feature.name].bytes_list.value
                value.append(text.encode())
            inputs[spec.name] = np.full(batch, example.SerializeToString(), object)
        elif spec.dtype == tf.string:
            inputs[spec.name] = np.full(
                [batch] + [2] * (spec.shape.rank - 1), text, object
            )
        else:
            # Token 0 of segment 0, which every model has, and no padding.
            value = int(spec.name == "padding_mask")
            shape = [batch] + [2] * (spec.shape.rank - 2) + [length]
            inputs[spec.name] = np.full(shape, value, spec.dtype.as_numpy_dtype)
    return inputs


# --- An example ------------------------------------------------------------------


def _write_example(folder: pathlib.Path, function: Signature, model: str) -> None:
    """Writes a request, for REST and gRPC, and its response, as JSON of REST."""
    request = predict_pb2.PredictRequest()
    request.model_spec.name = model
    inputs = {}
    for spec in function.input_signature:
        value = "An example, with a [MASK] in it."
        for _ in range(spec.shape.rank):
            value = [value]
        inputs[spec.name] = value
        request.inputs[spec.name].CopyFrom(tf.make_tensor_proto(value))
    (folder / "example_request.pb").write_bytes(request.SerializeToString())
    outputs = function(*(tf.constant(value) for value in inputs.values()))
    outputs = {
        name: _jsonable(value.numpy().tolist()) for name, value in outputs.items()
    }
    if len(outputs) == 1:  # The only one comes without its name.
        (outputs,) = outputs.values()
    for name, content in (
        ("example_request.json", {"inputs": inputs}),
        ("example_response.json", {"outputs": outputs}),
    ):
        text = json.dumps(content, indent=2, ensure_ascii=False)
        (folder / name).write_text(text + "\n", encoding="utf-8")


def _jsonable(value: Any) -> Any:
    if isinstance(value, list):
        return [_jsonable(item) for item in value]
    return value.decode() if isinstance(value, bytes) else value
