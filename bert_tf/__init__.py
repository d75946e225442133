# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""BERT (arXiv 1810.04805) in Keras 3 on TensorFlow, from raw text to serving.

The public names for Keras scripts. Each is imported when it is first used, so that
`import bert_tf.client` or a command's `--help` does not wait for TensorFlow.
"""

import importlib

_HOME = {
    "AdamW": "optimization",
    "BertBackbone": "model",
    "BertConfig": "config",
    "BertPretrainer": "model",
    "ModelDirectory": "checkpoint",
    "Tokenizer": "text",
    "Vocabulary": "vocab",
    "WarmupDecay": "optimization",
    "open_checkpoint": "convert",
    "pretrain_dataset": "input_pipeline",
}

__all__ = sorted(_HOME)
__version__ = "0.1.0"


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module 'bert_tf' has no attribute {name!r}")
    return getattr(importlib.import_module(f"bert_tf.{_HOME[name]}"), name)


def __dir__():
    return sorted([*globals(), *__all__])
