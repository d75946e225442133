# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Signatures: graph functions from named inputs to named outputs.

Signatures are `tf.function`s by signature name. The names of signatures and of their
inputs and outputs are public API. Texts are UTF-8 strings, truncated to the model's
maximum sequence length and padded to the longest text of the request. The modules of
the heads describe theirs; this one has what heads share. Letters: N texts, S tokens,
C classes.

    ids              token_ids, segment_ids, padding_mask [N, S] int32 -> the outputs of
                     the model
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from bert_tf.lazy import lazy_import

keras = lazy_import("keras")
tf = lazy_import("tensorflow")


class Signature(Protocol):
    """A `tf.function` from named tensors to named tensors; on JAX, an eager function.

    Attributes:
        input_signature: The specs of its arguments.
    """

    input_signature: Sequence[tf.TensorSpec]

    def __call__(self, *tensors: tf.Tensor) -> dict[str, tf.Tensor]: ...


def with_equal_rows(first: tf.Tensor, second: tf.Tensor, message: str) -> tf.Tensor:
    """Returns `second` if it has as many rows as `first`, or raises an error.

    Without it, another op may fail first, with an unclear message.
    """
    rows = tf.shape(first)[0], tf.shape(second)[0]
    with tf.control_dependencies([tf.debugging.assert_equal(*rows, message)]):
        return tf.identity(second)


def string_input(name: str) -> tf.TensorSpec:
    """Returns the spec of an input with one string per row."""
    return tf.TensorSpec([None], tf.string, name)


def signature(*inputs: tf.TensorSpec) -> Callable[[Callable], Signature]:
    """Decorates a function of `inputs` that returns a dictionary of tensors.

    Raises InvalidArgumentError for tensors of another rank than the inputs'.

    Example:

    ```python
    @signature(string_input("text"))
    def serving_default(text):
        return {"length": tf.strings.length(text)}
    ```
    """

    def decorate(function: Callable) -> Signature:
        @functools.wraps(function)
        def checked(*tensors):
            # TensorFlow Serving checks only names and dtypes, and tf_text's ops read
            # out of bounds if they get a scalar.
            shapes = [spec.shape for spec in inputs]
            outputs = function(*map(tf.ensure_shape, tensors, shapes))
            if not isinstance(outputs, Mapping):
                raise ValueError(
                    f"The signature {function.__name__} must return a dict of tensors "
                    f"by their names. Received: {outputs!r}"
                )
            return to_float32(outputs)

        if keras.config.backend() == "jax":  # Models of JAX are not part of a graph.
            checked.input_signature = inputs
            return checked
        # AutoGraph conversion would take most of the time of an export, and no
        # signature needs it.
        return tf.function(checked, input_signature=inputs, autograph=False)

    return decorate


def class_probabilities(
    logits: tf.Tensor, labels: Sequence[str]
) -> dict[str, tf.Tensor]:
    """Returns `label` [N] string, `logits` and `probabilities` for logits [N, C]."""
    return {
        "label": tf.gather(tf.constant(labels), tf.argmax(logits, axis=1)),
        "probabilities": tf.nn.softmax(logits),
        "logits": logits,
    }


def ids_signature(model: keras.Model) -> Signature:
    """Returns a signature that runs the model on token ids.

    Args:
        model: A functional model with named inputs. A single unnamed output is called
            `logits`.
    """
    specs = [tf.TensorSpec(x.shape, x.dtype, name) for name, x in model.input.items()]

    @signature(*specs)
    def ids(*tensors):
        # Fails if shapes differ. The encoder would read segments by a flat index.
        tensors = tf.unstack(tf.stack(tensors))
        inputs = dict(zip(model.input, tensors, strict=True))
        outputs = model(inputs, training=False)
        return outputs if isinstance(outputs, dict) else {"logits": outputs}

    return ids


def to_float32(outputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Casts bfloat16 and float16, which many clients and the REST API cannot read."""
    half = {tf.bfloat16: tf.float32, tf.float16: tf.float32}
    values = {name: tf.convert_to_tensor(value) for name, value in outputs.items()}
    return {name: tf.cast(x, half.get(x.dtype, x.dtype)) for name, x in values.items()}


def to_numpy(outputs: Mapping[str, tf.Tensor]) -> dict[str, np.ndarray]:
    """Returns eager tensors and arrays as arrays; strings become `str`."""
    # NumPy's own strings would all have the length of the longest one.
    decode = np.vectorize(lambda x: x.decode("utf-8", "replace"), otypes=[object])
    arrays = {name: np.array(tensor) for name, tensor in outputs.items()}
    return {k: decode(x) if x.dtype == object else x for k, x in arrays.items()}
