# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Loads versions of exported models and runs their signatures.

Failed requests raise `tf.errors.OpError`, whose error codes are gRPC's.
"""

from __future__ import annotations

import math
import pathlib
import re
from collections.abc import Iterable, Mapping

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 (registers the tokenizer's ops)
from absl import logging
from tensorflow.core.framework import tensor_pb2
from tensorflow.core.protobuf import config_pb2, error_codes_pb2, meta_graph_pb2
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    predict_pb2,
    prediction_log_pb2,
)

DEFAULT_SIGNATURE = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY

_Status = get_model_status_pb2.ModelVersionStatus
_VALUE_FIELDS = {"float32": "float_val", "int32": "int_val", "int64": "int64_val"}

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


def _to_array(name: str, proto: tensor_pb2.TensorProto, dtype: int) -> np.ndarray:
    if proto.dtype != dtype:
        raise invalid(
            f"Input {name!r} must have dtype {tf.as_dtype(dtype).name}. "
            f"Got DataType {proto.dtype}."
        )
    shape = [dim.size for dim in proto.tensor_shape.dim]
    count = sum(len(v) for f, v in proto.ListFields() if f.name.endswith("_val"))
    # `make_ndarray` repeats the last value to fill the shape, so that a request of a
    # few bytes could allocate all memory.
    if min(shape, default=0) < 0 or not (
        proto.tensor_content or count == math.prod(shape)
    ):
        raise invalid(f"Input {name!r} has {count} values, but shape {shape}.")
    try:
        return tf.make_ndarray(proto)
    except (TypeError, ValueError) as error:
        raise invalid(f"Input {name!r} is malformed: {error}") from error


def _to_proto(array: np.ndarray) -> tensor_pb2.TensorProto:
    proto = tf.make_tensor_proto(array)
    field = _VALUE_FIELDS.get(array.dtype.name)
    if field and proto.tensor_content:
        # As in TensorFlow Serving, for clients that read value fields only.
        proto.ClearField("tensor_content")
        getattr(proto, field).extend(array.ravel().tolist())
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

    def __init__(self, name: str, version: int, path: pathlib.Path):
        self.name = name
        self.version = version
        self._session = tf.compat.v1.Session(graph=tf.Graph())
        with self._session.graph.as_default():
            meta_graph = tf.compat.v1.saved_model.loader.load(
                self._session, [tf.saved_model.SERVING], str(path)
            )
        self.signatures = dict(meta_graph.signature_def)
        self.signatures.pop("__saved_model_init_op", None)
        self._callables = {}
        warmup = path / "assets.extra/tf_serving_warmup_requests"
        if warmup.exists():
            for record in tf.data.TFRecordDataset(str(warmup)).as_numpy_iterator():
                log = prediction_log_pb2.PredictionLog.FromString(record)
                if log.HasField("predict_log"):
                    self.predict(log.predict_log.request)

    def signature(self, name: str) -> meta_graph_pb2.SignatureDef:
        if name not in self.signatures:
            names = sorted(self.signatures)
            text = f"Model {self.name!r} has no signature {name!r}. It has {names}."
            raise tf.errors.FailedPreconditionError(None, None, text)
        return self.signatures[name]

    def run(
        self,
        signature: meta_graph_pb2.SignatureDef,
        inputs: Mapping[str, np.ndarray],
        outputs: Iterable[str] = (),
    ) -> dict[str, np.ndarray]:
        """Returns the named outputs, or all, of a signature for a batch of inputs."""
        outputs = list(outputs) or sorted(signature.outputs)
        feeds = {signature.inputs[name].name: inputs[name] for name in inputs}
        fetches = [signature.outputs[name].name for name in outputs]
        key = (tuple(feeds), tuple(fetches))
        if key not in self._callables:
            # `Session.run` takes 0.3 ms more and checks static shapes, which TensorFlow
            # Serving does not.
            options = config_pb2.CallableOptions(feed=feeds, fetch=fetches)
            self._callables[key] = self._session._make_callable_from_options(options)
        values = self._callables[key](*feeds.values())
        # A scalar string is `bytes`, whose trailing NULs `np.asarray` would strip.
        dtypes = (object if isinstance(value, bytes) else None for value in values)
        return dict(zip(outputs, map(np.asarray, values, dtypes), strict=True))

    def predict(
        self, request: predict_pb2.PredictRequest
    ) -> predict_pb2.PredictResponse:
        signature_name = request.model_spec.signature_name or DEFAULT_SIGNATURE
        signature = self.signature(signature_name)
        check_names("inputs", request.inputs, signature.inputs)
        unknown = set(request.output_filter) - set(signature.outputs)
        if unknown:
            check_names("outputs", unknown, signature.outputs)
        inputs = {
            name: _to_array(name, proto, signature.inputs[name].dtype)
            for name, proto in request.inputs.items()
        }
        response = predict_pb2.PredictResponse()
        response.model_spec.name = self.name
        response.model_spec.signature_name = signature_name
        response.model_spec.version.value = self.version
        for name, array in self.run(signature, inputs, request.output_filter).items():
            response.outputs[name].CopyFrom(_to_proto(array))
        return response

    def metadata(self) -> get_model_metadata_pb2.GetModelMetadataResponse:
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        response.model_spec.name = self.name
        response.model_spec.version.value = self.version
        signatures = get_model_metadata_pb2.SignatureDefMap(
            signature_def=self.signatures
        )
        response.metadata["signature_def"].Pack(signatures)
        return response


class Model:
    """Serves the newest version of a model that can be loaded.

    Only one thread calls `poll`. A version is freed after its last request.

    Args:
        name: Name of the model.
        base_path: Folder with one folder per version, named by its number.

    Raises:
        ValueError: The base path is no folder, or no version of it can be loaded.
    """

    def __init__(self, name: str, base_path: pathlib.Path):
        self.name = name
        self.base_path = base_path
        self.servable: Servable | None = None
        self._statuses: dict[int, _Status] = {}
        if base_path.is_dir():
            self.poll()
        if not self.servable:
            errors = [f"\n{s.status.error_message}" for s in self._statuses.values()]
            raise ValueError(
                f"Model {name!r}: {base_path} must hold a SavedModel in a folder named "
                f"by its version, such as {base_path / '1'}.{''.join(errors)}"
            )

    def poll(self) -> None:
        """Loads the newest version, unless it is served or failed to load before.

        Raises:
            OSError: The base path cannot be read.
        """
        found = {
            int(path.name): path
            for path in self.base_path.iterdir()
            if re.fullmatch("[0-9]{1,18}", path.name)
        }
        # A version that failed is tried again after its folder was removed.
        self._statuses = {v: s for v, s in self._statuses.items() if v in found}
        for version in sorted(found, reverse=True):
            status = self._statuses.get(version, _Status())
            if status.state == _Status.AVAILABLE:
                return
            if status.status.error_code:
                continue
            self._set_status(version, _Status.LOADING)
            try:
                servable = Servable(self.name, version, found[version])
            except Exception as error:  # An older version must keep serving.
                text = f"Cannot load {found[version]}: {error}"
                logging.error(text)
                self._set_status(version, _Status.END, text)
            else:
                self._set_status(version, _Status.AVAILABLE)
                self._replace(servable)
                return
        if not found:
            self._replace(None)

    def _replace(self, servable: Servable | None) -> None:
        previous, self.servable = self.servable, servable
        if previous and previous.version in self._statuses:
            self._set_status(previous.version, _Status.END)

    def _set_status(self, version: int, state: int, error: str = "") -> None:
        status = _Status(version=version, state=state)
        status.status.error_message = error
        status.status.error_code = error_codes_pb2.UNKNOWN if error else 0
        # Other threads read the dict, so it is replaced and not changed.
        self._statuses = {**self._statuses, version: status}

    def find(self, version: int | None = None) -> Servable:
        """Returns the served version, which must be `version` unless that is None."""
        servable = self.servable
        if servable and version in (None, servable.version):
            return servable
        served = f"version {servable.version}" if servable else "no version"
        wanted = "any" if version is None else version
        raise not_found(f"Model {self.name!r} serves {served}. Requested: {wanted}.")

    def status(
        self, version: int | None
    ) -> get_model_status_pb2.GetModelStatusResponse:
        """Returns the state of one version, or of all versions in the base path."""
        statuses = sorted(self._statuses.items(), reverse=True)
        chosen = [status for v, status in statuses if version in (None, v)]
        if version is not None and not chosen:
            raise not_found(f"Model {self.name!r} has no version {version}.")
        return get_model_status_pb2.GetModelStatusResponse(model_version_status=chosen)


def find_model(models: Mapping[str, Model], name: str) -> Model:
    if name not in models:
        raise not_found(f"No model {name!r}. The models are {sorted(models)}.")
    return models[name]
