# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Opens the checkpoints of others, and converts them to one's own and back.

    python -m bert_tf.convert --from=all-MiniLM-L6-v2 --to=models/minilm

In: a model directory of this project or the folder of another one; what it is follows
from its files. Out: a folder of the format that `--format` names.
"""

from __future__ import annotations

import pathlib

from bert_tf.checkpoint import Checkpoint, ModelDirectory
from bert_tf.formats import hugging_face


def open_checkpoint(path: str | pathlib.Path) -> Checkpoint:
    """Opens any folder that holds a BERT.

    Raises:
        ValueError: It holds none, or one that is damaged or of another architecture.
    """
    path = pathlib.Path(path)
    if hugging_face.recognises(path):
        return hugging_face.open_folder(path)
    return ModelDirectory.open(path)
