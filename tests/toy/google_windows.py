# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The windows of google-research/bert's run_squad.py as plain loops: an oracle."""

from __future__ import annotations

from collections.abc import Sequence

Window = tuple[int, int]  # First piece, number of pieces.


def google_windows(size: int, capacity: int, stride: int) -> list[Window]:
    """The windows of a passage of `size` pieces."""
    windows, first = [], 0
    while not windows or sum(windows[-1]) < size:
        windows.append((first, min(capacity, size - first)))
        first += min(stride, capacity)
    return windows


def max_context_window(windows: Sequence[Window], piece: int) -> int:
    """The index of the window in which `piece` has its maximum context."""

    def context(first: int, size: int) -> float:
        if not first <= piece < first + size:
            return -1
        return min(piece - first, first + size - 1 - piece) + 0.01 * size

    contexts = [context(*window) for window in windows]
    return contexts.index(max(contexts))
