# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The encoder as a Keras model, and its initial weights for short trainings."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from bert_tf import lazy
from bert_tf.modeling.bert import Embeddings, initializer
from bert_tf.modeling.config import BertConfig
from bert_tf.modeling.fused import FusedEncoderLayer
from bert_tf.modeling.keras_model import EncoderModel, quantize, quantized_layers

# Found by experiment: the standard deviation of the positions relative to that of the
# other embeddings, and the norm of the rows that query and key matrix share.
_POSITION_SCALE = 4.0
_QUERY_KEY_SCALE = 0.7


@keras.saving.register_keras_serializable(package="bert_tf")
class BertBackbone(EncoderModel):
    """The encoder of BERT (paper, section 3) as a Keras functional model.

    Args:
        config: The architecture, a `BertConfig` or its dictionary.
        recompute: Save memory in training, see `FusedEncoderLayer`.
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
            FusedEncoderLayer(config, recompute, dtype=dtype, name=f"encoder_layer_{i}")
            for i in range(config.num_layers)
        ]
        self.pooler = keras.layers.Dense(
            config.hidden_dim,
            activation="tanh",
            kernel_initializer=initializer(config),
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
        return lazy.checkpoints().open_checkpoint(path).load_backbone(dtype, name)

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


# --- Initialization --------------------------------------------------------------


def initialize_local_attention(backbone: BertBackbone, seed: int = 0) -> None:
    """Replaces the random weights of a new encoder, for short trainings.

    A BERT with random weights predicts little more than frequent tokens until its
    attention has learned which positions are close. These weights start there, in the
    way of mimetic initialization (arXiv 2305.09828): position embeddings are sinusoids
    (arXiv 1706.03762), whose products are largest for close positions, and the product
    of query and key matrices is close to a multiple of a projection.

    - Position embeddings become sinusoids with four times the standard deviation of
      the other embeddings.
    - Matrices of the encoder layers are rescaled, to a standard deviation of about
      H^-0.5 instead of `initializer_range`.
    - In each layer, 0.7 times a random orthogonal matrix [H, H] is added to the query
      and to the key matrix.

    Args:
        backbone: An encoder with newly initialized weights.
        seed: Seed of the orthogonal matrices.
    """
    config = backbone.config
    positions = _sinusoids(config.max_sequence_length, config.hidden_dim)
    stddev = _POSITION_SCALE * config.initializer_range
    backbone.embeddings.position_embedding.embeddings.assign(
        positions * (stddev / ops.std(positions))
    )
    scale = config.hidden_dim**-0.5 / config.initializer_range
    for i, layer in enumerate(backbone.encoder_layers):
        orthogonal = keras.initializers.Orthogonal(_QUERY_KEY_SCALE, seed=seed + i)
        shared = orthogonal(layer.query.kernel.shape)
        for dense in (layer.query, layer.key):
            dense.kernel.assign(dense.kernel * scale + shared)
        for dense in (
            layer.value,
            layer.attention_output,
            layer.intermediate,
            layer.output_dense,
        ):
            dense.kernel.assign(dense.kernel * scale)


def _sinusoids(length: int, width: int) -> keras.KerasTensor:
    """Returns the position encoding of arXiv 1706.03762, [length, width] float32."""
    columns = ops.arange(width)
    exponents = ops.cast(columns // 2 * 2, "float32") / width
    positions = ops.arange(length, dtype="float32")[:, None]
    angles = positions / 10_000.0**exponents
    return ops.where(columns % 2 == 1, ops.cos(angles), ops.sin(angles))
