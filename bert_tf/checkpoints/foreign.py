# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""A checkpoint of another project, opened: what the formats' modules return."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.checkpoints import names
from bert_tf.checkpoints.model_directory import Checkpoint
from bert_tf.modeling.config import BertConfig
from bert_tf.text.vocabulary import SPECIAL_TOKENS, Vocabulary

# Tables are padded to a multiple of 8, which tensor cores need, up to 128.
_PADDED_TO, _MAX_PADDING = 8, 128


@dataclasses.dataclass(frozen=True, eq=False)
class ForeignCheckpoint(Checkpoint):
    """A checkpoint of another project. Its weights are read when they are asked for.

    Attributes:
        format: What people call the format.
        notes: What a user should know about how it was read, a sentence each.
    """

    format: str
    notes: Sequence[str]
    match: names.Match
    tensors: names.Tensors

    def read_weights(self) -> dict[str, np.ndarray]:
        try:
            return self.match.read(self.tensors, self.vocabulary.size)
        except ValueError as error:
            raise ValueError(f"{self.path}: {error}") from error


def open_tensors(
    path: pathlib.Path,
    *,
    format: str,
    rows: Sequence[names.Row],
    tensors: names.Tensors,
    config: BertConfig,
    vocabulary: Vocabulary,
    lowercase: bool,
    head: Mapping[str, Any] | None = None,
    notes: Sequence[str] = (),
) -> ForeignCheckpoint:
    """Accounts for all tensors of a checkpoint.

    Args:
        path: The folder, for messages.
        format: What people call the format.
        rows: Its table of names.
        tensors: Those in the file.
        config: As the folder's config says, whose `vocabulary_size` may be padded.
        vocabulary: As in the folder.
        lowercase: Whether it is an uncased one.
        head: The task's, where the folder says it; else it follows from the tensors.
        notes: What a user should know so far.

    Raises:
        ValueError: The tensors contradict the config or the vocabulary.
    """
    notes = list(notes)
    padding = config.vocabulary_size - vocabulary.size
    if padding:
        padded = config.vocabulary_size % _PADDED_TO == 0
        if not (padded and 0 < padding < _MAX_PADDING):
            raise ValueError(
                f"{path}: the config says {config.vocabulary_size} tokens, and the "
                f"vocabulary has {vocabulary.size}."
            )
        notes.append(
            f"The last {padding} of the {config.vocabulary_size} rows of the token "
            "embedding only pad it; they are left out."
        )
    try:
        match = names.match(rows, tensors.shapes, config)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if head is None:
        pre_trained = match.layers & {"mlm", "nsp"}
        head = {"kind": "pretrainer" if pre_trained else "encoder"}
    fresh = [
        layer
        for layer in _LAYERS_OF.get(head["kind"], ("pooler", "logits"))
        if layer not in match.layers
    ]
    if fresh:
        head = {**head, "newly_initialized": fresh}
    return ForeignCheckpoint(
        path=path,
        architecture=dataclasses.replace(config, vocabulary_size=vocabulary.size),
        vocabulary=vocabulary,
        lowercase=lowercase,
        head=head,
        format=format,
        notes=notes,
        match=match,
        tensors=tensors,
    )


# Which optional layers a kind of model has.
_LAYERS_OF = {"encoder": ("pooler",), "pretrainer": ("pooler", "mlm", "nsp")}


def guess_lowercase(vocabulary: Vocabulary) -> tuple[bool, str]:
    """Whether a vocabulary is an uncased one, for folders that do not say it.

    Returns:
        Whether no token has a capital letter, and a note that says so.
    """
    words = set(vocabulary.tokens) - set(SPECIAL_TOKENS)
    marks = ("[", "<")  # Of [unused0] and the like; <S> is in the Chinese vocabulary.
    lowercase = all(w == w.lower() or w.startswith(marks) for w in words)
    if lowercase:
        return True, "Taken as uncased: its vocabulary has no capital letters."
    return False, "Taken as cased: its vocabulary has capital letters."
