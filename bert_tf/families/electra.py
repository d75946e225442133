# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""ELECTRA (arXiv 2003.10555): a generator, and a discriminator that is fine-tuned.

A discriminator, `ElectraForPreTraining`, is read as an encoder, without its head.

In small models, a dense layer projects smaller embeddings to the hidden size. Only
classifiers have a pooler.
"""

import dataclasses

from bert_tf.families import bert

_BERT = bert.FAMILY
_ENCODER = {ours: theirs for ours, theirs in _BERT.encoder.items() if ours != "pooler"}

FAMILY = dataclasses.replace(
    _BERT,
    name="Electra",
    keys={**_BERT.keys, "embedding_dim": "embedding_size"},
    required={
        **_BERT.required,
        "summary_type": ("first",),
        "summary_use_proj": (True,),
        "summary_activation": ("gelu",),
    },
    encoder={**_ENCODER, "embeddings/projection": "embeddings_project"},
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
    classes={
        **_BERT.classes,
        "encoder": ("Model", "ForPreTraining"),
        "pretrainer": ("ForMaskedLM",),
    },
    pooler_activation="gelu",
    masked_lm_activation="gelu_erf",
)
