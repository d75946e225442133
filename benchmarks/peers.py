# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Models of other libraries with the architecture of a `BertConfig`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_tf.modeling import BertConfig


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
    """Returns transformers' `BertConfig` with `options` such as `num_labels`."""
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
    """Converts a batch of `pretrain_dataset` to inputs of `BertForPreTraining`.

    The labels [B, S] are -100 at tokens that are not predicted. The loss equals that of
    `BertPretrainer`: the mean over predicted tokens plus the mean over pairs.
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
        "next_sentence_label": y["nsp"].numpy()[:, 0],
    }
    return {
        name: torch.tensor(array, dtype=torch.long) for name, array in arrays.items()
    }
