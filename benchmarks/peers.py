# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Models of other libraries with the architecture of a `BertConfig`; their inputs."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Mapping
from concurrent import futures
from typing import Any

import numpy as np

from bert_tf.lazy import lazy_import
from bert_tf.modeling import BertConfig

tf = lazy_import("tensorflow")


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


def padded_rows(
    inputs: Mapping[str, Any], rows: np.ndarray, length: int
) -> dict[str, np.ndarray]:
    """Returns rows of ragged inputs of BERT, padded to [len(rows), length]."""
    return {
        name: tf.gather(inputs[name], rows).to_tensor(shape=(len(rows), length)).numpy()
        for name in ("token_ids", "segment_ids", "padding_mask")
    }


def in_new_process(function: Callable, *arguments: Any) -> Any:
    """Calls a function in a process of its own, which does not import TensorFlow.

    Torch must not be imported beside it: triton crashes after the import of TensorFlow.
    """
    spawn = multiprocessing.get_context("spawn")
    with futures.ProcessPoolExecutor(1, spawn) as pool:
        return pool.submit(function, *arguments).result()


def transformers_inputs(inputs: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Converts inputs of `BertBackbone` to those of transformers' BERT."""
    import torch

    names = {
        "input_ids": "token_ids",
        "token_type_ids": "segment_ids",
        "attention_mask": "padding_mask",
    }
    return {
        theirs: torch.tensor(np.asarray(inputs[ours])).long()
        for theirs, ours in names.items()
    }


def transformers_batch(
    x: Mapping[str, Any], y: Mapping[str, Any], weights: Mapping[str, Any]
) -> dict[str, Any]:
    """Converts a batch of `Records.dataset` to inputs of `BertForPreTraining`.

    The labels [B, S] are -100 at tokens that are not predicted. The loss equals that of
    `BertPretrainer`: the mean over predicted tokens plus the mean over pairs.
    """
    import torch

    labels = np.full(x["token_ids"].shape, -100)
    rows, columns = np.nonzero(np.asarray(weights["mlm"]))
    positions = np.asarray(x["mask_positions"])
    labels[rows, positions[rows, columns]] = np.asarray(y["mlm"])[rows, columns]
    return transformers_inputs(x) | {
        "labels": torch.tensor(labels),
        "next_sentence_label": torch.tensor(np.asarray(y["nsp"])[:, 0]).long(),
    }
