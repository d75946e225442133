# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Converts NumPy arrays to and from `TensorProto` messages and lists of JSON.

Strings are `bytes` in arrays of dtype object.

TensorFlow's own parser ends the process on some invalid messages, repeats the last
value if values are missing, and takes seconds to import.
"""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import numpy as np

from bert_tf.lazy import import_messages

tensor_pb2 = import_messages("tensorflow.core.framework.tensor_pb2")
types_pb2 = import_messages("tensorflow.core.framework.types_pb2")

# Of tensors without values, whose axes of size 0 count as 1: some ops allocate memory
# for the other axes.
_MAX_ELEMENTS = 1 << 26

_VARINT = re.compile(rb"[\x80-\xff]{0,4}[\0-\x7f]")

# By NumPy's name of the dtype.
_TYPES = {"object": "DT_STRING", "float32": "DT_FLOAT", "float64": "DT_DOUBLE"}
_INTEGERS = [f"{u}int{bits}" for u in ("", "u") for bits in (8, 16, 32, 64)]
_TYPES |= {name: f"DT_{name.upper()}" for name in ("bool", *_INTEGERS)}
_DTYPES = {types_pb2.DataType.Value(value): key for key, value in _TYPES.items()}


def _field(dtype: np.dtype) -> str:
    """Returns the field of a message that has the values in responses of servers."""
    field = f"{_TYPES[dtype.name][3:].lower()}_val"
    fields = tensor_pb2.TensorProto.DESCRIPTOR.fields_by_name
    return field if field in fields else "int_val"


def to_proto(array: np.ndarray) -> tensor_pb2.TensorProto:
    """Returns the message. Strings are `bytes` in an array of dtype object.

    Raises:
        ValueError: The dtype is none of strings, booleans, integers, float32, float64.
    """
    if array.dtype.name not in _TYPES:
        raise ValueError(f"Tensors of {array.dtype} are not supported.")
    return tensor_pb2.TensorProto(
        dtype=_TYPES[array.dtype.name],
        tensor_shape={"dim": [{"size": size} for size in array.shape]},
        **{_field(array.dtype): array.ravel().tolist()},
    )


def to_array(proto: tensor_pb2.TensorProto) -> np.ndarray:
    """Returns the array of a message with as many values as its shape has elements.

    Raises:
        ValueError: The message is not of this form, or its dtype is not supported.
    """
    sizes = [dim.size for dim in proto.tensor_shape.dim]
    dtype = np.dtype(_DTYPES.get(proto.dtype, "V"))
    is_large = 0 in sizes and math.prod(x or 1 for x in sizes) > _MAX_ELEMENTS
    if dtype.kind == "V" or min(sizes, default=0) < 0 or is_large:
        raise ValueError(f"Invalid tensor of dtype {proto.dtype} and shape {sizes}.")
    if proto.tensor_content and dtype.kind != "O":
        return np.frombuffer(proto.tensor_content, dtype).reshape(sizes)
    values = list(getattr(proto, _field(dtype)))
    if proto.tensor_content:
        values = _strings(proto.tensor_content, math.prod(sizes))
    return np.array(values, dtype).reshape(sizes)


def _strings(content: bytes, count: int) -> list[bytes]:
    """Returns the strings of a `tensor_content`: all lengths as varints, then bytes."""
    lengths, position = [], 0
    for _ in range(count):
        if not (varint := _VARINT.match(content, position)):
            raise ValueError("Strings in tensor_content must begin with their lengths.")
        # The lowest 7 bits first.
        lengths.append(sum((x & 127) << 7 * i for i, x in enumerate(varint[0])))
        position = varint.end()
    ends = list(itertools.accumulate(lengths, initial=position))
    if ends[-1] != len(content):
        raise ValueError(f"tensor_content must have {ends[-1]} bytes.")
    return [content[start:end] for start, end in itertools.pairwise(ends)]


def encoded(array: np.ndarray) -> np.ndarray:
    """Returns an array of dtype object with UTF-8 in place of `str`."""
    values = [x.encode() if isinstance(x, str) else x for x in array.flat]
    result = np.empty(array.shape, object)
    result.flat = values
    return result


def to_lists(array: np.ndarray) -> Any:
    """Returns nested lists. Floats have few digits: 0.2 and not 0.20000000298."""
    if array.dtype == np.float32:
        array = array.astype(bytes).astype(np.float64)
    return array.tolist()
