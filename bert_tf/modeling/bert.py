# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""BERT in paper order: embeddings, encoder layer, encoder, pre-training heads.

Inputs: `token_ids`, `segment_ids`, `padding_mask` [B, S] int32 (1 = real token).
Outputs: `sequence_output` [B, S, H], `pooled_output` [B, H]; with the pre-training
heads `mlm` [B, P, V] and `nsp` [B, Q, 2] logits.

Letters: B batch, S sequence, P masked positions, Q sequences packed into a row,
H hidden, N heads, D = H / N, I intermediate, V vocabulary. This module runs on the
TensorFlow and JAX backends of Keras. All weights have a counterpart of the same shape
in KerasHub's `BertBackbone`, up to reshapes of the attention projections.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import keras
from keras import ops

from bert_tf import loading
from bert_tf.modeling import fused
from bert_tf.modeling.config import BertConfig
from bert_tf.modeling.keras_model import (
    BertModel,
    EncoderModel,
    quantize,
    quantized_layers,
)

# TensorFlow fuses these forms with the preceding matmul.
ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "gelu_tanh": functools.partial(keras.activations.gelu, approximate=True),
    "gelu_erf": functools.partial(keras.activations.gelu, approximate=False),
    "relu": keras.activations.relu,
}


class _ConfiguredLayer(keras.layers.Layer):
    """A layer whose hyperparameters are a `BertConfig` (or its dictionary)."""

    def __init__(self, config: BertConfig | Mapping[str, Any], **kwargs):
        super().__init__(**kwargs)
        self.config = BertConfig.from_dict(config)

    def get_config(self):
        return super().get_config() | {"config": dataclasses.asdict(self.config)}

    def get_build_config(self):
        return super().get_build_config() | {"quantized": quantized_layers(self)}

    def build_from_config(self, config):
        config = dict(config)
        quantized = config.pop("quantized", {})
        super().build_from_config(config)
        quantize(self, quantized)

    def _dense(self, units: int, name: str) -> keras.layers.Dense:
        return keras.layers.Dense(
            units,
            kernel_initializer=_initializer(self.config),
            dtype=self.dtype_policy,
            name=name,
        )

    def _layer_norm(self, name: str) -> keras.layers.LayerNormalization:
        return keras.layers.LayerNormalization(
            epsilon=self.config.layer_norm_epsilon, dtype=self.dtype_policy, name=name
        )

    def _dropout(self, rate: float, name: str) -> fused.Dropout:
        return fused.Dropout(rate, dtype=self.dtype_policy, name=name)

    @property
    def activation(self) -> Callable[[Any], Any]:
        return ACTIVATIONS[self.config.activation]

    def _dense_and_activation(self, x, dense, training):  # [T, H] -> [T, units]
        if training:
            activation = fused.ACTIVATIONS[self.config.activation]
            return activation(fused.project(x, dense), dense.bias)
        return self.activation(dense(x))


def _initializer(config: BertConfig) -> keras.initializers.Initializer:
    return keras.initializers.TruncatedNormal(stddev=config.initializer_range)


# --- Embeddings ------------------------------------------------------------------


