# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Models of other libraries with the architecture of a `BertConfig`; training steps.

Functions that import torch run in processes that do not import TensorFlow, see
`measure.Worker`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.families import FAMILIES
from bert_tf.modeling import BertConfig
from bert_tf.text import Vocabulary

# Inputs of `BertBackbone` and of transformers' BERT.
_OURS = ("token_ids", "segment_ids", "padding_mask")
_THEIRS = ("input_ids", "token_type_ids", "attention_mask")

# Fields of `BertConfig` that define an architecture; KerasHub has the same names.
_KEYS = ("vocabulary_size", "num_layers", "num_heads", "hidden_dim", "intermediate_dim")


def write_model(
    path: str | os.PathLike,
    model: Any,
    architecture: BertConfig,
    vocabulary: Vocabulary,
    kind: str,
) -> None:
    """Writes a model directory with a head that has no settings."""
    from bert_tf.checkpoints import ModelDirectory

    attributes = {"architecture": architecture, "vocabulary": vocabulary}
    attributes |= {"lowercase": True, "head": {"kind": kind}, "options": {}}
    ModelDirectory.create(path, **attributes).save_weights(model)


def keras_hub_backbone(architecture: BertConfig, dtype: Any = "float32"):
    """Returns KerasHub's `BertBackbone`."""
    import keras_hub

    sizes = {name: getattr(architecture, name) for name in _KEYS}
    return keras_hub.models.BertBackbone(**sizes, dtype=dtype)


def transformers_config(architecture: BertConfig, **options: Any):
    """Returns transformers' `BertConfig` with `options` such as `num_labels`."""
    import transformers

    keys = FAMILIES["bert"].keys
    sizes = {keys[name]: getattr(architecture, name) for name in _KEYS}
    return transformers.BertConfig(**sizes, hidden_act="gelu_new", **options)


def keras_step(
    model, batches: Sequence[tuple], **options: Any
) -> Callable[[int], None]:
    """Returns a function that trains a Keras model on batch `i`, with TensorFlow.

    Args:
        model: The model.
        batches: Inputs, targets and weights of each batch.
        **options: Of `model.compile`.
    """
    import tensorflow as tf

    from bert_tf.training import AdamW

    model.compile(AdamW(1e-4), **options)
    model.optimizer.build(model.trainable_variables)
    model.make_train_function()
    datasets = [tf.data.Dataset.from_tensors(batch) for batch in batches]

    def step(number: int) -> None:
        model.train_function(iter(datasets[number]))

    return step


def torch_step(model, batches: Sequence[Mapping[str, Any]]) -> Callable[[int], None]:
    """Returns a function that trains a model of transformers on batch `i`."""
    import torch

    optimizer = torch.optim.AdamW(model.train().parameters(), 1e-4)

    def step(number: int) -> None:
        optimizer.zero_grad()
        model(**batches[number]).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def transformers_inputs(inputs: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Converts inputs of `BertBackbone` to those of transformers' BERT."""
    import torch

    return {
        theirs: torch.tensor(np.asarray(inputs[ours])).long()
        for ours, theirs in zip(_OURS, _THEIRS, strict=True)
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
