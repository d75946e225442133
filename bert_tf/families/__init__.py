# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Families of models: one module each, with their names in transformers."""

from bert_tf.lazy import exports

__getattr__, __dir__, __all__ = exports(__name__, __file__)
