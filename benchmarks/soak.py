# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Soak test of the development server: load, malformed requests, version swaps.

    python -m benchmarks.soak --model=all-MiniLM-L6-v2 --minutes=10

Input: a pre-trained BERT. Eight clients, half of them over REST, send embedding
requests and malformed requests in random order, while versions are added, replaced and
broken. Output: a table of requests, memory, threads and open files of the server. The
command fails if

- a valid request fails, or its answer differs from the first answer for the same text;
- a malformed request is accepted or causes an internal error;
- memory, threads or open files grow from the middle to the end;
- the server logs a traceback, or does not exit after SIGTERM.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import dataclasses
import itertools
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Iterator

import numpy as np

from bert_tf import cli, client, export
from bert_tf.lazy import lazy_import

grpc = lazy_import("grpc")
predict_pb2 = lazy_import("tensorflow_serving.apis.predict_pb2")

_CLIENTS = 8
_METHOD = "/tensorflow.serving.PredictionService/Predict"
_WORDS = ("the", "cat", "sat", "near", "Paris", "while", "café", "漢字", "[MASK]", "!")

# Growth from the middle to the end that is not a leak: caches of the allocator.
_MAX_GROWTH = {"MB": 1.1, "threads": 1.1, "files": 1.5}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SoakConfig(cli.Options):
    """Options of `python -m benchmarks.soak`."""

    model: str = cli.option(help="Model directory or checkpoint, pre-trained.")
    minutes: float = cli.option(10.0, help="Duration.", minimum=0)
    swap_seconds: float = cli.option(
        5.0, help="Seconds between changes of the versions.", minimum=0.1
    )


def main(options: SoakConfig) -> None:
    """Prints the table.

    Raises:
        RuntimeError: The server failed one of the checks.
    """
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        version = export.main(
            export.ExportConfig(model_dir=options.model, output=folder, name="model")
        )
        log = stack.enter_context(open(f"{folder}/log", "w+", encoding="utf-8"))
        process, addresses = _start(version.parent, log)
        stack.callback(process.kill)
        counts, stopped = collections.Counter(), threading.Event()
        texts = _sentences()
        expected = _answers(addresses[0], texts)
        rows = []
        with concurrent.futures.ThreadPoolExecutor(_CLIENTS + 1) as pool:
            work = [
                pool.submit(_work, n, addresses, texts, expected, counts, stopped)
                for n in range(_CLIENTS)
            ]
            seconds = options.swap_seconds
            work.append(pool.submit(_swap, version, seconds, counts, stopped))
            try:
                rows = _watch(process, 60 * options.minutes, counts, work)
            finally:
                stopped.set()
            for done in work:
                done.result()
        start = time.monotonic()
        process.send_signal(signal.SIGTERM)
        status = process.wait(timeout=60)
        print(
            f"\nExit status {status}, {time.monotonic() - start:.1f} s after SIGTERM."
        )
        log.seek(0)
        text = log.read()
        if status or "Traceback" in text:
            raise RuntimeError(f"The server exited with {status}:\n{text}")
        _check_growth(rows)


def _start(base_path: pathlib.Path, log) -> tuple[subprocess.Popen, tuple[str, str]]:
    """Returns the server and its addresses for gRPC and REST."""
    command = [sys.executable, "-m", "bert_tf.serve", "--model_name=model"]
    command += [f"--model_base_path={base_path}", "--port=0", "--rest_api_port=0"]
    command += ["--file_system_poll_wait_seconds=0.2"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=log, text=True, encoding="utf-8"
    )
    lines = list(iter(process.stdout.readline, "Ready.\n"))
    rest, grpc_address = (line.split()[1] for line in lines[-2:])
    return process, (grpc_address, rest.partition("/v1/")[0])


# --- Requests --------------------------------------------------------------------


def _sentences() -> list[str]:
    choose = random.Random(1)
    return [" ".join(choose.choices(_WORDS, k=k)) for k in range(40)]


def _answers(address: str, texts: list[str]) -> np.ndarray:
    with client.Client(address) as connection:
        return connection.predict(
            {"text": texts}, "model", signature="embeddings", timeout=100
        )["mean"]


def _work(
    number: int,
    addresses: tuple[str, str],
    texts: list[str],
    expected: np.ndarray,
    counts: collections.Counter,
    stopped: threading.Event,
) -> None:
    """Sends requests until `stopped`."""
    choose = random.Random(number)
    is_rest = number % 2
    send = _send_http if is_rest else _send_grpc
    malformed = list(_malformed_http() if is_rest else _malformed_grpc())
    address = addresses[is_rest]
    with client.Client(address) as connection:
        while not stopped.is_set():
            if choose.random() < 0.5:
                send(address, choose.choice(malformed))
                counts["malformed"] += 1
                continue
            rows = choose.sample(range(len(texts)), choose.randint(1, 8))
            inputs = {"text": [texts[row] for row in rows]}
            answer = connection.predict(
                inputs, "model", signature="embeddings", timeout=100
            )
            np.testing.assert_allclose(answer["mean"], expected[rows], atol=1e-4)
            counts["valid"] += 1


