# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Signatures of exported models: `tf.function`s by signature name.

The names of signatures and of their inputs and outputs are public API. Texts are UTF-8
strings, truncated to the model's maximum sequence length and padded to the longest text
of the request. Letters: N texts, S tokens, H hidden dimension, M masks per text.

Signatures of a pre-trained model:

    serving_default  text [N] -> tokens [N, M, 5] string, scores [N, M, 5] float32: the
                     five most probable tokens of each [MASK] and their probabilities;
                     "" and 0 for texts with fewer than M masks
    embeddings       text [N] -> cls, mean, pooled_output [N, H] float32: the final
                     hidden state of [CLS], the mean over all tokens including [CLS] and
                     [SEP], and the pooler's output; layer_<n> [N, H]: the mean over all
                     tokens for each requested layer (0: embeddings, -1: last layer)
    sentence_embedding
                     text [N] -> sentence_embedding [N, E] float32: one vector per text,
                     as `modeling.EmbeddingConfig` describes it, with the default prompt
                     of the checkpoint. If ranges were calibrated: also
                     sentence_embedding_int8 [N, E] and sentence_embedding_binary
                     [N, E/8] int8, one bit per value
    query, document, ...
                     the same with another prompt of the checkpoint
    ids              token_ids, segment_ids, padding_mask [N, S] int32 ->
                     sequence_output [N, S, H] (0 at padding), pooled_output [N, H],
                     and layer_<n> [N, S, H] for each requested layer, float32
    next_sentence    text_a, text_b [N] -> label [N] string, `next` or `random`, and
                     probabilities [N, 2] float32; with a next sentence head only

The `serving_default` of a sentence encoder is `sentence_embedding`. Of other models it
is fill-mask, `next_sentence` or `embeddings`: the first that their heads allow.

A task defines its own `serving_default`, and may add `ids` and, for the Classify and
Regress APIs of TensorFlow Serving, `classify` or `regress`. `task_heads` has those
of the tasks in `tasks/`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence

import keras
import tensorflow as tf

from bert_tf.modeling import (
    BertBackbone,
    BertPretrainer,
    EmbeddingConfig,
    SentenceEmbedding,
    SentenceEncoder,
)
from bert_tf.serving.ragged_encoder import optimize_for_inference
from bert_tf.text import Tokenizer, Vocabulary

Signature = tf.types.experimental.PolymorphicFunction

_CALIBRATION_BATCH = 32
_TOP_K = 5  # Predicted tokens for each [MASK].


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


# --- Pre-trained models ----------------------------------------------------------


def pretrained_signatures(
    model: BertBackbone | BertPretrainer | SentenceEncoder,
    tokenizer: Tokenizer,
    layers: Sequence[int] = (),
    pooling: str = "mean",
    *,
    heads: Collection[str] = ("mlm", "nsp"),
    max_sequence_length: int | None = None,
    int8: bool = False,
    prompts: Mapping[str, str] | None = None,
    include_prompt: bool = True,
    calibration_texts: Sequence[str] = (),
) -> dict[str, Signature]:
    """Returns the signatures of a pre-trained model or a sentence encoder.

    Args:
        model: An encoder, a model with pre-training heads, or a sentence encoder.
        tokenizer: Its tokenizer.
        layers: The layers n to return as `layer_<n>`.
        pooling: The pooling of `sentence_embedding`, see `EmbeddingConfig`. A sentence
            encoder has its own.
        heads: The pre-training heads that are trained.
        max_sequence_length: Maximum tokens of a text; by default, all positions.
        int8: Whether to quantize the encoder, see `optimize_for_inference`.
        prompts: By name of the signature, the string before each text. The key
            `sentence_embedding` is the default prompt.
        include_prompt: Whether [CLS] and the prompt's tokens are pooled.
        calibration_texts: Texts whose vectors have the ranges of the int8 vectors; none
            for float vectors only.
    """
    backbone = getattr(model, "backbone", model)
    encoder = optimize_for_inference(backbone, layers, int8=int8)
    max_length = max_sequence_length or backbone.config.max_sequence_length
    if isinstance(model, SentenceEncoder):
        embed = model.sentence_embedding
    else:
        config = EmbeddingConfig(max_sequence_length=max_length, pooling=pooling)
        embed = SentenceEmbedding(config)
    encode = functools.partial(tokenizer.encode, max_sequence_length=max_length)

    max_length = embed.config.max_sequence_length

    def embedder(prompt):
        """Returns the function from texts [N] to vectors [N, E]."""
        skipped = 0
        if prompt and not include_prompt:  # All tokens but the last, [SEP].
            tokens = tokenizer.encode([prompt], max_sequence_length=max_length)
            skipped = int(tf.reduce_sum(tokens["padding_mask"])) - 1

        def embed_texts(text):
            text = tf.strings.join([prompt, text]) if prompt else text
            inputs = tokenizer.encode(text, max_sequence_length=max_length)
            hidden = encoder(inputs, training=False)["sequence_output"]
            return embed(hidden, inputs["padding_mask"], skipped_tokens=skipped)

        return embed_texts

    prompts = {"sentence_embedding": "", **(prompts or {})}
    default = embedder(prompts["sentence_embedding"])
    ranges = _ranges(default, calibration_texts) if calibration_texts else None
    signatures = {
        "embeddings": _embeddings(encoder, encode),
        "ids": ids_signature(encoder),
    }
    signatures |= {
        name: _sentence_embedding(embedder(prompt), ranges)
        for name, prompt in prompts.items()
    }
    is_sentence_encoder = isinstance(model, SentenceEncoder)
    default = signatures["sentence_embedding" if is_sentence_encoder else "embeddings"]
    if isinstance(model, BertPretrainer):
        if "nsp" in heads:
            default = _next_sentence(encoder, model.nsp_head, encode)
            signatures["next_sentence"] = default
        if "mlm" in heads:
            default = _fill_mask(encoder, model.mlm_head, encode, tokenizer.vocabulary)
    return {"serving_default": default, **signatures}


