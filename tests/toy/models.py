# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tiny models with random weights."""

import os
import types
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from bert_tf import serving
from bert_tf.checkpoints import ModelDirectory
from bert_tf.heads import PretrainerHead, Signature
from bert_tf.modeling import BertConfig, BertPretrainer
from bert_tf.text import Tokenizer, Vocabulary

_Model = TypeVar("_Model", bound=tf.keras.Model)


def encoder_inputs(token_ids: Any) -> dict[str, np.ndarray]:
    """Returns the inputs of an encoder for ids [B, S], of which 0 is padding."""
    ids = np.array(token_ids, np.int32)
    mask = np.int32(ids != 0)
    return {"token_ids": ids, "segment_ids": 0 * ids, "padding_mask": mask}


def randomize_weights(model: _Model, stddev: float = 0.3) -> _Model:
    """Adds noise to all weights, biases included, so that a missing one shows."""
    tf.keras.utils.set_random_seed(7)
    for weight in model.weights:
        weight.assign(weight + tf.random.normal(weight.shape, stddev=stddev))
    return model


def model_directory(
    path: str | os.PathLike,
    config: BertConfig,
    vocabulary: Vocabulary,
    head: Mapping[str, Any] = types.MappingProxyType({"kind": "pretrainer"}),
    **attributes: Any,
) -> ModelDirectory:
    """Returns a model directory, still without weights."""
    attributes = {"lowercase": True, "options": {}, **attributes}
    return ModelDirectory.create(
        path, architecture=config, vocabulary=vocabulary, head={**head}, **attributes
    )


def pretrained_signatures(
    model: BertPretrainer, tokenizer: Tokenizer
) -> dict[str, Signature]:
    """Returns the signatures that an export of the model has."""
    limit = model.backbone.config.max_sequence_length
    head = PretrainerHead({}, {"max_sequence_length": limit}, tokenizer)
    return serving.head_signatures(head, model)
