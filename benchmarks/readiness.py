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
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

from benchmarks import peers
from bert_tf import checkpoints, cli, modeling, text

_SIZES = {"MiniLM": "6/384/12", "base": "12/768/12"}
_SIZES |= {f"{layers} layers": f"{layers}/384/12" for layers in (2, 12, 24)}

_BEGIN = """
import sys, time
import numpy as np
import tensorflow as tf
import bert_tf
from bert_tf import serving
bert_tf.load, bert_tf.BertBackbone, bert_tf.Tokenizer, serving.Servable
from tensorflow_serving.apis import predict_pb2
begin = time.perf_counter(), time.process_time()
"""
_END = """
print(time.perf_counter() - begin[0], time.process_time() - begin[1])
"""
_READY = "served = serving.Servable('model', 1, sys.argv[1])"
_FILTER = f"""
{_READY}
request = predict_pb2.PredictRequest(output_filter=["mean"])
request.model_spec.signature_name = "embeddings"
request.inputs["text"].CopyFrom(tf.make_tensor_proto(["How long does it take?"]))
begin = time.perf_counter(), time.process_time()
served.predict(request)
"""
_LOAD = "bert_tf.load(sys.argv[1]).predict(['How long does it take?'])"
_KERAS_HUB = """
session = tf.compat.v1.Session(graph=tf.Graph())
with session.graph.as_default():
    load = tf.compat.v1.saved_model.loader.load
    signature = load(session, ["serve"], sys.argv[1]).signature_def["serving_default"]
ids = {info.name: np.ones([1, 8], "int32") for info in signature.inputs.values()}
session.run([info.name for info in signature.outputs.values()], ids)
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadinessConfig(cli.Options):
    """Options of `python -m benchmarks.readiness`."""

    vocabulary: str = cli.option(help="Vocabulary file, e.g. that of uncased BERT.")
    rounds: int = cli.option(3, help="Processes of each kind.", minimum=1)


def main(options: ReadinessConfig) -> None:
    """Prints the table."""
    vocabulary = text.Vocabulary.from_file(options.vocabulary)
    print("| size | | wall, s | CPU, s |\n|---|---|--:|--:|")
    for name, size in _SIZES.items():
        with tempfile.TemporaryDirectory() as folder:
            _measure(name, size, vocabulary, pathlib.Path(folder), options.rounds)


def _measure(
    name: str, size: str, vocabulary: text.Vocabulary, folder: pathlib.Path, rounds: int
) -> None:
    architecture = modeling.BertConfig.from_size(size, vocabulary.size)
    directory = checkpoints.ModelDirectory.create(
        folder / "model",
        architecture=architecture,
        vocabulary=vocabulary,
        lowercase=True,
        options={},
        head={"kind": "encoder"},
    )
    directory.save_weights(modeling.BertBackbone(architecture))
    peers.keras_hub_backbone(architecture).export(folder / "hub", verbose=False)
    flags = [f"--model_dir={folder / 'model'}", f"--output={folder}", "--name=served"]
    export = [sys.executable, "-m", "bert_tf.export", *flags]
    served = folder / "served" / "1"
    commands = {"export": export} | {
        kind: [sys.executable, "-c", _BEGIN + script + _END, str(path)]
        for kind, script, path in (
            ("ready", _READY, served),
            ("filter", _FILTER, served),
            ("load", _LOAD, folder / "model"),
            ("KerasHub", _KERAS_HUB, folder / "hub"),
        )
    }
    for kind, command in commands.items():
        times = [_run(command, kind == "export") for _ in range(rounds)]
        wall, cpu = np.median(times, axis=0)
        print(f"| {name} | {kind} | {wall:.1f} | {cpu:.1f} |", flush=True)


def _run(command: list[str], as_process: bool) -> list[float]:
    """Returns wall and CPU seconds, of the process or as it prints them."""
    before = os.times()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    after = os.times()
    if as_process:
        children = after.children_user + after.children_system
        children -= before.children_user + before.children_system
        return [after.elapsed - before.elapsed, children]
    return [float(number) for number in done.stdout.split()[-2:]]


if __name__ == "__main__":
    cli.run(main, ReadinessConfig)
