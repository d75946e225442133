# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Exports a pre-trained model for TensorFlow Serving.

    python -m bert_tf.export --model_dir=models/mini --output=saved_models --name=mini

Input: a model directory of `bert_tf.pretrain`, a sentence encoder, or a checkpoint in
another supported format. Output: `<output>/<name>/<version>/`, a SavedModel that stock
TensorFlow Serving 2.13 to 2.20 loads. It takes strings and has signatures for
fill-mask, embeddings and token ids, see `bert_tf.serving.signatures`;
`bert_tf.serving.saved_model` describes the files.

To export a fine-tuned model, rerun the command that trained it with `--export`.
"""

from __future__ import annotations

import dataclasses
import pathlib

from bert_tf import checkpoints, cli, serving, text


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportConfig(cli.Options):
    """Flags of `python -m bert_tf.export`."""

    model_dir: str = cli.option(
        help="Model directory of bert_tf.pretrain, or a checkpoint in another format."
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
        help="Keras dtype policy of the layers.",
        choices=("float32", "mixed_bfloat16"),
    )
    layers: str = cli.option(
        "",
        help="Comma-separated layers whose hidden states are additional outputs: 0 for "
        "the embeddings, 1 for the first layer, -1 for the last.",
    )
    pooling: str = cli.option(
        "",
        help="Pooling of the signature sentence_embedding: cls, max, mean, "
        "mean_sqrt_len_tokens, weightedmean, lasttoken, or several joined by +. By "
        "default that of the checkpoint, or mean if it has none.",
    )


def main(options: ExportConfig) -> pathlib.Path:
    """Exports a pre-trained model and returns the folder of the new version.

    Raises:
        ValueError: The model is fine-tuned, a layer does not exist, the pooling is
            unknown or contradicts the checkpoint, or the version exists.
    """
    directory = checkpoints.open_checkpoint(options.model_dir)
    head = directory.head
    if head["kind"] not in ("pretrainer", "encoder", "embedding"):
        raise ValueError(
            f"--model_dir must be a pre-trained model. {directory.path} is fine-tuned "
            f"for {head['kind']}: rerun the command that trained it with --export."
        )
    layers = _parse_layers(options.layers, directory.architecture.num_layers)
    tokenizer = text.Tokenizer(directory.vocabulary, lowercase=directory.lowercase)
    untrained = head.get("newly_initialized", ())
    has_mlm_head = head["kind"] == "pretrainer" and "mlm" not in untrained
    load = directory.load_pretrainer if has_mlm_head else directory.load_backbone
    if head["kind"] == "embedding":
        load = directory.load_sentence_encoder
        if options.pooling not in ("", head["pooling"]):
            raise ValueError(
                f"--pooling must be {head['pooling']}, the pooling of "
                f"{directory.path}, or not be set. Received: {options.pooling}"
            )
    model = load(dtype=options.precision)
    pooling = options.pooling or "mean"
    signatures = serving.pretrained_signatures(model, tokenizer, layers, pooling)
    path = serving.export_saved_model(
        signatures,
        pathlib.Path(options.output) / options.name,
        directory=directory,
        version=options.version,
    )
    print(f"Exported to {path}.")
    return path


def _parse_layers(value: str, num_layers: int) -> list[int]:
    allowed = {str(layer): layer for layer in range(-num_layers - 1, num_layers + 1)}
    names = [name.strip() for name in value.split(",")] if value else []
    if not allowed.keys() >= set(names):
        raise ValueError(
            f"--layers must be comma-separated numbers from {-num_layers - 1} to "
            f"{num_layers}. Received: --layers={value}"
        )
    return [allowed[name] for name in names]


if __name__ == "__main__":
    cli.run(main, ExportConfig)
