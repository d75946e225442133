# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""One loaded version of a model, answering TensorFlow Serving's requests.

In: a folder with a SavedModel, and requests as TensorFlow Serving's protos. Out:
responses as TensorFlow Serving's protos. A request that cannot be answered raises
`tf.errors.OpError`, whose codes are those of gRPC.

Codes, messages and rules are those of TensorFlow Serving, so that a client written
against the development server meets nothing new in production.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 (registers the ops of the tokenizer)
from tensorflow.core.framework import tensor_pb2
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2
from tensorflow_serving.apis import (
    classification_pb2,
    input_pb2,
    model_pb2,
    predict_pb2,
    prediction_log_pb2,
    regression_pb2,
)

_DEFAULT_SIGNATURE = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY
_WARMUP_FILE = "assets.extra/tf_serving_warmup_requests"
_MAX_WARMUP_RECORDS = 1000

# The field of a TensorProto that carries the values of a dtype. Numbers could also
# travel as `tensor_content`; TensorFlow Serving answers with these fields, and clients
# without TensorFlow read them.
_VALUE_FIELDS = {
    tf.float32: "float_val",
    tf.float64: "double_val",
    tf.int8: "int_val",
    tf.int16: "int_val",
    tf.int32: "int_val",
    tf.uint8: "int_val",
    tf.uint16: "int_val",
    tf.int64: "int64_val",
    tf.uint32: "uint32_val",
    tf.uint64: "uint64_val",
    tf.bool: "bool_val",
    tf.string: "string_val",
}


def _invalid(message: str) -> tf.errors.OpError:
    return tf.errors.InvalidArgumentError(None, None, message)


# --- Tensors ---------------------------------------------------------------------


def _parse_tensor(alias: str, proto: tensor_pb2.TensorProto) -> np.ndarray:
    shape = proto.tensor_shape
    try:
        if shape.unknown_rank or any(dim.size < 0 for dim in shape.dim):
            raise ValueError(f"not a full shape: {shape}")
        return tf.make_ndarray(proto)
    except (TypeError, ValueError, MemoryError) as error:
        raise _invalid(f"tensor parsing error: {alias}") from error


def _fill_tensor(proto: tensor_pb2.TensorProto, dtype: int, value: np.ndarray) -> None:
    field = _VALUE_FIELDS.get(tf.as_dtype(dtype))
    if field is None:
        proto.CopyFrom(tf.make_tensor_proto(value))
        return
    # A scalar string arrives as `bytes`, which numpy would strip of trailing NULs.
    value = np.asarray(value, dtype=object if field == "string_val" else None)
    proto.dtype = dtype
    for size in value.shape:
        proto.tensor_shape.dim.add(size=size)
    getattr(proto, field).extend(value.ravel().tolist())


def _serialized_examples(request_input: input_pb2.Input) -> np.ndarray:
    """Returns the examples [N] of a classify or regress request, serialized."""
    context, listed = b"", request_input.example_list
    if request_input.HasField("example_list_with_context"):
        listed = request_input.example_list_with_context
        context = listed.context.SerializeToString()
    # Concatenating two serialized protos merges them.
    examples = [context + example.SerializeToString() for example in listed.examples]
    if not examples:
        raise _invalid("Input is empty.")
    return np.array(examples, dtype=object)


# --- One loaded version ----------------------------------------------------------


# TensorFlow discourages sessions in Python, and runs nothing else in its servers.
tf.get_logger().addFilter(lambda record: "loader_impl" not in record.getMessage())


