# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Converts checkpoints from and to the formats of other projects.

    python -m bert_tf.convert --from=all-MiniLM-L6-v2 --to=models/minilm
    python -m bert_tf.convert --from=models/minilm --to=minilm --format=keras_hub

The input is a model directory, or a folder in the format of Google (TensorFlow 1), the
Model Garden (TensorFlow 2), Hugging Face (safetensors) or KerasHub (a preset). The
format is detected from the files. Handles such as hf://google-bert/bert-base-uncased
are downloaded. The output has the format given by `--format`.

The command prints the weights that it found or left out, and the largest difference
between the outputs of source and target. Every command that reads a model directory
also accepts these formats directly.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from bert_tf import checkpoints, cli, heads, modeling


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvertConfig(cli.Options):
    """Options of `python -m bert_tf.convert`."""

    from_: str = cli.option(
        help="Checkpoint folder in any format, or a handle (hf://...)."
    )
    to: str = cli.option(help="Folder to write.")
    format: str = cli.option(
        "hugging_face",
        help="Format to write: hugging_face, which is that of model directories, or "
        "keras_hub.",
        choices=("hugging_face", "keras_hub"),
    )
    head: str = cli.option(
        "",
        help="Kind of the head of a checkpoint from another project that does not "
        "declare it; encoder reads the encoder only.",
        choices=("", *heads.HEAD_KINDS),
    )


def main(options: ConvertConfig) -> None:
    """Converts a checkpoint and compares the outputs of source and target."""
    source = checkpoints.open_checkpoint(options.from_, head=options.head)
    print(f"Read {source.path} ({source.format}).", *source.describe(), sep="\n  ")
    left_out = checkpoints.write_checkpoint(source, options.to, options.format)
    print(f"Wrote {options.to} ({options.format}).")
    if left_out:
        print(f"  Left out, because the format cannot hold it: {', '.join(left_out)}")
    target = checkpoints.open_checkpoint(options.to)
    computed = dataclasses.asdict(target.architecture)
    for name, value in dataclasses.asdict(source.architecture).items():
        if value != computed[name]:
            print(
                f"  The format's own code always uses {name}={computed[name]!r}; the "
                f"checkpoint has {value!r}."
            )
    inputs = _random_inputs(source.architecture)
    output = _run(source, inputs)
    difference = np.abs(output - _run(target, inputs)).max()
    print(f"Largest difference of hidden states of random tokens: {difference:.1e}")


def _random_inputs(architecture: modeling.BertConfig) -> dict[str, np.ndarray]:
    """Returns two random sequences [2, S] of two segments each; one is padded."""
    length = min(32, architecture.max_sequence_length)
    rng = np.random.default_rng(0)
    ids = rng.integers(architecture.vocabulary_size, size=(2, length), dtype=np.int32)
    mask = np.ones_like(ids)
    mask[1, length // 2 :] = 0
    segments = np.zeros_like(ids)
    segments[:, length // 3 :] = min(1, architecture.num_segments - 1)
    return {"token_ids": ids, "segment_ids": segments, "padding_mask": mask}


def _run(
    checkpoint: checkpoints.Checkpoint, inputs: dict[str, np.ndarray]
) -> np.ndarray:
    """Returns sequence_output [B, S, H]."""
    backbone = modeling.BertBackbone(checkpoint.architecture, dtype="float32")
    checkpoint.load_into(backbone)
    return np.asarray(backbone(inputs)["sequence_output"])


if __name__ == "__main__":
    cli.run(main, ConvertConfig)
