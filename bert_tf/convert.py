# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Opens the checkpoints of others, and converts them to one's own and back.

    python -m bert_tf.convert --from=all-MiniLM-L6-v2 --to=models/minilm
    python -m bert_tf.convert --from=models/minilm --to=minilm --format=hugging_face

In: a model directory of this project, or a folder of another one: Google's (TensorFlow
1), Model Garden's (TensorFlow 2), Hugging Face's (safetensors) or a preset of
KerasHub's; its files tell which. Handles such as hf://google-bert/bert-base-uncased are
fetched. Out: a folder of the format that `--format` names. What was used, what was
left out and what has random values is printed, and how far outputs differ.

All commands take what this one takes wherever they take a model directory.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from bert_tf import cli
from bert_tf.checkpoints.formats import open_checkpoint, write_checkpoint
from bert_tf.modeling import config as bert_config

if TYPE_CHECKING:
    import numpy as np

    from bert_tf.checkpoints.model_directory import Checkpoint

_FORMATS = ("bert_tf", "hugging_face", "google", "keras_hub")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvertConfig(cli.Options):
    """Options of `python -m bert_tf.convert`."""

    from_: str = cli.option(
        help="Folder of a checkpoint, of any format; or a handle, hf://..."
    )
    to: str = cli.option(help="Folder to write.")
    format: str = cli.option(
        "bert_tf",
        help="Format to write; bert_tf is a model directory.",
        choices=_FORMATS,
    )


# --- The command -----------------------------------------------------------------


def main(options: ConvertConfig) -> None:
    """Converts as `options` say."""
    source = open_checkpoint(options.from_)
    for line in _describe(source):
        print(line)
    left_out = write_checkpoint(source, options.to, options.format)
    target = open_checkpoint(options.to)
    print(f"Written: {options.to}, {options.format}.")
    if left_out:
        print(f"  Without a place there, left out: {', '.join(left_out)}")
    for name, value in _assumed(options.format, source.architecture).items():
        print(
            f"  Code that reads this format computes with {name}={value!r}; the "
            f"checkpoint has {getattr(source.architecture, name)!r}."
        )
    inputs = _probe(source.architecture)
    ours = _run(source, inputs)
    print("Largest difference of hidden states on a batch of random tokens:")
    _report_difference(
        "this project, target against source", ours, _run(target, inputs)
    )
    for checkpoint in (source, target):
        _compare_with_its_own_code(checkpoint, inputs, ours)


def _describe(source: Checkpoint) -> list[str]:
    from bert_tf.checkpoints.foreign import ForeignCheckpoint

    a = source.architecture
    kind = "model directory"
    lines = [
        f"  {a.num_layers} layers, hidden {a.hidden_dim}, {a.num_heads} heads, "
        f"{a.max_sequence_length} positions, {a.activation}; "
        f"{source.vocabulary.size:,} tokens, {'un' * source.lowercase}cased."
    ]
    if isinstance(source, ForeignCheckpoint):
        kind = source.format
        lines.append(f"  {len(source.match.rows)} weights found.")
        lines += [f"  {note}" for note in source.notes]
        if source.match.unused:
            lines.append(f"  Unused: {', '.join(source.match.unused)}")
    if source.head.get("newly_initialized"):
        lines.append(f"  Not in it: {', '.join(source.head['newly_initialized'])}")
    return [f"Read: {source.path}, {kind}.", *lines]


def _assumed(format: str, architecture: bert_config.BertConfig) -> dict[str, Any]:
    """What the format's own code computes with, where that is something else."""
    from bert_tf.checkpoints import google, keras_hub

    modules = {"google": google, "keras_hub": keras_hub}
    if format not in modules:
        return {}
    assumed = modules[format].assumed(architecture)
    return {k: v for k, v in assumed.items() if getattr(architecture, k) != v}


# --- Comparing -------------------------------------------------------------------


def _probe(architecture: bert_config.BertConfig) -> dict[str, np.ndarray]:
    """Two sequences of random tokens, two segments each, the second one padded."""
    import numpy as np

    length = min(32, architecture.max_sequence_length)
    rng = np.random.default_rng(0)
    ids = rng.integers(architecture.vocabulary_size, size=(2, length), dtype=np.int32)
    mask = np.ones_like(ids)
    mask[1, length // 2 :] = 0
    segments = np.zeros_like(ids)
    segments[:, length // 3 :] = min(1, architecture.num_segments - 1)
    return {"token_ids": ids, "segment_ids": segments, "padding_mask": mask}


def _run(checkpoint: Checkpoint, inputs: dict[str, np.ndarray]) -> np.ndarray:
    import keras

    from bert_tf.modeling.bert import BertBackbone

    backbone = BertBackbone(checkpoint.architecture, dtype="float32")
    checkpoint.load_into(backbone)
    return keras.ops.convert_to_numpy(backbone(inputs)["sequence_output"])


def _compare_with_its_own_code(checkpoint, inputs, ours: np.ndarray) -> None:
    from bert_tf.checkpoints import hugging_face, keras_hub
    from bert_tf.checkpoints.foreign import ForeignCheckpoint

    if not isinstance(checkpoint, ForeignCheckpoint):
        return
    if checkpoint.format.startswith(hugging_face.FORMAT):
        theirs = hugging_face.run(checkpoint.path, inputs)
        name = "transformers"
    elif checkpoint.format.startswith(keras_hub.FORMAT):
        theirs, name = keras_hub.run(checkpoint.path, inputs), "KerasHub"
    else:
        return
    if theirs is not None:
        _report_difference(f"{name} on {checkpoint.path}", ours, theirs, inputs)


def _report_difference(what: str, ours, theirs, inputs=None) -> None:
    import numpy as np

    difference = np.abs(ours - theirs)
    if inputs is not None:  # What stands behind the last token is no one's concern.
        difference = difference * inputs["padding_mask"][:, :, np.newaxis]
    print(f"  {what}: {difference.max():.1e}")


if __name__ == "__main__":
    cli.run(main, ConvertConfig)
