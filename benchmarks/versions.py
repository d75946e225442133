# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Compares trained weights, answers and files across versions of TensorFlow and Keras.

    python -m benchmarks.versions --records=records --output=versions

Run the command with one `--output` in an environment for each pair of versions, then
once more in each. The first run in an environment pre-trains a BERT with `--size` on
the records, trains a classifier of strings from it, and writes its `.keras` file, its
SavedModel and its answers. Each run then reads what all versions wrote, and prints the
largest absolute differences:

- `masked LM`: held-out losses of pre-training;
- `weights`: the pre-trained weights;
- `trained`: the probabilities of the classifier, each from its own training;
- `.keras`, `SavedModel`: the probabilities that this version reads from the file, from
  those of the version that wrote it; "fails" if this Keras does not read the file.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import pathlib
from collections.abc import Iterator

import numpy as np

from benchmarks import measure
from bert_tf import cli

_WORDS = ("good", "bad", "film", "music", "the", "a", "not", "very")


@dataclasses.dataclass(frozen=True, kw_only=True)
class VersionsConfig(cli.Options):
    """Options of `python -m benchmarks.versions`."""

    records: str = cli.option(help="Records of bert_tf.corpus, for pre-training.")
    output: str = cli.option(help="Folder with one folder for each pair of versions.")
    size: str = cli.option("tiny", help="Size of the model.")
    steps: int = cli.option(100, help="Steps of pre-training.", minimum=2)
    batch_size: int = cli.option(32, help="Rows per step.", minimum=1)


def main(options: VersionsConfig) -> None:
    """Trains if this version has not yet, and prints the table."""
    own = _versions("tensorflow", "keras")
    folder = pathlib.Path(options.output, own)
    if not (folder / "answers.json").exists():
        _write(options, folder)
    titles = "written by|read by|masked LM|weights|trained|.keras|SavedModel"
    measure.print_table(titles, _rows(folder, own))


def _versions(*packages: str) -> str:
    return "+".join(map(importlib.metadata.version, packages))


def _rows(folder: pathlib.Path, own: str) -> Iterator[tuple[str, ...]]:
    """Compares what this version wrote with what each version wrote."""
    ours = json.loads((folder / "answers.json").read_text())
    for answers in sorted(folder.parent.glob("*/answers.json")):
        theirs = json.loads(answers.read_text())
        folders = (folder, answers.parent)
        own_weights, weights = (np.load(x / "weights.npz") for x in folders)
        differences = [
            _difference(ours["loss"], theirs["loss"]),
            max(_difference(own_weights[k], weights[k]) for k in weights),
            _difference(ours["probabilities"], theirs["probabilities"]),
        ]
        for read in (_read_keras, _read_served):
            try:
                answered = read(answers.parent)
            except TypeError:  # A layer of Keras has arguments of a newer version.
                answered = np.inf
            differences.append(_difference(answered, theirs["probabilities"]))
        shown = [f"{x:.1e}" if np.isfinite(x) else "fails" for x in differences]
        yield answers.parent.name, own, *shown


def _difference(a: object, b: object) -> float:
    return float(np.abs(np.subtract(a, b)).max())


def _texts() -> tuple[list[str], list[int]]:
    """Returns generated texts of 1 to 30 words, and their labels."""
    rng = np.random.default_rng(0)
    drawn = [rng.choice(_WORDS, rng.integers(1, 30)) for _ in range(256)]
    labels = [int((x == "good").sum() > (x == "bad").sum()) for x in drawn]
    return [" ".join(words) for words in drawn], labels


def _write(options: VersionsConfig, folder: pathlib.Path) -> None:
    """Trains, and writes all files of this version."""
    import keras
    import tensorflow as tf

    import bert_tf
    from bert_tf import serving, training

    metrics = training.pretrain(
        training.PretrainConfig(
            records=options.records,
            output=str(folder / "pretrained"),
            size=options.size,
            steps=options.steps,
            warmup_steps=options.steps // 10,
            batch_size=options.batch_size,
            learning_rate=1e-3,
        )
    )
    keras.utils.set_random_seed(0)
    text = keras.Input((), dtype="string", name="text")
    inputs = bert_tf.Tokenizer.from_checkpoint(folder / "pretrained")(text)
    backbone = bert_tf.BertBackbone.from_checkpoint(folder / "pretrained")
    weights = {x.path: keras.ops.convert_to_numpy(x) for x in backbone.weights}
    np.savez(folder / "weights.npz", **weights)
    score = keras.layers.Dense(1, "sigmoid", name="probability")
    model = keras.Model(text, score(backbone(inputs)["pooled_output"]))
    model.compile(bert_tf.AdamW(1e-3), loss="binary_crossentropy")
    texts, labels = _texts()
    texts = tf.constant(texts)
    model.fit(texts, tf.constant(labels), epochs=2, verbose=0)
    model.save(folder / "model.keras")
    serving.export_saved_model(model, folder / "served")
    answers = {"loss": metrics["val_mlm_loss"], "probabilities": _predict(model, texts)}
    (folder / "answers.json").write_text(json.dumps(answers))


def _predict(model, texts) -> list[float]:
    return model.predict(texts, verbose=0)[:, 0].tolist()


def _read_keras(folder: pathlib.Path) -> list[float]:
    import keras
    import tensorflow as tf

    model = keras.saving.load_model(folder / "model.keras")
    return _predict(model, tf.constant(_texts()[0]))


def _read_served(folder: pathlib.Path) -> np.ndarray:
    import tensorflow as tf
    import tensorflow_text  # noqa: F401, registers the ops of the tokenizer.

    model = tf.saved_model.load(str(folder / "served" / "1"))
    answers = model.signatures["serving_default"](text=tf.constant(_texts()[0]))
    return answers["probability"].numpy().reshape(-1)


if __name__ == "__main__":
    cli.run(main, VersionsConfig)
