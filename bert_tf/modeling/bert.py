# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""BERT in paper order: embeddings, attention, encoder layer.

`backbone.BertBackbone` stacks these layers to the encoder. In training, their
operations use the faster kernels of `fused`, which give the same values.

Letters: B batch, S sequence, H hidden, N heads, D = H / N, I intermediate. This module
runs on every backend of Keras. All weights have a counterpart of the same shape in
KerasHub's `BertBackbone`, up to reshapes of the attention projections.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

import keras
from keras import ops

from bert_tf import keras_private
from bert_tf.modeling import fused
from bert_tf.modeling.attention import (
    attend,
    attend_in_training,
    attention_bias,
    merge_heads,
)
from bert_tf.modeling.backend import Dropout, check, recompute
from bert_tf.modeling.config import BertConfig


def initializer(config: BertConfig) -> keras.initializers.Initializer:
    """Returns the initializer of matrices."""
    return keras.initializers.TruncatedNormal(stddev=config.initializer_range)


# Keras' `quantize` skips subclasses. `fused` and the masked-LM head read the weights.


@keras.saving.register_keras_serializable(package="bert_tf")
class Dense(keras.layers.Dense):
    """A dense layer that is not quantized, and whose outputs have no Keras mask."""

    def compute_mask(self, inputs, mask=None):
        return None  # Losses of logits would ignore padding and rescale.


class Embedding(keras.layers.Embedding):
    """An embedding that is not quantized."""


def dense_layer(config: BertConfig, units: int, name: str, dtype, **kwargs) -> Dense:
    """Returns a dense layer with the initial weights of BERT."""
    weights = {"kernel_initializer": initializer(config)}
    return Dense(units, dtype=dtype, name=name, **weights, **kwargs)


def take_positions(x, positions):
    """Returns the vectors at some positions: [B, S, H], [B, P] -> [B, P, H]."""
    return ops.take_along_axis(x, ops.expand_dims(positions, 2), axis=1)


# --- Frozen layers ---------------------------------------------------------------
# Keras saves `trainable` of the layers of its own functional models only.


def _layers_by_path(layer, path=""):
    """Yields the paths of a layer and of those inside, the outer before the inner."""
    yield path, layer
    for inner in keras_private.nested_layers(layer, recursive=False):
        yield from _layers_by_path(inner, f"{path}/{inner.name}")


def frozen_layers(layer: keras.layers.Layer) -> list[str]:
    """Returns the paths of the layers that are not trainable, "" for `layer`."""
    return [path for path, inner in _layers_by_path(layer) if not inner.trainable]


def freeze(layer: Any, paths: Collection[str]) -> Any:
    """Makes an equal layer as trainable as the one of `frozen_layers`."""
    for path, inner in _layers_by_path(layer):
        inner.trainable = path not in paths  # Sets that of all inside, too.
    return layer


# --- Hyperparameters -------------------------------------------------------------


class ConfiguredLayer(keras.layers.Layer):
    """A layer whose hyperparameters are a `BertConfig` (or its dictionary)."""

    def __init__(self, config: BertConfig | Mapping[str, Any], **kwargs):
        super().__init__(**kwargs)
        self.config = BertConfig.from_dict(config)

    def get_config(self):
        config = {"config": dataclasses.asdict(self.config)}
        return super().get_config() | config | {"frozen_layers": frozen_layers(self)}

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        frozen = config.pop("frozen_layers", ())
        return freeze(super().from_config(config), frozen)

    def _dense(self, units: int, name: str) -> keras.layers.Dense:
        return dense_layer(self.config, units, name, self.dtype_policy)

    def _layer_norm(self, name: str) -> keras.layers.LayerNormalization:
        return keras.layers.LayerNormalization(
            epsilon=self.config.layer_norm_epsilon, dtype=self.dtype_policy, name=name
        )

    def _dropout(self, rate: float, name: str) -> Dropout:
        return Dropout(rate, dtype=self.dtype_policy, name=name)

    def activation(self, x):
        return fused.ACTIVATIONS[self.config.activation].inference(x)


