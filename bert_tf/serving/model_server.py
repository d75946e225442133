# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The development server behind `bert_tf.serve`: version folders, gRPC and REST.

In: `ModelConfig`s (name, base path, version policy) as TensorFlow Serving reads them.
Out: `Server`, which answers TensorFlow Serving's PredictionService and ModelService
over gRPC and its REST API. It follows `<base_path>/<version>/` while it runs: the
newest version wins, the old one stays until the newer one is ready, and one that fails
to load is reported and not tried again until its folder has been away.
"""

from __future__ import annotations

import os
import pathlib
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent import futures
from types import MappingProxyType
from typing import Any

import grpc
import tensorflow as tf
from absl import logging
from google.protobuf import message
from tensorflow.core.protobuf import error_codes_pb2
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_pb2,
    model_service_pb2_grpc,
    prediction_service_pb2_grpc,
)
from tensorflow_serving.config import model_server_config_pb2

from bert_tf.serving import rest, servable

_Status = get_model_status_pb2.ModelVersionStatus
_GRPC_CODES = {code.value[0]: code for code in grpc.StatusCode}
_MAX_ERROR_LENGTH = 1024  # TensorFlow Serving's limit; longer texts are cut.


def _not_found(text: str) -> tf.errors.OpError:
    return tf.errors.NotFoundError(None, None, text)


def _invalid(text: str) -> tf.errors.OpError:
    return tf.errors.InvalidArgumentError(None, None, text)


# --- Versions --------------------------------------------------------------------


class Model:
    """The versions of one model: which are on disk, which are loaded.

    `poll` is called by one thread. The dicts are replaced, never changed, so that any
    thread may read them.
    """

    def __init__(self, model_config: model_server_config_pb2.ModelConfig):
        self.config = model_config
        self.servables: dict[int, servable.Servable] = {}
        self.statuses: dict[int, _Status] = {}
        self._attempted: set[int] = set()

    def poll(self) -> None:
        """Loads what the version policy now wants and drops what it no longer wants.

        Raises:
            OSError: The base path cannot be read.
        """
        wanted = self._wanted()
        self._attempted &= wanted.keys()
        for version in sorted(wanted.keys() - self._attempted, reverse=True):
            self._attempted.add(version)
            self._load(version, wanted[version])
        # Availability before tidiness: the old version goes when a wanted one serves.
        if not wanted or wanted.keys() & self.servables.keys():
            for version in self.servables.keys() - wanted.keys():
                # Requests under way hold the version; it is freed after the last.
                self.servables = _without(self.servables, version)
                self._set_status(version, _Status.END)
                logging.info("%s version %d: unloaded", self.config.name, version)

    def _wanted(self) -> dict[int, pathlib.Path]:
        found = {}
        for path in pathlib.Path(self.config.base_path).iterdir():
            name = path.name
            if name.isascii() and name.isdigit() and int(name) < 2**63:
                found[int(name)] = path
        policy = self.config.model_version_policy
        match policy.WhichOneof("policy_choice"):
            case "all":
                versions = found.keys()
            case "specific":
                versions = found.keys() & set(policy.specific.versions)
            case _:
                newest_first = sorted(found, reverse=True)
                versions = newest_first[: max(policy.latest.num_versions, 1)]
        return {version: found[version] for version in versions}

    def _load(self, version: int, path: pathlib.Path) -> None:
        self._set_status(version, _Status.LOADING)
        try:
            loaded = servable.Servable(self.config.name, version, path)
        # Whatever is wrong with the folder, the other versions must go on serving.
        except Exception as error:
            code, text = error_codes_pb2.UNKNOWN, str(error)
            if isinstance(error, tf.errors.OpError):
                code, text = error.error_code, error.message
            self._set_status(version, _Status.END, code, text)
            logging.error("%s: not loaded: %s", path, text)
            return
        self.servables = {**self.servables, version: loaded}
        self._set_status(version, _Status.AVAILABLE)
        logging.info("%s version %d: serving %s", self.config.name, version, path)

    def _set_status(self, version: int, state: int, code: int = 0, text: str = ""):
        status = _Status(version=version, state=state)
        status.status.error_code = code
        status.status.error_message = text
        self.statuses = {**self.statuses, version: status}


def _without(servables: dict, version: int) -> dict:
    return {key: value for key, value in servables.items() if key != version}


class Models:
    """All models of a server; answers requests for any of them.

    Args:
        model_configs: What to serve.
        poll_seconds: Interval between looks at the base paths; 0 looks once.

    Raises:
        ValueError: A base path does not exist or holds no version, or no version of it
            can be loaded.
    """

    def __init__(
        self,
        model_configs: Iterable[model_server_config_pb2.ModelConfig],
        poll_seconds: float,
    ):
        self.by_name = {config.name: Model(config) for config in model_configs}
        for model in self.by_name.values():
            _first_poll(model)
        self._stopped = threading.Event()
        if poll_seconds:
            threading.Thread(
                target=self._keep_polling, args=(poll_seconds,), daemon=True
            ).start()

    def stop(self) -> None:
        self._stopped.set()

    def _keep_polling(self, seconds: float) -> None:
        while not self._stopped.wait(seconds):
            for model in self.by_name.values():
                try:
                    model.poll()
                except OSError as error:
                    logging.log_every_n_seconds(
                        logging.ERROR, "cannot look for versions: %s", 60, error
                    )

    def find(self, spec: model_pb2.ModelSpec) -> servable.Servable:
        """Returns the version that `spec` asks for, by default the newest."""
        if not spec.name:
            raise _invalid("ModelSpec has no name specified.")
        model = self.by_name.get(spec.name)
        servables = model.servables if model else {}
        match spec.WhichOneof("version_choice"):
            case "version":
                wanted = spec.version.value
            case "version_label":
                labels = model.config.version_labels if model else {}
                if spec.version_label not in labels:
                    raise _invalid(
                        f"Unrecognized servable version label: {spec.version_label}"
                    )
                wanted = labels[spec.version_label]
            case _:
                if not servables:
                    raise _not_found(
                        f"Servable not found for request: Latest({spec.name})"
                    )
                wanted = max(servables)
        if wanted not in servables:
            raise _not_found(
                f"Servable not found for request: Specific({spec.name}, {wanted})"
            )
        return servables[wanted]

    # The methods of the two services. Each takes a request and returns its response.

    def predict(self, request):
        return self._find_for(request).predict(request)

    def classify(self, request):
        return self._find_for(request).classify(request)

    def regress(self, request):
        return self._find_for(request).regress(request)

    def metadata(
        self, request: get_model_metadata_pb2.GetModelMetadataRequest
    ) -> get_model_metadata_pb2.GetModelMetadataResponse:
        if not request.HasField("model_spec"):
            raise _invalid("Missing ModelSpec")
        if not request.metadata_field:
            raise _invalid(
                "GetModelMetadataRequest must specify at least one metadata_field"
            )
        for field in request.metadata_field:
            if field != "signature_def":
                raise _invalid(f"Metadata field {field} is not supported")
        found = self.find(request.model_spec)
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        response.model_spec.name = found.name
        response.model_spec.version.value = found.version
        signatures = get_model_metadata_pb2.SignatureDefMap()
        for key, signature in found.signatures.items():
            signatures.signature_def[key].CopyFrom(signature)
        response.metadata["signature_def"].Pack(signatures)
        return response

    def status(
        self, request: get_model_status_pb2.GetModelStatusRequest
    ) -> get_model_status_pb2.GetModelStatusResponse:
        if not request.HasField("model_spec"):
            raise _invalid("Missing ModelSpec")
        spec = request.model_spec
        model = self.by_name.get(spec.name)
        statuses = model.statuses if model else {}
        if spec.HasField("version"):
            version = spec.version.value
            if version not in statuses:
                raise _not_found(
                    f"Could not find version {version} of model {spec.name}"
                )
            statuses = {version: statuses[version]}
        if not statuses:
            raise _not_found(f"Could not find any versions of model {spec.name}")
        return get_model_status_pb2.GetModelStatusResponse(
            model_version_status=[statuses[v] for v in sorted(statuses, reverse=True)]
        )

    def _find_for(self, request) -> servable.Servable:
        if not request.HasField("model_spec"):
            raise _invalid("Missing ModelSpec")
        return self.find(request.model_spec)


def _first_poll(model: Model) -> None:
    name, base_path = model.config.name, model.config.base_path
    if not pathlib.Path(base_path).is_dir():
        raise ValueError(
            f"model {name}: the base path must be a folder that holds one folder per "
            f"version. Received: {base_path}"
        )
    model.poll()
    if not model.statuses:
        raise ValueError(
            f"model {name}: no version to serve under {base_path}; an exported model "
            f"lies in a folder with a number for a name, as {base_path}/1"
        )
    if not model.servables:
        reasons = "; ".join(
            f"{base_path}/{version}: {status.status.error_message}"
            for version, status in sorted(model.statuses.items())
        )
        raise ValueError(f"model {name}: no version can be loaded: {reasons}")


# --- Server ----------------------------------------------------------------------


def _rpc(answer: Callable[[message.Message], message.Message]) -> Callable:
    """Turns `answer` into a method of a gRPC servicer."""

    def method(self: Any, request: message.Message, context: grpc.ServicerContext):
        try:
            return answer(request)
        except tf.errors.OpError as error:
            text = error.message
            if len(text) > _MAX_ERROR_LENGTH:
                text = text[:_MAX_ERROR_LENGTH] + "...TRUNCATED"
            context.abort(_GRPC_CODES[error.error_code], text)

    return method


def _grpc_server(models: Models) -> grpc.Server:
    server = grpc.server(
        futures.ThreadPoolExecutor(max_workers=4 * (os.cpu_count() or 1)),
        options=[
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
            # Otherwise a second server on the same port starts and takes half the load.
            ("grpc.so_reuseport", 0),
        ],
    )

    class PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
        Predict = _rpc(models.predict)
        Classify = _rpc(models.classify)
        Regress = _rpc(models.regress)
        GetModelMetadata = _rpc(models.metadata)

    class ModelService(model_service_pb2_grpc.ModelServiceServicer):
        GetModelStatus = _rpc(models.status)

    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
        PredictionService(), server
    )
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(ModelService(), server)
    return server


class Server:
    """`models` served over gRPC, and over REST unless `rest_port` is None.

    Port 0 takes a free one; `port` and `rest_port` say which. `pages` are served beside
    the REST API, by path.

    Raises:
        ValueError: A port is in use or the host is not this machine's.
    """

    def __init__(
        self,
        models: Models,
        host: str,
        port: int,
        rest_port: int | None = None,
        pages: Mapping[str, rest.Page] = MappingProxyType({}),
    ):
        self._models = models
        self._grpc = _grpc_server(models)
        self._rest = None
        try:
            self.port = self._grpc.add_insecure_port(f"{host}:{port}")
        except RuntimeError as error:
            raise ValueError(
                f"--port: gRPC cannot listen there; another server may be running. "
                f"Received: {host}:{port}"
            ) from error
        if rest_port is not None:
            self._rest = rest.RestServer(models, host, rest_port, pages)
            self.rest_port = self._rest.port
        self._grpc.start()

    def stop(self, grace: float = 30.0) -> None:
        """Takes no more requests; gives those under way up to `grace` seconds."""
        self._models.stop()
        done = self._grpc.stop(grace)
        if self._rest:
            self._rest.stop(grace)
        done.wait()
