# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The questions that an exported model answers: `tf.function`s by signature name.

In: a model and its tokenizer. Out: functions for `saved_model.save`. Their names, and
those of their inputs and outputs, are API.

A pre-trained model, for N texts, at most M masks in one of them:

    serving_default  text [N] -> tokens [N, M, 5], scores [N, M, 5] float32: for each
                     [MASK] in a text the five likeliest tokens and their
                     probabilities; "" and 0 where a text has fewer masks than M
    embeddings       text [N] -> cls, mean, pooled_output [N, H] float32: final hidden
                     state of [CLS], mean over all tokens' ([CLS] and [SEP] included),
                     and the pooler's output; and for each layer n that was chosen,
                     0 the embeddings, -1 the last, layer_<n> [N, H]: the mean of that
    ids              token_ids, segment_ids, padding_mask [N, S] int32 ->
                     sequence_output [N, S, H], 0 at padding, pooled_output [N, H], and
                     layer_<n> [N, S, H], as sequence_output, float32

Without a masked-LM head `serving_default` is what `embeddings` is.

A task defines its own `serving_default` and may add `ids` of its model and, for
TensorFlow Serving's Classify and Regress calls, `classify` or `regress`.

Texts are UTF-8 strings, trimmed to the longest sequence that the model takes and padded
to the longest text of the request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from bert_tf.modeling.bert import BertBackbone, BertPretrainer
from bert_tf.serving.ragged_encoder import optimize_for_inference
from bert_tf.text.tokenizer import Tokenizer

Signature = tf.types.experimental.PolymorphicFunction

# Candidates for each [MASK].
_TOP_K = 5


def string_input(name: str) -> tf.TensorSpec:
    """The input of one string per row, called `name`."""
    return tf.TensorSpec([None], tf.string, name)


def signature(*inputs: tf.TensorSpec) -> Callable[[Callable], Signature]:
    """Makes a function of these inputs, which returns a dictionary, a signature.

    Example:

    ```python
    @signature(string_input("text"))
    def serving_default(text):
        return {"length": tf.strings.length(text)}
    ```
    """
    # Converting the control flow of Python, of which there is none, would take most
    # of the time that an export takes.
    return tf.function(input_signature=inputs, autograph=False)


# --- Pre-trained models ----------------------------------------------------------


def encoder_signatures(
    backbone: BertBackbone, tokenizer: Tokenizer, layers: Sequence[int] = ()
) -> dict[str, Signature]:
    """Returns the signatures of an encoder without the masked-LM head.

    Args:
        backbone: The encoder.
        tokenizer: Its tokenizer.
        layers: The numbers n of the `layer_<n>` that are answered with.
    """
    fast = optimize_for_inference(backbone, layers)
    embeddings = _embeddings(fast, tokenizer, backbone.config.max_sequence_length)
    return {
        "serving_default": embeddings,
        "embeddings": embeddings,
        "ids": ids_signature(fast),
    }


def pretrained_signatures(
    pretrainer: BertPretrainer, tokenizer: Tokenizer, layers: Sequence[int] = ()
) -> dict[str, Signature]:
    """Returns the signatures of a pre-trained model; `layers` as for `encoder`."""
    fast = optimize_for_inference(pretrainer.backbone, layers)
    max_length = pretrainer.backbone.config.max_sequence_length
    return {
        "serving_default": _fill_mask(fast, pretrainer, tokenizer),
        "embeddings": _embeddings(fast, tokenizer, max_length),
        "ids": ids_signature(fast),
    }


