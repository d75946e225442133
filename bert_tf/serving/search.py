# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Semantic search in a text file: the lines whose vectors are nearest to a query's.

Search is exact: one matmul of all vectors with those of the queries. That is fast
enough for a million lines. Does not import TensorFlow.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tqdm

_BATCH_SIZE = 32
_PROGRESS_DELAY = 5  # Seconds.


class Match(NamedTuple):
    """A line of the corpus, counted from 1, and its cosine similarity to the query."""

    score: float
    line: int
    text: str


class Corpus:
    """The lines of a text file, and their vectors [N, E] float32 of length 1.

    Args:
        path: A text file in UTF-8. Blank lines are skipped.
        embed: Returns vectors [B, E] of B texts; they need not be normalized.

    Raises:
        ValueError: The file has no text.
        OSError: The file cannot be read.
    """

    def __init__(
        self, path: pathlib.Path, embed: Callable[[Sequence[str]], np.ndarray]
    ):
        self._embed = embed
        text = path.read_text(encoding="utf-8-sig", errors="replace")
        lines = enumerate(map(str.strip, text.split("\n")), start=1)
        self._lines = [(number, line) for number, line in lines if line]
        if not self._lines:
            raise ValueError(f"{path} has no text. It must have one document per line.")
        self.vectors = self._vectors([line for _, line in self._lines])

    def search(self, queries: Sequence[str], top_k: int) -> list[list[Match]]:
        """Returns the `top_k` most similar lines of each query, the best first."""
        matches = []
        for query in self._vectors(queries):
            scores = self.vectors @ query
            best = np.argsort(-scores, kind="stable")[:top_k]
            matches.append([Match(float(scores[i]), *self._lines[i]) for i in best])
        return matches

    def _vectors(self, texts: Sequence[str]) -> np.ndarray:
        starts = range(0, len(texts), _BATCH_SIZE)
        batches = [
            np.asarray(self._embed(texts[start : start + _BATCH_SIZE]), np.float32)
            for start in tqdm.tqdm(starts, delay=_PROGRESS_DELAY, unit="batch")
        ]
        vectors = np.concatenate(batches)
        length = np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors / np.maximum(length, 1e-12)
