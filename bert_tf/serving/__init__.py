# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""SavedModels with strings in and answers out, and a development server."""

from bert_tf.lazy import exports

__getattr__, __dir__, __all__ = exports(__name__, __file__)
