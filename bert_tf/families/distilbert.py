# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""DistilBERT (arXiv 1910.01108): no segments, and a pooler in classifiers only."""

import dataclasses

from bert_tf.families import bert

_OURS = "encoder_layer_{i}"
_CLASSIFIER = {"pooler": "pre_classifier", "logits": "classifier"}

FAMILY = dataclasses.replace(
    bert.FAMILY,
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
        **bert.FAMILY.heads,
        "pretrainer": {
            "mlm/dense": "vocab_transform",
            "mlm/layer_norm": "vocab_layer_norm",
            "mlm": "vocab_projector",
            "embeddings/token_embedding": "vocab_projector",
        },
        "classification": _CLASSIFIER,
        "multiple_choice": _CLASSIFIER,
    },
    classes={**bert.FAMILY.classes, "pretrainer": ("ForMaskedLM",)},
    pooler_activation="relu",
)
