# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Converts between NumPy arrays and `TensorProto`.

`tf.make_tensor_proto` takes 20 times as long for strings, and `tf.make_ndarray` takes
200 times as long for value fields.
"""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2

_VALUE_FIELDS = {
    "string": "string_val",
    "bool": "bool_val",
    "int32": "int_val",
    "int64": "int64_val",
    "float32": "float_val",
    "float64": "double_val",
}
_MAX_REPEATED_BYTES = 64 << 20


def array_to_proto(
    array: np.ndarray, *, value_fields: bool = False
) -> tensor_pb2.TensorProto:
    """Converts an array; strings must be `bytes` in an array of dtype object.

    Args:
        array: The array.
        value_fields: Whether to write numbers to fields such as `float_val`, as
            TensorFlow Serving does, instead of `tensor_content`, which is faster.

    Raises:
        TypeError: TensorFlow does not have the dtype.
    """
    dtype = tf.as_dtype(array.dtype)
    proto = tensor_pb2.TensorProto(dtype=dtype.as_datatype_enum)
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
    if array.dtype == object or (value_fields and dtype.name in _VALUE_FIELDS):
        getattr(proto, _VALUE_FIELDS[dtype.name]).extend(array.ravel().tolist())
    else:
        proto.tensor_content = array.astype(dtype.as_numpy_dtype).tobytes()
    return proto


def proto_to_array(proto: tensor_pb2.TensorProto) -> np.ndarray:
    """Converts a tensor in any form that TensorFlow reads.

    Raises:
        TypeError, ValueError: The proto is malformed, or repeats a value to fill more
            than 64 MiB.
    """
    dtype = tf.as_dtype(proto.dtype)
    shape = tuple(dim.size for dim in proto.tensor_shape.dim)
    size = math.prod(shape)
    if not proto.tensor_content and dtype.name in _VALUE_FIELDS:
        values = getattr(proto, _VALUE_FIELDS[dtype.name])
        if len(values) == size:
            return np.array(values, dtype.as_numpy_dtype).reshape(shape)
    bytes_per_value = dtype.size or 24  # A string is an object of 24 bytes.
    if not proto.tensor_content and size * bytes_per_value > _MAX_REPEATED_BYTES:
        raise ValueError(f"a repeated value must not fill shape {list(shape)}")
    if not dtype.is_numpy_compatible or dtype == tf.resource:
        raise TypeError(f"{dtype.name} is not a dtype of arrays")
    try:
        value = tf.io.parse_tensor(proto.SerializeToString(), dtype).numpy()
    except tf.errors.InvalidArgumentError as error:
        text = f"the values do not fit {dtype.name} of shape {list(shape)}"
        raise ValueError(text) from error
    # A scalar string is `bytes`.
    return np.asarray(value, object if isinstance(value, bytes) else None)
