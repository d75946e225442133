# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Exports a model for TensorFlow Serving, without training it.

    python -m bert_tf.export --model_dir=models/mini --name=mini
    python -m bert_tf.export --model_dir=hf://dslim/bert-base-NER --name=entities

Input: a model directory or a checkpoint in another supported format, with or without
the head of a task. Output: `<output>/<name>/<version>/`, a SavedModel that stock
TensorFlow Serving 2.13 to 2.20 loads. It takes strings and returns answers; label
names, casing and the maximum length are those of the checkpoint. Its signatures are
described in `bert_tf.heads`, its files in `bert_tf.serving.saved_model`.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib

from bert_tf import checkpoints, cli, serving


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportConfig(cli.Options):
    """Flags of `python -m bert_tf.export`."""

    model_dir: str = cli.option(
        help="Model directory, checkpoint folder in another format, or handle "
        "(hf://...)."
    )
    output: str = cli.option(
        "saved_models", help="Folder with one subfolder per served model."
    )
    name: str = cli.option(help="Name of the served model.")
    version: int = cli.option(
        0, help="Version number; 0 for the newest version plus one.", minimum=0
    )
    precision: str = cli.option(
        "float32",
        help="float32, or mixed_bfloat16: half of the size, less exact, and faster on "
        "CPUs with AVX512-BF16 or AMX.",
        choices=("float32", "mixed_bfloat16"),
    )
    layers: tuple[int, ...] = cli.option(
        (),
        help="Comma-separated layers whose hidden states are additional outputs: 0 for "
        "the embeddings, 1 for the first layer, -1 for the last.",
    )
    pairs: bool = cli.option(
        False,
        help="Whether a classifier from another project reads pairs of texts (text_a, "
        "text_b), as for entailment. Its checkpoint does not tell.",
    )
    head: str = cli.option("", help="Kind of an undeclared head; encoder for none.")


def main(options: ExportConfig) -> pathlib.Path | str:
    """Exports a model and returns the folder of the new version.

    Raises:
        ValueError: The head cannot be served, a layer does not exist, or the version
            exists.
    """
    serving.check_model_name(options.name)
    source = checkpoints.open_checkpoint(options.model_dir, head=options.head)
    print(f"Read {source.path} ({source.format}).", *source.describe(), sep="\n  ")
    if options.pairs:
        source = source.of_pairs()
    layers, number = options.layers, source.architecture.num_layers
    if not {*layers} <= {*range(-number - 1, number + 1)}:
        raise ValueError(
            f"--layers must be numbers from {-number - 1} to {number}. Received: "
            f"layers={layers}"
        )
    signatures = serving.load_signatures(source, dtype=options.precision, layers=layers)
    path = serving.export_saved_model(
        signatures,
        os.path.join(options.output, options.name),
        checkpoint=source,
        version=options.version,
    )
    print(f"Exported to {path}.")
    return path


if __name__ == "__main__":
    cli.run(main, ExportConfig)
