# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Evaluates the masked-LM head of a checkpoint on text: loss, accuracy, perplexity.

    python -m bert_tf.evaluate --model_dir=models/mini --records=records
    python -m bert_tf.evaluate --model_dir=hf://google-bert/bert-base-uncased \\
        --input='text/*' --output=masked.jsonl

Input: any checkpoint with a masked-LM head, and the validation rows of records that
bert_tf.corpus wrote with its vocabulary; or text, of which it writes temporary records.
Tokens are masked as in pre-training: 15 % are predicted, of which 80 % become [MASK]
and 10 % a random token. The same flags give the same masks. --output writes the masked
rows as JSON lines, with the names of transformers, whose models have the same loss on
them.

Compare losses only between models with the same vocabulary.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from bert_tf import checkpoints, cli, data, modeling, training


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateConfig(data.TextFilesConfig):
    """Options of `python -m bert_tf.evaluate`."""

    model_dir: str = cli.option(
        help="Model directory, checkpoint of another project, or a handle (hf://...)."
    )
    records: str = cli.option(
        "", help="Folder of bert_tf.corpus. Its validation rows are read.", common=True
    )
    input: str = cli.option(
        "", help="Instead of --records: text files, as for bert_tf.corpus.", common=True
    )
    max_sequence_length: int = cli.option(
        0,
        help="Tokens per row of --input; 0: as many as the checkpoint has.",
        minimum=0,
    )
    mask_selection_rate: float = cli.option(
        0.15, help="Fraction of the tokens to predict.", minimum=0, maximum=1
    )
    whole_word_masking: bool = cli.option(
        False, help="Mask all tokens of a word together."
    )
    seed: int = cli.option(0, help="Seed of the masks.", minimum=0)
    output: str = cli.option(
        "", help="File for the masked rows: .jsonl.", common=True, local=True
    )
    head: str = cli.option("", help="Kind of an undeclared head; encoder for none.")


def main(options: EvaluateConfig) -> dict[str, float]:
    """Prints and returns the metrics, see `masked_lm_metrics`."""
    if bool(options.records) == bool(options.input):
        raise ValueError("Pass either --records or --input.")
    checkpoint = checkpoints.open_checkpoint(options.model_dir, head=options.head)
    _check_head(checkpoint)
    names = ("seed", "mask_selection_rate", "whole_word_masking")
    masking = {name: getattr(options, name) for name in names}
    with contextlib.ExitStack() as stack:
        path, split = options.records, "validation"
        if options.input:
            path = stack.enter_context(tempfile.TemporaryDirectory())
            split = "train"
            _write_records(options, checkpoint, path)
        records = data.Records(path)
        if options.output and records.manifest["pairs_per_row"] > 1:
            raise ValueError(
                f"--output needs records of one pair per row. {path} has several: "
                "write them with --pack=false."
            )
        metrics = masked_lm_metrics(checkpoint, records, split, **masking)
        print(
            f"Masked-LM loss {metrics['loss']:.4f}, accuracy "
            f"{metrics['accuracy']:.2%}, perplexity {metrics['perplexity']:.2f}: "
            f"{metrics['rows']:,} rows."
        )
        if options.output:
            data.write_table(options.output, _rows(records, split, masking))
    return metrics


def masked_lm_metrics(
    checkpoint: checkpoints.Checkpoint,
    records: data.Records,
    split: str = "validation",
    **masking: Any,
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
    _check_head(checkpoint)
    training.check_tokens(checkpoint, records)
    checkpoint = checkpoint.extend_vocabulary(records.vocabulary)
    model = checkpoint.load_model(modeling.BertPretrainer)
    model.compile()
    dataset = records.dataset(split, batch_size=32, shuffle_buffer=0, **masking)
    metrics = model.evaluate(dataset, return_dict=True, verbose=0)
    return {
        "loss": metrics["mlm_loss"],
        "accuracy": metrics["mlm_accuracy"],
        "perplexity": math.exp(metrics["mlm_loss"]),
        "rows": records.manifest[f"{split}_rows"],
    }


def _check_head(checkpoint: checkpoints.Checkpoint) -> None:
    if "mlm/bias" not in checkpoint.weights:
        raise ValueError(
            f"{checkpoint.path} has no masked-LM head. Received: a checkpoint for "
            f"{checkpoint.head['kind']}"
        )


def _write_records(
    options: EvaluateConfig, checkpoint: checkpoints.Checkpoint, folder: str
) -> None:
    """Writes records of all text, one sequence of sentences per row."""
    vocabulary = os.path.join(folder, "vocab.txt")
    training.check_rules(checkpoint, checkpoint.lowercase, "records of bert_tf.corpus")
    checkpoint.vocabulary.write(vocabulary)
    limit = checkpoint.architecture.max_sequence_length
    length = options.max_sequence_length or checkpoint.max_sequence_length
    fields = (field.name for field in dataclasses.fields(data.TextFilesConfig))
    corpus = data.CorpusConfig(
        **{name: getattr(options, name) for name in fields},
        vocabulary=vocabulary,
        output=folder,
        lowercase=checkpoint.lowercase,
        max_sequence_length=min(length, limit),
        short_sequence_probability=0,
        next_sentence_prediction=False,
        pack=False,
        held_out_share=0,
        num_workers=1,
    )
    data.prepare_corpus(corpus)


def _rows(
    records: data.Records, split: str, masking: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """Yields rows with the names of transformers, which ignores the label -100."""
    dataset = records.dataset(split, batch_size=1, shuffle_buffer=0, **masking)
    for x, y, weights in dataset.as_numpy_iterator():
        labels, used = np.full(x["token_ids"].shape, -100), weights["mlm"] > 0
        labels[0, x["mask_positions"][used]] = y["mlm"][used]
        names = ("token_ids", "segment_ids", "padding_mask")
        ids, segments, mask = (x[name][0].tolist() for name in names)
        row = {"input_ids": ids, "token_type_ids": segments, "attention_mask": mask}
        yield row | {"labels": labels[0].tolist()}


if __name__ == "__main__":
    cli.run(main, EvaluateConfig)
