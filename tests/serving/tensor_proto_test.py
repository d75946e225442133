# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2

from bert_tf.serving import array_to_proto, proto_to_array

ARRAYS = [
    np.array([[b"a\0", b""], [b"\xff", b"d"]], dtype=object),
    np.array(b"scalar\0", dtype=object),
    np.zeros([0, 2], dtype=object),
    np.array([[True, False]]),
    np.array([1.5, np.inf], np.float32),
    np.float64(0.1),
    np.arange(6, dtype=np.int32).reshape(3, 2).T,
    np.array([2**62, -1]),
    np.zeros([2, 0], np.float32),
    np.array([1, 255], np.uint8),
    np.array([0.5, 1], np.float16),
    np.array([0.5, 1], tf.bfloat16.as_numpy_dtype),
    np.array([255], np.uint8),
    np.array([0.5], np.float16),
    np.array([[0.5]], tf.bfloat16.as_numpy_dtype),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: str(array.dtype))
@pytest.mark.parametrize("value_fields", [False, True])
def test_protos_agree_with_tensorflow(array, value_fields):
    array = np.asarray(array)
    proto = array_to_proto(array, value_fields=value_fields)
    for converted in (
        proto_to_array(proto),
        tf.make_ndarray(proto),
        proto_to_array(tf.make_tensor_proto(array)),
    ):
        assert converted.dtype == array.dtype
        assert converted.shape == array.shape
        assert converted.tolist() == array.tolist()


def test_big_endian_arrays_are_converted():
    proto = array_to_proto(np.array([1, 2], ">i4"))
    assert proto_to_array(proto).tolist() == [1, 2]


def proto(dtype: tf.DType, *shape: int, **fields) -> tensor_pb2.TensorProto:
    result = tensor_pb2.TensorProto(dtype=dtype.as_datatype_enum, **fields)
    for size in shape:
        result.tensor_shape.dim.add(size=size)
    return result


@pytest.mark.parametrize(
    ("message", "values"),
    [  # As `tensorflow::Tensor::FromProto`.
        (proto(tf.int32, 1, 4, int_val=[1]), [[1, 1, 1, 1]]),
        (proto(tf.int64, 3, int64_val=[5, 6]), [5, 6, 6]),
        (proto(tf.float32, 2), [0, 0]),
        (proto(tf.uint8, 2, int_val=[1]), [1, 1]),
        (proto(tf.half, 2, half_val=[15360]), [1, 1]),
        (proto(tf.string, 2, string_val=[b"a"]), [b"a", b"a"]),
        (proto(tf.string, 3, tensor_content=b"\2\0\3abxyz"), [b"ab", b"", b"xyz"]),
    ],
)
def test_forms_that_tensorflow_reads(message, values):
    assert proto_to_array(message).tolist() == values


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (proto(tf.string, 3, tensor_content=b"\2\0\3abxy"), "do not fit string of"),
        (proto(tf.int32, 3, tensor_content=b"1234"), r"fit int32 of shape \[3\]"),
        (proto(tf.int32, -1, 3, int_val=[1, 2, 3]), r"of shape \[-1, 3\]"),
        (proto(tf.int32, 2**40, int_val=[1]), "repeated value must not fill"),
        (proto(tf.string, 2**22, string_val=[b"a"]), "repeated value must not fill"),
        (proto(tf.resource, 1), "resource is not a dtype of arrays"),
        (proto(tf.variant, 1), "variant is not a dtype of arrays"),
    ],
)
def test_malformed_protos(message, error):
    with pytest.raises((TypeError, ValueError), match=error):
        proto_to_array(message)


def test_dtype_that_tensorflow_lacks():
    with pytest.raises(TypeError, match="M8"):
        array_to_proto(np.zeros(1, "datetime64[s]"))
