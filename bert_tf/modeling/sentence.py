# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Sentence embeddings: one vector per text.

`EmbeddingConfig` describes how the hidden states of a text become its vector. Training,
model directories, exports and the sentence-transformers format share it:

- `SentenceEmbedding(config)` is the layer: hidden states, padding mask -> vectors.
- `SentenceEncoder(backbone, config)` is the model: token ids -> vectors.
- The head of a model directory is `{"kind": "embedding", **config.to_dict()}`;
  `EmbeddingConfig.from_dict(head)` is the inverse. `checkpoints.Checkpoint` has
  `load_sentence_encoder` for such a folder.
- `sentence_embedding_signature` in `serving.signatures` makes a signature of a model.

Letters: B batch, S sequence, H hidden, E size of the vector. This module runs on every
Keras backend.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from bert_tf.modeling.backbone import BertBackbone
from bert_tf.modeling.config import MASKED_SCORE
from bert_tf.modeling.keras_model import BertModel

# In the order of sentence-transformers' concatenation.
_MEANS = ("mean", "mean_sqrt_len_tokens", "weightedmean")
POOLING_MODES = ("cls", "max", *_MEANS, "lasttoken")


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmbeddingConfig:
    """How hidden states [B, S, H] become vectors [B, E].

    The steps are pooling over the tokens, including [CLS] and [SEP]; a dense layer, if
    `dense_dim` is set; L2 normalization; and truncation, if `truncate_dim` is set.
    Names are those of sentence-transformers.

    Attributes:
        max_sequence_length: Tokens per text, including [CLS] and [SEP]. Longer texts
            are truncated.
        pooling: `"mean"`; `"cls"`, the first token; `"lasttoken"`; `"max"` of each
            dimension; `"weightedmean"` with weights 1, 2, ..., n;
            `"mean_sqrt_len_tokens"`, the sum divided by the square root of n. Several
            modes joined by `+` are concatenated, e.g. `"cls+mean"`.
        dense_dim: E, the units of the dense layer; 0 for no such layer.
        dense_activation: Its activation, a name in `keras.activations`.
        dense_bias: Whether it has a bias.
        normalize: Whether the vectors have length 1, before they are truncated.
        truncate_dim: The number of values of a vector to keep, the first ones; None for
            all.

    Raises:
        ValueError: A pooling mode is unknown, or a size is too small.
    """

    max_sequence_length: int
    pooling: str = "mean"
    dense_dim: int = 0
    dense_activation: str = "tanh"
    dense_bias: bool = True
    normalize: bool = True
    truncate_dim: int | None = None

    def __post_init__(self):
        if not set(self.modes) <= set(POOLING_MODES):
            raise ValueError(
                f"`pooling` must be one of {', '.join(POOLING_MODES)}, or several "
                f"joined by +. Received: pooling={self.pooling!r}"
            )
        length = self.max_sequence_length
        if not isinstance(length, int) or length < 3:
            raise ValueError(
                "`max_sequence_length` must be an integer of at least 3, for [CLS], a "
                f"token and [SEP]. Received: max_sequence_length={length!r}"
            )

        size = self.truncate_dim
        if size is not None and (not isinstance(size, int) or size < 1):
            raise ValueError(
                "`truncate_dim` must be a positive integer or None. Received: "
                f"truncate_dim={size!r}"
            )

    @property
    def modes(self) -> list[str]:
        """The pooling modes, in the order of concatenation."""
        return str(self.pooling).split("+")

    def to_dict(self) -> dict[str, Any]:
        """Returns the attributes, for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: EmbeddingConfig | Mapping[str, Any]) -> EmbeddingConfig:
        """Inverse of `to_dict`. Ignores other keys, such as the kind of a head."""
        if isinstance(values, EmbeddingConfig):
            return values
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(**{name: values[name] for name in names if name in values})


@keras.saving.register_keras_serializable(package="bert_tf")
class SentenceEmbedding(keras.layers.Layer):
    """Pools hidden states [B, S, H] into vectors [B, E] float32.

    Args:
        config: An `EmbeddingConfig`, or its dictionary.

    Inputs: hidden states [B, S, H] and padding mask [B, S] (1 = token). Optional: the
    number of tokens at the start, such as those of a prompt, that are not pooled.
    """

    def __init__(self, config: EmbeddingConfig | Mapping[str, Any], **kwargs):
        super().__init__(**{"dtype": "float32", **kwargs})
        self.config = config = EmbeddingConfig.from_dict(config)
        self.dense = config.dense_dim and keras.layers.Dense(
            config.dense_dim,
            config.dense_activation,
            config.dense_bias,
            dtype=self.dtype_policy,
            name="dense",
        )

    def call(self, hidden, padding_mask, skipped_tokens=0):
        mask = ops.cast(padding_mask, hidden.dtype)
        modes = self.config.modes
        vectors = ops.concatenate(
            [_pool(m, hidden, mask, skipped_tokens) for m in modes], axis=-1
        )
        vectors = self.dense(vectors) if self.dense else vectors
        vectors = ops.normalize(vectors) if self.config.normalize else vectors
        return vectors[:, : self.config.truncate_dim]

    def get_config(self):
        return super().get_config() | {"config": self.config.to_dict()}


def _pool(mode: str, hidden: Any, mask: Any, skipped: int) -> Any:
    """Pools hidden states [B, S, H] into [B, H], given the padding mask [B, S]."""
    position = ops.cumsum(mask, axis=1) * mask  # 1, 2, ..., n; 0 at padding.
    is_last = position == ops.sum(mask, axis=1, keepdims=True)
    mask = ops.cast(position > skipped, hidden.dtype)
    position *= mask
    if mode == "max":
        is_token = ops.expand_dims(mask, -1) != 0
        return ops.max(ops.where(is_token, hidden, MASKED_SCORE), axis=1)
    count = ops.sum(mask, axis=1, keepdims=True)
    weights, divisor = {
        "cls": (ops.cast(position == skipped + 1, hidden.dtype), 1),
        "lasttoken": (ops.cast(is_last, hidden.dtype) * mask, 1),
        "mean": (mask, count),
        "mean_sqrt_len_tokens": (mask, ops.sqrt(count)),
        "weightedmean": (position, ops.sum(position, axis=1, keepdims=True)),
    }[mode]
    return ops.sum(hidden * ops.expand_dims(weights, -1), axis=1) / divisor


@keras.saving.register_keras_serializable(package="bert_tf")
class SentenceEncoder(BertModel):
    """`BertBackbone` with a `SentenceEmbedding`: one vector per text.

    Args:
        backbone: The encoder. Its pooler is not used and not trained.
        config: An `EmbeddingConfig`, or its dictionary.

    Inputs: those of the backbone. Outputs: vectors [B, E] float32. `compile` needs a
    loss.

    Example:

    ```python
    embedding = EmbeddingConfig(max_sequence_length=128)
    model = SentenceEncoder(BertBackbone(config), embedding)
    texts = ["a cat sat", "two cats sat"]
    vectors = model(Tokenizer("vocab.txt").encode(texts, max_sequence_length=128))
    similarity = np.dot(vectors[0], vectors[1])
    ```
    """

    kind = "embedding"

    def __init__(
        self,
        backbone: BertBackbone,
        config: EmbeddingConfig | Mapping[str, Any],
        **kwargs,
    ):
        hidden = backbone(backbone.input)["sequence_output"]
        embed = SentenceEmbedding(config, name="sentence_embedding")
        vectors = embed(hidden, backbone.input["padding_mask"])
        super().__init__(inputs=backbone.input, outputs=vectors, **kwargs)
        self.backbone = backbone
        self.sentence_embedding = embed

    def _unused_layers(self):
        return (self.backbone.pooler,)

    def _losses_and_metrics(self):
        return {}

    def get_config(self):
        config = self.sentence_embedding.config.to_dict()
        return super().get_config() | {"config": config}
