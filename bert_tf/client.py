# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Asks a served model, over TensorFlow Serving's gRPC or REST API.

In: the inputs of a signature, as flags or as one JSON object per line of standard
input. Out: its outputs, one JSON object per line::

    python -m bert_tf.client --model=sst2 --text="a deep and moving film"
    python -m bert_tf.client --model=mrpc --text_a="..." --text_b="..."
    python -m bert_tf.client --model=swag --prompt="..." --choices="..." --choices="..."
    python -m bert_tf.client --model=sst2 < requests.jsonl > answers.jsonl

Every `--name=value` that is not an option of the client is an input of that name; one
that is given several times is a list. A line that cannot be answered gives
`{"error": "..."}`, and the command ends with status 1.

From Python, `predict` takes and gives whole batches::

    from bert_tf import client

    client.predict({"text": ["a deep and moving film"]}, model="sst2")["label"]

Imports neither TensorFlow nor anything else of this project: it starts in a fraction of
a second, and runs where only grpcio, protobuf and numpy are installed.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import grpc
import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# --- Messages --------------------------------------------------------------------
# `tensorflow_serving.apis` has these messages, but importing it imports all of
# TensorFlow. So they are built here, as far as a prediction needs them. On the wire
# only numbers and types count: an enum is an int32, a map is a list of keys and values.
# They live in a pool of their own, beside TensorFlow's where a process imports both.

_SCHEMA = {
    "Dim": {"size": (1, "int64")},
    "TensorShape": {"dim": (2, "repeated Dim")},
    "Tensor": {
        "dtype": (1, "int32"),
        "tensor_shape": (2, "TensorShape"),
        "tensor_content": (4, "bytes"),
        "float_val": (5, "repeated float"),
        "double_val": (6, "repeated double"),
        "int_val": (7, "repeated int32"),
        "string_val": (8, "repeated bytes"),
        "int64_val": (10, "repeated int64"),
        "bool_val": (11, "repeated bool"),
        "uint32_val": (16, "repeated uint32"),
        "uint64_val": (17, "repeated uint64"),
    },
    "NamedTensor": {"key": (1, "string"), "value": (2, "Tensor")},
    "Version": {"value": (1, "int64")},
    "ModelSpec": {
        "name": (1, "string"),
        "version": (2, "Version"),
        "signature_name": (3, "string"),
    },
    "PredictRequest": {
        "model_spec": (1, "ModelSpec"),
        "inputs": (2, "repeated NamedTensor"),
    },
    "PredictResponse": {
        "outputs": (1, "repeated NamedTensor"),
        "model_spec": (2, "ModelSpec"),
    },
}

# `DataType` of TensorFlow: its number, numpy's name for it, the field with its values.
_DTYPES = (
    (1, "float32", "float_val"),
    (2, "float64", "double_val"),
    (3, "int32", "int_val"),
    (4, "uint8", "int_val"),
    (5, "int16", "int_val"),
    (6, "int8", "int_val"),
    (7, "object", "string_val"),
    (9, "int64", "int64_val"),
    (10, "bool", "bool_val"),
    (17, "uint16", "int_val"),
    (22, "uint32", "uint32_val"),
    (23, "uint64", "uint64_val"),
)
_NUMBER_OF = {name: number for number, name, _ in _DTYPES}


def _build_messages() -> dict[str, type]:
    file = descriptor_pb2.FileDescriptorProto(
        name="bert_tf/client.proto", package="bert_tf.client", syntax="proto3"
    )
    Field = descriptor_pb2.FieldDescriptorProto
    for message_name, fields in _SCHEMA.items():
        message = file.message_type.add(name=message_name)
        for name, (number, kind) in fields.items():
            field = message.field.add(name=name, number=number)
            field.label = Field.LABEL_OPTIONAL
            if kind.startswith("repeated "):
                field.label = Field.LABEL_REPEATED
                kind = kind.removeprefix("repeated ")
            if kind in _SCHEMA:
                field.type = Field.TYPE_MESSAGE
                field.type_name = f".{file.package}.{kind}"
            else:
                field.type = Field.Type.Value(f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(
            pool.FindMessageTypeByName(f"{file.package}.{name}")
        )
        for name in _SCHEMA
    }


_MESSAGES = _build_messages()
_PredictRequest = _MESSAGES["PredictRequest"]
_PredictResponse = _MESSAGES["PredictResponse"]


