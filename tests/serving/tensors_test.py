# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest
import tensorflow as tf

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


def test_other_dtypes_are_refused():
    with pytest.raises(ValueError, match="Tensors of complex64 are not supported"):
        tensors.to_proto(np.zeros(1, np.complex64))
    with pytest.raises(ValueError, match="Invalid tensor of dtype 8"):
        tensors.to_array(tf.make_tensor_proto(np.zeros(1, np.complex64)))