def _fill_mask(
    encoder: keras.Model, pretrainer: BertPretrainer, tokenizer: Tokenizer
) -> Signature:
    config, mlm_head = pretrainer.backbone.config, pretrainer.mlm_head
    vocabulary = tokenizer.vocabulary

    @signature(string_input("text"))
    def fill_mask(text):
        inputs = tokenizer.encode(
            text,
            max_sequence_length=config.max_sequence_length,
            allow_mask=True,
        )
        hidden = encoder(inputs, training=False)["sequence_output"]  # [N, S, H]
        # The head works on the masks of all rows at once, K of them, without padding.
        masks = tf.where(
            inputs["token_ids"] == vocabulary.mask_id
        )  # [K, 2]: row, place
        rows, places = tf.unstack(tf.cast(masks, tf.int32), axis=1)
        if config.left_to_right:
            places -= 1  # Where such a model predicts the token.
        num_rows, length = tf.unstack(tf.shape(inputs["token_ids"]))
        logits = mlm_head(
            tf.reshape(hidden, [1, num_rows * length, config.hidden_dim]),
            (rows * length + places)[tf.newaxis],
        )[0]  # [K, V]
        scores, token_ids = tf.math.top_k(
            tf.nn.softmax(logits), min(_TOP_K, vocabulary.size)
        )
        tokens = tf.gather(tf.constant(vocabulary.tokens), token_ids)

        def by_row(values):  # [K, 5] -> [N, M, 5]
            return tf.RaggedTensor.from_value_rowids(
                values, rows, nrows=num_rows, validate=False
            ).to_tensor()

        return {"tokens": by_row(tokens), "scores": by_row(scores)}

    return fill_mask


def _embeddings(
    encoder: keras.Model, tokenizer: Tokenizer, max_sequence_length: int
) -> Signature:
    @signature(string_input("text"))
    def embeddings(text):
        inputs = tokenizer.encode(text, max_sequence_length=max_sequence_length)
        encoded = _float32(encoder(inputs, training=False))
        pooled, hidden = encoded.pop("pooled_output"), encoded.pop("sequence_output")
        count = tf.reduce_sum(inputs["padding_mask"], axis=1, keepdims=True)
        count = tf.cast(count, tf.float32)

        def mean(states: tf.Tensor) -> tf.Tensor:  # They are 0 at padding.
            return tf.reduce_sum(states, axis=1) / count

        layers = {name: mean(states) for name, states in encoded.items()}
        means = {"mean": mean(hidden), **layers}
        return {"cls": hidden[:, 0], "pooled_output": pooled, **means}

    return embeddings


# --- Any model -------------------------------------------------------------------


def ids_signature(model: keras.Model) -> Signature:
    """The model itself, for callers that tokenize on their own.

    Args:
        model: A functional model of named inputs, and of named outputs, or of one,
            which is then called `logits`.
    """
    specs = [tf.TensorSpec(x.shape, x.dtype, name) for name, x in model.input.items()]

    @signature(*specs)
    def ids(*tensors):
        inputs = dict(zip(model.input, tensors, strict=True))
        outputs = model(inputs, training=False)
        return _float32(outputs if isinstance(outputs, dict) else {"logits": outputs})

    return ids


def _float32(outputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Casts what is bfloat16 inside, which clients cannot read."""
    return {name: tf.cast(value, tf.float32) for name, value in outputs.items()}


# --- Serialized tf.Examples ------------------------------------------------------


def classify_signature(serving_default: Signature, labels: Sequence[str]) -> Signature:
    """`serving_default` for TensorFlow Serving's Classify call.

    Args:
        serving_default: From strings to `probabilities` [N, C].
        labels: The names of the C classes.

    Returns:
        inputs [N], serialized tf.Examples with a feature for each input of
        `serving_default` -> classes [N, C] string, scores [N, C] float32.
    """

    @signature(string_input("inputs"))
    def classify(inputs):
        scores = serving_default(**_parse(inputs, serving_default))["probabilities"]
        classes = tf.broadcast_to(tf.constant(labels), tf.shape(scores))
        return {"classes": classes, "scores": scores}

    return classify


def regress_signature(serving_default: Signature) -> Signature:
    """`serving_default` for TensorFlow Serving's Regress call.

    Args:
        serving_default: From strings to `score` [N].

    Returns:
        inputs [N], serialized tf.Examples with a feature for each input of
        `serving_default` -> outputs [N] float32.
    """

    @signature(string_input("inputs"))
    def regress(inputs):
        answers = serving_default(**_parse(inputs, serving_default))
        return {"outputs": answers["score"]}

    return regress


def _parse(examples: tf.Tensor, function: Signature) -> dict[str, Any]:
    features = {
        spec.name: tf.io.FixedLenFeature(spec.shape[1:], spec.dtype)
        for spec in function.input_signature
    }
    return tf.io.parse_example(examples, features)
