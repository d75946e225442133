# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Converts between NumPy arrays and `TensorProto`.

`tf.make_tensor_proto` takes 20 times as long for strings. `tf.make_ndarray` takes 200
times as long for value fields, and it repeats the last value to fill the shape, so that
a small request could allocate all memory.
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
    """Converts a tensor that has one value per element.

    Raises:
        TypeError, ValueError, OverflowError: The proto is malformed.
    """
    dtype = tf.as_dtype(proto.dtype)
    shape = tuple(dim.size for dim in proto.tensor_shape.dim)
    if dtype.name in _VALUE_FIELDS and not proto.tensor_content:
        values = getattr(proto, _VALUE_FIELDS[dtype.name])
        array = np.array(values, dtype.as_numpy_dtype).reshape(shape)
    # `make_tensor_proto` writes single values of any dtype to value fields.
    elif dtype.is_numpy_compatible and (proto.tensor_content or math.prod(shape) <= 1):
        array = tf.make_ndarray(proto)
    else:
        raise TypeError(f"{dtype.name} values must be in tensor_content.")
    if array.shape != shape:  # `reshape` accepts -1.
        raise ValueError(f"sizes must not be negative. Got shape {shape}.")
    return array
