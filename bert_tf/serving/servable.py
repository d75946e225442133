# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Loads versions of exported models and runs their signatures.

Failed requests raise `tf.errors.OpError`, whose error codes are gRPC's.
"""

from __future__ import annotations

import os
import re
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 (registers the tokenizer's ops)
from absl import logging
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    predict_pb2,
    prediction_log_pb2,
)

from bert_tf import storage
from bert_tf.serving.tensor_proto import array_to_proto, proto_to_array

_Status = get_model_status_pb2.ModelVersionStatus

# Threads that run ops, per version. With one per core, a large request would keep all
# of them, and single texts would wait until it ends.
_OP_THREADS = 64

# Larger requests run in parts if their rows are independent, so that they can be
# canceled between parts, and need less memory.
_MAX_ROWS = 32

_LONGEST = 1e6  # Seconds. gRPC reports requests without deadline as a larger number.

_DEFAULT = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY

# TensorFlow warns that session loading is deprecated.
tf.get_logger().addFilter(lambda record: "loader_impl" not in record.getMessage())


def invalid(message: str) -> tf.errors.OpError:
    return tf.errors.InvalidArgumentError(None, None, message)


def not_found(message: str) -> tf.errors.OpError:
    return tf.errors.NotFoundError(None, None, message)


def check_names(kind: str, given: Iterable[str], expected: Iterable[str]) -> None:
    if set(given) != set(expected):
        raise invalid(
            f"The {kind} of the signature are {sorted(expected)}. Got {sorted(given)}."
        )


def _check_input(name: str, array: np.ndarray, info: meta_graph_pb2.TensorInfo) -> None:
    """Checks dtype, rank and fixed dimensions of an input."""
    dtype, shape = tf.as_dtype(array.dtype), tf.TensorShape(info.tensor_shape)
    if dtype != info.dtype or not shape.is_compatible_with(array.shape):
        expected = tf.as_dtype(info.dtype).name
        raise invalid(
            f"Input {name!r} must be {expected} of shape {shape}. "
            f"Got {dtype.name} of shape {array.shape}."
        )


def _has_rows(signature: meta_graph_pb2.SignatureDef) -> bool:
    """Returns whether each output has a row per input row, of a size known before."""
    shapes = [tf.TensorShape(x.tensor_shape) for x in signature.outputs.values()]
    return all(x.rank and x[0] is None and x[1:].is_fully_defined() for x in shapes)


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
        seconds: float | None = None,
        is_active: Callable[[], bool] = lambda: True,
    ) -> dict[str, np.ndarray]:
        """Returns the named outputs, or all, of a signature for a batch of inputs.

        Args:
            signature: The signature.
            inputs: Its inputs.
            outputs: Names of outputs.
            seconds: Time after which the ops are canceled; None for no limit.
            is_active: Whether the client still waits. Asked before each part.
        """
        check_names("inputs", inputs, signature.inputs)
        for name, array in inputs.items():
            _check_input(name, array, signature.inputs[name])
        outputs = list(outputs or signature.outputs)
        if len({*outputs}) < len(outputs):
            raise invalid(f"output_filter must not repeat a name. Got {outputs}.")
        if not signature.outputs.keys() >= {*outputs}:
            check_names("outputs", outputs, signature.outputs)
        end = time.monotonic() + min(_LONGEST if seconds is None else seconds, _LONGEST)
        rows = [len(array) for array in inputs.values() if array.ndim == 1]
        parts = range(1)
        if len(rows) == len(inputs) and len({*rows}) == 1 and _has_rows(signature):
            parts = range(0, max(rows[0], 1), _MAX_ROWS)
        results = []
        for start in parts:
            if not is_active():
                raise tf.errors.CancelledError(None, None, "The client canceled.")
            part = inputs
            if len(parts) > 1:
                part = {k: x[start : start + _MAX_ROWS] for k, x in inputs.items()}
            results.append(self._run(signature, part, outputs, end))
        if len(results) == 1:
            return results[0]
        return {k: np.concatenate([r[k] for r in results]) for k in outputs}

    def _run(
        self,
        signature: meta_graph_pb2.SignatureDef,
        inputs: Mapping[str, np.ndarray],
        outputs: Sequence[str],
        end: float,
    ) -> dict[str, np.ndarray]:
        feeds = {signature.inputs[name].name: array for name, array in inputs.items()}
        fetches = [signature.outputs[name].name for name in outputs]
        milliseconds = max(1, int(1000 * (end - time.monotonic())))  # 0 is no limit.
        options = config_pb2.RunOptions(timeout_in_ms=milliseconds)
        try:
            values = self._session.run(fetches, feeds, options)
        except tf.errors.DeadlineExceededError as error:
            text = "The request was canceled at its deadline."
            raise tf.errors.DeadlineExceededError(None, None, text) from error
        except tf.errors.OpError as error:
            # Without the name of the node, which means nothing to a client.
            text = error.message.removeprefix("Graph execution error:").strip()
            text = text.partition("\n\t [[")[0]
            raise type(error)(error.node_def, error.op, text) from error
        except RuntimeError as error:  # `close` was called before.
            raise tf.errors.CancelledError(None, None, str(error)) from error
        # A scalar string is `bytes`, whose trailing NULs `np.asarray` would strip.
        dtypes = (object if isinstance(value, bytes) else None for value in values)
        return dict(zip(outputs, map(np.asarray, values, dtypes), strict=True))

    def close(self) -> None:
        """Cancels the requests in flight; they raise `tf.errors.CancelledError`."""
        self._session.close()

    def predict(
        self, request: predict_pb2.PredictRequest, *limits: Any
    ) -> predict_pb2.PredictResponse:
        """Answers a request. The limits are `seconds` and `is_active` of `run`."""
        name = request.model_spec.signature_name or _DEFAULT
        signature = self.signature(name)
        inputs = {}
        for key, proto in request.inputs.items():
            try:
                inputs[key] = proto_to_array(proto)
            except (TypeError, ValueError, OverflowError) as error:
                raise invalid(f"Input {key!r} is malformed: {error}.") from error
        outputs = self.run(signature, inputs, request.output_filter, *limits)
        return predict_pb2.PredictResponse(
            model_spec={**self._spec, "signature_name": name},
            outputs={
                k: array_to_proto(x, value_fields=True) for k, x in outputs.items()
            },
        )

    def metadata(self) -> get_model_metadata_pb2.GetModelMetadataResponse:
        response = get_model_metadata_pb2.GetModelMetadataResponse(
            model_spec=self._spec
        )
        response.metadata["signature_def"].Pack(
            get_model_metadata_pb2.SignatureDefMap(signature_def=self.signatures)
        )
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
        self._failed: dict[int, _Status] = {}
        self.poll()
        if not self._servable:
            errors = (
                f"\nVersion {version}: {status.status.error_message}"
                for version, status in self._failed.items()
            )
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
            }
            if storage.is_remote(self.base_path):  # Exports upload the graph last.
                graph = tf.saved_model.SAVED_MODEL_FILENAME_PB
                ready = [v for v, p in found.items() if storage.exists(f"{p}/{graph}")]
                found = {version: found[version] for version in ready}
        except OSError as error:
            logging.log_every_n_seconds(logging.ERROR, "%s", 60, error)
            return
        # A version that failed is tried again after its folder was removed.
        self._failed = {v: status for v, status in self._failed.items() if v in found}
        for version in sorted(found.keys() - self._failed.keys(), reverse=True):
            if self._servable and self._servable.version == version:
                return
            try:
                self._servable = Servable(self.name, version, found[version])
                self._loaded.add(self._servable)
                return
            except Exception as error:  # An older version must keep serving.
                logging.error("Cannot load %s: %s", found[version], error)
                cause = {"error_code": tf.errors.UNKNOWN, "error_message": str(error)}
                status = _Status(version=version, state=_Status.END, status=cause)
                self._failed = {**self._failed, version: status}
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

    def status(
        self, version: int | None
    ) -> get_model_status_pb2.GetModelStatusResponse:
        """Returns the states of the served version and of those that failed to load."""
        statuses = dict(self._failed)
        if servable := self._servable:
            statuses[servable.version] = _Status(
                version=servable.version, state=_Status.AVAILABLE, status={}
            )
        if version is not None and version not in statuses:
            raise not_found(f"Model {self.name!r} has no version {version}.")
        numbers = sorted(statuses, reverse=True) if version is None else [version]
        return get_model_status_pb2.GetModelStatusResponse(
            model_version_status=[statuses[number] for number in numbers]
        )


def find_model(models: Mapping[str, Model], name: str) -> Model:
    if not name:
        raise invalid(f"The request names no model. The models are {sorted(models)}.")
    if name not in models:
        raise not_found(f"No model {name!r}. The models are {sorted(models)}.")
    return models[name]
