# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Sends requests to a served model, over TensorFlow Serving's gRPC API.

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
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf import serving, text_files
from bert_tf.lazy import import_messages, lazy_import

grpc = lazy_import("grpc")

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
    # By default, requests of more than 256 KiB are not retried.
    ("grpc.per_rpc_retry_buffer_size", 2**31 - 1),
    ("grpc.service_config", json.dumps({"methodConfig": [_RETRIES]})),
)


class PredictError(RuntimeError):
    """A request failed.

    Attributes:
        code: Name of the gRPC status code, such as "NOT_FOUND".
    """

    def __init__(self, code: str, message: str):
        super().__init__(f"{code}: {' '.join(message.split())}")
        self.code = code


class Client:
    """A connection to the server at "HOST:PORT"; use as a context manager."""

    def __init__(self, address: str = "127.0.0.1:8500"):
        self._channel = grpc.insecure_channel(address, _CHANNEL_OPTIONS)
        api = "tensorflow_serving.apis"
        self._predict = import_messages(f"{api}.predict_pb2")
        self._metadata = import_messages(f"{api}.get_model_metadata_pb2")
        services = {"Predict": self._predict, "GetModelMetadata": self._metadata}
        self._methods = {
            name: self._channel.unary_unary(
                f"/tensorflow.serving.PredictionService/{name}",
                request_serializer=getattr(x, f"{name}Request").SerializeToString,
                response_deserializer=getattr(x, f"{name}Response").FromString,
            )
            for name, x in services.items()
        }

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
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
            By name of the output, in alphabetical order, an array whose first axis is
            the batch. Strings are `bytes` in an array of dtype object.

        Raises:
            ValueError: An input is not a batch of strings, numbers or booleans.
            PredictError: The server rejected the request, did not answer in time, or
                sent tensors whose values do not fit their dtype and shape.
        """
        request = self._predict.PredictRequest(
            model_spec=_model_spec(model, version) | {"signature_name": signature},
            inputs={name: _to_proto(name, value) for name, value in inputs.items()},
        )
        response = self._call("Predict", request, timeout)
        outputs = sorted(response.outputs.items())  # They have no order.
        try:
            return {name: serving.tensors.to_array(proto) for name, proto in outputs}
        except (ValueError, OverflowError) as error:
            raise PredictError("INTERNAL", f"Malformed answer: {error}") from error

    def input_ranks(
        self, model: str, *, signature: str, version: int | None, timeout: float
    ) -> dict[str, int]:
        """Returns the rank of each input of a signature, by name.

        The arguments and `PredictError` are those of `predict`.
        """
        request = self._metadata.GetModelMetadataRequest(
            model_spec=_model_spec(model, version), metadata_field=["signature_def"]
        )
        response = self._call("GetModelMetadata", request, timeout)
        found = self._metadata.SignatureDefMap()
        response.metadata["signature_def"].Unpack(found)
        inputs = found.signature_def[signature].inputs
        return {name: len(x.tensor_shape.dim) for name, x in inputs.items()}

    def _call(self, name: str, request: Any, timeout: float) -> Any:
        """Calls a method of the service and returns its response."""
        try:
            return self._methods[name](request, timeout=timeout)
        except grpc.RpcError as error:
            raise PredictError(error.code().name, error.details()) from None


def _model_spec(model: str, version: int | None) -> dict[str, Any]:
    return {"name": model, "version": None if version is None else {"value": version}}


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


def _to_proto(name: str, value: Any) -> Any:
    try:
        array = np.array(value, dtype=object)  # `str` and `bytes` may be mixed.
        is_text = array.size or isinstance(value, list)
        if is_text and all(isinstance(x, str | bytes) for x in array.flat):
            array = serving.tensors.encoded(array)
        elif isinstance(value, np.ndarray):
            array = value
        else:
            wide = np.array(value)
            narrow = {"int64": np.int32, "float64": np.float32}
            array = wide.astype(narrow.get(wide.dtype.name, wide.dtype))
            if array.dtype == np.int32 and (array != wide).any():
                raise OverflowError("It does not fit 32 bits.")
        if not array.ndim:
            raise ValueError("It is a scalar.")
        return serving.tensors.to_proto(array)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"Input {name!r} must have one element per example. Elements must be "
            "strings, numbers or booleans, or lists of them of the same length. Got "
            f"{value!r:.200}."
        ) from error


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m bert_tf.client",
        allow_abbrev=False,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        description="Sends requests to a served model. Every other --name=value is an "
        "input of the signature, such as --text=... or --question=... --context=... . "
        "Without inputs, each line of standard input is a JSON object of inputs.",
    )
    parser.add_argument("--model", required=True, help="Name of the served model.")
    parser.add_argument("--address", default="127.0.0.1:8500", help="HOST:PORT.")
    parser.add_argument("--signature", default="serving_default", help="Its name.")
    parser.add_argument("--version", type=int, help="The newest if it is not given.")
    parser.add_argument("--timeout", type=float, default=60.0, help="In seconds.")
    options, rest = parser.parse_known_args(argv)
    values: dict[str, list[bytes]] = {}
    for argument in rest:
        match = re.fullmatch(r"--(\w+)=(.*)", argument, re.DOTALL)
        if not match:
            parser.error(f"an input must be --name=value. Got {argument}")
        values.setdefault(match[1], []).append(os.fsencode(match[2]))
    if not values and sys.stdin.isatty():
        parser.error("pass inputs, such as --text=..., or JSON lines as standard input")
    inputs = {name: v if len(v) > 1 else v[0] for name, v in values.items()}
    # Bytes that are not UTF-8 are printed as they are.
    sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
    request, status = vars(options), 0
    with Client(address := request.pop("address")) as client:
        if inputs:
            ranks = _check_inputs(client, inputs, address, request)
            # A flag that occurs once may be a list of one value.
            inputs = {
                k: values[k] if ranks.get(k) == 2 else x for k, x in inputs.items()
            }
        lines = filter(bytes.strip, sys.stdin.buffer)
        for line in [b""] if inputs else lines:
            try:
                example = inputs or _parse_line(line)
                batch = {name: [value] for name, value in example.items()}
                outputs = client.predict(batch, **request).items()
                answer = {k: serving.tensors.to_lists(x)[0] for k, x in outputs}
            except (ValueError, PredictError) as error:
                if inputs:
                    sys.exit(f"error: {error}")
                status, answer = 1, {"error": str(error)}
            decode = lambda x: x.decode("utf-8", "surrogateescape")  # noqa: E731
            print(json.dumps(answer, ensure_ascii=False, default=decode), flush=True)
    return status


def _check_inputs(
    client: Client, inputs: Mapping[str, Any], address: str, request: Mapping[str, Any]
) -> Mapping[str, int]:
    """Returns the ranks of inputs; ends the command if flags are not inputs."""
    try:
        ranks = client.input_ranks(**request)
    except PredictError as error:
        sent = ", ".join(f"--{name}" for name in inputs)
        hint = f". Is --address={address} the server's? Inputs: {sent}."
        sys.exit(f"error: {error}{hint if error.code == 'UNAVAILABLE' else ''}")
    for name, value in inputs.items():
        if ranks and name not in ranks:
            names = ", ".join(f"--{x}" for x in sorted(ranks))
            sys.exit(
                f"error: --{name} is no input of the signature, whose inputs are "
                f"{names}, and no option: --address, --signature, --version, --timeout."
            )
        if isinstance(value, list) and ranks.get(name) == 1:
            sys.exit(
                f"error: --{name} must occur once. For several examples, write JSON "
                "objects to standard input, one a line."
            )
        if not value:
            print(f"warning: --{name} is empty.", file=sys.stderr)
    return ranks


def _parse_line(line: bytes) -> dict[str, Any]:
    try:
        example = text_files.parse_json(line.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        example = None
    if not isinstance(example, dict):
        raise ValueError(f"A line must be a JSON object in UTF-8. Got {line!r:.200}.")
    return example


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        os._exit(1)  # Without flushing the closed pipe.
