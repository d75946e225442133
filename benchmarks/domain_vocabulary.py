# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Masked-LM losses of models with different vocabularies, per word.

    python -m benchmarks.domain_vocabulary --models=models/mini,models/extended \\
        --input=held_out.txt

Losses per token of different vocabularies do not compare: pieces of a word are easier
to predict than words. Here 15 % of the first words of each line are masked, the same
for all models, each with all its pieces. The loss of a word is the sum over its pieces,
which are predicted independently of each other. That counts against models that split
more; that they see how many pieces a masked word has helps them.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from bert_tf import checkpoints, cli, data, text
from bert_tf.lazy import lazy_import

keras = lazy_import("keras")
tf = lazy_import("tensorflow")

_LENGTH = 126  # Pieces of a line that are read.
_WORDS = 32  # Words of a line that may be masked. No vocabulary cuts them off.
_MASKED = 0.15


@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabulariesConfig(cli.Options):
    """Options of `python -m benchmarks.domain_vocabulary`."""

    models: str = cli.option(help="Pre-trained models, separated by commas.")
    input: str = cli.option(help="A text file that no model was trained on.")
    batch_size: int = cli.option(32, help="Lines per batch.", minimum=1)


def main(options: VocabulariesConfig) -> None:
    """Prints the table."""
    lines = [
        line for document in data.read_documents(options.input) for line in document
    ]
    print("| model | pieces per word | masked words | nats per word | right |")
    print("|---|---|---|---|---|")
    for path in options.models.split(","):
        pieces, losses, right = measure(path, lines, options.batch_size)
        print(
            f"| {path} | {pieces:.3f} | {len(losses):,} | {losses.mean():.3f} ± "
            f"{losses.std() / len(losses) ** 0.5:.3f} | {right.mean():.1%} |",
            flush=True,
        )


def measure(
    path: str, lines: list[str], batch_size: int
) -> tuple[float, np.ndarray, np.ndarray]:
    """Returns pieces per word, and loss and correctness of each masked word."""
    checkpoint = checkpoints.open_checkpoint(path)
    vocabulary = checkpoint.vocabulary
    tokenizer = text.Tokenizer(vocabulary, checkpoint.lowercase)
    model = checkpoint.load_pretrainer()
    rows = [np.array(row) for row in tokenizer.tokenize(lines).to_list() if row]
    starts = [np.flatnonzero(~vocabulary.is_continuation[row]) for row in rows]
    rng = np.random.default_rng(0)
    chosen = [_choose(rng, len(row), start) for row, start in zip(rows, starts)]
    used = [(row[:_LENGTH], words) for row, words in zip(rows, chosen) if words]
    losses, right = [], []
    for first in range(0, len(used), batch_size):
        batch = used[first : first + batch_size]
        logits = model(_masked_inputs(batch, vocabulary))["mlm"]
        for row, (ids, words) in zip(tf.nn.log_softmax(logits).numpy(), batch):
            gold = ids[np.concatenate(words)]
            ends = np.cumsum([len(word) for word in words])[:-1]
            loss = -row[np.arange(len(gold)), gold]
            hits = row[: len(gold)].argmax(axis=1) == gold
            losses += [part.sum() for part in np.split(loss, ends)]
            right += [part.all() for part in np.split(hits, ends)]
    pieces = sum(map(len, rows)) / sum(map(len, starts))
    return pieces, np.array(losses), np.array(right)


def _choose(
    rng: np.random.Generator, length: int, starts: np.ndarray
) -> list[np.ndarray]:
    """Returns the indices of the pieces of each word to mask.

    Args:
        rng: Must be in the same state for all vocabularies.
        length: Pieces of the line.
        starts: The first piece of each word.
    """
    words = np.split(np.arange(length), starts[1:])
    masked = rng.random(len(words)) < _MASKED
    return [word for word, use in zip(words[:_WORDS], masked) if use]


def _masked_inputs(
    batch: list[tuple[np.ndarray, list[np.ndarray]]], vocabulary: text.Vocabulary
) -> dict[str, np.ndarray]:
    rows, positions = [], []
    for ids, words in batch:
        masked = np.concatenate(words)
        positions.append(masked + 1)  # After [CLS].
        ids = ids.copy()
        ids[masked] = vocabulary.mask_id
        rows.append([vocabulary.cls_id, *ids, vocabulary.sep_id])
    token_ids = keras.utils.pad_sequences(rows, padding="post")
    lengths = np.array([[len(row)] for row in rows])
    return {
        "token_ids": token_ids,
        "segment_ids": np.zeros_like(token_ids),
        "padding_mask": np.int32(np.arange(token_ids.shape[1]) < lengths),
        "mask_positions": keras.utils.pad_sequences(positions, padding="post"),
        "first_positions": np.zeros([len(rows), 1], np.int32),
    }


if __name__ == "__main__":
    cli.run(main, VocabulariesConfig)