# --- Embeddings ------------------------------------------------------------------


@keras.saving.register_keras_serializable(package="bert_tf")
class Embeddings(ConfiguredLayer):
    """Sum of token, position and segment embeddings (paper, figure 2).

    If their width E differs from H, a dense layer projects them after LayerNorm and
    dropout.

    Inputs: token_ids, segment_ids [B, S] int32; position_ids [B or 1, S] int32, by
    default the columns 0 to S - 1. Output: [B, S, H].

    Raises:
        ValueError: S is longer than `max_sequence_length`; if a TensorFlow graph does
            not know S in advance, tf.errors.InvalidArgumentError.
    """

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        config = self.config
        self.token_embedding = self._embedding(config.vocabulary_size, "token")
        self.position_embedding = self._embedding(
            config.max_sequence_length, "position"
        )
        self.segment_embedding = config.num_segments and self._embedding(
            config.num_segments, "segment"
        )
        self.layer_norm = self._layer_norm("layer_norm")
        self.dropout = self._dropout(config.dropout, "dropout")
        self.projection = None
        if config.embedding_dim != config.hidden_dim:
            self.projection = self._dense(config.hidden_dim, "projection")

    def _embedding(self, rows: int, kind: str) -> keras.layers.Embedding:
        return Embedding(
            rows,
            self.config.embedding_dim,
            embeddings_initializer=initializer(self.config),
            dtype=self.dtype_policy,
            name=f"{kind}_embedding",
        )

    def build(self, token_ids_shape, segment_ids_shape, position_ids_shape=None):
        self.token_embedding.build(token_ids_shape)
        self.position_embedding.build((None,))
        if self.segment_embedding:
            self.segment_embedding.build(segment_ids_shape)
        for layer in filter(None, (self.layer_norm, self.projection)):
            layer.build((*token_ids_shape, self.config.embedding_dim))

    def call(self, token_ids, segment_ids, position_ids=None, training=None):
        length, limit = ops.shape(token_ids)[1], self.config.max_sequence_length
        length = check(
            length <= limit,
            f"A sequence may have at most `max_sequence_length` = {limit} tokens. Trim "
            "the input or build the model with more positions. Received",
            length,
        )
        if position_ids is None:
            position_ids = ops.arange(length, dtype="int32")  # [S]
        if self.config.num_segments == 1:  # Both texts of a pair are segment 0.
            segment_ids = ops.zeros_like(segment_ids)
        x = self.token_embedding(token_ids)  # [B, S, E]
        if self.segment_embedding:
            x = x + self.segment_embedding(segment_ids)
        x = x + self.position_embedding(position_ids)  # [S, E] broadcasts.
        x = self.dropout(self.layer_norm(x), training=training)
        return self.projection(x) if self.projection else x

    def compute_output_shape(self, token_ids_shape, *_, **__):
        return (*token_ids_shape, self.config.hidden_dim)


# --- Encoder layer ---------------------------------------------------------------


@keras.saving.register_keras_serializable(package="bert_tf")
class PaddingMask(keras.layers.Layer):
    """Attaches a mask of padding, which Keras layers such as LSTM follow.

    Inputs: a list of x [B, S, H] and an attention mask as that of `EncoderLayer`.
    Output: x, whose Keras mask [B, S] is true for tokens that any token attends to.
    """

    def __init__(self, **kwargs):
        super().__init__(**{"autocast": False, **kwargs})

    def call(self, inputs):
        return inputs[0]

    def compute_mask(self, inputs, mask=None):
        mask = ops.cast(inputs[1], "bool")
        return mask if len(mask.shape) == 2 else ops.any(mask, axis=1)


