# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Converts a checkpoint to a model directory, to publish it.

    python -m bert_tf.convert --from=hf://sentence-transformers/all-MiniLM-L6-v2 \\
        --to=models/minilm
    python -m bert_tf.convert --from=models/sst2 --to=share/sst2 \\
        --base_model=google-bert/bert-base-uncased --data=stanfordnlp/sst2
    hf upload user/sst2 share/sst2

The input is a model directory, or a folder in the format of Google (TensorFlow 1), the
Model Garden (TensorFlow 2), Hugging Face (safetensors) or KerasHub (a preset). The
format is detected from the files. Handles such as hf://google-bert/bert-base-uncased
are downloaded. transformers, sentence-transformers and KerasHub open a model directory.

A model directory is ready to be published: it has a model card, README.md, and no
training state, logs and local paths. Add your license to the first lines of README.md.
`hf`, a command of huggingface_hub, uploads it; first log in with `hf auth login`.

The command prints the weights that it found or left out. Every command that reads a
model directory also accepts these formats directly.
"""

from __future__ import annotations

import dataclasses

from bert_tf import checkpoints, cli


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvertConfig(cli.Options):
    """Options of `python -m bert_tf.convert`."""

    from_: str = cli.option(
        help="Checkpoint folder in any format, or a handle (hf://...)."
    )
    to: str = cli.option(help="Folder to write.")
    head: str = cli.option("", help="Kind of an undeclared head; encoder for none.")
    base_model: str = cli.option(
        "", help="For the model card: the Hub's name of --init_from of the training."
    )
    data: str = cli.option(
        "", help="For the model card: names of the training data, comma-separated."
    )


def main(options: ConvertConfig) -> None:
    """Converts a checkpoint."""
    source = checkpoints.open_checkpoint(options.from_, head=options.head)
    print(f"Read {source.path} ({source.format}).", *source.describe(), sep="\n  ")
    source.load_backbone()  # Weights of another shape than the config implies raise.
    card = {"base_model": options.base_model, "data": options.data}
    left_out = checkpoints.write_checkpoint(source, options.to, **card)
    print(f"Wrote {options.to}.")
    if left_out:
        print(f"  Left out, because the format cannot hold it: {', '.join(left_out)}")


if __name__ == "__main__":
    cli.run(main, ConvertConfig)
