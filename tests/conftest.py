# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""What all tests share: a quiet TensorFlow with two CPU devices, tiny models."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import pytest
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.vocab import Vocabulary

# Two logical devices, so that several replicas can be tried on any machine.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration()] * 2,
)


@pytest.fixture(scope="session")
def vocabulary() -> Vocabulary:
    """Forty tokens: the special ones, letters, and pieces that continue a word."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["the", "cat", "sat", "on", "mat", "##s", "##ing", ".", ","]
    return Vocabulary(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *words))


@pytest.fixture(scope="session")
def tiny_config(vocabulary: Vocabulary) -> BertConfig:
    """Two layers of 16 units, no dropout, for the test vocabulary."""
    return BertConfig(
        vocabulary_size=vocabulary.size,
        num_layers=2,
        num_heads=2,
        hidden_dim=16,
        intermediate_dim=32,
        dropout=0.0,
        attention_dropout=0.0,
        max_sequence_length=32,
    )
