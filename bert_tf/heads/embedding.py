# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Sentence encoders: one vector per text, and the similarity of vectors.

The head of a model directory is `{"kind": "embedding", **config.to_dict()}`, of an
`EmbeddingConfig`. `encoder` describes the signatures.

Letters: B batch, E size of the vector.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from bert_tf.heads.encoder import EmbeddingConfig, EncoderHead, SentenceEmbedding
from bert_tf.lazy import lazy_import
from bert_tf.modeling import BertBackbone, BertModel

distance = lazy_import("scipy.spatial.distance")


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


class EmbeddingHead(EncoderHead):
    """Settings: the fields of `EmbeddingConfig`, `prompts`, `default_prompt_name`."""

    kind = "embedding"
    model_class = SentenceEncoder

    @classmethod
    def arguments(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        return {"config": EmbeddingConfig.from_dict(settings)}

    @classmethod
    def declare(cls, outputs, **declared):
        raise ValueError(
            "a sentence encoder must have the modules.json of sentence-transformers. "
            "Choose encoder: its signature sentence_embedding is the mean of tokens."
        )

    def signatures(self, model, trained=None):
        signatures = super().signatures(model, trained)
        return signatures | {"serving_default": signatures["sentence_embedding"]}