def _to_array(name: str, value: Any) -> np.ndarray:
    """Returns `value` as an array of numbers or, as dtype object, of `bytes`."""
    array = value if isinstance(value, np.ndarray) else np.array(value, dtype=object)
    if array.ndim == 0:
        raise ValueError(
            "Every input needs one element per example, in a list or array. "
            f"Received: {name}={value!r}"
        )
    if array.dtype.kind not in "OUS":
        return array
    elements = array.ravel().tolist()
    if all(isinstance(element, (str, bytes)) for element in elements):
        strings = np.empty(len(elements), dtype=object)
        strings[:] = [e.encode() if isinstance(e, str) else e for e in elements]
        return strings.reshape(array.shape)
    try:
        array = np.array(array.tolist())
    except ValueError as error:
        raise ValueError(f"The lists of input {name} differ in length.") from error
    # As TensorFlow reads Python numbers.
    narrow = {"f": np.float32, "i": np.int32, "b": np.bool_}
    if array.dtype.kind not in narrow:
        raise ValueError(
            f"An input holds strings, numbers or booleans. Received: {name}={value!r}"
        )
    return array.astype(narrow[array.dtype.kind])


def _fill_tensor(tensor: Any, array: np.ndarray) -> None:
    tensor.dtype = _NUMBER_OF[array.dtype.name]
    for size in array.shape:
        tensor.tensor_shape.dim.add(size=size)
    if array.dtype == object:
        tensor.string_val.extend(array.ravel().tolist())
    else:
        little_endian = array.dtype.newbyteorder("<")
        tensor.tensor_content = array.astype(little_endian).tobytes()


def _from_tensor(tensor: Any) -> np.ndarray:
    dtype, field = {number: rest for number, *rest in _DTYPES}[tensor.dtype]
    shape = [dim.size for dim in tensor.tensor_shape.dim]
    if tensor.tensor_content:
        little_endian = np.dtype(dtype).newbyteorder("<")
        return np.frombuffer(tensor.tensor_content, little_endian).reshape(shape)
    values = getattr(tensor, field)
    array = np.empty(len(values), dtype)
    array[:] = values
    return array.reshape(shape)


# --- Client ----------------------------------------------------------------------


class PredictError(RuntimeError):
    """A request was not answered.

    Attributes:
        code: Name of the gRPC status code, as "NOT_FOUND"; over REST the HTTP status.
        message: What the server said.
    """

    def __init__(self, code: str, message: str):
        super().__init__(f"{code}: {' '.join(message.split())}")
        self.code = code
        self.message = message


_CHANNEL_OPTIONS = (
    # gRPC's own limit is 4 MiB for what a client receives.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # A prediction changes nothing, so it is safe to ask again when no server was there;
    # other errors would only come back.
    (
        "grpc.service_config",
        json.dumps(
            {
                "methodConfig": [
                    {
                        "name": [{"service": "tensorflow.serving.PredictionService"}],
                        "retryPolicy": {
                            "maxAttempts": 4,
                            "initialBackoff": "0.2s",
                            "maxBackoff": "2s",
                            "backoffMultiplier": 2,
                            "retryableStatusCodes": ["UNAVAILABLE"],
                        },
                    }
                ]
            }
        ),
    ),
)


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
            self._predict = self._channel.unary_unary(
                "/tensorflow.serving.PredictionService/Predict",
                request_serializer=_PredictRequest.SerializeToString,
                response_deserializer=_PredictResponse.FromString,
            )

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
        """Returns the outputs of one batch.

        Args:
            inputs: By name of the signature's input, one element per example: strings
                (`str` or `bytes`), numbers, or lists of them. Python numbers become
                int32 or float32; arrays keep their dtype.
            model: Name of the model.
            signature: Name of the signature.
            version: Version of the model; the newest if None.
            timeout: Seconds until the request is given up, retries included.

        Returns:
            By name of the signature's output, an array whose dimension 0 is the batch;
            strings as `bytes` in an array of dtype object. Over REST, whose JSON knows
            no dtypes, integers come as int64 and floats as float64.

        Raises:
            ValueError: An input is not one array or list of strings or numbers.
            PredictError: The server refused the request, or was not there in time.
        """
        arrays = {name: _to_array(name, value) for name, value in inputs.items()}
        if not self._channel:
            return self._predict_over_rest(arrays, model, signature, version, timeout)
        request = _PredictRequest()
        request.model_spec.name = model
        request.model_spec.signature_name = signature
        if version is not None:
            request.model_spec.version.value = version
        for name, array in arrays.items():
            _fill_tensor(request.inputs.add(key=name).value, array)
        try:
            response = self._predict(request, timeout=timeout)
        except grpc.RpcError as error:
            raise PredictError(error.code().name, error.details()) from None
        return {entry.key: _from_tensor(entry.value) for entry in response.outputs}

    def _predict_over_rest(
        self,
        arrays: Mapping[str, np.ndarray],
        model: str,
        signature: str,
        version: int | None,
        timeout: float,
    ) -> dict[str, np.ndarray]:
        url = f"{self._address}/v1/models/{model}"
        if version is not None:
            url += f"/versions/{version}"
        request = {
            "signature_name": signature,
            "inputs": {name: _to_json(array) for name, array in arrays.items()},
        }
        outputs = _fetch_json(f"{url}:predict", timeout, request)["outputs"]
        if not isinstance(outputs, dict):  # The only output comes without its name.
            metadata = _fetch_json(f"{url}/metadata", timeout)["metadata"]
            (name,) = metadata["signature_def"]["signature_def"][signature]["outputs"]
            outputs = {name: outputs}
        return {name: _from_json(value) for name, value in outputs.items()}


