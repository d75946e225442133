# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Exports a pre-trained model for TensorFlow Serving: strings in, answers out.

In: a model directory of `bert_tf.pretrain`, or a checkpoint of others. Out:
`<output>/<name>/<version>/`, a SavedModel that TensorFlow Serving 2.13 to 2.20 loads
as it is::

    python -m bert_tf.export --model_dir=models/mini --output=saved_models --name=mini

`bert_tf.signatures` says what can be asked of it (fill-mask, embeddings, ids; with
`--layers=-2,0` also the hidden states of these layers), and `bert_tf.saved_model` what
is in the folder. A fine-tuned model is exported by the command that trained it, with
`--export`.
"""

from __future__ import annotations

import dataclasses
import pathlib

from bert_tf import cli


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportConfig(cli.Options):
    """Options of `python -m bert_tf.export`."""

    model_dir: str = cli.option(
        help="Model directory of bert_tf.pretrain, or a checkpoint of others."
    )
    output: str = cli.option(
        "saved_models", help="Folder that holds one folder per served model."
    )
    name: str = cli.option(help="Name of the served model.")
    version: int = cli.option(
        0, help="Version number; 0 is the one after the newest.", minimum=0
    )
    precision: str = cli.option(
        "float32",
        help="Arithmetic of the layers.",
        choices=("float32", "mixed_bfloat16"),
    )
    layers: str = cli.option(
        "",
        help="Layers, separated by commas, whose hidden states are answered with as "
        "well: 0 is the embeddings, 1 the first layer, -1 the last.",
    )


def main(options: ExportConfig) -> pathlib.Path:
    """Exports as `options` say and returns the folder of the new version."""
    # Here, so that --help is fast.
    from bert_tf import serving
    from bert_tf.checkpoints import formats
    from bert_tf.text.tokenizer import Tokenizer

    directory = formats.open_checkpoint(options.model_dir)
    if directory.head["kind"] not in ("pretrainer", "encoder"):
        raise ValueError(
            f"--model_dir: {directory.path} holds a model for "
            f"{directory.head['kind']}, which the command that trained it exports: run "
            "it again with --export."
        )
    layers = _layers(options.layers, directory.architecture.num_layers)
    tokenizer = Tokenizer(directory.vocabulary, lowercase=directory.lowercase)
    head = directory.head
    if head["kind"] == "encoder" or "mlm" in head.get("newly_initialized", ()):
        backbone = directory.load_backbone(dtype=options.precision)
        functions = serving.encoder_signatures(backbone, tokenizer, layers)
    else:
        pretrainer = directory.load_pretrainer(dtype=options.precision)
        functions = serving.pretrained_signatures(pretrainer, tokenizer, layers)
    path = serving.export_saved_model(
        functions,
        pathlib.Path(options.output) / options.name,
        directory=directory,
        version=options.version or None,
    )
    print(f"Exported to {path}.")
    return path


def _layers(text: str, num_layers: int) -> list[int]:
    try:
        layers = [int(part) for part in text.split(",")] if text else []
        for layer in layers:
            range(num_layers + 1)[layer]
    except (ValueError, IndexError):
        raise ValueError(
            f"--layers must be numbers from {-num_layers - 1} to {num_layers}, "
            f"separated by commas. Received: --layers={text}"
        ) from None
    return layers


if __name__ == "__main__":
    cli.run(main, ExportConfig)
