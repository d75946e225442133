# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Encoders and sentence encoders.

Signatures, for N texts:

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
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import keras

from bert_tf.heads.embedding import (
    EmbeddingConfig,
    SentenceEmbedding,
    SentenceEncoder,
    pool,
)
from bert_tf.heads.head import Head
from bert_tf.heads.signatures import (
    Signature,
    ids_signature,
    signature,
    string_input,
    to_float32,
)
from bert_tf.lazy import lazy_import
from bert_tf.modeling import BertBackbone

tf = lazy_import("tensorflow")


class EncoderHead(Head):
    """An encoder without a head; base of the heads of pre-trained models."""

    kind = "encoder"
    model_class = BertBackbone
    layers = ("pooler",)

    def build(self, backbone: BertBackbone) -> keras.Model:
        return backbone if self.model_class is BertBackbone else super().build(backbone)

    def signatures(
        self, model: keras.Model, encoder: keras.Model
    ) -> dict[str, Signature]:
        """Returns the signatures.

        Args:
            model: The model that `build` returned, with weights.
            encoder: Its encoder, or one for inference with the same weights.
        """

        @signature(string_input("text"))
        def embeddings(text):
            inputs = self.encode(text).inputs()
            states = to_float32(encoder(inputs, training=False))
            pooled = states.pop("pooled_output")
            states["mean"] = hidden = states.pop("sequence_output")
            mask = inputs["padding_mask"]
            means = {k: pool("mean", x, mask) for k, x in states.items()}
            return {"cls": hidden[:, 0], "pooled_output": pooled, **means}

        prompts = self.settings.get("prompts", {})
        default = prompts.get(self.settings.get("default_prompt_name"), "")
        limit = self.options["max_sequence_length"]
        embed = getattr(model, "sentence_embedding", None) or SentenceEmbedding(
            EmbeddingConfig(max_sequence_length=limit)
        )
        signatures = {"serving_default": embeddings, "embeddings": embeddings}
        signatures["ids"] = ids_signature(encoder)
        for name, prompt in {**prompts, "sentence_embedding": default}.items():
            # Names of signatures are names of nodes in the graph.
            key = re.sub(r"[^A-Za-z0-9_]", "_", name)
            if key in (*signatures, "metadata"):  # Exports have `metadata`, too.
                raise ValueError(
                    f"The signature {key} of the prompt {name!r} exists already. "
                    "Rename the prompt in config_sentence_transformers.json."
                )
            signatures[key] = self._sentence_embedding(encoder, embed, prompt)
        return signatures

    def _sentence_embedding(
        self, encoder: keras.Model, embed: SentenceEmbedding, prompt: str
    ) -> Signature:
        limit = embed.config.max_sequence_length

        @signature(string_input("text"))
        def sentence_embedding(text):
            text = tf.strings.join([prompt, text]) if prompt else text
            inputs = self.encode(text, max_sequence_length=limit).inputs()
            hidden = encoder(inputs, training=False)["sequence_output"]
            return {"sentence_embedding": embed(hidden, inputs["padding_mask"])}

        return sentence_embedding


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

    def signatures(self, model, encoder) -> dict[str, Signature]:
        signatures = super().signatures(model, encoder)
        return signatures | {"serving_default": signatures["sentence_embedding"]}
