# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Loads versions of exported models and runs their signatures.

Failed requests raise `tf.errors.OpError`, whose error codes are gRPC's.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 (registers the tokenizer's ops)
from tensorflow.core.framework import tensor_pb2
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2
from tensorflow_serving.apis import get_model_metadata_pb2 as metadata_pb2
from tensorflow_serving.apis import get_model_status_pb2 as status_pb2
from tensorflow_serving.apis import model_pb2, predict_pb2, prediction_log_pb2

from bert_tf import storage

# Threads that run ops, per version. With one per core, a large request would keep all
# of them, and single texts would wait until it ends.
_OP_THREADS = 64

# Elements of an input. A small request can have many, because TensorFlow repeats the
# last value if values are missing.
_MAX_ELEMENTS = 1 << 26

# By NumPy's character code of the dtype, the prefix of the field that has the values in
# TensorFlow Serving's responses. Other dtypes are small integers.
_FIELDS = {"O": "string", "?": "bool", "l": "int64", "f": "float", "d": "double"}

_DEFAULT = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY

# TensorFlow warns that session loading is deprecated.
tf.get_logger().addFilter(lambda record: "loader_impl" not in record.getMessage())


def invalid(message: str) -> tf.errors.OpError:
    return tf.errors.InvalidArgumentError(None, None, message)


def check_names(kind: str, given: Iterable[str], expected: Iterable[str]) -> None:
    if sorted(given) != sorted(expected):
        raise invalid(
            f"The {kind} of the signature are {sorted(expected)}. Got {sorted(given)}."
        )


def _to_array(
    name: str, proto: tensor_pb2.TensorProto, info: meta_graph_pb2.TensorInfo
) -> np.ndarray:
    """Converts an input in any form that TensorFlow reads."""
    try:
        dtype = tf.as_dtype(proto.dtype)
        if math.prod(dim.size for dim in proto.tensor_shape.dim) > _MAX_ELEMENTS:
            raise ValueError("The values would fill too much memory.")
        tensor = tf.io.parse_tensor(proto.SerializeToString(), dtype)
    except (TypeError, ValueError, tf.errors.OpError) as error:
        raise invalid(f"Input {name!r}: values do not fit dtype and shape.") from error
    wanted, shape = tf.as_dtype(info.dtype), tf.TensorShape(info.tensor_shape)
    if dtype != wanted or not shape.is_compatible_with(tensor.shape):
        raise invalid(
            f"Input {name!r} must be {wanted.name} of shape {shape}. Got {dtype.name} "
            f"of shape {tensor.shape}."
        )
    return tensor.numpy()


def _to_proto(value: np.ndarray | bytes) -> tensor_pb2.TensorProto:
    # NumPy's string dtypes would strip trailing NULs of a scalar.
    array = np.asarray(value, object if isinstance(value, bytes) else None)
    return tensor_pb2.TensorProto(
        dtype=tf.as_dtype(array.dtype).as_datatype_enum,
        tensor_shape={"dim": [{"size": size} for size in array.shape]},
        **{f"{_FIELDS.get(array.dtype.char, 'int')}_val": array.ravel().tolist()},
    )


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
        self.version = version
        self.spec = model_pb2.ModelSpec(name=name, version={"value": version})
        config = tf.compat.v1.ConfigProto(
            inter_op_parallelism_threads=_OP_THREADS, use_per_session_threads=True
        )
        self._session = tf.compat.v1.Session(graph=tf.Graph(), config=config)
        with self._session.graph.as_default():
            load = tf.compat.v1.saved_model.loader.load
            meta_graph = load(self._session, [tf.saved_model.SERVING], str(path))
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
            text = f"There is no signature {name!r}, only {sorted(self.signatures)}."
            raise tf.errors.FailedPreconditionError(None, None, text)
        return self.signatures[name]

    def predict(
        self, request: predict_pb2.PredictRequest, seconds: float = 1e6
    ) -> predict_pb2.PredictResponse:
        """Runs a signature on a batch. The ops are canceled after `seconds`."""
        name = request.model_spec.signature_name
        signature = self.signature(name)
        check_names("inputs", request.inputs, signature.inputs)
        feeds = {
            signature.inputs[key].name: _to_array(key, proto, signature.inputs[key])
            for key, proto in request.inputs.items()
        }
        names = list(request.output_filter or signature.outputs)
        if not signature.outputs.keys() >= {*names}:
            check_names("outputs", names, signature.outputs)
        fetches = [signature.outputs[key].name for key in names]
        # 0 would be no limit. gRPC gives requests without deadline a larger number.
        milliseconds = int(1000 * min(max(seconds, 0.001), 1e6))
        options = config_pb2.RunOptions(timeout_in_ms=milliseconds)
        try:
            values = self._session.run(fetches, feeds, options)
        except tf.errors.OpError as error:
            # Without the name of the node, which means nothing to a client.
            text = error.message.removeprefix("Graph execution error:").strip()
            raise type(error)(None, None, text.partition("\n\t [[")[0]) from error
        protos = dict(zip(names, map(_to_proto, values), strict=True))
        response = predict_pb2.PredictResponse(model_spec=self.spec, outputs=protos)
        response.model_spec.signature_name = name or _DEFAULT
        return response

    def metadata(self) -> metadata_pb2.GetModelMetadataResponse:
        response = metadata_pb2.GetModelMetadataResponse(model_spec=self.spec)
        signatures = metadata_pb2.SignatureDefMap(signature_def=self.signatures)
        response.metadata["signature_def"].Pack(signatures)
        return response

    def status(self) -> status_pb2.GetModelStatusResponse:
        state = {"version": self.version, "state": "AVAILABLE", "status": {}}
        return status_pb2.GetModelStatusResponse(model_version_status=[state])


def load_newest(name: str, base_path: str | os.PathLike) -> Servable:
    """Loads the newest version of a model.

    Args:
        name: Name of the model.
        base_path: Folder with one folder per version, named by its number. May be
            remote.

    Raises:
        ValueError: There is no version, or the newest cannot be loaded.
    """
    # Without the graph, which exports to a bucket copy last, a version is incomplete.
    graphs = storage.glob("*/saved_model.pb", base_path)
    found = (re.match(r"(.*/([0-9]{1,19}))/saved_model\.pb$", path) for path in graphs)
    versions = {int(match[2]): match[1] for match in found if match}
    if not versions:
        raise ValueError(
            f"{base_path} must hold a SavedModel in a folder named by its version, "
            f"such as {base_path}/1."
        )
    version, path = max(versions.items())
    try:
        return Servable(name, version, path)
    except Exception as error:  # TensorFlow raises many kinds.
        raise ValueError(f"Cannot load {path}: {error}") from error
