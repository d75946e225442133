# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Loads versions of exported models and runs their signatures.

Failed requests raise `tf.errors.OpError`, whose error codes are gRPC's.
"""

from __future__ import annotations

import math
import os
import re
import weakref
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 (registers the tokenizer's ops)
from absl import logging
from tensorflow.core.framework import tensor_pb2
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2
from tensorflow_serving.apis import get_model_metadata_pb2 as metadata_pb2
from tensorflow_serving.apis import get_model_status_pb2 as status_pb2
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

from bert_tf import storage

_Status = status_pb2.ModelVersionStatus

# Threads that run ops, per version. With one per core, a large request would keep all
# of them, and single texts would wait until it ends.
_OP_THREADS = 64

_LONGEST = 1e6  # Seconds. gRPC reports requests without deadline as a larger number.

# Memory that a request may fill by repeating a value.
_MAX_REPEATED_BYTES = 64 << 20

# TensorFlow Serving's responses have numbers in these fields, not in `tensor_content`.
_VALUE_FIELDS = {
    tf.string: "string_val",
    tf.bool: "bool_val",
    tf.int32: "int_val",
    tf.int64: "int64_val",
    tf.float32: "float_val",
    tf.float64: "double_val",
}

_DEFAULT = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY

# TensorFlow warns that session loading is deprecated.
tf.get_logger().addFilter(lambda record: "loader_impl" not in record.getMessage())


def invalid(message: str) -> tf.errors.OpError:
    return tf.errors.InvalidArgumentError(None, None, message)


def not_found(message: str) -> tf.errors.OpError:
    return tf.errors.NotFoundError(None, None, message)


def check_names(kind: str, given: Iterable[str], expected: Iterable[str]) -> None:
    if sorted(given) != sorted(expected):
        raise invalid(
            f"The {kind} of the signature are {sorted(expected)}. Got {sorted(given)}."
        )


def _to_array(name: str, proto: tensor_pb2.TensorProto) -> np.ndarray:
    """Converts an input in any form that TensorFlow reads."""
    try:
        dtype, size = tf.as_dtype(proto.dtype), proto.ByteSize()
        count = math.prod(dim.size for dim in proto.tensor_shape.dim)
        # If values are missing, the last one is repeated. A number has at least a byte.
        given = len(proto.string_val) if dtype == tf.string else size
        if given < count and count * (dtype.size or size) > _MAX_REPEATED_BYTES:
            raise ValueError("The values would fill too much memory.")
        value = tf.io.parse_tensor(proto.SerializeToString(), dtype).numpy()
    except (TypeError, ValueError, tf.errors.OpError) as error:
        text = "the values do not fit the dtype and the shape, or these are invalid."
        raise invalid(f"Input {name!r} is malformed: {text}") from error
    # A scalar string is `bytes`.
    return np.asarray(value, object if isinstance(value, bytes) else None)


def _to_proto(array: np.ndarray) -> tensor_pb2.TensorProto:
    dtype = tf.as_dtype(array.dtype)
    if dtype not in _VALUE_FIELDS:
        return tf.make_tensor_proto(array)
    proto = tensor_pb2.TensorProto(dtype=dtype.as_datatype_enum)
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
    getattr(proto, _VALUE_FIELDS[dtype]).extend(array.ravel().tolist())
    return proto


class Servable:
    """One loaded version of a model.

    The SavedModel runs in a session, on the same executor as in TensorFlow Serving.

    Args:
        name: Name of the model.
        version: Number of the version.
        path: Folder of the SavedModel. Predict requests in its warm-up file are run.

    Raises:
        Exception: TensorFlow cannot load the folder, or a warm-up request fails.
    """

    def __init__(self, name: str, version: int, path: str | os.PathLike):
        self.name = name
        self.version = version
        self._spec = {"name": name, "version": {"value": version}}
        config = tf.compat.v1.ConfigProto(
            inter_op_parallelism_threads=_OP_THREADS, use_per_session_threads=True
        )
        self._session = tf.compat.v1.Session(graph=tf.Graph(), config=config)
        with self._session.graph.as_default():
            meta_graph = tf.compat.v1.saved_model.loader.load(
                self._session, [tf.saved_model.SERVING], str(path)
            )
        self.signatures = dict(meta_graph.signature_def)
        self.signatures.pop("__saved_model_init_op", None)
        warmup = os.path.join(path, "assets.extra/tf_serving_warmup_requests")
        if storage.exists(warmup):
            for record in tf.data.TFRecordDataset(warmup).as_numpy_iterator():
                log = prediction_log_pb2.PredictionLog.FromString(record)
                if log.HasField("predict_log"):
                    self.predict(log.predict_log.request)

    def signature(self, name: str) -> meta_graph_pb2.SignatureDef:
        name = name or _DEFAULT
        if name not in self.signatures:
            names = sorted(self.signatures)
            text = f"Model {self.name!r} has no signature {name!r}. It has {names}."
            raise tf.errors.FailedPreconditionError(None, None, text)
        return self.signatures[name]

    def run(
        self,
        signature: meta_graph_pb2.SignatureDef,
        inputs: Mapping[str, np.ndarray],
        outputs: Sequence[str] = (),
        seconds: float = _LONGEST,
    ) -> dict[str, np.ndarray]:
        """Returns the named outputs, or all, of a signature for a batch of inputs.

        The ops are canceled after `seconds`.
        """
        check_names("inputs", inputs, signature.inputs)
        for name, array in inputs.items():
            info = signature.inputs[name]
            dtype, shape = tf.as_dtype(info.dtype), tf.TensorShape(info.tensor_shape)
            if dtype != array.dtype or not shape.is_compatible_with(array.shape):
                raise invalid(
                    f"Input {name!r} must be {dtype.name} of shape {shape}. Got "
                    f"{tf.as_dtype(array.dtype).name} of shape {array.shape}."
                )
        outputs = outputs or list(signature.outputs)
        if len({*outputs}) < len(outputs):
            raise invalid(f"output_filter must not repeat a name. Got {outputs}.")
        if not signature.outputs.keys() >= {*outputs}:
            check_names("outputs", outputs, signature.outputs)
        feeds = {signature.inputs[name].name: array for name, array in inputs.items()}
        fetches = [signature.outputs[name].name for name in outputs]
        milliseconds = max(1, int(1000 * min(seconds, _LONGEST)))  # 0 is no limit.
        options = config_pb2.RunOptions(timeout_in_ms=milliseconds)
        try:
            values = self._session.run(fetches, feeds, options)
        except tf.errors.OpError as error:
            # Without the name of the node, which means nothing to a client.
            text = error.message.removeprefix("Graph execution error:").strip()
            raise type(error)(None, None, text.partition("\n\t [[")[0]) from error
        except RuntimeError as error:  # `close` was called before.
            raise tf.errors.CancelledError(None, None, str(error)) from error
        # A scalar string is `bytes`, whose trailing NULs `np.asarray` would strip.
        dtypes = (object if isinstance(value, bytes) else None for value in values)
        return dict(zip(outputs, map(np.asarray, values, dtypes), strict=True))

    def close(self) -> None:
        """Cancels the requests in flight; they raise `tf.errors.CancelledError`."""
        self._session.close()

    def predict(
        self, request: predict_pb2.PredictRequest, seconds: float = _LONGEST
    ) -> predict_pb2.PredictResponse:
        name = request.model_spec.signature_name or _DEFAULT
        signature = self.signature(name)
        inputs = {key: _to_array(key, proto) for key, proto in request.inputs.items()}
        arrays = self.run(signature, inputs, list(request.output_filter), seconds)
        outputs = {key: _to_proto(array) for key, array in arrays.items()}
        spec = {**self._spec, "signature_name": name}
        return predict_pb2.PredictResponse(model_spec=spec, outputs=outputs)

    def metadata(self) -> metadata_pb2.GetModelMetadataResponse:
        response = metadata_pb2.GetModelMetadataResponse(model_spec=self._spec)
        signatures = metadata_pb2.SignatureDefMap(signature_def=self.signatures)
        response.metadata["signature_def"].Pack(signatures)
        return response


class Model:
    """Serves the newest version of a model that can be loaded.

    Args:
        name: Name of the model.
        base_path: Folder with one folder per version, named by its number. May be
            remote.

    Raises:
        ValueError: No version can be loaded.
    """

    def __init__(self, name: str, base_path: str | os.PathLike):
        self.name = name
        self.base_path = os.fspath(base_path)
        self._servable: Servable | None = None
        self._loaded: weakref.WeakSet[Servable] = weakref.WeakSet()
        self._errors: dict[int, str] = {}
        self.poll()
        if not self._servable:
            errors = (f"\nVersion {v}: {text}" for v, text in self._errors.items())
            raise ValueError(
                f"Model {name!r}: {base_path} must hold a SavedModel in a folder named "
                f"by its version, such as {base_path}/1.{''.join(errors)}"
            )

    def poll(self) -> None:
        """Loads the newest version, unless it is served or failed to load before.

        Only one thread may call it. Requests in flight keep their version alive.
        """
        try:
            found = {
                int(name): os.path.join(self.base_path, name)
                for name in storage.list_directory(self.base_path)
                if re.fullmatch("[0-9]{1,18}", name)
                # Exports to a bucket upload the graph last.
                and storage.exists(f"{self.base_path}/{name}/saved_model.pb")
            }
        except OSError as error:
            logging.log_every_n_seconds(logging.ERROR, "%s", 60, error)
            return
        # A version that failed is tried again after its folder was removed.
        errors = {v: text for v, text in self._errors.items() if v in found}
        for version in sorted(found.keys() - errors.keys(), reverse=True):
            if self._servable and self._servable.version == version:
                break
            try:
                self._servable = Servable(self.name, version, found[version])
                self._loaded.add(self._servable)
                break
            except Exception as error:  # An older version must keep serving.
                logging.error("Cannot load %s: %s", found[version], error)
                errors[version] = str(error)
        self._errors = errors
        if not found:
            self._servable = None

    def find(self, version: int | None = None) -> Servable:
        """Returns the served version, which must be `version` unless that is None."""
        servable = self._servable
        if servable and version in (None, servable.version):
            return servable
        served = f"version {servable.version}" if servable else "no version"
        wanted = "any" if version is None else version
        raise not_found(f"Model {self.name!r} serves {served}. Requested: {wanted}.")

    def close(self) -> None:
        """Cancels the requests in flight, also those of replaced versions."""
        for servable in list(self._loaded):
            servable.close()

    def status(self, version: int | None) -> status_pb2.GetModelStatusResponse:
        """Returns the states of the served version and of those that failed to load."""
        states = {
            number: (_Status.END, tf.errors.UNKNOWN, text)
            for number, text in self._errors.items()
        }
        if servable := self._servable:
            states[servable.version] = (_Status.AVAILABLE, tf.errors.OK, "")
        if version is not None and version not in states:
            raise not_found(f"Model {self.name!r} has no version {version}.")
        response = status_pb2.GetModelStatusResponse()
        for number, (state, code, text) in sorted(states.items(), reverse=True):
            if version in (None, number):
                cause = {"error_code": code, "error_message": text}
                response.model_version_status.add(
                    version=number, state=state, status=cause
                )
        return response


def find_model(models: Mapping[str, Model], name: str) -> Model:
    if not name:
        raise invalid(f"The request names no model. The models are {sorted(models)}.")
    if name not in models:
        raise not_found(f"No model {name!r}. The models are {sorted(models)}.")
    return models[name]
