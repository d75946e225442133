# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""How long exports take until they answer, beside KerasHub's encoder.

    python -m benchmarks.readiness --vocabulary=vocab.txt

Encoders with random weights are exported. Fresh processes then measure, in seconds
after their imports:

- `export`: `python -m bert_tf.export`, with its imports;
- `ready`: loading the export as the development server does, in a session as in
  TensorFlow Serving, with all requests of its warm-up file;
- `filter`: the first request for one output of `embeddings`, which is a graph of its
  own, because the warm-up requests all outputs;
- `load`: `bert_tf.load` with the answer to one text;
- `KerasHub`: loading what `BertBackbone.export` of KerasHub wrote, from token ids to
  hidden states, with the first answer.

The medians of `--rounds` processes are printed, wall time and CPU time.
"""

from __future__ import annotations

import dataclasses
import pathlib
import statistics
import tempfile
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks import measure, peers
from bert_tf import cli, modeling, serving, text

_SIZES = {"MiniLM": "6/384/12", "base": "12/768/12"}
_SIZES |= {f"{layers} layers": f"{layers}/384/12" for layers in (2, 12, 24)}

_TEXT = "How long does it take?"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadinessConfig(cli.Options):
    """Options of `python -m benchmarks.readiness`."""

    vocabulary: str = cli.option(help="Vocabulary file, e.g. that of uncased BERT.")
    rounds: int = cli.option(3, help="Processes of each kind.", minimum=1)
    sizes: str = cli.option(",".join(_SIZES), help="Sizes to measure.")


def main(options: ReadinessConfig) -> None:
    """Prints the table."""
    vocabulary = text.Vocabulary.from_file(options.vocabulary)
    measure.print_table("size||wall, s|CPU, s", _rows(options, vocabulary))


def _rows(options: ReadinessConfig, vocabulary: text.Vocabulary) -> Iterator[tuple]:
    for name in options.sizes.split(","):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            measure.in_process(_write_models, _SIZES.get(name, name), vocabulary, root)
            for kind in ("export", *_KINDS):
                times = [_measure(kind, root) for _ in range(options.rounds)]
                medians = (statistics.median(x) for x in zip(*times))
                yield name, kind, *map("{:.1f}".format, medians)


def _measure(kind: str, root: pathlib.Path) -> tuple[float, float]:
    """Returns wall and processor seconds."""
    if kind == "export":
        flags = f"--model_dir={root / 'model'}", f"--output={root}", "--name=served"
        return measure.run_command("-m", "bert_tf.export", *flags)[:2]
    worker = measure.Worker(_KINDS[kind], root)
    call = worker()
    worker.close()
    return call.seconds, call.cpu


def _write_models(size: str, vocabulary: text.Vocabulary, root: pathlib.Path) -> None:
    """Writes a model directory, and what KerasHub exports."""
    architecture = modeling.BertConfig.from_size(size, vocabulary.size)
    model = modeling.BertBackbone(architecture)
    peers.write_model(root / "model", model, architecture, vocabulary, "encoder")
    peers.keras_hub_backbone(architecture).export(root / "hub", verbose=False)


# --- Functions to measure --------------------------------------------------------
# Each imports what it needs and returns a function without arguments.


def _ready(root: pathlib.Path) -> Callable[[], bool]:
    servable = serving.Servable
    return lambda: bool(servable("model", 1, root / "served/1"))


def _filter(root: pathlib.Path) -> Callable[[], bool]:
    served = serving.Servable("model", 1, root / "served/1")
    inputs = {"text": np.array([_TEXT], object)}
    return lambda: bool(served.run("embeddings", inputs, ["mean"]))


def _load(root: pathlib.Path) -> Callable[[], bool]:
    from bert_tf import BertBackbone, Tokenizer, load  # noqa: F401

    return lambda: bool(load(root / "model").predict([_TEXT]))


def _keras_hub(root: pathlib.Path) -> Callable[[], bool]:
    servable = serving.Servable

    def run() -> bool:
        served = servable("hub", 1, root / "hub")
        ids = np.ones([1, 8], "int32")
        return bool(served.run("", dict.fromkeys(served.signature("").inputs, ids)))

    return run


_KINDS = {"ready": _ready, "filter": _filter, "load": _load, "KerasHub": _keras_hub}


if __name__ == "__main__":
    cli.run(main, ReadinessConfig)
