# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Evaluates the masked-LM head of a checkpoint on text: loss, accuracy, perplexity.

    python -m bert_tf.evaluate --model_dir=models/mini --input='text/*'
    python -m bert_tf.evaluate --model_dir=hf://google-bert/bert-base-uncased \\
        --input='text/*' --output=masked.jsonl

Input: any checkpoint with a masked-LM head, and text as for bert_tf.corpus. The tokens
are those of the checkpoint's tokenizer, masked as in pre-training: 15 % are predicted,
of which 80 % become [MASK] and 10 % a random token. The same flags give the same masks.
--output writes the masked rows as JSON lines, with the names of transformers, whose
models have the same loss on them.

Compare losses only between models with the same vocabulary.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from bert_tf import checkpoints, cli, data, training


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateConfig(data.TextFilesConfig):
    """Options of `python -m bert_tf.evaluate`."""

    model_dir: str = cli.option(
        help="Model directory, checkpoint of another project, or a handle (hf://...)."
    )
    max_sequence_length: int = cli.option(
        0, help="Tokens per row; 0: as many as the checkpoint has.", minimum=0
    )
    mask_selection_rate: float = cli.option(
        0.15, help="Fraction of the tokens to predict.", minimum=0, maximum=1
    )
    whole_word_masking: bool = cli.option(
        False, help="Mask all tokens of a word together."
    )
    max_rows: int = cli.option(
        0,
        help="Evaluate this many rows, the first ones; 0: all.",
        minimum=0,
        common=True,
    )
    seed: int = cli.option(0, help="Seed of the masks.", minimum=0)
    output: str = cli.option("", help="File for the masked rows: .jsonl.", common=True)
    head: str = cli.option("", help=cli.HEAD_HELP)


def main(options: EvaluateConfig) -> dict[str, float]:
    """Prints and returns the metrics, see `training.masked_lm_metrics`."""
    checkpoint = checkpoints.open_checkpoint(options.model_dir, head=options.head)
    texts = data.list_texts(options)
    print(data.preview(texts))
    documents = (" ".join(x) for text in texts for x in text.documents())
    names = ("max_sequence_length", "max_rows", "seed")
    names += ("mask_selection_rate", "whole_word_masking")
    arguments = {name: getattr(options, name) for name in names}
    batches = training.masked_rows(checkpoint, documents, **arguments)
    if options.output:
        batches = list(batches)
        data.write_table(options.output, _rows(batches))
    metrics = training.masked_lm_metrics(checkpoint, batches)
    print(
        f"Masked-LM loss {metrics['loss']:.4f}, accuracy {metrics['accuracy']:.2%}, "
        f"perplexity {metrics['perplexity']:.2f}: {metrics['predictions']:,} "
        f"predictions in {metrics['rows']:,} rows."
    )
    return metrics


def _rows(batches: Iterable[tuple[Any, Any, Any]]) -> Iterator[dict[str, Any]]:
    """Yields rows with the names of transformers, which ignores the label -100."""
    for x, y, weights in batches:
        labels = np.full(x["token_ids"].shape, -100)
        row, column = np.nonzero(weights["mlm"])
        positions = np.asarray(x["mask_positions"])[row, column]
        labels[row, positions] = np.asarray(y["mlm"])[row, column]
        columns = np.asarray(x["token_ids"]), np.asarray(x["padding_mask"]), labels
        for ids, mask, wanted in zip(*(values.tolist() for values in columns)):
            yield {"input_ids": ids, "attention_mask": mask, "labels": wanted}


if __name__ == "__main__":
    cli.run(main, EvaluateConfig)
