# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The JSON of TensorFlow Serving's REST API <-> the protos of its gRPC API.

In: request bodies, parsed. Out: request protos; and back, response protos to values for
`json.dumps`. Errors are `tf.errors.InvalidArgumentError`. The format is that of
tensorflow.org/tfx/serving/api_rest: row ("instances") and columnar ("inputs") predict
requests, feature objects for classify and regress, `{"b64": "..."}` for bytes that are
not text.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf import json_format, message
from tensorflow.core.framework import tensor_pb2, types_pb2
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    input_pb2,
    predict_pb2,
    regression_pb2,
)


def parse(body: bytes) -> dict[str, Any]:
    """Returns the JSON object in a request's body."""
    try:
        request = json.loads(body)
    except ValueError as error:
        raise _invalid(f"JSON Parse error: {error}") from error
    if not isinstance(request, dict):
        raise _wrong(request, "Is not object")
    if not isinstance(request.get("signature_name", ""), str):
        raise _wrong(request, "'signature_name' key must be a string value.")
    return request


def dump(value: Any) -> bytes:
    """Returns `value` as JSON; text from `_from_text` leaves as the bytes it was."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogateescape")


# --- Requests --------------------------------------------------------------------


def predict_inputs(
    request: dict[str, Any], dtypes: Mapping[str, int]
) -> dict[str, tensor_pb2.TensorProto]:
    """Returns the inputs of a predict request.

    Args:
        request: The parsed body.
        dtypes: The signature's input names and their dtypes (`types_pb2.DataType`).
    """
    if "instances" in request and "inputs" in request:
        raise _wrong(request, "must have only one of 'inputs' and 'instances'")
    if "instances" in request:
        columns = _columns_of_instances(request["instances"], sorted(dtypes))
    elif "inputs" in request:
        columns = _columns_of_inputs(request["inputs"], sorted(dtypes))
    else:
        raise _invalid("Missing 'inputs' or 'instances' key")
    return {name: _to_tensor(columns[name], dtypes[name]) for name in columns}


def example_input(request: dict[str, Any]) -> input_pb2.Input:
    """Returns the `tf.train.Example`s of a classify or regress request."""
    examples = request.get("examples")
    if not isinstance(examples, list) or not examples:
        raise _wrong(request, "'examples' must be a list with at least one element")
    result = input_pb2.Input()
    listed = result.example_list
    if "context" in request:
        listed = result.example_list_with_context
        listed.context.CopyFrom(_to_example(request["context"]))
    listed.examples.extend(map(_to_example, examples))
    return result


def _columns_of_instances(instances: Any, names: Sequence[str]) -> dict[str, list]:
    """Turns one value or object per example into one list per input."""
    if not isinstance(instances, list) or not instances:
        raise _wrong(instances, "'instances' must be a list with at least one element")
    if not _is_object(instances[0]):
        if len(names) > 1:
            raise _invalid(
                "instances is a plain list, but expecting list of objects as multiple "
                f"input tensors are required: {','.join(names)}"
            )
        return {names[0]: instances}
    for position, instance in enumerate(instances):
        if not _is_object(instance) or instance.keys() != set(names):
            raise _invalid(
                f"Failed to process element: {position} of 'instances' list. "
                f"JSON object: {_excerpt(instance)} keys must be equal to: "
                f"{','.join(names)}"
            )
    return {name: [instance[name] for instance in instances] for name in names}


def _columns_of_inputs(inputs: Any, names: Sequence[str]) -> dict[str, Any]:
    if not _is_object(inputs):
        if len(names) > 1:
            raise _invalid(
                "inputs is a plain value/list, but expecting an object as multiple "
                f"input tensors are required: {','.join(names)}"
            )
        return {names[0]: inputs}
    for name in names:
        if name not in inputs:
            raise _invalid(f"Missing named input: {name} in 'inputs' object.")
    return {name: inputs[name] for name in names}


def _to_tensor(value: Any, dtype: int) -> tensor_pb2.TensorProto:
    """Turns a JSON value, or lists of lists of them, into a tensor."""
    try:
        # Where lists differ in length or depth, they stay behind as elements, which
        # `_to_element` refuses.
        nested = np.array(value, dtype=object)
        elements = [_to_element(element, dtype) for element in nested.ravel()]
        array = np.array(elements, tf.as_dtype(dtype).as_numpy_dtype)
    except (ValueError, OverflowError) as error:
        raise _wrong(value, f"is not a tensor: {error}") from error
    return tf.make_tensor_proto(array.reshape(nested.shape), dtype=dtype)


def _to_element(value: Any, dtype: int) -> Any:
    kind = tf.as_dtype(dtype)
    if kind == tf.string:
        if isinstance(value, str) or _is_base64(value):
            return _to_bytes(value)
    elif kind.is_bool or isinstance(value, bool):  # Python's bool is an int.
        if kind.is_bool and isinstance(value, bool):
            return value
    elif isinstance(value, int) or (kind.is_floating and isinstance(value, float)):
        return value
    name = types_pb2.DataType.Name(dtype).removeprefix("DT_").lower()
    raise _wrong(value, f"is not of expected type: {name}")


def _to_example(features: Any) -> tf.train.Example:
    if not isinstance(features, dict):
        raise _wrong(features, "an example must be a JSON object")
    example = tf.train.Example()
    for name, values in features.items():
        values = values if isinstance(values, list) else [values]
        kinds = {_feature_kind(value) for value in values}
        if len(kinds) > 1 or None in kinds:
            raise _wrong(values, f"feature {name} must hold values of one type")
        feature = example.features.feature[name]
        for kind in kinds:  # None at all for an empty list.
            if kind == "bytes_list":
                values = map(_to_bytes, values)
            getattr(feature, kind).value.extend(values)
    return example


def _feature_kind(value: Any) -> str | None:
    if isinstance(value, str) or _is_base64(value):
        return "bytes_list"
    if isinstance(value, float):
        return "float_list"
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return "int64_list"
    return None


def _is_base64(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == {"b64"}
        and isinstance(value["b64"], str)
    )


def _is_object(value: Any) -> bool:
    return isinstance(value, dict) and not _is_base64(value)


def _to_bytes(value: str | dict[str, str]) -> bytes:
    try:
        if isinstance(value, str):
            return value.encode("utf-8")
        return base64.b64decode(value["b64"], validate=True)
    except binascii.Error as error:
        raise _invalid("Unable to base64 decode") from error
    except UnicodeEncodeError as error:
        raise _wrong(value, "has half of a surrogate pair") from error


# --- Responses -------------------------------------------------------------------


def predictions(response: predict_pb2.PredictResponse) -> dict[str, Any]:
    """Returns the answer to "instances": one value or object per example."""
    sizes = {
        tuple(dim.size for dim in proto.tensor_shape.dim[:1])
        for proto in response.outputs.values()
    }
    if len(sizes) > 1 or () in sizes:
        raise _invalid(
            "The outputs have no common batch size. Ask with 'inputs', not 'instances'."
        )
    columns = _columns_of_outputs(response)
    rows = zip(*columns.values(), strict=True)
    rows = [dict(zip(columns, row, strict=True)) for row in rows]
    return {"predictions": [_bare_if_single(row) for row in rows]}


def outputs(response: predict_pb2.PredictResponse) -> dict[str, Any]:
    """Returns the answer to "inputs": one value or object for all examples."""
    return {"outputs": _bare_if_single(_columns_of_outputs(response))}


def classifications(
    response: classification_pb2.ClassificationResponse,
) -> dict[str, Any]:
    return {
        "results": [
            [[chosen.label, _shortest(np.float32(chosen.score))] for chosen in classes]
            for classes in (c.classes for c in response.result.classifications)
        ]
    }


def regressions(response: regression_pb2.RegressionResponse) -> dict[str, Any]:
    values = [regression.value for regression in response.result.regressions]
    return {"results": [_shortest(np.float32(value)) for value in values]}


def metadata(
    response: get_model_metadata_pb2.GetModelMetadataResponse,
) -> dict[str, Any]:
    signatures = get_model_metadata_pb2.SignatureDefMap()
    response.metadata["signature_def"].Unpack(signatures)
    return {
        "model_spec": from_proto(response.model_spec),
        "metadata": {"signature_def": from_proto(signatures)},
    }


def from_proto(proto: message.Message) -> dict[str, Any]:
    """Returns every field of `proto`, also those with their default value."""
    return json_format.MessageToDict(
        proto,
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True,
    )


def _columns_of_outputs(response: predict_pb2.PredictResponse) -> dict[str, Any]:
    return {
        alias: _from_tensor(proto, as_bytes=alias.endswith("_bytes"))
        for alias, proto in sorted(response.outputs.items())
    }


def _bare_if_single(named: dict[str, Any]) -> Any:
    return next(iter(named.values())) if len(named) == 1 else named


def _from_tensor(proto: tensor_pb2.TensorProto, as_bytes: bool) -> Any:
    """Turns a tensor into a JSON value, or lists of lists of them."""
    array = tf.make_ndarray(proto)
    if array.dtype.kind in "iub":
        return array.tolist()
    if array.dtype.kind != "O":
        convert = _shortest
    else:
        convert = _from_bytes if as_bytes else _from_text
    values = np.empty(array.size, dtype=object)
    values[:] = [convert(value) for value in array.ravel()]
    return values.reshape(array.shape).tolist()


def _shortest(value: np.floating) -> float:
    # As few digits as give the number back: 0.2, not 0.20000000298023224.
    return float(str(value))


def _from_bytes(value: bytes) -> dict[str, str]:
    return {"b64": base64.b64encode(value).decode("ascii")}


def _from_text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")


# --- Errors ----------------------------------------------------------------------


def _invalid(text: str) -> tf.errors.OpError:
    return tf.errors.InvalidArgumentError(None, None, text)


def _wrong(value: Any, rule: str) -> tf.errors.OpError:
    return _invalid(f"JSON Value: {_excerpt(value)} {rule}")


def _excerpt(value: Any) -> str:
    return json.dumps(value)[:256]
