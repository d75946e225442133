# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints with fewer layers or more tokens than the one on disk."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.text import CONTINUATION_PREFIX, Vocabulary, split_words

_Weights = dict[str, np.ndarray]

# The weights with a value or row per token.
_PER_TOKEN = ("embeddings/token_embedding/embeddings", "mlm/bias")


def keep_layers(checkpoint: Checkpoint, layers: Sequence[int]) -> Checkpoint:
    """Returns a checkpoint with some of the encoder layers, counted from 1."""

    def change(weights: _Weights) -> _Weights:
        kept = {k: v for k, v in weights.items() if not k.startswith("encoder_layer_")}
        for index, layer in enumerate(layers):
            old, new = f"encoder_layer_{layer - 1}/", f"encoder_layer_{index}/"
            for name in weights:
                if name.startswith(old):
                    kept[name.replace(old, new)] = weights[name]
        return kept

    return _Derived.create(checkpoint, change, num_layers=len(layers))


def extend_vocabulary(checkpoint: Checkpoint, vocabulary: Vocabulary) -> Checkpoint:
    """Returns a checkpoint with more tokens.

    The weights of a new token are the mean over the pieces that it was split into: its
    embedding, and its bias in the masked-LM head. All other weights stay the same.

    Args:
        checkpoint: An opened checkpoint.
        vocabulary: Extends that of the checkpoint, see `Vocabulary.extends`.
    """
    old, new = checkpoint.vocabulary, vocabulary.tokens
    ids = [i for i, token in enumerate(new) if old.tokens[i : i + 1] != (token,)]
    words = [new[i].removeprefix(CONTINUATION_PREFIX) for i in ids]

    def change(weights: _Weights) -> _Weights:
        for name in weights.keys() & set(_PER_TOKEN):
            values = weights[name]
            weights[name] = np.resize(values, [len(new), *values.shape[1:]])
            for index, pieces in zip(ids, split_words(words, old), strict=True):
                weights[name][index] = values[pieces].mean(axis=0)
        return weights

    derived = _Derived.create(checkpoint, change, vocabulary_size=len(new))
    return dataclasses.replace(derived, vocabulary=vocabulary, original_tokenizer=None)


def standardized(checkpoint: Checkpoint, head: Mapping[str, Any]) -> Checkpoint:
    """Returns a checkpoint whose scores have the `mean` and `deviation` of a head.

    Returns `checkpoint` itself if the head has none.
    """
    if not head.get("deviation"):
        return checkpoint

    def change(weights: _Weights) -> _Weights:
        for name, mean in (("logits/kernel", 0), ("logits/bias", head["mean"])):
            if name in weights:
                weights[name] = (weights[name] - mean) / head["deviation"]
        return weights

    return _Derived.create(checkpoint, change)


@dataclasses.dataclass(frozen=True, repr=False)
class _Derived(Checkpoint):
    """A checkpoint whose weights are those of `source` after `change`."""

    format: ClassVar[str] = "derived checkpoint"
    notes: ClassVar[Sequence[str]] = ()
    source: Checkpoint
    change: Callable[[_Weights], _Weights]

    @classmethod
    def create(
        cls, source: Checkpoint, change: Callable[[_Weights], _Weights], **changes: Any
    ) -> _Derived:
        """Changes the weights, and values of the architecture."""
        values = {
            f.name: getattr(source, f.name) for f in dataclasses.fields(Checkpoint)
        }
        values["architecture"] = dataclasses.replace(source.architecture, **changes)
        return cls(**values, source=source, change=change)

    def read_weights(self) -> _Weights:
        return self.change(self.source.read_weights())
