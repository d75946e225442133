# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""BERT in paper order: embeddings, encoder layer, encoder, pre-training heads.

In: `token_ids`, `segment_ids`, `padding_mask` [B, S] int32 (1 = real token).
Out: `sequence_output` [B, S, H], `pooled_output` [B, H]; with the pre-training
heads `mlm` [B, P, V] and `nsp` [B, 2] logits.

Letters: B batch, S sequence, P masked positions, Q sequences packed into a row,
H hidden, N heads, D = H / N, I intermediate, V vocabulary. Only `keras` and
`keras.ops` are used, so the model runs on every Keras backend. All weights have a
counterpart of the same shape in KerasHub's `BertBackbone`, up to reshapes of the
attention projections.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from bert_tf.modeling import activations, attention, gradients, loading, residual
from bert_tf.modeling.config import BertConfig
from bert_tf.modeling.keras_model import BertModel, PackableModel, is_packed
from bert_tf.modeling.losses import MaskedLMLoss


class _ConfiguredLayer(keras.layers.Layer):
    """A layer whose hyperparameters are a `BertConfig` (or its dictionary)."""

    def __init__(self, config: BertConfig | Mapping[str, Any], **kwargs):
        super().__init__(**kwargs)
        self.config = BertConfig(**config) if isinstance(config, Mapping) else config

    def get_config(self):
        return super().get_config() | {"config": dataclasses.asdict(self.config)}

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

    def _dropout(self, rate: float, name: str) -> keras.layers.Dropout:
        return keras.layers.Dropout(rate, dtype=self.dtype_policy, name=name)


def _randomness(dropout: keras.layers.Dropout) -> dict[str, Any]:
    """What functions that drop as this layer does take."""
    seed = dropout.seed_generator if dropout.rate else None
    return {"dropout": dropout.rate, "seed": seed}


def _initializer(config: BertConfig) -> keras.initializers.Initializer:
    return keras.initializers.TruncatedNormal(stddev=config.initializer_range)


# --- Embeddings ------------------------------------------------------------------


