# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Latency of exported tasks, for short and long texts.

    python -m benchmarks.serving_tasks --model=all-MiniLM-L6-v2 --texts='wikipedia/*'

Input: an encoder and text files. The task heads have random weights. Output: a table of
latencies in a session, as in TensorFlow Serving: questions about passages of 100 and
5,000 words, tagging of sentences and of 5,000 words, and choices among four
continuations, for 1 and 32 examples. Token counts include special tokens and the
overlap of windows.
"""

from __future__ import annotations

import dataclasses
import glob
import json
import pathlib
import random
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_tf import checkpoints, cli, serving, text
from bert_tf.finetuning import Task
from bert_tf.lazy import lazy_import
from tasks.multiple_choice import MultipleChoice
from tasks.question_answering import QuestionAnswering
from tasks.tagging import Tagging

tf = lazy_import("tensorflow")

if TYPE_CHECKING:
    from bert_tf.text import Tokenizer

Request = Mapping[str, Any]

_BATCH = 32
_PASSAGE, _LONG = 100, 5_000  # Words.


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpeedConfig(cli.Options):
    """Options of `python -m benchmarks.serving_tasks`."""

    model: str = cli.option(help="Model directory or checkpoint.")
    texts: str = cli.option(help="Glob of text files.")
    seconds: float = cli.option(15.0, help="Duration of each measurement.", minimum=0)
    threads: int = cli.option(0, help="Threads; 0 for TensorFlow's default.", minimum=0)


def main(options: SpeedConfig) -> None:
    """Prints the table."""
    prepare_sessions(options.threads)
    sentences = read_sentences(options.texts, 20_000)
    directory = checkpoints.open_checkpoint(options.model)
    tokenizer = text.Tokenizer(directory.vocabulary, lowercase=directory.lowercase)
    backbone = directory.load_backbone()
    print("| | request | tokens | p50, ms | p99, ms | CPU time, ms | requests/s |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for task, cases, count in _tasks(folder, tokenizer, sentences):
            functions = task.serve(serving.optimize_for_inference(task.model(backbone)))
            path = serving.export_saved_model(
                functions, folder / task.kind, directory=directory
            )
            predict = load_in_session(path, "serving_default", options.threads)
            for name, requests in cases.items():
                times = _measure(predict, requests, options.seconds)
                tokens = np.mean([count(request) for request in requests])
                wall, cpu = np.array(times).T * 1000
                p50, p99 = np.percentile(wall, [50, 99])
                print(
                    f"| {task.kind.replace('_', ' ')} | {name} | {tokens:,.0f} | "
                    f"{p50:,.0f} | {p99:,.0f} | {np.median(cpu):,.0f} | "
                    f"{1000 / wall.mean():.2f} |",
                    flush=True,
                )


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
) -> Callable[[Request], dict[str, np.ndarray]]:
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

    def predict(request: Request) -> dict[str, np.ndarray]:
        inputs = [np.array(request[name], object) for name in signature_def.inputs]
        return dict(zip(outputs, run(*inputs), strict=True))

    return predict


def _measure(
    predict: Callable[[Request], Any], requests: Sequence[Request], seconds: float
) -> list[tuple[float, float]]:
    """Returns wall and CPU time in seconds of each request."""
    predict(requests[0])
    times, end = [], time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        request = requests[len(times) % len(requests)]
        wall, cpu = time.perf_counter(), time.process_time()
        predict(request)
        times.append((time.perf_counter() - wall, time.process_time() - cpu))
    return times


# --- Tasks -----------------------------------------------------------------------


def _tasks(folder: pathlib.Path, tokenizer: Tokenizer, sentences: Sequence[str]):
    """Yields each task, its requests by name, and a function that counts tokens."""
    words = " ".join(sentences).split()

    def texts(length: int, count: int) -> list[str]:
        starts = random.Random(length).sample(range(len(words) - length), count)
        return [" ".join(words[start : start + length]) for start in starts]

    def batches(of: int, **inputs: Sequence) -> list[Request]:
        count = len(next(iter(inputs.values())))
        return [
            {name: values[i : i + of] for name, values in inputs.items()}
            for i in range(0, count, of)
        ]

    def questions(length: int, of: int) -> list[Request]:
        return batches(of, question=texts(10, 8 * of), context=texts(length, 8 * of))

    def choices(of: int) -> list[Request]:
        endings = np.reshape(texts(10, 32 * of), [-1, 4]).tolist()
        return batches(of, prompt=sentences[: 8 * of], choices=endings)

    asker = _question_answering(folder, tokenizer)
    yield (
        asker,
        {
            f"1 question, {_PASSAGE} words": questions(_PASSAGE, 1),
            f"{_BATCH} questions, {_PASSAGE} words each": questions(_PASSAGE, _BATCH),
            f"1 question, {_LONG:,} words": questions(_LONG, 1),
        },
        lambda request: _tokens(
            asker.preprocess(
                tf.constant(request["question"]), tf.constant(request["context"])
            ).windows.inputs()
        ),
    )
    tagger = _tagging(folder, tokenizer)
    yield (
        tagger,
        {
            "1 sentence": batches(1, text=sentences[:64]),
            f"{_BATCH} sentences": batches(_BATCH, text=sentences[: 8 * _BATCH]),
            f"1 text, {_LONG:,} words": batches(1, text=texts(_LONG, 8)),
        },
        lambda request: _tokens(
            tagger.preprocess(tokenizer.tokenize(tf.constant(request["text"]))).inputs()
        ),
    )
    chooser = _multiple_choice(folder, tokenizer)
    yield (
        chooser,
        {
            "1 prompt, 4 choices": choices(1),
            f"{_BATCH} prompts, 4 choices each": choices(_BATCH),
        },
        lambda request: _tokens(
            tokenizer.encode(
                tf.repeat(request["prompt"], 4),
                tf.reshape(request["choices"], [-1]),
                max_sequence_length=chooser.options.max_sequence_length,
            )
        ),
    )


def _tokens(inputs: Mapping[str, tf.Tensor]) -> int:
    return int(tf.reduce_sum(inputs["padding_mask"]))


def _question_answering(folder: pathlib.Path, tokenizer: Tokenizer) -> Task:
    question = {"id": "1", "question": "a", "answers": [], "is_impossible": True}
    paragraphs = [{"context": "b", "qas": [question]}]
    text = json.dumps({"data": [{"paragraphs": paragraphs}]})
    return _task(QuestionAnswering, folder / "qa.json", text, tokenizer)


def _tagging(folder: pathlib.Path, tokenizer: Tokenizer) -> Task:
    kinds = ("LOC", "MISC", "ORG", "PER")  # CoNLL-2003's.
    text = "".join(f"word B-{kind}\n" for kind in kinds)
    return _task(Tagging, folder / "tags.conll", text, tokenizer)


def _multiple_choice(folder: pathlib.Path, tokenizer: Tokenizer) -> Task:
    columns = {"prompt": "p", "choices": "a,b", "label": "right"}
    text = "p\ta\tb\tright\nx\ty\tz\t0\n"
    return _task(MultipleChoice, folder / "choices.tsv", text, tokenizer, **columns)


def _task(
    kind: type[Task],
    path: pathlib.Path,
    text: str,
    tokenizer: Tokenizer,
    **options: str,
) -> Task:
    """Returns a task with default options on a file of a few lines."""
    path.write_text(text, encoding="utf-8")
    files = {"train_file": str(path), "dev_file": str(path)}
    return kind(kind.Config(output="unused", **files, **options), tokenizer)


if __name__ == "__main__":
    cli.run(main, SpeedConfig)
