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


@pytest.mark.parametrize("field", ["int_val", "half_val"])
def test_values_are_not_repeated(field):
    for dtype in (tf.uint8, tf.half, tf.qint8, tf.complex64):
        proto = tensor_pb2.TensorProto(dtype=dtype.as_datatype_enum, **{field: [1]})
        proto.tensor_shape.dim.add(size=2)
        with pytest.raises(TypeError, match="values must be in tensor_content"):
            proto_to_array(proto)


def test_dtype_that_tensorflow_lacks():
    with pytest.raises(TypeError, match="M8"):
        array_to_proto(np.zeros(1, "datetime64[s]"))