def _malformed_grpc() -> Iterator[bytes]:
    """Yields serialized requests that must be rejected."""
    for dtype, field, sizes in itertools.product(
        (0, 1, 3, 4, 7, 19, 20, 21, 121, 9999),
        ("string_val", "int_val", "half_val", "tensor_content", None),
        ((10**9,), (2**40, 2**40), (-1,), (0, 3), ()),
    ):
        request = predict_pb2.PredictRequest()
        request.model_spec.name = "model"
        request.model_spec.signature_name = "embeddings"
        tensor = request.inputs["text"]
        tensor.dtype = dtype
        for size in sizes:
            tensor.tensor_shape.dim.add(size=size)
        if field == "tensor_content":
            tensor.tensor_content = b"1234"
        elif field:
            getattr(tensor, field).append(b"a" if field == "string_val" else 1)
        yield request.SerializeToString()
    yield predict_pb2.PredictRequest().SerializeToString()
    yield os.urandom(100)


def _send_grpc(address: str, request: bytes) -> None:
    with grpc.insecure_channel(address) as channel:
        try:
            answer = channel.unary_unary(_METHOD)(request, timeout=100)
        except grpc.RpcError as error:
            # gRPC answers bytes that are not a message itself.
            if error.code().name in ("INVALID_ARGUMENT", "NOT_FOUND"):
                return
            if "deserializing" in error.details():
                return
            raise
        raise AssertionError(f"Accepted {request[:200]!r}: {answer[:200]!r}")


def _malformed_http() -> Iterator[bytes]:
    """Yields HTTP requests that must be rejected, and some that are incomplete."""
    bodies = [
        b"",
        b"{",
        b"[" * 100_000,
        b'{"instances": [' + b"1" * 5000 + b"]}",
        b'{"instances": ["\\ud800"]}',
        b'{"instances": [{"b64": "?"}]}',
        b'{"instances": [' + b"[" * 500 + b"]" * 500 + b"]}",
        b'{"instances": ["a", ["b"]]}',
        b'{"signature_name": "none", "inputs": ["a"]}',
        b'{"inputs": {"txt": ["a"]}}',
        os.urandom(1000),
    ]
    post = b"POST /v1/models/model:predict HTTP/1.1\r\nHost: x\r\nContent-Length: "
    for body in bodies:
        yield post + b"%d\r\n\r\n" % len(body) + body
    for length in (b"10000000000", b"\xc2\xb2", b"-1", b"9" * 5000):
        yield post + length + b"\r\n\r\n{"
    for path in (b"/", b"/v1/models/none", b"/v1/models/model/versions/" + b"9" * 99):
        yield b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n\r\n"
    yield b"\xff\0\r\n\r\n"
    yield from (b"\0incomplete", b"\0" + post, b"\0" + post + b"9\r\n\r\n{")


def _send_http(address: str, request: bytes) -> None:
    parts = urllib.parse.urlsplit(address)
    with socket.create_connection((parts.hostname, parts.port), timeout=100) as sock:
        # A leading NUL marks requests that are never completed: drop the connection.
        sock.sendall(request.removeprefix(b"\0"))
        if request.startswith(b"\0"):
            return
        status = sock.recv(100)[9:12]
        if not status.startswith(b"4"):
            raise AssertionError(f"Status {status!r} for {request[:200]!r}")


# --- Versions --------------------------------------------------------------------


def _swap(
    version: pathlib.Path,
    seconds: float,
    counts: collections.Counter,
    stopped: threading.Event,
) -> None:
    """Adds a version, removes the one before; every third one does not load."""
    original = version.rename(version.parent / "original")
    shutil.copytree(original, version, copy_function=os.link)
    served = version
    for number in itertools.count(int(version.name) + 1):
        if stopped.wait(seconds):
            return
        new = version.parent / str(number)
        if number % 3 == 0:
            new.mkdir()
            stopped.wait(seconds)
            shutil.rmtree(new)
            continue
        unfinished = version.parent / "unfinished"
        shutil.copytree(original, unfinished, copy_function=os.link)
        unfinished.rename(new)
        stopped.wait(seconds)
        shutil.rmtree(served)
        served = new
        counts["swaps"] += 1


# --- Resources -------------------------------------------------------------------


def _watch(
    process: subprocess.Popen,
    seconds: float,
    counts: collections.Counter,
    work: list[concurrent.futures.Future],
) -> list[dict[str, float]]:
    """Prints and returns a row per tenth of the time, until a client fails."""
    print("| minute | valid | malformed | swaps | MB | threads | open files |")
    print("|---|---|---|---|---|---|---|")
    start, rows = time.monotonic(), []
    for tenth in range(1, 11):
        end = start + tenth * seconds / 10
        done, _ = concurrent.futures.wait(
            work, max(0, end - time.monotonic()), "FIRST_COMPLETED"
        )
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text("ascii")
        fields = dict(line.split(":\t", 1) for line in status.splitlines())
        row = {
            "MB": int(fields["VmRSS"].split()[0]) / 1024,
            "threads": int(fields["Threads"]),
            "files": len(os.listdir(f"/proc/{process.pid}/fd")),
        }
        rows.append(row)
        print(
            f"| {(time.monotonic() - start) / 60:.1f} | {counts['valid']:,} | "
            f"{counts['malformed']:,} | {counts['swaps']} | {row['MB']:.0f} | "
            f"{row['threads']} | {row['files']} |",
            flush=True,
        )
        if done:
            break
    return rows


def _check_growth(rows: list[dict[str, float]]) -> None:
    middle, end = rows[3:7], rows[7:]
    for name, limit in _MAX_GROWTH.items():
        before, after = (max(row[name] for row in part) for part in (middle, end))
        if after > limit * before:
            raise RuntimeError(f"{name} grew from {before:.0f} to {after:.0f}.")


if __name__ == "__main__":
    cli.run(main, SoakConfig)
