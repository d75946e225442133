# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf.internal.encoder import _VarintBytes

from bert_tf.serving import tensors


@pytest.mark.parametrize(
    "array",
    [
        np.array([[b"a", b"\xff"], [b"", b"\0"]], object),
        np.array(b"scalar", object),
        np.array([[True], [False]]),
        np.zeros((0, 3), np.float32),
        np.array([1.5, np.inf]),
        *(np.array([np.iinfo(t).max, 0], t) for t in ("b", "B", "h", "H", "i", "I")),
        *(np.array([np.iinfo(t).max, 0], t) for t in (np.int64, np.uint64)),
    ],
)
def test_messages_equal_tensorflow(array):
    proto = tensors.to_proto(array)
    theirs = tf.make_tensor_proto(array)
    for message in (proto, theirs):
        read = tensors.to_array(message)
        assert read.dtype == array.dtype
        np.testing.assert_array_equal(read, array)
    np.testing.assert_array_equal(tf.make_ndarray(proto), array)
    parsed = tf.io.parse_tensor(proto.SerializeToString(), array.dtype)
    np.testing.assert_array_equal(parsed.numpy(), array)


@pytest.mark.parametrize("texts", [[], [b"", b"ab", b"x" * 300], [b"\xff"] * 3])
def test_strings_in_tensor_content(texts):
    """TensorFlow's C++ and Go clients send the lengths as varints, then the bytes."""
    content = b"".join(_VarintBytes(len(x)) for x in texts) + b"".join(texts)
    shape = {"dim": [{"size": len(texts)}]}
    proto = tensors.tensor_pb2.TensorProto(
        dtype=7, tensor_shape=shape, tensor_content=content
    )
    assert tensors.to_array(proto).tolist() == texts
    if texts:
        proto.tensor_content = content + b"a"
        with pytest.raises(ValueError, match=f"must have {len(content)} bytes"):
            tensors.to_array(proto)
        proto.tensor_content = b"\xff" * 100
        with pytest.raises(ValueError, match="must begin with their lengths"):
            tensors.to_array(proto)


def test_axes_of_tensors_without_values_are_limited():
    zeros = np.zeros(2**26 + 1, np.float32)
    proto = tensors.tensor_pb2.TensorProto(dtype=1, tensor_content=zeros.tobytes())
    proto.tensor_shape.dim.add().size = len(zeros)
    assert tensors.to_array(proto).shape == zeros.shape
    proto = tensors.to_proto(np.zeros([0, len(zeros)]))
    with pytest.raises(ValueError, match="Invalid tensor"):
        tensors.to_array(proto)


def test_other_dtypes_are_refused():
    with pytest.raises(ValueError, match="Tensors of complex64 are not supported"):
        tensors.to_proto(np.zeros(1, np.complex64))
    with pytest.raises(ValueError, match="Invalid tensor of dtype 8"):
        tensors.to_array(tf.make_tensor_proto(np.zeros(1, np.complex64)))
