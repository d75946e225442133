# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures the memory of a training step per row, beside its estimate.

    python -m benchmarks.training_memory --sizes=tiny,mini --lengths=128,512

For each configuration, two processes run pre-training steps with different batch sizes.
The difference of their peak memory divided by the difference of their batch sizes is
the memory per row. `bert_tf.pretrain --micro_batch_size=-1` relies on the estimate.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import itertools
import multiprocessing

from benchmarks.random_step import RandomStep, predictions
from bert_tf import cli
from bert_tf.modeling import BertConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class MemoryConfig(cli.Options):
    """Options of `python -m benchmarks.training_memory`."""

    sizes: str = cli.option("tiny,mini", help="Comma-separated names of architectures.")
    lengths: str = cli.option("128,256,512", help="Comma-separated row lengths.")
    tokens: int = cli.option(
        4096, help="Tokens of the smaller batch; the other has three times as many."
    )
    vocabulary_size: int = cli.option(16_000, help="Size of the vocabulary.")


def main(options: MemoryConfig) -> None:
    """Prints the table."""
    from bert_tf.training import estimates

    print("| size | length | recompute | MB a row | estimate |\n|---|---|---|---|---|")
    kinds = itertools.product(
        options.sizes.split(","), map(int, options.lengths.split(",")), (False, True)
    )
    for size, length, recompute in kinds:
        few = max(1, options.tokens // length)
        peaks = [
            _in_new_process(
                _peak, size, length, rows, recompute, options.vocabulary_size
            )
            for rows in (few, 3 * few)
        ]
        measured = (peaks[1] - peaks[0]) / (2 * few)
        architecture = BertConfig.from_size(size, options.vocabulary_size)
        estimate = estimates.row_bytes(
            architecture,
            length=length,
            predictions=predictions(length),
            recompute=recompute,
        )
        print(
            f"| {size} | {length} | {'yes' if recompute else 'no'} | "
            f"{measured / 1e6:.1f} | {estimate / 1e6:.1f} |",
            flush=True,
        )


def _in_new_process(function, *arguments):
    """Runs the function in a new process, as peak memory never falls in a process."""
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(function, *arguments).result()


def _peak(
    size: str, length: int, rows: int, recompute: bool, vocabulary_size: int
) -> int:
    from bert_tf.training import estimates

    step = RandomStep(
        size, length, rows, recompute=recompute, vocabulary_size=vocabulary_size
    )
    step()
    return estimates.peak_memory()


if __name__ == "__main__":
    cli.run(main, MemoryConfig)
