# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Sends requests to a served model, over TensorFlow Serving's gRPC or REST API.

    python -m bert_tf.client --model=sst2 --text="a deep and moving film"
    python -m bert_tf.client --model=mrpc --text_a="..." --text_b="..."
    python -m bert_tf.client --model=swag --prompt="..." --choices="..." --choices="..."
    python -m bert_tf.client --model=sst2 < requests.jsonl > answers.jsonl

Input: the inputs of a signature, as flags or as a JSON object per line of standard
input. Every `--name=value` that is not an option of the client is an input; a repeated
flag makes a list. Output: the outputs of the signature, a JSON object per line. A line
whose request fails gives `{"error": "..."}`, and the exit status is 1.

In Python, `predict` takes and returns whole batches::

    from bert_tf import client

    client.predict({"text": ["a deep and moving film"]}, model="sst2")["label"]

The gRPC stubs import TensorFlow at the first connection, which takes seconds. REST
requires NumPy only.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf import startup
from bert_tf.lazy import lazy_import

grpc = lazy_import("grpc")
tf = lazy_import("tensorflow")
predict_pb2 = lazy_import("tensorflow_serving.apis.predict_pb2")
services = lazy_import("tensorflow_serving.apis.prediction_service_pb2_grpc")

# Retries until a server listens and has a free thread. Other errors would only repeat.
_RETRIES = {
    "name": [{"service": "tensorflow.serving.PredictionService"}],
    "retryPolicy": {
        "maxAttempts": 4,
        "initialBackoff": "0.2s",
        "maxBackoff": "2s",
        "backoffMultiplier": 2,
        "retryableStatusCodes": ["UNAVAILABLE", "RESOURCE_EXHAUSTED"],
    },
}
_CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", -1),  # 4 MiB by default.
    ("grpc.max_send_message_length", -1),
    ("grpc.service_config", json.dumps({"methodConfig": [_RETRIES]})),
)


class PredictError(RuntimeError):
    """A request failed.

    Attributes:
        code: Name of the gRPC status code, such as "NOT_FOUND", or "HTTP" and a status.
        message: The server's message.
    """

    def __init__(self, code: str, message: str):
        super().__init__(f"{code}: {' '.join(message.split())}")
        self.code = code
        self.message = message


class Client:
    """A connection to one server; use as a context manager.

    Args:
        address: "HOST:PORT" for gRPC, "http://HOST:PORT" for REST.
    """

    def __init__(self, address: str = "127.0.0.1:8500"):
        self._address = address.rstrip("/")
        self._channel = None
        if not address.startswith(("http://", "https://")):
            self._channel = grpc.insecure_channel(address, _CHANNEL_OPTIONS)
            self._predict = services.PredictionServiceStub(self._channel).Predict

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        if self._channel:
            self._channel.close()

    def predict(
        self,
        inputs: Mapping[str, Sequence[Any] | np.ndarray],
        model: str,
        *,
        signature: str = "serving_default",
        version: int | None = None,
        timeout: float = 10.0,
    ) -> dict[str, np.ndarray]:
        """Returns the outputs for one batch.

        Args:
            inputs: By name of the input, one element per example: strings (`str` or
                `bytes`), numbers, or lists of them. Python numbers become int32 or
                float32; arrays keep their dtype.
            model: Name of the model.
            signature: Name of the signature.
            version: Version of the model; None for the newest.
            timeout: Seconds to wait for the answer, including retries.

        Returns:
            By name of the output, an array whose first axis is the batch. Strings are
            `bytes` in an array of dtype object. REST has no dtypes: its integers are
            int64 and its floats float64.

        Raises:
            ValueError: An input is not a batch of strings, numbers or booleans.
            PredictError: The server rejected the request or did not answer in time.
        """
        arrays = {name: _to_array(name, value) for name, value in inputs.items()}
        if not self._channel:
            path = model if version is None else f"{model}/versions/{version}"
            url = f"{self._address}/v1/models/{path}"
            return _predict_rest(url, arrays, signature, timeout)
        spec = {"name": model, "signature_name": signature}
        if version is not None:
            spec["version"] = {"value": version}
        protos = {name: tf.make_tensor_proto(array) for name, array in arrays.items()}
        request = predict_pb2.PredictRequest(model_spec=spec, inputs=protos)
        try:
            response = self._predict(request, timeout=timeout)
        except grpc.RpcError as error:
            raise PredictError(error.code().name, error.details()) from None
        outputs = response.outputs.items()
        return {name: tf.make_ndarray(proto) for name, proto in outputs}


def predict(
    inputs: Mapping[str, Sequence[Any] | np.ndarray],
    model: str,
    *,
    address: str = "127.0.0.1:8500",
    **options: Any,
) -> dict[str, np.ndarray]:
    """Sends one batch over a new connection; see `Client.predict`."""
    with Client(address) as client:
        return client.predict(inputs, model, **options)


# --- Inputs ----------------------------------------------------------------------


