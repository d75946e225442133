# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Encoders: hidden states to one vector per text.

`EmbeddingConfig` describes how the hidden states of a text become its vector, and how
vectors compare.

Signatures of encoders and sentence encoders, for N texts:

    embeddings       text [N] -> cls, mean, pooled_output [N, H] float32: the final
                     hidden state of [CLS], the mean over all tokens including [CLS] and
                     [SEP], and the pooler's output; layer_<n> [N, H]: the mean over all
                     tokens for each requested layer (0: embeddings, -1: last layer)
    sentence_embedding
                     text [N] -> sentence_embedding [N, E] float32: one vector per text,
                     as `EmbeddingConfig` describes it, with the default prompt of the
                     checkpoint
    query, document, ...
                     the same with another prompt of the checkpoint
    ids              token_ids, segment_ids, padding_mask [N, S] int32 ->
                     sequence_output [N, S, H] (0 at padding), pooled_output [N, H],
                     and layer_<n> [N, S, H] for each requested layer, float32

The `serving_default` of a sentence encoder is `sentence_embedding`, that of an encoder
`embeddings`.

Letters: B batch, S sequence, H hidden, E size of the vector.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

import keras
from keras import ops

from bert_tf import text_files
from bert_tf.heads.head import Head
from bert_tf.heads.signatures import Signature, signature, string_input, to_float32
from bert_tf.lazy import lazy_import
from bert_tf.modeling import MASKED_SCORE, BertBackbone

tf = lazy_import("tensorflow")

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
        text_files.check_fields(type(self).__name__, vars(self), **choices)

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


class EncoderHead(Head):
    """An encoder without a head; base of the heads of pre-trained models."""

    kind = "encoder"
    model_class = BertBackbone
    layers = ("pooler",)
    runs_encoder = True

    def build(self, backbone: BertBackbone) -> keras.Model:
        return backbone if self.model_class is BertBackbone else super().build(backbone)

    def signatures(self, model, trained=None):
        @signature(string_input("text"))
        def embeddings(text):
            inputs = self.encode(text).inputs()
            states = to_float32(model(inputs, training=False))
            pooled = states.pop("pooled_output")
            states["mean"] = hidden = states.pop("sequence_output")
            mask = inputs["padding_mask"]
            means = {k: pool("mean", x, mask) for k, x in states.items()}
            return {"cls": hidden[:, 0], "pooled_output": pooled, **means}

        prompts = self.settings.get("prompts", {})
        default = prompts.get(self.settings.get("default_prompt_name"), "")
        limit = self.options["max_sequence_length"]
        embed = getattr(trained, "sentence_embedding", None) or SentenceEmbedding(
            EmbeddingConfig(max_sequence_length=limit)
        )
        signatures = {"serving_default": embeddings, "embeddings": embeddings}
        for name, prompt in {**prompts, "sentence_embedding": default}.items():
            # Names of signatures are names of nodes in the graph.
            key = re.sub(r"[^A-Za-z0-9_]", "_", name)
            if key in (*signatures, "ids", "metadata"):  # Exports have these, too.
                raise ValueError(
                    f"The signature {key} of the prompt {name!r} exists already. "
                    "Rename the prompt in config_sentence_transformers.json."
                )
            signatures[key] = self._sentence_embedding(model, embed, prompt)
        return signatures

    def _sentence_embedding(
        self, encoder: Callable[..., Any], embed: SentenceEmbedding, prompt: str
    ) -> Signature:
        limit = embed.config.max_sequence_length

        @signature(string_input("text"))
        def sentence_embedding(text):
            text = tf.strings.join([prompt, text]) if prompt else text
            inputs = self.encode(text, max_sequence_length=limit).inputs()
            hidden = encoder(inputs, training=False)["sequence_output"]
            return {"sentence_embedding": embed(hidden, inputs["padding_mask"])}

        return sentence_embedding
