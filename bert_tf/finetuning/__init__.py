# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning on downstream tasks: data, batches, runs, reports."""

from bert_tf.lazy import exports

__getattr__, __dir__, __all__ = exports(__name__, __file__)