@keras.saving.register_keras_serializable(package="bert_tf")
class EncoderLayer(ConfiguredLayer):
    """Self-attention and feed-forward, each with residual and post-LayerNorm.

    Args:
        config: The architecture.
        recompute: Keep only the input of the layer for the backward pass of training
            and compute the layer twice, with the same dropout masks. Takes about a
            third more time. The kept values fall from about (34 + 5 N S / H) B S H to
            B S H (arXiv 2205.05198).

    Inputs: x [B, S, H]; attention_mask [B, S] (nonzero = attend to) or [B, S, S]
    (query attends to key), any dtype. Output: [B, S, H].
    """

    def __init__(self, config, recompute: bool = False, **kwargs):
        super().__init__(config, **kwargs)
        self.supports_masking = True  # Of outputs: `call` has its own mask.
        config, self.recompute = self.config, recompute
        self.attention_scale = (config.hidden_dim // config.num_heads) ** -0.5
        self.query = self._dense(config.hidden_dim, "query")
        self.key = self._dense(config.hidden_dim, "key")
        self.value = self._dense(config.hidden_dim, "value")
        self.attention_dropout = self._dropout(
            config.attention_dropout, "attention_dropout"
        )
        self.attention_output = self._dense(config.hidden_dim, "attention_output")
        self.attention_output_dropout = self._dropout(
            config.dropout, "attention_output_dropout"
        )
        self.attention_layer_norm = self._layer_norm("attention_layer_norm")
        self.intermediate = self._dense(config.intermediate_dim, "intermediate")
        self.output_dense = self._dense(config.hidden_dim, "output")
        self.output_dropout = self._dropout(config.dropout, "output_dropout")
        self.output_layer_norm = self._layer_norm("output_layer_norm")

    def build(self, x_shape, attention_mask_shape=None):
        tokens_shape = (None, self.config.hidden_dim)
        for layer in (self.query, self.key, self.value, self.attention_output):
            layer.build(tokens_shape)
        self.intermediate.build(tokens_shape)
        self.output_dense.build((None, self.config.intermediate_dim))
        self.attention_layer_norm.build(tokens_shape)
        self.output_layer_norm.build(tokens_shape)

    def call(self, x, attention_mask, training=None):
        if not training:
            return self._run(x, attention_mask)
        layers = (
            self.attention_dropout,
            self.attention_output_dropout,
            self.output_dropout,
        )
        # Drawn here, because recomputation must draw the same dropout masks.
        seeds = [layer.next_seed() for layer in layers]
        run = recompute(self._run) if self.recompute else self._run
        return run(x, attention_mask, seeds)

    def _run(self, x, attention_mask, seeds=None):
        """Applies the layer; in training, with a seed of each dropout layer."""
        config, shape, training = self.config, ops.shape(x), seeds is not None
        seeds = seeds or [None] * 3
        # Everything but attention is per token. Dense layers are fastest on one
        # matrix [B*S, H], on all devices.
        x = ops.reshape(x, (-1, config.hidden_dim))

        layers = self.query, self.key, self.value
        query, key, value = fused.project_heads(
            x, layers, shape, config.num_heads, training
        )
        query, bias = query * self.attention_scale, attention_bias(attention_mask)
        if training:
            rate = self.attention_dropout.rate
            y = attend_in_training(query, key, value, bias, rate, seeds[0])
        else:
            y = attend(query, key, value, bias)
        x = fused.dense_add_and_norm(
            x,
            merge_heads(y),
            self.attention_output,
            self.attention_layer_norm,
            self.attention_output_dropout,
            seeds[1],
            training,
        )

        y = fused.dense_and_activation(
            x, self.intermediate, config.activation, training
        )
        x = fused.dense_add_and_norm(
            x,
            y,
            self.output_dense,
            self.output_layer_norm,
            self.output_dropout,
            seeds[2],
            training,
        )
        return ops.reshape(x, shape)

    def get_config(self):
        return super().get_config() | {"recompute": self.recompute}

    def compute_output_shape(self, x_shape, attention_mask_shape=None):
        return x_shape
