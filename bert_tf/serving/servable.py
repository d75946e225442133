# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Loads versions of exported models and runs their signatures.

Failed requests raise `tf.errors.OpError`, whose error codes are gRPC's.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2
from tensorflow_serving.apis import get_model_metadata_pb2 as metadata_pb2
from tensorflow_serving.apis import get_model_status_pb2 as status_pb2
from tensorflow_serving.apis import model_pb2, predict_pb2, prediction_log_pb2

from bert_tf import cli, lazy, storage
from bert_tf.serving import tensors

lazy.import_tensorflow_text()  # Registers the tokenizer's ops.

# Threads that run ops, for all models. Requests of one short text have separate
# threads, so that they do not wait for large requests. Each thread keeps memory for
# each shape that it has seen, so many threads would need gigabytes.
_THREADS = min(cli.num_cores(), 4)
_POOLS = [
    {"num_threads": _THREADS, "global_name": f"bert_tf_{name}"}
    for name in ("short", "others")
]

# Limit of the bytes of text, or of token ids, in a short request.
_SHORT = 4096

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


def _is_short(array: np.ndarray) -> bool:
    size = sum(map(len, array.flat)) if array.dtype == object else array.size
    return array.shape[:1] == (1,) and size <= _SHORT


@contextlib.contextmanager
def _without_wildcards(path: str) -> Iterator[str]:
    """Yields `path`, or a link to it if TensorFlow would read it as a glob pattern."""
    if storage.is_remote(path) or not re.search(r"[][*?\\]", path):
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(os.path.abspath(path), link := os.path.join(folder, "model"))
        yield link


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
        config = tf.compat.v1.ConfigProto(session_inter_op_thread_pool=_POOLS)
        self._session = tf.compat.v1.Session(graph=tf.Graph(), config=config)
        with self._session.graph.as_default():
            load = tf.compat.v1.saved_model.loader.load
            with _without_wildcards(os.fspath(path)) as folder:
                meta_graph = load(self._session, [tf.saved_model.SERVING], folder)
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
        """Like `run`, with messages. Each tensor must have all of its values."""
        inputs = {}
        for name, proto in request.inputs.items():
            try:
                inputs[name] = tensors.to_array(proto)
            except (ValueError, OverflowError) as error:
                text = f"Input {name!r}: values do not fit dtype and shape: {error}"
                raise invalid(text) from error
        spec = request.model_spec
        outputs = self.run(spec.signature_name, inputs, request.output_filter, seconds)
        protos = {name: tensors.to_proto(array) for name, array in outputs.items()}
        response = predict_pb2.PredictResponse(model_spec=self.spec, outputs=protos)
        response.model_spec.signature_name = spec.signature_name or _DEFAULT
        return response

    def run(
        self,
        name: str,
        inputs: Mapping[str, np.ndarray],
        outputs: Sequence[str] = (),
        seconds: float = 1e6,
    ) -> dict[str, np.ndarray]:
        """Runs a signature on a batch.

        Args:
            name: Name of the signature; "" for `serving_default`.
            inputs: Arrays by name.
            outputs: Names of the outputs to compute; all if empty.
            seconds: The ops are canceled after this time.

        Raises:
            tf.errors.OpError: The request is invalid, or takes too long.
        """
        signature = self.signature(name)
        check_names("inputs", inputs, signature.inputs)
        feeds = {}
        for key, array in inputs.items():
            info, dtype = signature.inputs[key], tf.as_dtype(array.dtype)
            shape = tf.TensorShape(info.tensor_shape)
            if dtype != info.dtype or not shape.is_compatible_with(array.shape):
                raise invalid(
                    f"Input {key!r} must be {tf.as_dtype(info.dtype).name} of shape "
                    f"{shape}. Got {dtype.name} of shape {array.shape}."
                )
            feeds[info.name] = array
        names = list(outputs or signature.outputs)
        if len({*names} & signature.outputs.keys()) < len(names):  # Or duplicates.
            check_names("outputs", names, signature.outputs)
        fetches = [signature.outputs[key].name for key in names]
        options = config_pb2.RunOptions(
            timeout_in_ms=int(1000 * max(seconds, 0.001)),  # 0 would be no limit.
            inter_op_thread_pool=int(not all(map(_is_short, inputs.values()))),
        )
        try:
            values = self._session.run(fetches, feeds, options)
        except tf.errors.OpError as error:
            # Without the name of the node, which means nothing to a client.
            text = error.message.removeprefix("Graph execution error:").strip()
            raise type(error)(None, None, text.partition("\n\t [[")[0]) from error
        # A scalar string is `bytes`. NumPy's string dtypes would strip trailing NULs.
        dtypes = [object if isinstance(value, bytes) else None for value in values]
        return dict(zip(names, map(np.asarray, values, dtypes), strict=True))

    def metadata(
        self, fields: Sequence[str] = ("signature_def",)
    ) -> metadata_pb2.GetModelMetadataResponse:
        if {*fields} != {"signature_def"}:
            raise invalid("The metadata_field must be ['signature_def'].")
        response = metadata_pb2.GetModelMetadataResponse(model_spec=self.spec)
        signatures = metadata_pb2.SignatureDefMap(signature_def=self.signatures)
        response.metadata["signature_def"].Pack(signatures)
        return response

    def status(self) -> status_pb2.GetModelStatusResponse:
        state = {"version": self.version, "state": "AVAILABLE", "status": {}}
        return status_pb2.GetModelStatusResponse(model_version_status=[state])


def find(
    models: Mapping[str, Servable], name: str, version: int | None, label: str = ""
) -> Servable:
    """Returns the served version of a model.

    Args:
        models: The models by name.
        name: The name of the model.
        version: The number of the version; None for any.
        label: A label of a version. This server has none.

    Raises:
        tf.errors.OpError: There is no such model or version.
    """
    if not name:
        raise invalid("The request must name a model in its model_spec.")
    if name not in models:
        raise not_found(f"No model {name!r}. The models are {sorted(models)}.")
    if label:
        raise invalid(f"No version has the label {label!r}: this server has no labels.")
    found = models[name].version
    if version not in (None, found):
        raise not_found(f"Model {name!r} serves version {found} only.")
    return models[name]


def check_model_name(name: str) -> None:
    """Raises ValueError for a name that no folder or path of the REST API can have."""
    if not re.fullmatch("[^/:]+", name) or name in (".", ".."):
        raise ValueError(
            "The name of a served model must be that of a folder, without slashes and "
            f"colons, which REST could not address. Received: {name!r}"
        )


def version_number(folder: str) -> int | None:
    """Returns the number of a version's folder; None if it is not an int64 number."""
    is_number = re.fullmatch("[0-9]{1,19}", folder) and int(folder) < 2**63
    return int(folder) if is_number else None


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
    paths = {version_number(path.split("/")[-2]): path for path in graphs}
    versions = {number: path for number, path in paths.items() if number is not None}
    if not versions:
        raise ValueError(
            f"{base_path} must hold a SavedModel in a folder named by its version, "
            f"such as {base_path}/1. Pass the folder of a model that bert_tf.export "
            "wrote, such as saved_models/sst2."
        )
    version, path = max(versions.items())
    path = os.path.dirname(path)
    try:
        return Servable(name, version, path)
    except Exception as error:  # TensorFlow raises many kinds.
        raise ValueError(f"Cannot load {path}: {error}") from error
