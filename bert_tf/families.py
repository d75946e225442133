# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Families of models with BERT's encoder layers: their names and differences.

Readers, writers, encoder and heads follow `FAMILIES`, so a new family is a new entry.
Our names of layers are explained in `checkpoints/weight_files.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Family:
    """The names of a family in transformers, and how its models differ from BERT.

    Attributes:
        name: The first part of its class names, e.g. `Bert`. In lower case, it is the
            `model_type` in config.json and the prefix of the encoder's weights.
        keys: Fields of `BertConfig` -> keys of config.json.
        required: The only allowed values of other keys of config.json.
        fixed: Fields of `BertConfig` that have no key, with their values.
        encoder: Our names of the encoder's layers -> theirs without prefix. `{i}` is
            the number of an encoder layer.
        heads: Kinds of heads -> our names of their layers -> theirs. Names separated by
            spaces, and further names of a layer of the encoder, are equal copies.
        classes: Kinds of heads -> the suffixes of their class names, first that of the
            class with all layers.
        pooler_activation: The activation of the pooler, a name in `keras.activations`.
        masked_lm_activation: The activation of the masked LM, a name as in
            `BertConfig`; by default that of the encoder layers.
    """

    name: str
    keys: Mapping[str, str]
    required: Mapping[str, Sequence[Any]]
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    encoder: Mapping[str, str]
    heads: Mapping[str, Mapping[str, str]]
    classes: Mapping[str, Sequence[str]]
    pooler_activation: str
    masked_lm_activation: str | None = None

    @property
    def prefix(self) -> str:
        """The prefix of the encoder's weights in models with a head."""
        return f"{self.name.lower()}."

    def layers(self, kind: str) -> dict[str, str]:
        """Returns our names of the layers of a model with a head -> all of theirs."""
        names = {ours: self.prefix + theirs for ours, theirs in self.encoder.items()}
        for ours, theirs in self.heads.get(kind, {}).items():
            names[ours] = f"{names[ours]} {theirs}" if ours in names else theirs
        return names


_OURS = "encoder_layer_{i}"

# BERT (arXiv 1810.04805).
_BERT = Family(
    name="Bert",
    keys={
        "vocabulary_size": "vocab_size",
        "num_layers": "num_hidden_layers",
        "num_heads": "num_attention_heads",
        "hidden_dim": "hidden_size",
        "intermediate_dim": "intermediate_size",
        "dropout": "hidden_dropout_prob",
        "attention_dropout": "attention_probs_dropout_prob",
        "max_sequence_length": "max_position_embeddings",
        "num_segments": "type_vocab_size",
        "activation": "hidden_act",
        "initializer_range": "initializer_range",
        "layer_norm_epsilon": "layer_norm_eps",
        "classifier_dropout": "classifier_dropout",
    },
    required={
        "position_embedding_type": ("absolute",),
        "is_decoder": (False,),
        "add_cross_attention": (False,),
    },
    encoder={
        "embeddings/token_embedding": "embeddings.word_embeddings",
        "embeddings/position_embedding": "embeddings.position_embeddings",
        "embeddings/segment_embedding": "embeddings.token_type_embeddings",
        "embeddings/layer_norm": "embeddings.LayerNorm",
        f"{_OURS}/query": "encoder.layer.{i}.attention.self.query",
        f"{_OURS}/key": "encoder.layer.{i}.attention.self.key",
        f"{_OURS}/value": "encoder.layer.{i}.attention.self.value",
        f"{_OURS}/attention_output": "encoder.layer.{i}.attention.output.dense",
        f"{_OURS}/attention_layer_norm": "encoder.layer.{i}.attention.output.LayerNorm",
        f"{_OURS}/intermediate": "encoder.layer.{i}.intermediate.dense",
        f"{_OURS}/output": "encoder.layer.{i}.output.dense",
        f"{_OURS}/output_layer_norm": "encoder.layer.{i}.output.LayerNorm",
        "pooler": "pooler.dense",
    },
    heads={
        "pretrainer": {
            "mlm/dense": "cls.predictions.transform.dense",
            "mlm/layer_norm": "cls.predictions.transform.LayerNorm",
            "mlm": "cls.predictions cls.predictions.decoder",
            "embeddings/token_embedding": "cls.predictions.decoder",
            "nsp": "cls.seq_relationship",
        },
        "classification": {"logits": "classifier"},
        "tagging": {"logits": "classifier"},
        "question_answering": {"logits": "qa_outputs"},
        "multiple_choice": {"logits": "classifier"},
    },
    classes={
        "encoder": ("Model",),
        "pretrainer": ("ForPreTraining", "ForMaskedLM", "ForNextSentencePrediction"),
        "classification": ("ForSequenceClassification",),
        "tagging": ("ForTokenClassification",),
        "question_answering": ("ForQuestionAnswering",),
        "multiple_choice": ("ForMultipleChoice",),
    },
    pooler_activation="tanh",
)

# DistilBERT (arXiv 1910.01108) has no segments, and a pooler in classifiers only.
_CLASSIFIER = {"pooler": "pre_classifier", "logits": "classifier"}
_DISTILBERT = dataclasses.replace(
    _BERT,
    name="DistilBert",
    keys={
        "vocabulary_size": "vocab_size",
        "num_layers": "n_layers",
        "num_heads": "n_heads",
        "hidden_dim": "dim",
        "intermediate_dim": "hidden_dim",
        "dropout": "dropout",
        "attention_dropout": "attention_dropout",
        "max_sequence_length": "max_position_embeddings",
        "activation": "activation",
        "initializer_range": "initializer_range",
        "classifier_dropout": "seq_classif_dropout",
    },
    required={},
    fixed={"num_segments": 0},
    encoder={
        "embeddings/token_embedding": "embeddings.word_embeddings",
        "embeddings/position_embedding": "embeddings.position_embeddings",
        "embeddings/layer_norm": "embeddings.LayerNorm",
        f"{_OURS}/query": "transformer.layer.{i}.attention.q_lin",
        f"{_OURS}/key": "transformer.layer.{i}.attention.k_lin",
        f"{_OURS}/value": "transformer.layer.{i}.attention.v_lin",
        f"{_OURS}/attention_output": "transformer.layer.{i}.attention.out_lin",
        f"{_OURS}/attention_layer_norm": "transformer.layer.{i}.sa_layer_norm",
        f"{_OURS}/intermediate": "transformer.layer.{i}.ffn.lin1",
        f"{_OURS}/output": "transformer.layer.{i}.ffn.lin2",
        f"{_OURS}/output_layer_norm": "transformer.layer.{i}.output_layer_norm",
    },
    heads={
        **_BERT.heads,
        "pretrainer": {
            "mlm/dense": "vocab_transform",
            "mlm/layer_norm": "vocab_layer_norm",
            "mlm": "vocab_projector",
            "embeddings/token_embedding": "vocab_projector",
        },
        "classification": _CLASSIFIER,
        "multiple_choice": _CLASSIFIER,
    },
    classes=_BERT.classes | {"pretrainer": ("ForMaskedLM",)},
    pooler_activation="relu",
)

# ELECTRA (arXiv 2003.10555): a generator, and a discriminator that is fine-tuned. A
# discriminator, `ElectraForPreTraining`, is read as an encoder, without its head. In
# small models, a dense layer projects smaller embeddings to the hidden size. Only
# classifiers have a pooler.
_ELECTRA = dataclasses.replace(
    _BERT,
    name="Electra",
    keys=_BERT.keys | {"embedding_dim": "embedding_size"},
    required=_BERT.required
    | {
        "summary_type": ("first",),
        "summary_use_proj": (True,),
        "summary_activation": ("gelu",),
    },
    encoder={ours: theirs for ours, theirs in _BERT.encoder.items() if ours != "pooler"}
    | {"embeddings/projection": "embeddings_project"},
    heads={
        **_BERT.heads,
        "pretrainer": {
            "mlm/dense": "generator_predictions.dense",
            "mlm/layer_norm": "generator_predictions.LayerNorm",
            "mlm": "generator_lm_head",
            "embeddings/token_embedding": "generator_lm_head",
        },
        "classification": {
            "pooler": "classifier.dense",
            "logits": "classifier.out_proj",
        },
        "multiple_choice": {
            "pooler": "sequence_summary.summary",
            "logits": "classifier",
        },
    },
    classes=_BERT.classes
    | {"encoder": ("Model", "ForPreTraining"), "pretrainer": ("ForMaskedLM",)},
    pooler_activation="gelu",
    masked_lm_activation="gelu_erf",
)

FAMILIES = {x.name.lower(): x for x in (_BERT, _DISTILBERT, _ELECTRA)}
"""The families that can be read, trained and written, by `model_type`. Add your own."""