@keras.saving.register_keras_serializable(package="bert_tf")
class Embeddings(_ConfiguredLayer):
    """Sum of token, position and segment embeddings (paper, figure 2).

    In: token_ids, segment_ids [B, S] int32; for packed rows also padding_mask [B, S]
    and first_positions [B, Q] as in `BertBackbone`. Out: [B, S, H].

    Raises:
        ValueError: S is known and longer than `max_sequence_length`.
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

    def build(
        self,
        token_ids_shape,
        segment_ids_shape,
        padding_mask_shape=None,
        first_positions_shape=None,
    ):
        self.token_embedding.build(token_ids_shape)
        self.position_embedding.build((None,))
        self.segment_embedding.build(segment_ids_shape)
        self.layer_norm.build((*token_ids_shape, self.config.hidden_dim))

    def call(
        self,
        token_ids,
        segment_ids,
        padding_mask=None,
        first_positions=None,
        training=None,
    ):
        length, limit = token_ids.shape[1], self.config.max_sequence_length
        if length is not None and length > limit:
            raise ValueError(
                "A sequence may have at most `max_sequence_length` tokens. Received: "
                f"token_ids with {length} of {limit}; trim the input or build the "
                "model with more positions."
            )
        positions = ops.arange(ops.shape(token_ids)[1], dtype="int32")  # [S]
        if first_positions is not None:
            number = ops.maximum(padding_mask - 1, 0)  # Of the sequence, from 0.
            firsts = ops.take_along_axis(first_positions, number, axis=1)
            positions = positions - firsts  # [B, S], from 0 in each sequence.
        x = self.token_embedding(token_ids)  # [B, S, H]
        x = x + self.segment_embedding(segment_ids)
        x = x + self.position_embedding(positions)  # Each row, or [S, H] to all.
        return self.dropout(self.layer_norm(x), training=training)

    def compute_output_shape(self, token_ids_shape, *_, **__):
        return (*token_ids_shape, self.config.hidden_dim)


# --- Encoder layer ---------------------------------------------------------------


@keras.saving.register_keras_serializable(package="bert_tf")
class EncoderLayer(_ConfiguredLayer):
    """Self-attention and feed-forward, each with residual and post-LayerNorm.

    In: x [B, S, H]; attention_mask [B, S] (1 = may be attended to) or [B, S, S]
    (row attends to column), any dtype. Out: [B, S, H].
    """

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
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
        self.activation = activations.INFERENCE[config.activation]
        self._activation_in_training = activations.TRAINING[config.activation]

    def build(self, x_shape, attention_mask_shape=None):
        tokens_shape = (None, self.config.hidden_dim)
        for layer in (self.query, self.key, self.value, self.attention_output):
            layer.build(tokens_shape)
        self.intermediate.build(tokens_shape)
        self.output_dense.build((None, self.config.intermediate_dim))
        self.attention_layer_norm.build(tokens_shape)
        self.output_layer_norm.build(tokens_shape)

    def call(self, x, attention_mask, training=None):
        shape = ops.shape(x)
        # All but attention works token by token: one matrix [B*S, H] for every
        # dense layer is the form that is fastest on all devices.
        x = ops.reshape(x, (-1, self.config.hidden_dim))
        y = self._attention(x, attention_mask, shape[0], shape[1], training)
        y = self.attention_output(y)
        norm, dropout = self.attention_layer_norm, self.attention_output_dropout
        x = self._add_and_norm(x, y, norm, dropout, training)
        activation = self._activation_in_training if training else self.activation
        y = self.output_dense(activation(self.intermediate(x)))  # through [., I]
        norm, dropout = self.output_layer_norm, self.output_dropout
        x = self._add_and_norm(x, y, norm, dropout, training)
        return ops.reshape(x, shape)

    def _add_and_norm(self, x, y, layer_norm, dropout, training):
        if training:
            return residual.add_and_norm(x, y, layer_norm, **_randomness(dropout))
        return layer_norm(x + y)

    def _attention(self, x, attention_mask, batch, length, training):
        """[B*S, H] -> [B*S, H], before the output projection."""
        heads = self.config.num_heads

        def split_heads(tokens):  # [B*S, H] -> [B, N, S, D]
            tokens = ops.reshape(tokens, (batch, length, heads, -1))
            return ops.transpose(tokens, (0, 2, 1, 3))

        # Scaling the query and not the scores saves a pass over [B, N, S, S].
        scale = (self.config.hidden_dim // heads) ** -0.5
        inputs = (
            split_heads(self.query(x) * scale),
            split_heads(self.key(x)),
            split_heads(self.value(x)),
            attention.bias_of(attention_mask),
        )
        if training:
            randomness = _randomness(self.attention_dropout)
            y = attention.attend_in_training(*inputs, **randomness)
        else:
            y = attention.attend(*inputs)
        return ops.reshape(ops.transpose(y, (0, 2, 1, 3)), (-1, self.config.hidden_dim))

    def compute_output_shape(self, x_shape, attention_mask_shape=None):
        return x_shape


# --- The encoder -----------------------------------------------------------------


@keras.saving.register_keras_serializable(package="bert_tf")
class TakePositions(keras.layers.Layer):
    """The vectors at some positions: x [B, S, H], positions [B, P] -> [B, P, H]."""

    def call(self, x, positions):
        batch, length, hidden_dim = ops.shape(x)
        row_starts = ops.expand_dims(ops.arange(batch, dtype="int32") * length, 1)
        flat = ops.reshape(positions + row_starts, (-1,))
        taken = ops.take(ops.reshape(x, (-1, hidden_dim)), flat, axis=0)
        return ops.reshape(taken, (batch, ops.shape(positions)[1], hidden_dim))

    def compute_output_shape(self, x_shape, positions_shape):
        return (*positions_shape, x_shape[-1])


@keras.saving.register_keras_serializable(package="bert_tf")
class BertBackbone(PackableModel):
    """The encoder of BERT (paper, section 3) as a Keras functional model.

    Args:
        config: The architecture, a `BertConfig` or its dictionary.
        dtype: Keras dtype policy of all layers, e.g. `"mixed_bfloat16"`; the global
            policy when None.

    Inputs: `{"token_ids", "segment_ids", "padding_mask"}`, each [B, S] int32.
    Outputs: `{"sequence_output": [B, S, H], "pooled_output": [B, H]}`; the pooled
    output is dense + tanh over the final hidden state of [CLS], the first token. If
    `config.left_to_right`, where [CLS] sees nothing but itself, it is over that of the
    last token, [SEP], which sees all.

    Rows may be packed: where there is a fourth input, `first_positions` [B, Q] int32,
    a row holds up to Q sequences, so that little of it is padding. `padding_mask` then
    numbers them from 1 (0 is padding), and `first_positions` says where each begins:
    tokens attend to their own sequence only, positions count from its beginning, and
    `pooled_output` is [B, Q, H]. What stands there for sequences that a row lacks means
    nothing.

    Raises:
        ValueError: On a call with packed rows, if `config.bilstm`.

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
        dtype=None,
        **kwargs,
    ):
        config = BertConfig(**config) if isinstance(config, Mapping) else config

        # === Layers ===
        embeddings = Embeddings(config, dtype=dtype, name="embeddings")
        encoder_layers = [
            EncoderLayer(config, dtype=dtype, name=f"encoder_layer_{i}")
            for i in range(config.num_layers)
        ]
        pooler = keras.layers.Dense(
            config.hidden_dim,
            activation="tanh",
            kernel_initializer=_initializer(config),
            dtype=dtype,
            name="pooler",
        )
        pooled_tokens = TakePositions(name="pooled_tokens")
        if config.bilstm:
            # Half of the size for each direction.
            lstm = keras.layers.LSTM(
                config.hidden_dim // 2, return_sequences=True, dtype=dtype, name="lstm"
            )
            bilstm = keras.layers.Bidirectional(lstm, dtype=dtype, name="bilstm")

        # === Functional model ===
        def encode(inputs):
            """Returns the hidden states of all layers, and the outputs."""
            token_ids, mask = inputs["token_ids"], inputs["padding_mask"]
            packed = is_packed(inputs)
            if packed:
                firsts = inputs["first_positions"]
                x = embeddings(token_ids, inputs["segment_ids"], mask, firsts)
                # [B, S, S]: to tokens of the same number.
                mask = ops.equal(ops.expand_dims(mask, 2), ops.expand_dims(mask, 1))
            else:
                x = embeddings(token_ids, inputs["segment_ids"])
            if config.left_to_right:
                mask = _left_of(mask)
            hidden_states = [x]
            for layer in encoder_layers:
                x = layer(x, attention_mask=mask)
                hidden_states.append(x)
            if config.bilstm:
                is_token = ops.not_equal(inputs["padding_mask"], 0)
                x = bilstm(x, mask=is_token)
                # The product also drops the mask that Keras would hand to the loss.
                x = x * ops.cast(ops.expand_dims(is_token, 2), x.dtype)
            if packed or config.left_to_right:
                positions = firsts if packed else ops.zeros_like(token_ids[:, :1])
                if config.left_to_right:
                    positions = _last_positions(inputs["padding_mask"], positions)
                pooled = pooler(pooled_tokens(x, positions))
                pooled = pooled if packed else pooled[:, 0, :]
            else:
                pooled = pooler(x[:, 0, :])
            return hidden_states, {"sequence_output": x, "pooled_output": pooled}

        inputs = {
            name: keras.Input((None,), dtype="int32", name=name)
            for name in ("token_ids", "segment_ids", "padding_mask")
        }
        hidden_states, outputs = encode(inputs)
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)

        # === Attributes ===
        self.config = config
        self.embeddings = embeddings
        self.encoder_layers = encoder_layers
        self.pooler = pooler
        self._encode = encode
        # Symbolic outputs of the embeddings and of each layer, for models of one's
        # own: keras.Model(backbone.inputs, backbone.hidden_states[-2]).
        self.hidden_states = hidden_states

    def _call_packed(self, inputs):
        if self.config.bilstm:
            raise ValueError(
                "A BiLSTM cannot tell the sequences of a packed row: make the records "
                "with `python -m bert_tf.corpus --pack=false`."
            )
        return self._encode(inputs)[1]

    @classmethod
    def from_checkpoint(cls, path: str, *, dtype=None) -> BertBackbone:
        """Returns the encoder of a checkpoint of any format.

        Args:
            path: A model directory, a folder of Google's, Hugging Face's or KerasHub's
                (`bert_tf.convert`), or a handle such as `"hf://..."`.
            dtype: As for the constructor.

        Raises:
            ValueError: It holds no BERT, or one that is damaged.
        """
        return loading.open_checkpoint(path).load_backbone(dtype)

    def get_config(self):
        return {
            "config": dataclasses.asdict(self.config),
            "dtype": keras.saving.serialize_keras_object(self.pooler.dtype_policy),
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return cls(**config)


def _left_of(mask):
    """[B, S] or [B, S, S] with 1 = attend -> [B, S, S] without what is to the right."""
    row = mask if len(mask.shape) == 2 else mask[:, 0]
    position = ops.cumsum(ops.ones_like(row, dtype="int32"), axis=1)  # [B, S] from 1
    is_left = ops.less_equal(ops.expand_dims(position, 1), ops.expand_dims(position, 2))
    if len(mask.shape) == 2:
        mask = ops.expand_dims(mask, 1)
    return ops.logical_and(mask, is_left)


def _last_positions(padding_mask, first_positions):
    """[B, S] and [B, Q], see `BertBackbone`, -> the last of each sequence [B, Q]."""
    number = ops.cumsum(ops.ones_like(first_positions), axis=1)  # [B, Q] from 1
    is_token = ops.equal(ops.expand_dims(number, 2), ops.expand_dims(padding_mask, 1))
    lengths = ops.sum(ops.cast(is_token, "int32"), axis=2)
    return ops.maximum(first_positions + lengths - 1, 0)  # There may be no token.


# --- Pre-training heads ----------------------------------------------------------


@keras.saving.register_keras_serializable(package="bert_tf")
class MaskedLMHead(_ConfiguredLayer):
    """Predicts the masked tokens (paper, section 3.1, task 1).

    In: sequence_output [B, S, H], mask_positions [B, P] int32. Out: logits
    [B, P, V] float32: dense, activation, LayerNorm, then the transposed token
    embedding plus a bias, as in google-research/bert.
    """

    def __init__(self, config, token_embedding, **kwargs):
        super().__init__(config, **kwargs)
        self.dense = self._dense(self.config.hidden_dim, "dense")
        self.layer_norm = self._layer_norm("layer_norm")
        self.activation = activations.INFERENCE[self.config.activation]
        self.token_embedding = token_embedding
        self.masked = TakePositions(dtype=self.dtype_policy, name="masked")

    def build(self, sequence_output_shape, mask_positions_shape):
        tokens_shape = (None, self.config.hidden_dim)
        self.dense.build(tokens_shape)
        self.layer_norm.build(tokens_shape)
        self.bias = self.add_weight(
            name="bias", shape=(self.config.vocabulary_size,), initializer="zeros"
        )

    def call(self, sequence_output, mask_positions, training=None):
        x = self.masked(sequence_output, mask_positions)
        batch, positions, hidden_dim = ops.shape(x)
        x = ops.reshape(x, (-1, hidden_dim))  # One matrix, as in `EncoderLayer`.
        x = self.layer_norm(self.activation(self.dense(x)))  # [B*P, H]
        product = _product_in_training if training else _product
        logits = product(x, self.token_embedding.embeddings)
        logits = ops.cast(logits, "float32") + ops.cast(self.bias, "float32")
        return ops.reshape(logits, (batch, positions, self.config.vocabulary_size))

    def compute_output_shape(self, sequence_output_shape, mask_positions_shape):
        return (*mask_positions_shape, self.config.vocabulary_size)

    def compute_output_spec(self, sequence_output, mask_positions, training=None):
        shape = self.compute_output_shape(sequence_output.shape, mask_positions.shape)
        return keras.KerasTensor(shape, dtype="float32")


def _product(x, table):
    return ops.matmul(x, ops.transpose(table))


@gradients.with_gradient
def _product_in_training(x, table):
    # As differentiated, the gradient of the table would come transposed.
    def gradient(of_product):
        return ops.matmul(of_product, table), ops.matmul(ops.transpose(of_product), x)

    return _product(x, table), gradient


@keras.saving.register_keras_serializable(package="bert_tf")
class BertPretrainer(BertModel):
    """`BertBackbone` with masked-LM and next-sentence heads (paper, section 3.1).

    Inputs: those of the backbone, packed or not, and `mask_positions` [B, P] int32.
    Outputs: `{"mlm": [B, P, V], "nsp": [B, 2]}`, float32 logits; `nsp` is [B, Q, 2] for
    packed rows. Its class 1 means that the second segment is a random one.

    Example:

    ```python
    model = BertPretrainer(BertBackbone(config))
    model.compile(AdamW(learning_rate=1e-4))
    model.fit(pretrain_dataset("records", batch_size=32), steps_per_epoch=100)
    ```
    """

    def __init__(self, backbone: BertBackbone, **kwargs):
        # === Layers ===
        config, dtype = backbone.config, backbone.pooler.dtype_policy
        mlm_head = MaskedLMHead(
            config, backbone.embeddings.token_embedding, dtype=dtype, name="mlm"
        )
        nsp_head = keras.layers.Dense(
            2,
            kernel_initializer=_initializer(config),
            dtype=keras.DTypePolicy("float32"),
            name="nsp",
        )

        # === Functional model ===
        def predict(encoded, mask_positions):
            return {
                "mlm": mlm_head(encoded["sequence_output"], mask_positions),
                "nsp": nsp_head(encoded["pooled_output"]),
            }

        mask_positions = keras.Input((None,), dtype="int32", name="mask_positions")
        super().__init__(
            inputs=backbone.input | {"mask_positions": mask_positions},
            outputs=predict(backbone(backbone.input), mask_positions),
            **kwargs,
        )

        # === Attributes ===
        self.backbone = backbone
        self._predict = predict
        self.mlm_head = mlm_head
        self.nsp_head = nsp_head

    def _call_packed(self, inputs):
        return self._predict(self.backbone(inputs), inputs["mask_positions"])

    def _losses_and_metrics(self):
        defaults = super()._losses_and_metrics()
        return defaults | {"loss": defaults["loss"] | {"mlm": MaskedLMLoss()}}

    @classmethod
    def from_checkpoint(cls, path: str, *, dtype=None) -> BertPretrainer:
        """Returns encoder and heads of a checkpoint, as `BertBackbone` does.

        A head that it lacks has random values, and a warning says so.
        """
        return loading.open_checkpoint(path).load_pretrainer(dtype)
