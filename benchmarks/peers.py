# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The models of other libraries, in an architecture of this one, to compare with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_tf.modeling.config import BertConfig


def keras_hub_backbone(architecture: BertConfig, dtype: Any = "float32"):
    """Returns KerasHub's `BertBackbone`."""
    import keras_hub

    return keras_hub.models.BertBackbone(
        vocabulary_size=architecture.vocabulary_size,
        num_layers=architecture.num_layers,
        num_heads=architecture.num_heads,
        hidden_dim=architecture.hidden_dim,
        intermediate_dim=architecture.intermediate_dim,
        dtype=dtype,
    )


def transformers_config(architecture: BertConfig, **options: Any):
    """Returns the `BertConfig` of transformers; `options` are those of a head."""
    import transformers

    return transformers.BertConfig(
        vocab_size=architecture.vocabulary_size,
        num_hidden_layers=architecture.num_layers,
        num_attention_heads=architecture.num_heads,
        hidden_size=architecture.hidden_dim,
        intermediate_size=architecture.intermediate_dim,
        hidden_act="gelu_new",
        **options,
    )


def transformers_batch(
    x: Mapping[str, Any], y: Mapping[str, Any], weights: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns what `BertForPreTraining` takes, from a batch of `pretrain_dataset`.

    As its users write it: labels of the whole [B, S], -100 wherever nothing is masked.
    Its loss is then that of `BertPretrainer`: the means over masked tokens and pairs.
    """
    import torch

    labels = np.full(x["token_ids"].shape, -100)
    rows, places = np.nonzero(weights["mlm"].numpy())
    positions = x["mask_positions"].numpy()
    labels[rows, positions[rows, places]] = y["mlm"].numpy()[rows, places]
    arrays = {
        "input_ids": x["token_ids"].numpy(),
        "token_type_ids": x["segment_ids"].numpy(),
        "attention_mask": x["padding_mask"].numpy(),
        "labels": labels,
        "next_sentence_label": y["nsp"].numpy(),
    }
    return {
        name: torch.tensor(array, dtype=torch.long) for name, array in arrays.items()
    }