def predict(
    inputs: Mapping[str, Sequence[Any] | np.ndarray],
    model: str,
    *,
    address: str = "127.0.0.1:8500",
    **options: Any,
) -> dict[str, np.ndarray]:
    """Opens a `Client`, returns the outputs of one batch, and closes it.

    Arguments, returns and errors are those of `Client` and `Client.predict`. For many
    requests keep a `Client`.
    """
    with Client(address) as client:
        return client.predict(inputs, model, **options)


# --- JSON ------------------------------------------------------------------------


def _fetch_json(url: str, timeout: float, body: Any = None) -> Any:
    import urllib.error  # Here, because gRPC's callers need not wait for them.
    import urllib.request

    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(url, data, timeout) as response:
            # Strings that are no UTF-8 arrive as they are; `_from_json` undoes this.
            return json.loads(response.read().decode("utf-8", "surrogateescape"))
    except urllib.error.HTTPError as error:
        text = error.read().decode("utf-8", "replace")
        # What is not from a model server, a proxy's page say, is shown as it is.
        with contextlib.suppress(ValueError, KeyError, TypeError):
            text = json.loads(text)["error"]
        raise PredictError(f"HTTP {error.code}", text) from None
    except TimeoutError as error:
        raise PredictError("DEADLINE_EXCEEDED", str(error)) from None
    except OSError as error:
        raise PredictError("UNAVAILABLE", str(error)) from None


def _to_json(value: Any) -> Any:
    """Turns an array into lists; bytes that are not text into `{"b64": "..."}`."""
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
    elements = array.ravel().tolist()
    if elements and not isinstance(elements[0], (str, dict)):
        return np.array(value)
    strings = np.empty(len(elements), dtype=object)
    strings[:] = [
        base64.b64decode(e["b64"])
        if isinstance(e, dict)
        else e.encode("utf-8", "surrogateescape")
        for e in elements
    ]
    return strings.reshape(array.shape)


# --- Command ---------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m bert_tf.client",
        allow_abbrev=False,
        description="Asks a served model. Every other --name=value is an input of the "
        "signature, such as --text=... or --question=... --context=...; without any, "
        "each line of standard input is a JSON object of inputs.",
    )
    parser.add_argument("--model", required=True, help="Name of the served model.")
    parser.add_argument(
        "--address",
        default="127.0.0.1:8500",
        help="HOST:PORT for gRPC (default: %(default)s), http://HOST:PORT for REST.",
    )
    parser.add_argument("--signature", default="serving_default")
    parser.add_argument("--version", type=int, help="Default: the newest.")
    parser.add_argument(
        "--timeout", type=float, default=10.0, help="Seconds. Default: %(default)s."
    )
    options, rest = parser.parse_known_args(argv)
    given: dict[str, list[str]] = {}
    for argument in rest:
        match = re.fullmatch(r"--(\w+)=(.*)", argument, re.DOTALL)
        if not match:
            parser.error(f"an input is written --name=value. Received: {argument}")
        given.setdefault(match[1], []).append(match[2])
    example = {
        name: values if len(values) > 1 else values[0] for name, values in given.items()
    }
    sys.stdout.reconfigure(encoding="utf-8")
    with Client(options.address) as client:
        if example:
            try:
                _print_json(_answer(client, options, example))
            except (ValueError, PredictError) as error:
                sys.exit(f"error: {error}")
            return 0
        failed = False
        for line in sys.stdin.buffer:
            try:
                _print_json(_answer(client, options, _parse_line(line)))
            except (ValueError, PredictError) as error:
                failed = True
                _print_json({"error": str(error)})
        return 1 if failed else 0


def _parse_line(line: bytes) -> dict[str, Any]:
    example = json.loads(line)
    if isinstance(example, dict):
        return example
    raise ValueError(f"A line must be a JSON object. Received: {example!r}")


def _print_json(value: dict[str, Any]) -> None:
    print(json.dumps(value, ensure_ascii=False), flush=True)


def _answer(
    client: Client, options: argparse.Namespace, example: Mapping[str, Any]
) -> dict[str, Any]:
    """Answers one example; neither it nor its answer has the batch dimension."""
    outputs = client.predict(
        {name: [value] for name, value in example.items()},
        options.model,
        signature=options.signature,
        version=options.version,
        timeout=options.timeout,
    )
    return {name: _to_json(value[0]) for name, value in outputs.items()}


if __name__ == "__main__":
    sys.exit(main())
