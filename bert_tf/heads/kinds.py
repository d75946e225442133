# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The table of the kinds of heads, and the plugin point for those of users.

`find_head` imports `tasks.<kind>` for a kind that is not in the table. No other module
of `bert_tf` imports a task. Only the user's installation knows which tasks there are,
so the import is by name (see docs/adding_a_task.md).

A folder of another project may not tell which kind of head it has. Its encoder can be
used, but `check_declared` refuses to serve or convert it until the user chooses a kind.
"""

from __future__ import annotations

import importlib
import types
from collections.abc import Mapping
from typing import Any

from bert_tf.heads.classification import ClassificationHead
from bert_tf.heads.embedding import EmbeddingHead
from bert_tf.heads.encoder import EncoderHead
from bert_tf.heads.head import Head
from bert_tf.heads.multiple_choice import MultipleChoiceHead
from bert_tf.heads.pretraining import PretrainerHead
from bert_tf.heads.question_answering import QuestionAnsweringHead
from bert_tf.heads.tagging import TaggingHead

HEADS: dict[str, type[Head]] = {
    head.kind: head
    for head in (
        EncoderHead,
        PretrainerHead,
        ClassificationHead,
        TaggingHead,
        QuestionAnsweringHead,
        MultipleChoiceHead,
        EmbeddingHead,
    )
}
"""The classes by kind. A task of the user adds its own."""

BUILT_IN = types.MappingProxyType(dict(HEADS))
"""The classes of the package, which other processes know, too."""


def find_head(kind: str) -> type[Head]:
    """Returns the class of a kind.

    If there is none, imports the user's task `tasks.<kind>`, which adds it to `HEADS`.

    Raises:
        ValueError: There is no such kind.
    """
    module = f"tasks.{kind}"
    if kind not in HEADS and kind.isidentifier():
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name not in ("tasks", module):
                raise
    if kind not in HEADS:
        raise ValueError(
            f"There is no head of the kind {kind!r}, only {', '.join(HEADS)}. Import "
            f"the module that adds it to `bert_tf.heads.HEADS`, or name it {module}."
        )
    return HEADS[kind]


def known_head(kind: str) -> type[Head]:
    """As `find_head`, but returns `Head` itself for a kind that is not imported.

    Raises:
        ValueError: A class of the user has replaced one of `BUILT_IN`.
    """
    head = HEADS.get(kind, Head)
    if (own := BUILT_IN.get(kind, head)) is not head:
        raise ValueError(
            f"heads.HEADS[{kind!r}] must be {own.__name__}, which other processes "
            "would use for the model. Add your class to `HEADS` under another `kind`. "
            f"Received: {head.__name__}"
        )
    return head


def check_declared(settings: Mapping[str, Any], path: Any) -> None:
    """Raises ValueError if the user must choose a kind first."""
    if settings.get("undeclared"):
        raise ValueError(
            f"{path}: {settings['undeclared']} Choose how to read the folder: "
            "--head=encoder for the encoder only, or one of "
            f"{', '.join([*HEADS][1:])} (options of bert_tf.export and "
            "bert_tf.convert; `head=` in Python)."
        )
