# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Evaluates the masked-LM head of a checkpoint on records."""

from __future__ import annotations

import math
from typing import Any

from bert_tf.checkpoints import Checkpoint
from bert_tf.data import Records
from bert_tf.modeling import BertPretrainer


def check_tokens(checkpoint: Checkpoint, records: Records) -> None:
    """Checks that a checkpoint's tokenizer gives the token ids of the records.

    The vocabulary of the records may have further tokens.

    Raises:
        ValueError: It has another vocabulary or other rules.
    """
    vocabulary, lowercase = records.vocabulary, records.manifest["lowercase"]
    if not vocabulary.extends(checkpoint.vocabulary):
        raise ValueError(
            f"{checkpoint.path} has another vocabulary than {records.path}. Write the "
            "records with the vocabulary of the checkpoint, or one with further tokens "
            "at its end or in the place of [unused...]."
        )
    rules = checkpoint.rules
    ours = lowercase, rules.strip_accents in (None, lowercase), True
    others = (x for x in rules.added_tokens if not x.is_word(lowercase))
    special = {vocabulary.tokens[number] for number in vocabulary.special_ids}
    split = sorted({x.content for x in others} - special)
    if split or (checkpoint.lowercase, True, rules.split_chinese) != ours:
        raise ValueError(
            f"{checkpoint.path} has another tokenizer than {records.path}, which "
            f"lowercase={lowercase} and split added tokens: {split}. Received: "
            f"lowercase={checkpoint.lowercase}, {rules}"
        )


def masked_lm_metrics(
    checkpoint: Checkpoint, records: Records, split: str = "validation", **masking: Any
) -> dict[str, float]:
    """Computes the metrics of masked language modeling.

    Args:
        checkpoint: A checkpoint with a masked-LM head.
        records: Records with its tokens.
        split: That of the records. All of its rows are read.
        **masking: `seed`, and arguments of `Masker`. By default, the loss is the
            `val_mlm_loss` of `bert_tf.pretrain` with the same seed.

    Returns:
        `loss`, the mean over all predictions; `accuracy`; `perplexity`, the exponential
        of the loss; and the number of `rows`.

    Raises:
        ValueError: The checkpoint has no masked-LM head or other tokens, or the records
            no rows.
    """
    if "mlm/bias" not in checkpoint.weights:
        raise ValueError(
            f"{checkpoint.path} has no masked-LM head. Received: a checkpoint for "
            f"{checkpoint.head['kind']}"
        )
    check_tokens(checkpoint, records)
    checkpoint = checkpoint.extend_vocabulary(records.vocabulary)
    model = checkpoint.load_model(BertPretrainer)
    model.compile()
    dataset = records.dataset(split, batch_size=32, shuffle_buffer=0, **masking)
    metrics = model.evaluate(dataset, return_dict=True, verbose=0)
    return {
        "loss": metrics["mlm_loss"],
        "accuracy": metrics["mlm_accuracy"],
        "perplexity": math.exp(metrics["mlm_loss"]),
        "rows": records.manifest[f"{split}_rows"],
    }