@keras.saving.register_keras_serializable(package="bert_tf")
class Embeddings(_ConfiguredLayer):
    """Sum of token, position and segment embeddings (paper, figure 2).

    Inputs: token_ids, segment_ids [B, S] int32; position_ids [B or 1, S] int32, by
    default the columns 0 to S - 1. Output: [B, S, H].

    Raises:
        ValueError: S is longer than `max_sequence_length`; if a TensorFlow graph does
            not know S in advance, tf.errors.InvalidArgumentError.
    """

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        self.token_embedding = self._embedding(
            self.config.vocabulary_size, "token_embedding"
        )
        self.position_embedding = self._embedding(
            self.config.max_sequence_length, "position_embedding"
        )
        self.segment_embedding = self._embedding(
            self.config.num_segments, "segment_embedding"
        )
        self.layer_norm = self._layer_norm("layer_norm")
        self.dropout = self._dropout(self.config.dropout, "dropout")

    def _embedding(self, rows: int, name: str) -> keras.layers.Embedding:
        return keras.layers.Embedding(
            rows,
            self.config.hidden_dim,
            embeddings_initializer=_initializer(self.config),
            dtype=self.dtype_policy,
            name=name,
        )

    def build(self, token_ids_shape, segment_ids_shape, position_ids_shape=None):
        self.token_embedding.build(token_ids_shape)
        self.position_embedding.build((None,))
        self.segment_embedding.build(segment_ids_shape)
        self.layer_norm.build((*token_ids_shape, self.config.hidden_dim))

    def call(self, token_ids, segment_ids, position_ids=None, training=None):
        length, limit = ops.shape(token_ids)[1], self.config.max_sequence_length
        length = fused.check(
            length <= limit,
            f"A sequence may have at most `max_sequence_length` = {limit} tokens. Trim "
            "the input or build the model with more positions. Received",
            length,
        )
        if position_ids is None:
            position_ids = ops.arange(length, dtype="int32")  # [S]
        if self.config.num_segments == 1:  # Both texts of a pair are segment 0.
            segment_ids = ops.zeros_like(segment_ids)
        x = self.token_embedding(token_ids)  # [B, S, H]
        x = x + self.segment_embedding(segment_ids)
        x = x + self.position_embedding(position_ids)  # [S, H] broadcasts.
        return self.dropout(self.layer_norm(x), training=training)

    def compute_output_shape(self, token_ids_shape, *_, **__):
        return (*token_ids_shape, self.config.hidden_dim)


# --- Encoder layer ---------------------------------------------------------------


