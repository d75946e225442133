# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Signatures of models: `tf.function`s by signature name.

The names of signatures and of their inputs and outputs are public API. Texts are UTF-8
strings, truncated to the model's maximum sequence length and padded to the longest text
of the request. The modules of the heads describe theirs; this one has what heads share.
Letters: N texts, S tokens, C classes.

    ids              token_ids, segment_ids, padding_mask [N, S] int32 -> the outputs of
                     the model
    classify         or regress: for TensorFlow Serving's Classify and Regress APIs
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

import keras

from bert_tf.lazy import lazy_import

tf = lazy_import("tensorflow")

# A name only, because TensorFlow is imported at its first use.
Signature = "tf.types.experimental.PolymorphicFunction"

_CALIBRATION_BATCH = 32


def string_input(name: str) -> tf.TensorSpec:
    """Returns the spec of an input with one string per row."""
    return tf.TensorSpec([None], tf.string, name)


def signature(*inputs: tf.TensorSpec) -> Callable[[Callable], Signature]:
    """Decorates a function of `inputs` that returns a dictionary of tensors.

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
            outputs = function(*tensors)
            if not isinstance(outputs, Mapping):
                raise ValueError(
                    f"The signature {function.__name__} must return a dict of tensors "
                    f"by their names. Received: {outputs!r}"
                )
            return outputs

        # AutoGraph conversion would take most of the time of an export, and no
        # signature needs it.
        return tf.function(checked, input_signature=inputs, autograph=False)

    return decorate


def class_probabilities(
    logits: tf.Tensor, labels: Sequence[str]
) -> dict[str, tf.Tensor]:
    """Returns `label` [N] string and `probabilities` [N, C] for logits [N, C]."""
    return {
        "label": tf.gather(tf.constant(labels), tf.argmax(logits, axis=1)),
        "probabilities": tf.nn.softmax(logits),
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
        inputs = dict(zip(model.input, tensors, strict=True))
        outputs = model(inputs, training=False)
        return to_float32(outputs if isinstance(outputs, dict) else {"logits": outputs})

    return ids


def to_float32(outputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Casts bfloat16, which many clients cannot read."""
    return {name: tf.cast(value, tf.float32) for name, value in outputs.items()}


# --- Serialized tf.Examples ------------------------------------------------------


def classify_signature(serving_default: Signature, labels: Sequence[str]) -> Signature:
    """Returns a signature for TensorFlow Serving's Classify API.

    Args:
        serving_default: Maps strings to `probabilities` [N, C].
        labels: The names of the C classes.

    Returns:
        The signature inputs [N] -> classes [N, C] string, scores [N, C] float32. The
        inputs are serialized tf.Examples with one feature per input of
        `serving_default`.
    """

    @signature(string_input("inputs"))
    def classify(inputs):
        scores = _run_on_examples(serving_default, inputs)["probabilities"]
        classes = tf.broadcast_to(tf.constant(labels), tf.shape(scores))
        return {"classes": classes, "scores": scores}

    return classify


def regress_signature(serving_default: Signature) -> Signature:
    """Returns a signature for TensorFlow Serving's Regress API.

    Args:
        serving_default: Maps strings to `score` [N].

    Returns:
        The signature inputs [N] -> outputs [N] float32, with inputs as in
        `classify_signature`.
    """

    @signature(string_input("inputs"))
    def regress(inputs):
        return {"outputs": _run_on_examples(serving_default, inputs)["score"]}

    return regress


def _run_on_examples(function: Signature, examples: tf.Tensor) -> dict[str, tf.Tensor]:
    specs = function.input_signature
    features = {s.name: tf.io.FixedLenFeature(s.shape[1:], s.dtype) for s in specs}
    parsed = tf.io.parse_example(examples, features)
    return function(*(parsed[spec.name] for spec in specs))


# --- Quantized vectors, as `quantize_embeddings` of sentence-transformers ----------


def vector_ranges(
    embed: Callable[[tf.Tensor], tf.Tensor], texts: Sequence[str]
) -> tf.Variable:
    """Returns minimum and step of each of the 255 steps [2, E].

    A variable, because TensorFlow would turn the division by a constant into a product,
    which rounds differently.
    """
    embed = tf.function(embed, input_signature=[string_input("text")], autograph=False)
    starts = range(0, len(texts), _CALIBRATION_BATCH)
    parts = [embed(tf.constant(texts[i : i + _CALIBRATION_BATCH])) for i in starts]
    vectors = tf.concat(parts, axis=0)
    start = tf.reduce_min(vectors, axis=0)
    step = (tf.reduce_max(vectors, axis=0) - start) / 255
    return tf.Variable([start, tf.where(step == 0, 1.0, step)], trainable=False)


def quantize_vectors(vectors: tf.Tensor, ranges: tf.Variable) -> dict[str, tf.Tensor]:
    """Returns int8 vectors [N, E], and binary ones [N, E/8], of vectors [N, E].

    Binary vectors tell whether values are positive, eight per number, first bit
    highest.
    """
    start, step = tf.unstack(ranges)
    steps = tf.clip_by_value(tf.floor((vectors - start) / step), 0, 255)
    size = vectors.shape[-1]
    bits = tf.pad(tf.cast(vectors > 0, tf.int32), [[0, 0], [0, -size % 8]])
    bits = tf.reshape(bits, [-1, (size + 7) // 8, 8])
    weights = tf.constant([128, 64, 32, 16, 8, 4, 2, 1])
    return {
        "sentence_embedding_int8": tf.cast(steps - 128, tf.int8),
        "sentence_embedding_binary": tf.cast(
            tf.reduce_sum(bits * weights, axis=-1) - 128, tf.int8
        ),
    }
