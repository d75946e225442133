# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Pre-trained models, encoders, discriminators and sentence encoders.

`EmbeddingConfig` describes how the hidden states of a text become its vector, and how
vectors compare. It is the head of a model directory: `{"kind": "embedding",
**config.to_dict()}`.

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
`embeddings`. Pre-trained models also have, for texts with up to M masks,

    serving_default  text [N] -> tokens [N, M, 5] string, scores [N, M, 5] float32: the
                     five most probable tokens of each [MASK] and their probabilities;
                     "" and 0 for texts with fewer than M masks
    next_sentence    text_a, text_b [N] -> label [N] string, `next` or `random`, and
                     probabilities [N, 2] float32

Without a masked-LM head, `next_sentence` is their `serving_default`. That of
discriminators is

    serving_default  text [N] -> tokens [N, S] string, [CLS] and [SEP] included, and
                     scores [N, S] float32: the probability that each was replaced;
                     "" and 0 at padding

Letters: B batch, S sequence, H hidden, E size of the vector.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from bert_tf.heads.head import (
    Head,
    Signature,
    class_probabilities,
    ids_signature,
    signature,
    string_input,
    to_float32,
)
from bert_tf.lazy import lazy_import
from bert_tf.modeling import (
    ACTIVATIONS,
    MASKED_SCORE,
    BertBackbone,
    BertModel,
    BertPretrainer,
    dense_layer,
)

distance = lazy_import("scipy.spatial.distance")
tf = lazy_import("tensorflow")

_POOLING = ("cls", "max", "mean")
_SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
_TOP_K = 5  # Predicted tokens for each [MASK].


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

    def call(self, hidden, padding_mask):
        vectors = _pool(self.config.pooling, hidden, padding_mask)
        vectors = self.dense(vectors) if self.dense else vectors
        vectors = ops.normalize(vectors) if self.config.normalize else vectors
        return vectors[:, : self.config.truncate_dim]

    def get_config(self):
        return super().get_config() | {"config": self.config.to_dict()}


def _pool(mode: str, hidden: Any, padding_mask: Any) -> Any:
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


@keras.saving.register_keras_serializable(package="bert_tf")
class Discriminator(BertModel):
    """`BertBackbone` with the head of ELECTRA (arXiv 2003.10555, section 2).

    Its labels [B, S] are 1 for tokens that a generator replaced.

    Args:
        backbone: The encoder.

    Inputs: those of the backbone. Outputs: logits [B, S] float32.
    """

    def __init__(self, backbone: BertBackbone, **kwargs):
        config, dtype = backbone.config, backbone.embeddings.dtype_policy
        self.backbone = backbone
        self.dense = dense_layer(
            config,
            config.hidden_dim,
            "discriminator",
            dtype,
            activation=ACTIVATIONS[config.activation],
        )
        self.output_dense = dense_layer(config, 1, "logits", "float32")
        logits = self.score_tokens(backbone(backbone.input)["sequence_output"])
        super().__init__(inputs=backbone.input, outputs=logits, **kwargs)

    def score_tokens(self, hidden):
        """Returns logits [B, S] for hidden states [B, S, H]."""
        return self.output_dense(self.dense(hidden))[..., 0]

    def _losses_and_metrics(self):
        return {"loss": keras.losses.BinaryCrossentropy(from_logits=True)}


# --- The heads -------------------------------------------------------------------


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
            inputs = self.encode(text)
            states = to_float32(encoder(inputs, training=False))
            pooled = states.pop("pooled_output")
            states["mean"] = hidden = states.pop("sequence_output")
            mask = inputs["padding_mask"]
            means = {k: _pool("mean", x, mask) for k, x in states.items()}
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
            inputs = self.encode(text, max_sequence_length=limit)
            hidden = encoder(inputs, training=False)["sequence_output"]
            return {"sentence_embedding": embed(hidden, inputs["padding_mask"])}

        return sentence_embedding


class PretrainerHead(EncoderHead):
    """Settings: `newly_initialized`, the heads that are not trained, `mlm` or `nsp`."""

    kind = "pretrainer"
    model_class = BertPretrainer
    layers = ("pooler", "mlm", "nsp")

    def signatures(self, model, encoder) -> dict[str, Signature]:
        signatures = super().signatures(model, encoder)
        untrained = self.settings.get("newly_initialized", ())

        @signature(string_input("text_a"), string_input("text_b"))
        def next_sentence(text_a, text_b):
            inputs = self.encode(text_a, text_b)
            pooled = encoder(inputs, training=False)["pooled_output"]
            return class_probabilities(model.nsp_head(pooled), ("next", "random"))

        if "nsp" not in untrained:
            signatures["serving_default"] = next_sentence
            signatures["next_sentence"] = next_sentence
        if "mlm" not in untrained:
            signatures["serving_default"] = self._fill_mask(encoder, model.mlm_head)
        return signatures

    def _fill_mask(
        self, encoder: keras.Model, mlm_head: keras.layers.Layer
    ) -> Signature:
        vocabulary = self.tokenizer.vocabulary

        @signature(string_input("text"))
        def fill_mask(text):
            inputs = self.encode(text, allow_mask=True)
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


class DiscriminatorHead(EncoderHead):
    """Has no settings."""

    kind = "discriminator"
    model_class = Discriminator
    num_outputs = 1

    def signatures(self, model, encoder) -> dict[str, Signature]:
        @signature(string_input("text"))
        def replaced_tokens(text):
            inputs = self.encode(text)
            hidden = encoder(inputs, training=False)["sequence_output"]
            tokens = tf.constant(self.tokenizer.vocabulary.tokens)
            tokens = tf.gather(tokens, inputs["token_ids"])
            scores = tf.sigmoid(model.score_tokens(hidden))
            is_token = inputs["padding_mask"] > 0
            return {
                "tokens": tf.where(is_token, tokens, ""),
                "scores": tf.where(is_token, scores, 0.0),
            }

        signatures = super().signatures(model, encoder)
        return signatures | {"serving_default": replaced_tokens}


class EmbeddingHead(EncoderHead):
    """Settings: the fields of `EmbeddingConfig`, `prompts`, `default_prompt_name`."""

    kind = "embedding"
    model_class = SentenceEncoder

    @classmethod
    def arguments(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        return {"config": EmbeddingConfig.from_dict(settings)}

    def signatures(self, model, encoder) -> dict[str, Signature]:
        signatures = super().signatures(model, encoder)
        return signatures | {"serving_default": signatures["sentence_embedding"]}