class Servable:
    """One version of a model, loaded and warmed up.

    It is loaded into a session and run by the same C++ executor, from the same graph,
    as in TensorFlow Serving, rather than as `tf.function`s, which check shapes that
    TensorFlow Serving does not.

    Raises:
        tf.errors.OpError, OSError, RuntimeError, ValueError: The folder holds no
            SavedModel that this TensorFlow can run, or its warm-up requests fail.
    """

    def __init__(self, name: str, version: int, path: pathlib.Path):
        self.name = name
        self.version = version
        self._session = tf.compat.v1.Session(graph=tf.Graph())
        with self._session.graph.as_default():
            meta_graph = tf.compat.v1.saved_model.loader.load(
                self._session, [tf.saved_model.SERVING], str(path)
            )
        self.signatures = meta_graph.signature_def
        self._callables = {}
        self._warm_up(path / _WARMUP_FILE)

    def predict(
        self, request: predict_pb2.PredictRequest
    ) -> predict_pb2.PredictResponse:
        key = request.model_spec.signature_name or _DEFAULT_SIGNATURE
        if key not in self.signatures:
            raise tf.errors.FailedPreconditionError(
                None, None, f'Serving signature key "{key}" not found.'
            )
        signature = self.signatures[key]
        _check_inputs(request, signature)
        feeds = {
            signature.inputs[alias].name: _parse_tensor(alias, proto)
            for alias, proto in request.inputs.items()
        }
        aliases = list(request.output_filter) or sorted(signature.outputs)
        _check_output_filter(aliases, signature)
        values = self._run(feeds, [signature.outputs[alias].name for alias in aliases])
        response = predict_pb2.PredictResponse(model_spec=self._spec(key))
        for alias, value in zip(aliases, values, strict=True):
            _fill_tensor(response.outputs[alias], signature.outputs[alias].dtype, value)
        return response

    def classify(
        self, request: classification_pb2.ClassificationRequest
    ) -> classification_pb2.ClassificationResponse:
        key, signature = self._example_signature(request.model_spec, "classification")
        aliases = [a for a in ("classes", "scores") if a in signature.outputs]
        if not aliases or len(signature.outputs) > 2:
            raise _invalid(
                "Expected classification signature outputs to contain at least one of "
                '"classes" or "scores", and at most two. '
                f"Found: {{{','.join(sorted(signature.outputs))}}}"
            )
        outputs = self._run_examples(request.input, signature, aliases)
        for value in outputs.values():
            if value.ndim != 2:
                raise _invalid(
                    "Expected Tensor shape: [batch_size num_classes] but got "
                    f"{list(value.shape)}"
                )
        response = classification_pb2.ClassificationResponse(model_spec=self._spec(key))
        for row in range(len(outputs[aliases[0]])):
            classes = response.result.classifications.add().classes
            for column in range(outputs[aliases[0]].shape[1]):
                chosen = classes.add()
                if "classes" in outputs:
                    chosen.label = outputs["classes"][row, column]
                if "scores" in outputs:
                    chosen.score = outputs["scores"][row, column]
        return response

    def regress(
        self, request: regression_pb2.RegressionRequest
    ) -> regression_pb2.RegressionResponse:
        key, signature = self._example_signature(request.model_spec, "regression")
        if list(signature.outputs) != ["outputs"]:
            raise _invalid(
                'Expected one output Tensor, called "outputs". '
                f"Found: {{{','.join(sorted(signature.outputs))}}}"
            )
        value = self._run_examples(request.input, signature, ["outputs"])["outputs"]
        if value.size != len(value):
            raise _invalid(
                "Expected output Tensor shape to be either [batch_size] or "
                f"[batch_size, 1] but got {list(value.shape)}"
            )
        response = regression_pb2.RegressionResponse(model_spec=self._spec(key))
        for score in value.ravel():
            response.result.regressions.add(value=score)
        return response

    def _spec(self, signature_name: str) -> model_pb2.ModelSpec:
        spec = model_pb2.ModelSpec(name=self.name, signature_name=signature_name)
        spec.version.value = self.version
        return spec

    def _example_signature(
        self, spec: model_pb2.ModelSpec, kind: str
    ) -> tuple[str, meta_graph_pb2.SignatureDef]:
        key = spec.signature_name or _DEFAULT_SIGNATURE
        if key not in self.signatures:
            raise _invalid(f"No signature was found with the name: {key}")
        inputs = self.signatures[key].inputs
        if len(inputs) != 1:
            raise _invalid("Expected one input Tensor.")
        if "inputs" not in inputs:
            raise _invalid(f"No {kind} inputs found in SignatureDef: {key}")
        return key, self.signatures[key]

    def _run_examples(
        self,
        request_input: input_pb2.Input,
        signature: meta_graph_pb2.SignatureDef,
        aliases: Sequence[str],
    ) -> dict[str, np.ndarray]:
        examples = _serialized_examples(request_input)
        values = self._run(
            {signature.inputs["inputs"].name: examples},
            [signature.outputs[alias].name for alias in aliases],
        )
        for value in values:
            if np.shape(value)[:1] != examples.shape:
                raise _invalid(
                    f"Expected an output batch size of {len(examples)}. "
                    f"Got shape: {list(np.shape(value))}"
                )
        return dict(zip(aliases, values, strict=True))

    def _run(
        self, feeds: Mapping[str, np.ndarray], fetches: Sequence[str]
    ) -> list[np.ndarray]:
        key = (tuple(feeds), tuple(fetches))
        if key not in self._callables:
            # Not `Session.run`: it converts feeds and checks them against the static
            # shapes first, which the C++ server does not do, and costs 0.3 ms a call.
            options = config_pb2.CallableOptions(feed=feeds, fetch=fetches)
            self._callables[key] = self._session._make_callable_from_options(options)
        return self._callables[key](*feeds.values())

    def _warm_up(self, path: pathlib.Path) -> None:
        """Answers the recorded requests, so that no user waits for lazy set-up."""
        if not path.exists():
            return
        answer = {
            "predict_log": self.predict,
            "classify_log": self.classify,
            "regress_log": self.regress,
        }
        records = tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
        for count, record in enumerate(records, start=1):
            if count > _MAX_WARMUP_RECORDS:
                raise _invalid(
                    "Number of warmup records exceeds the maximum "
                    f"({_MAX_WARMUP_RECORDS}) at {path}"
                )
            log = prediction_log_pb2.PredictionLog.FromString(record)
            kind = log.WhichOneof("log_type")
            if kind not in answer:
                raise tf.errors.UnimplementedError(
                    None, None, f"Unsupported log_type for warmup: {kind}"
                )
            answer[kind](getattr(log, kind).request)


def _names(aliases: Iterable[str]) -> str:
    return "{" + ",".join(sorted(aliases)) + "}"


def _check_inputs(
    request: predict_pb2.PredictRequest, signature: meta_graph_pb2.SignatureDef
) -> None:
    sent, wanted = set(request.inputs), set(signature.inputs)
    if len(sent) != len(wanted):
        raise _invalid(
            f"input size does not match signature: {len(sent)}!={len(wanted)} "
            f"len({_names(sent)}) != len({_names(wanted)}). "
            f"Sent extra: {_names(sent - wanted)}. "
            f"Missing but required: {_names(wanted - sent)}."
        )
    for alias in sorted(sent - wanted):
        raise _invalid(
            f"input tensor alias not found in signature: {alias}. "
            f"Inputs expected to be in the set {_names(wanted)}."
        )


def _check_output_filter(
    aliases: Sequence[str], signature: meta_graph_pb2.SignatureDef
) -> None:
    for position, alias in enumerate(aliases):
        if alias not in signature.outputs:
            raise _invalid(
                f"output tensor alias not found in signature: {alias} "
                f"Outputs expected to be in the set {_names(signature.outputs)}."
            )
        if alias in aliases[:position]:
            raise _invalid(f"duplicate output tensor alias: {alias}")