@keras.saving.register_keras_serializable(package="bert_tf")
class EncoderLayer(_ConfiguredLayer):
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
        self.recompute = recompute
        config = self.config
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
        def run(x):
            return self._run(x, attention_mask, training)

        if training and self.recompute:
            layers = (
                self.attention_dropout,
                self.attention_output_dropout,
                self.output_dropout,
            )
            run = fused.recompute(run, layers)
        return run(x)

    def _run(self, x, attention_mask, training):
        shape = ops.shape(x)
        # Everything but attention is per token. Dense layers are fastest on one
        # matrix [B*S, H], on all devices.
        x = ops.reshape(x, (-1, self.config.hidden_dim))
        y = self._attention(x, attention_mask, shape[0], shape[1], training)
        dense, dropout = self.attention_output, self.attention_output_dropout
        norm = self.attention_layer_norm
        x = self._dense_and_norm(x, y, dense, dropout, norm, training)
        y = self._dense_and_activation(x, self.intermediate, training)
        dense, dropout = self.output_dense, self.output_dropout
        norm = self.output_layer_norm
        x = self._dense_and_norm(x, y, dense, dropout, norm, training)
        return ops.reshape(x, shape)

    def _dense_and_norm(self, x, y, dense, dropout, layer_norm, training):
        if training:
            y = fused.project(y, dense)
            return fused.add_and_norm(x, y, dense.bias, layer_norm, dropout)
        return layer_norm(x + dense(y))

    def _attention(self, x, attention_mask, batch, length, training):
        """[B*S, H] -> [B*S, H], before the output projection."""
        heads = self.config.num_heads

        def split_heads(tokens):  # [B*S, H] -> [B, N, S, D]
            tokens = ops.reshape(tokens, (batch, length, heads, -1))
            return ops.transpose(tokens, (0, 2, 1, 3))

        def project(dense):
            if training:
                return fused.add_bias(fused.project(x, dense), dense.bias)
            return dense(x)

        # Scaling the query instead of the scores saves a pass over [B, N, S, S].
        scale = (self.config.hidden_dim // heads) ** -0.5
        inputs = (
            split_heads(project(self.query) * scale),
            split_heads(project(self.key)),
            split_heads(project(self.value)),
            fused.attention_bias(attention_mask),
        )
        if training:
            y = fused.attend_in_training(*inputs, self.attention_dropout)
        else:
            y = fused.attend(*inputs)
        return ops.reshape(ops.transpose(y, (0, 2, 1, 3)), (-1, self.config.hidden_dim))

    def get_config(self):
        return super().get_config() | {"recompute": self.recompute}

    def compute_output_shape(self, x_shape, attention_mask_shape=None):
        return x_shape


# --- The encoder -----------------------------------------------------------------


@keras.saving.register_keras_serializable(package="bert_tf")
class BertBackbone(EncoderModel):
    """The encoder of BERT (paper, section 3) as a Keras functional model.

    Args:
        config: The architecture, a `BertConfig` or its dictionary.
        recompute: Save memory in training, see `EncoderLayer`.
        dtype: Keras dtype policy of all layers, e.g. `"mixed_bfloat16"`; the global
            policy when None.

    Inputs: `{"token_ids", "segment_ids", "padding_mask"}`, each [B, S] int32.
    Outputs: `{"sequence_output": [B, S, H], "pooled_output": [B, H]}`; the pooled
    output is dense + tanh over the final hidden state of [CLS], the first token.

    Attributes:
        hidden_states: Symbolic outputs of the embeddings and of each layer, for other
            functional models: `keras.Model(backbone.input, backbone.hidden_states[-2])`

    Example:

    ```python
    config = BertConfig.from_size("tiny", vocabulary_size=1000)
    backbone = BertBackbone(config)
    ids = np.array([[2, 17, 29, 3, 0]])
    outputs = backbone(
        {"token_ids": ids, "segment_ids": 0 * ids, "padding_mask": ids != 0}
    )
    outputs["pooled_output"].shape  # (1, 128)
    ```
    """

    def __init__(
        self,
        config: BertConfig | Mapping[str, Any],
        *,
        recompute: bool = False,
        dtype=None,
        **kwargs,
    ):
        # === Layers ===
        self.config = config = BertConfig.from_dict(config)
        self.embeddings = Embeddings(config, dtype=dtype, name="embeddings")
        self.encoder_layers = [
            EncoderLayer(config, recompute, dtype=dtype, name=f"encoder_layer_{i}")
            for i in range(config.num_layers)
        ]
        self.pooler = keras.layers.Dense(
            config.hidden_dim,
            activation="tanh",
            kernel_initializer=_initializer(config),
            dtype=dtype,
            name="pooler",
        )

        # === Functional model ===
        inputs = {
            name: keras.Input((None,), dtype="int32", name=name)
            for name in ("token_ids", "segment_ids", "padding_mask")
        }
        self.hidden_states = self.encode(*inputs.values())
        x = self.hidden_states[-1]
        pooled = self.pooler(self.pooled_token(x, inputs["padding_mask"]))
        outputs = {"sequence_output": x, "pooled_output": pooled}
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)
        self.recompute = recompute

    def encode(self, token_ids, segment_ids, attention_mask, position_ids=None):
        """Applies the embeddings and all layers.

        Args:
            token_ids, segment_ids: [B, S] int32.
            attention_mask: [B, S] (nonzero = attend to) or [B, S, S] (query attends to
                key).
            position_ids: [B or 1, S] int32; by default 0 to S - 1.

        Returns:
            The hidden states of the embeddings and of each layer, a list of [B, S, H].
        """
        states = [self.embeddings(token_ids, segment_ids, position_ids)]
        for layer in self.encoder_layers:
            states.append(layer(states[-1], attention_mask=attention_mask))
        return states

    def pooled_token(self, x, padding_mask):
        """Returns the hidden state of each row that is pooled: [B, S, H] -> [B, H]."""
        return x[:, 0, :]

    @classmethod
    def from_checkpoint(
        cls, path: str, *, dtype=None, name: str | None = None
    ) -> BertBackbone:
        """Returns the encoder of a checkpoint of any format.

        Args:
            path: A model directory, a folder of Google's, Hugging Face's or KerasHub's
                (see `bert_tf.convert`), or a handle such as `"hf://..."`.
            dtype: As for the constructor.
            name: Name of the model. Two encoders in one model need different names.

        Raises:
            ValueError: The checkpoint is damaged or not a BERT.

        Example, two encoders in one model:

        ```python
        def encode(name):
            encoder = BertBackbone.from_checkpoint("models/mini", name=name)
            inputs = {
                key: keras.Input((None,), dtype="int32", name=f"{name}_{key}")
                for key in encoder.input
            }
            return inputs, encoder(inputs)["pooled_output"]

        (query, x), (document, y) = encode("query"), encode("document")
        scores = keras.layers.Dot(axes=1, normalize=True)([x, y])
        model = keras.Model({"query": query, "document": document}, scores)
        ```
        """
        return loading.open_checkpoint(path).load_backbone(dtype, name)

    def get_config(self):
        return {
            "config": dataclasses.asdict(self.config),
            "recompute": self.recompute,
            # Not the policy of a layer that `quantize` may have changed.
            "dtype": keras.saving.serialize_keras_object(self.embeddings.dtype_policy),
            "name": self.name,
            "quantized": quantized_layers(self),
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        config = dict(config)
        quantized = config.pop("quantized", {})
        return quantize(cls(**config), quantized)


@keras.saving.register_keras_serializable(package="bert_tf")
class TakePositions(keras.layers.Layer):
    """The vectors at some positions: x [B, S, H], positions [B, P] -> [B, P, H]."""

    def call(self, x, positions):
        if keras.backend.backend() == "jax":
            # Lookups in each row stay on the device that has the row.
            return ops.take_along_axis(x, ops.expand_dims(positions, 2), axis=1)
        batch, length, hidden_dim = ops.shape(x)
        row_starts = ops.expand_dims(ops.arange(batch, dtype="int32") * length, 1)
        flat = ops.reshape(positions + row_starts, (-1,))
        taken = ops.take(ops.reshape(x, (-1, hidden_dim)), flat, axis=0)
        return ops.reshape(taken, (batch, ops.shape(positions)[1], hidden_dim))

    def compute_output_shape(self, x_shape, positions_shape):
        return (*positions_shape, x_shape[-1])

    def get_config(self):
        return super().get_config()  # By default, Keras saves no policy as `dtype`.


@keras.saving.register_keras_serializable(package="bert_tf")
class UnpackRows(keras.layers.Layer):
    """Keeps the Q sequences of a packed row apart.

    Inputs: padding_mask [B, S] int32, the number of each token's sequence from 1, or 0
    for padding; first_positions [B, Q] int32, the column where each sequence begins,
    any column for sequences that a row lacks.
    Outputs: attention_mask [B, S, S] bool, from tokens to those of the same sequence;
    position_ids [B, S] int32, from 0 in each sequence. If Q = 1, the outputs are the
    padding mask itself, which is cheaper, and the columns [1, S].
    """

    def call(self, padding_mask, first_positions):
        columns = ops.expand_dims(
            ops.arange(ops.shape(padding_mask)[1], dtype="int32"), 0
        )
        if first_positions.shape[1] == 1:
            return padding_mask, columns
        sequence = ops.maximum(padding_mask - 1, 0)
        starts = ops.take_along_axis(first_positions, sequence, axis=1)  # [B, S]
        mask = ops.equal(
            ops.expand_dims(padding_mask, 2), ops.expand_dims(padding_mask, 1)
        )
        return mask, columns - starts

    def compute_output_spec(self, padding_mask, first_positions):
        batch, length = padding_mask.shape
        return (
            keras.KerasTensor((batch, length, length), dtype="bool"),
            keras.KerasTensor((batch, length), dtype="int32"),
        )


# --- Pre-training heads ----------------------------------------------------------


class MaskedLMHead(_ConfiguredLayer):
    """Predicts the masked tokens (paper, section 3.1, task 1).

    Inputs: sequence_output [B, S, H], mask_positions [B, P] int32. Output: logits
    [B, P, V] float32: dense, activation, LayerNorm, then the transposed token
    embedding plus a bias, as in google-research/bert.
    """

    def __init__(self, config, token_embedding, **kwargs):
        super().__init__(config, **kwargs)
        self.dense = self._dense(self.config.hidden_dim, "dense")
        self.layer_norm = self._layer_norm("layer_norm")
        self.token_embedding = token_embedding
        self.masked = TakePositions(dtype=self.dtype_policy, name="masked")

    def build(self, sequence_output_shape, mask_positions_shape):
        tokens_shape = (None, self.config.hidden_dim)
        self.dense.build(tokens_shape)
        self.layer_norm.build(tokens_shape)
        self.masked.build(sequence_output_shape)
        self.bias = self.add_weight(
            name="bias", shape=(self.config.vocabulary_size,), initializer="zeros"
        )

    def call(self, sequence_output, mask_positions, training=None):
        x = self.masked(sequence_output, mask_positions)
        batch, positions, hidden_dim = ops.shape(x)
        x = ops.reshape(x, (-1, hidden_dim))  # One matrix, as in `EncoderLayer`.
        x = self._dense_and_activation(x, self.dense, training)
        x = self.layer_norm(x)  # [B*P, H]
        embeddings = self.token_embedding.embeddings
        if self.token_embedding.quantization_mode:
            all_ids = ops.arange(self.config.vocabulary_size, dtype="int32")
            embeddings = self.token_embedding(all_ids)
        if training:
            logits = fused.tied_logits(x, embeddings)
        else:
            logits = ops.matmul(x, ops.transpose(embeddings))
        logits = ops.cast(logits, "float32") + ops.cast(self.bias, "float32")
        return ops.reshape(logits, (batch, positions, self.config.vocabulary_size))

    def get_config(self):
        raise NotImplementedError(
            "The masked-LM head shares weights with the encoder, so it can only be "
            "saved as a layer of `BertPretrainer`. Call the pre-trainer in the new "
            "model, not its layers: `keras.Model(m.input, new_layer(m(m.input)))`."
        )

    def compute_output_spec(self, sequence_output, mask_positions, training=None):
        shape = (*mask_positions.shape, self.config.vocabulary_size)
        return keras.KerasTensor(shape, dtype="float32")


@keras.saving.register_keras_serializable(package="bert_tf")
class BertPretrainer(BertModel):
    """`BertBackbone` with masked-LM and next-sentence heads (paper, section 3.1).

    A row may hold up to Q sequences, so that little of it is padding. Tokens attend to
    their own sequence only, and positions count from its beginning.

    Inputs, int32: `token_ids`, `segment_ids`, `padding_mask` [B, S], `mask_positions`
    [B, P], `first_positions` [B, Q]. `padding_mask` numbers the sequences of a row from
    1 (0 = padding); `first_positions` are the columns where they begin. For rows of one
    sequence, these are the usual 0/1 mask and zeros [B, 1].
    Outputs, float32 logits: `{"mlm": [B, P, V], "nsp": [B, Q, 2]}`. Class 1 of `nsp`
    means that the second segment is a random one.

    Example:

    ```python
    model = BertPretrainer(BertBackbone(config))
    model.compile(AdamW(learning_rate=1e-4))
    model.fit(pretrain_dataset("records", batch_size=32), steps_per_epoch=100)
    ```
    """

    kind = "pretrainer"

    def __init__(self, backbone: BertBackbone, **kwargs):
        # === Layers ===
        config, dtype = backbone.config, backbone.embeddings.dtype_policy
        self.backbone = backbone
        self.mlm_head = MaskedLMHead(
            config, backbone.embeddings.token_embedding, dtype=dtype, name="mlm"
        )
        self.nsp_head = keras.layers.Dense(
            2,
            kernel_initializer=_initializer(config),
            dtype=keras.DTypePolicy("float32"),
            name="nsp",
        )

        # === Functional model ===
        inputs = {
            name: keras.Input((None,), dtype="int32", name=name)
            for name in (*backbone.input, "mask_positions", "first_positions")
        }
        firsts = inputs["first_positions"]
        mask, position_ids = UnpackRows(name="unpack")(inputs["padding_mask"], firsts)
        x = backbone.encode(
            inputs["token_ids"], inputs["segment_ids"], mask, position_ids
        )[-1]
        pooled = backbone.pooler(TakePositions(dtype=dtype, name="firsts")(x, firsts))
        outputs = {
            "mlm": self.mlm_head(x, inputs["mask_positions"]),
            "nsp": self.nsp_head(pooled),
        }
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)

    @property
    def layers(self):
        # The graph calls the layers of the backbone one by one. Weight files and
        # summaries have the backbone as one layer, as in all models.
        return [self.backbone, self.mlm_head, self.nsp_head]

    def _losses_and_metrics(self):
        defaults = super()._losses_and_metrics()
        defaults["loss"]["mlm"] = fused.MaskedLMLoss()
        accuracy = keras.metrics.MeanMetricWrapper(fused.masked_lm_accuracy, "accuracy")
        defaults["weighted_metrics"]["mlm"] = [accuracy]
        # The weights of `pretrain_dataset` sum to one over the batch of all replicas.
        defaults["loss"]["nsp"].reduction = "sum"
        return defaults
