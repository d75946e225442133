# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Defines how a family of models with BERT's encoder layers differs from BERT.

`FAMILY` in `bert.py` is BERT. Readers, writers, encoder and heads follow it, so a new
family is a new module and an entry in `table.py`. Our names of layers are explained in
`checkpoints/weight_files.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Family:
    """The names of a family in transformers, and how its models differ from BERT.

    Attributes:
        name: The first part of its class names, e.g. `Bert`. In lower case, it is the
            `model_type` in config.json and the prefix of the encoder's weights.
        keys: Fields of `BertConfig` -> keys of config.json.
        required: The only allowed values of other keys of config.json.
        fixed: Fields of `BertConfig` that have no key, with their values.
        encoder: Our names of the encoder's layers -> theirs without prefix. `{i}` is
            the number of an encoder layer.
        heads: Kinds of heads -> our names of their layers -> theirs. Names separated by
            spaces, and further names of a layer of the encoder, are equal copies.
        classes: Kinds of heads -> the suffixes of their class names, first that of the
            class with all layers.
        pooler_activation: The activation of the pooler, a name in `keras.activations`.
        masked_lm_activation: The activation of the masked LM, a name as in
            `BertConfig`; by default that of the encoder layers.
    """

    name: str
    keys: Mapping[str, str]
    required: Mapping[str, Sequence[Any]]
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    encoder: Mapping[str, str]
    heads: Mapping[str, Mapping[str, str]]
    classes: Mapping[str, Sequence[str]]
    pooler_activation: str
    masked_lm_activation: str | None = None

    @property
    def prefix(self) -> str:
        """The prefix of the encoder's weights in models with a head."""
        return f"{self.name.lower()}."

    def layers(self, kind: str) -> dict[str, str]:
        """Returns our names of the layers of a model with a head -> all of theirs."""
        names = {ours: self.prefix + theirs for ours, theirs in self.encoder.items()}
        for ours, theirs in self.heads.get(kind, {}).items():
            names[ours] = f"{names[ours]} {theirs}" if ours in names else theirs
        return names
