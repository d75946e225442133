# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Sentence embeddings: hidden states to one vector per text, and their similarity.

`EmbeddingConfig` describes how the hidden states of a text become its vector, and how
vectors compare. It is the head of a model directory: `{"kind": "embedding",
**config.to_dict()}`.

Letters: B batch, S sequence, H hidden, E size of the vector.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from bert_tf.lazy import lazy_import
from bert_tf.modeling import MASKED_SCORE, BertBackbone, BertModel

distance = lazy_import("scipy.spatial.distance")

_POOLING = ("cls", "max", "mean")
_SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmbeddingConfig:
    """How hidden states [B, S, H] become vectors [B, E].

    The steps are pooling over the tokens, including [CLS] and [SEP]; a dense layer, if
    `dense_dim` is set; L2 normalization; and truncation, if `truncate_dim` is set.
    Names are those of sentence-transformers.

    Attributes:
        max_sequence_length: Tokens per text, including [CLS] and [SEP]. Longer texts
            are truncated.
        pooling: `"mean"`; `"cls"`, the first token; or `"max"` of each dimension.
        dense_dim: E, the units of the dense layer; 0 for no such layer.
        dense_activation: Its activation, a name in `keras.activations`.
        normalize: Whether the vectors have length 1, before they are truncated.
        truncate_dim: The number of values of a vector to keep, the first ones; None for
            all.
        similarity_fn_name: The similarity of two vectors, see `similarities`.

    Raises:
        ValueError: The pooling or the similarity is unknown.
    """

    max_sequence_length: int
    pooling: str = "mean"
    dense_dim: int = 0
    dense_activation: str = "tanh"
    normalize: bool = True
    truncate_dim: int | None = None
    similarity_fn_name: str = "cosine"

    def __post_init__(self):
        choices = {"pooling": _POOLING, "similarity_fn_name": _SIMILARITIES}
        for name, allowed in choices.items():
            if (value := getattr(self, name)) not in allowed:
                raise ValueError(
                    f"`{name}` must be one of {', '.join(allowed)}. Received: "
                    f"{name}={value!r}"
                )

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


def similarities(name: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Compares vectors as `similarity` of sentence-transformers.

    Args:
        name: `"cosine"`, `"dot"`, or a distance, of which it returns the negative:
            `"euclidean"`, `"manhattan"`.
        a: Vectors [N, E].
        b: Vectors [M, E].

    Returns:
        The similarity of each vector of `a` to each of `b`, [N, M].
    """
    if name not in ("cosine", "dot"):
        metric = "cityblock" if name == "manhattan" else name
        return -distance.cdist(a, b, metric)
    if name == "cosine":
        a, b = (
            x / np.linalg.norm(x, axis=1)[:, np.newaxis].clip(1e-12) for x in (a, b)
        )
    return a @ b.T


def search_signatures(head: Mapping[str, Any]) -> tuple[str, str]:
    """Returns the names of the signatures for queries and for the texts to search.

    They add the prompts that `encode_query` and `encode_document` of
    sentence-transformers add.

    Args:
        head: The `head` of a `Checkpoint`, which signatures return as `metadata`, too.
    """
    kinds = ("query",), ("document", "passage", "corpus")
    prompts = head.get("prompts", {})
    names = ([name for name in kind if name in prompts] for kind in kinds)
    return tuple([*found, "sentence_embedding"][0] for found in names)


@keras.saving.register_keras_serializable(package="bert_tf")
class SentenceEmbedding(keras.layers.Layer):
    """Pools hidden states [B, S, H] into vectors [B, E] float32.

    Args:
        config: An `EmbeddingConfig`, or its dictionary.

    Inputs: hidden states [B, S, H] and padding mask [B, S] (1 = token).
    """

    def __init__(self, config: EmbeddingConfig | Mapping[str, Any], **kwargs):
        super().__init__(**{"dtype": "float32", **kwargs})
        self.config = config = EmbeddingConfig.from_dict(config)
        self.dense = config.dense_dim and keras.layers.Dense(
            config.dense_dim,
            config.dense_activation,
            dtype=self.dtype_policy,
            name="dense",
        )

    def compute_mask(self, hidden, mask=None):
        return None  # Vectors have no tokens.

    def call(self, hidden, padding_mask):
        vectors = pool(self.config.pooling, hidden, padding_mask)
        vectors = self.dense(vectors) if self.dense else vectors
        vectors = ops.normalize(vectors) if self.config.normalize else vectors
        return vectors[:, : self.config.truncate_dim]

    def get_config(self):
        return super().get_config() | {"config": self.config.to_dict()}


def pool(mode: str, hidden: Any, padding_mask: Any) -> Any:
    """Pools hidden states [B, S, H] into [B, H], given the padding mask [B, S]."""
    if mode == "cls":
        return hidden[:, 0]
    mask = ops.expand_dims(ops.cast(padding_mask, hidden.dtype), -1)
    if mode == "max":
        return ops.max(ops.where(mask != 0, hidden, MASKED_SCORE), axis=1)
    return ops.sum(hidden * mask, axis=1) / ops.sum(mask, axis=1)


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

    def _losses_and_metrics(self):
        return {}

    def get_config(self):
        config = self.sentence_embedding.config.to_dict()
        return super().get_config() | {"config": config}