def _to_array(name: str, value: Any) -> np.ndarray:
    """Returns an array of numbers, or of `bytes` with dtype object."""
    array = value if isinstance(value, np.ndarray) else np.array(value, dtype=object)
    if array.ndim:
        if array.dtype.kind not in "OUS":
            return array
        if all(isinstance(element, (str, bytes)) for element in array.flat):
            return _encode(array)
        dtypes = {"f": np.float32, "i": np.int32, "b": np.bool_}
        values = array.tolist()
        # Not numbers, numbers outside of int32, or lists that differ in length.
        with contextlib.suppress(KeyError, OverflowError, ValueError):
            return np.array(values, dtypes[np.array(values).dtype.kind])
    raise ValueError(
        f"Input {name!r} must have one element per example. Elements must be strings, "
        "numbers (float32 or int32) or booleans, or lists of them of the same length. "
        f"Got {value!r:.200}."
    )


def _encode(array: np.ndarray) -> np.ndarray:
    # NumPy's string dtypes strip trailing NULs. Strings in REST responses have
    # surrogates in place of bytes that are not UTF-8.
    values = (
        v.encode("utf-8", "surrogateescape") if isinstance(v, str) else v
        for v in array.flat
    )
    return np.fromiter(values, dtype=object).reshape(array.shape)


# --- REST ------------------------------------------------------------------------


def _predict_rest(
    url: str, arrays: Mapping[str, np.ndarray], signature: str, timeout: float
) -> dict[str, np.ndarray]:
    inputs = {name: _to_json(array) for name, array in arrays.items()}
    body = {"signature_name": signature, "inputs": inputs}
    outputs = _fetch_json(f"{url}:predict", timeout, body)["outputs"]
    if not isinstance(outputs, dict):  # A single output is returned without name.
        metadata = _fetch_json(f"{url}/metadata", timeout)["metadata"]
        (name,) = metadata["signature_def"]["signature_def"][signature]["outputs"]
        outputs = {name: outputs}
    return {name: _from_json(value) for name, value in outputs.items()}


def _fetch_json(url: str, timeout: float, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(url, data, timeout) as response:
            text = response.read().decode("utf-8", "surrogateescape")
            return json.loads(text, object_hook=_decode_base64)
    except urllib.error.HTTPError as error:
        text = error.read().decode("utf-8", "replace")
        with contextlib.suppress(ValueError, KeyError, TypeError):  # A proxy's page.
            text = json.loads(text)["error"]
        raise PredictError(f"HTTP {error.code}", text) from None
    except TimeoutError as error:
        raise PredictError("DEADLINE_EXCEEDED", str(error)) from None
    except OSError as error:
        raise PredictError("UNAVAILABLE", str(error)) from None


def _decode_base64(value: dict[str, Any]) -> Any:
    return base64.b64decode(value["b64"]) if value.keys() == {"b64"} else value


def _to_json(value: Any) -> Any:
    """Returns an array as lists, and bytes that are not UTF-8 as `{"b64": "..."}`."""
    if isinstance(value, np.ndarray):
        return [_to_json(element) for element in value]
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return {"b64": base64.b64encode(value).decode("ascii")}
    if isinstance(value, np.floating):
        return float(str(value))  # 0.2, not 0.20000000298023224.
    return value.item()


def _from_json(value: Any) -> np.ndarray:
    array = np.array(value, dtype=object)
    if array.size and not isinstance(array.flat[0], (str, bytes)):
        return np.array(value)
    return _encode(array)


# --- Command ---------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    startup.hide_tensorflow_logs()
    parser = argparse.ArgumentParser(
        prog="python -m bert_tf.client",
        allow_abbrev=False,
        description="Sends requests to a served model. Every other --name=value is an "
        "input of the signature, such as --text=... or --question=... --context=... . "
        "Without inputs, each line of standard input is a JSON object of inputs.",
    )
    parser.add_argument("--model", required=True, help="Name of the served model.")
    parser.add_argument(
        "--address",
        default="127.0.0.1:8500",
        help="HOST:PORT for gRPC (default: %(default)s), http://HOST:PORT for REST.",
    )
    parser.add_argument("--signature", default="serving_default")
    parser.add_argument("--version", type=int, help="Default: newest.")
    parser.add_argument(
        "--timeout",
        type=float,
        default=60.0,
        help="Seconds per request. Default: %(default)s.",
    )
    options, rest = parser.parse_known_args(argv)
    values: dict[str, list[str]] = {}
    for argument in rest:
        match = re.fullmatch(r"--(\w+)=(.*)", argument, re.DOTALL)
        if not match:
            parser.error(f"an input must be --name=value. Got {argument}")
        values.setdefault(match[1], []).append(match[2])
    inputs = {name: v if len(v) > 1 else v[0] for name, v in values.items()}
    names = ("model", "signature", "version", "timeout")
    request = {name: getattr(options, name) for name in names}
    sys.stdout.reconfigure(encoding="utf-8")
    failed = False
    with Client(options.address) as client:
        for line in [json.dumps(inputs)] if inputs else sys.stdin.buffer:
            try:
                answer = _predict_one(client, json.loads(line), request)
            except (ValueError, PredictError) as error:
                if inputs:
                    sys.exit(f"error: {error}")
                failed, answer = True, {"error": str(error)}
            print(json.dumps(answer, ensure_ascii=False), flush=True)
    return int(failed)


def _predict_one(
    client: Client, example: Any, request: Mapping[str, Any]
) -> dict[str, Any]:
    if not isinstance(example, dict):
        raise ValueError(f"A line must be a JSON object. Got {example!r}.")
    inputs = {name: [value] for name, value in example.items()}
    outputs = client.predict(inputs, **request)
    return {name: _to_json(value[0]) for name, value in outputs.items()}


if __name__ == "__main__":
    sys.exit(main())
