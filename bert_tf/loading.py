# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The functions with which `from_checkpoint` of models and tokenizers loads them.

`bert_tf.checkpoints` imports `modeling` and `text`, so imports the other way round
would be cycles. Instead `bert_tf/__init__.py`, which Python runs before any module of
the package, sets these functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

open_checkpoint: Callable[[str], Any]
load_tokenizer: Callable[[Any], Any]
