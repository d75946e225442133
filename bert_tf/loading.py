# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The function that `from_checkpoint` of models and tokenizers opens checkpoints with.

`bert_tf.checkpoints` imports `modeling` and `text`, so imports the other way round
would be cycles. Instead `bert_tf/__init__.py`, which Python runs before any module of
the package, sets `open_checkpoint`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

open_checkpoint: Callable[[str], Any]