def _fill_mask(
    encoder: keras.Model,
    mlm_head: keras.layers.Layer,
    encode: Callable[..., dict[str, tf.Tensor]],
    vocabulary: Vocabulary,
) -> Signature:
    @signature(string_input("text"))
    def fill_mask(text):
        inputs = encode(text, allow_mask=True)
        hidden = encoder(inputs, training=False)["sequence_output"]  # [N, S, H]
        # The head runs on the K masks of all rows as one row, without padding.
        masks = tf.where(inputs["token_ids"] == vocabulary.mask_id)  # [K, 2]
        rows, positions = tf.unstack(tf.cast(masks, tf.int32), axis=1)
        num_rows, length = tf.unstack(tf.shape(inputs["token_ids"]))
        logits = mlm_head(
            tf.reshape(hidden, [1, num_rows * length, hidden.shape[-1]]),
            (rows * length + positions)[tf.newaxis],
        )[0]  # [K, V]
        scores, token_ids = tf.math.top_k(
            tf.nn.softmax(logits), min(_TOP_K, vocabulary.size)
        )
        tokens = tf.gather(tf.constant(vocabulary.tokens), token_ids)

        def group_by_row(values):  # [K, 5] -> [N, M, 5]
            return tf.RaggedTensor.from_value_rowids(
                values, rows, nrows=num_rows, validate=False
            ).to_tensor()

        return {"tokens": group_by_row(tokens), "scores": group_by_row(scores)}

    return fill_mask


def _next_sentence(encoder, nsp_head, encode) -> Signature:
    @signature(string_input("text_a"), string_input("text_b"))
    def next_sentence(text_a, text_b):
        pooled = encoder(encode(text_a, text_b), training=False)["pooled_output"]
        return class_probabilities(nsp_head(pooled), ("next", "random"))

    return next_sentence


def _embeddings(
    encoder: keras.Model, encode: Callable[..., dict[str, tf.Tensor]]
) -> Signature:
    @signature(string_input("text"))
    def embeddings(text):
        inputs = encode(text)
        encoded = _float32(encoder(inputs, training=False))
        pooled, hidden = encoded.pop("pooled_output"), encoded.pop("sequence_output")
        count = tf.reduce_sum(inputs["padding_mask"], axis=1, keepdims=True)
        count = tf.cast(count, tf.float32)
        means = {  # Hidden states are 0 at padding.
            name: tf.reduce_sum(states, axis=1) / count
            for name, states in {"mean": hidden, **encoded}.items()
        }
        return {"cls": hidden[:, 0], "pooled_output": pooled, **means}

    return embeddings


def _sentence_embedding(
    embed: Callable[[tf.Tensor], tf.Tensor], ranges: tf.Variable | None
) -> Signature:
    @signature(string_input("text"))
    def sentence_embedding(text):
        vectors = embed(text)
        outputs = {"sentence_embedding": vectors}
        if ranges is not None:
            outputs["sentence_embedding_int8"] = _to_int8(vectors, ranges)
            outputs["sentence_embedding_binary"] = _to_bits(vectors)
        return outputs

    return sentence_embedding


# --- Quantized vectors, as `quantize_embeddings` of sentence-transformers ----------


def _ranges(
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


def _to_int8(vectors: tf.Tensor, ranges: tf.Variable) -> tf.Tensor:
    start, step = tf.unstack(ranges)
    steps = tf.clip_by_value(tf.floor((vectors - start) / step), 0, 255)
    return tf.cast(steps - 128, tf.int8)


def _to_bits(vectors: tf.Tensor) -> tf.Tensor:
    """Returns whether the values are positive, eight per number, first bit highest."""
    size = vectors.shape[-1]
    bits = tf.pad(tf.cast(vectors > 0, tf.int32), [[0, 0], [0, -size % 8]])
    bits = tf.reshape(bits, [-1, (size + 7) // 8, 8])
    weights = tf.constant([128, 64, 32, 16, 8, 4, 2, 1])
    return tf.cast(tf.reduce_sum(bits * weights, axis=-1) - 128, tf.int8)


# --- Any model -------------------------------------------------------------------


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
        return _float32(outputs if isinstance(outputs, dict) else {"logits": outputs})

    return ids


def _float32(outputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
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
