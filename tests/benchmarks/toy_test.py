# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Every benchmark runs to its last row, on toys."""

import importlib
import inspect
import json
import pathlib

import pytest

from bert_tf import cli
from tests.toy.checkpoints import tokenizer_json, write_hugging_face
from tests.toy.records import write_records
from tests.toy.saved_model import write_toy_model
from tests.toy.tasks import write_model

ROOT = pathlib.Path(__file__).parents[2]
SIZE = {"size": "1/16/2", "batch_size": 2}
TEXT = "\n\n".join(f"The cat sat on mat {c}. It sat. A cat sat." for c in "abcd" * 9)

# Benchmark -> options, and rows of its tables with the packages of the tests.
BENCHMARKS = {
    "corpus_speed": ({"text": "text.txt", "sizes": "0.01,0.02"}, 4),
    "figures": ({"output": "."}, 0),
    "finetune_speed": (SIZE | {"data_dir": "sst2", "batches": 2, "lengths": "8"}, 2),
    "gain": ({"model": "encoder", "tasks": "tasks.json", "seeds": 2}, 1),
    "learning": (
        SIZE
        | {"records": "records", "output": "learning", "steps": 2, "warmup_steps": 1}
        | {"validate_every": 1, "validation_batches": 1, "seeds": 1},
        0,
    ),
    "readiness": ({"sizes": "1/16/2", "rounds": 1}, 5),
    "serving_soak": ({"model_base_path": "served/soak", "requests": 10}, 11),
    "serving_speed": (
        {"model": "bert", "texts": "text.txt", "batches": 1, "seconds": 0.1},
        34,
    ),
    "serving_threads": (
        {"model": "bert", "texts": "text.txt", "rounds": 1, "seconds": 0.01},
        2,
    ),
    "training_step": (
        SIZE
        | {"packed": "records", "unpacked": "records", "steps": 2}
        | {"variants": "bert_tf float32"},
        4,
    ),
    "versions": (SIZE | {"records": "records", "output": "versions", "steps": 2}, 1),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, vocabulary, one_layer):
    """A folder with the inputs of all benchmarks."""
    folder = tmp_path_factory.mktemp("benchmarks")
    (folder / "text.txt").write_text(TEXT)
    vocabulary.write(folder / "vocab.txt")
    for split in ("train", "validation"):
        pairs = [([2, *range(5, 11), 3, *range(11, 17), 3], 8, i % 2) for i in range(8)]
        write_records(folder / "records", vocabulary, pairs, split)
    rows = "".join(f"{'the cat ' * (i % 3 + 1)}\t{i % 2}\n" for i in range(8))
    (folder / "sst2").mkdir()
    for name in ("train", "dev"):
        (folder / f"sst2/{name}.tsv").write_text(f"sentence\tlabel\n{rows}")
    files = {"train_file": "sst2/train.tsv", "dev_file": "sst2/dev.tsv"}
    columns = {"text_a": "sentence", "label": "label", "max_sequence_length": 32}
    toy = {"kind": "classification", **files, **columns}
    (folder / "tasks.json").write_text(json.dumps({"toy": toy}))
    write_model("vectors", folder, one_layer, vocabulary)
    (folder / "random").rename(folder / "encoder")
    write_toy_model(folder / "served/soak", 1)
    write_hugging_face(folder / "bert", vocabulary)
    tokenizer = json.dumps(tokenizer_json(vocabulary.tokens))
    (folder / "bert/tokenizer.json").write_text(tokenizer)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", BENCHMARKS)
def test_benchmark_runs(name, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    module = importlib.import_module(f"benchmarks.{name}")
    (config,) = (
        value
        for _, value in inspect.getmembers(module, inspect.isclass)
        if issubclass(value, cli.Options) and value.__module__ == module.__name__
    )
    options, count = BENCHMARKS[name]
    if "vocabulary" in config.__dataclass_fields__:
        options = options | {"vocabulary": "vocab.txt"}
    module.main(config(**options))
    printed = capsys.readouterr().out
    assert "nan" not in printed
    rows = [line for line in printed.splitlines() if line.startswith("| ")]
    assert len(rows) >= count + (count > 0)  # With the header.


def test_all_benchmarks_are_listed():
    """`parity` and `tpu` have tests of their own, in an environment of peers."""
    scripts = {p.stem for p in (ROOT / "benchmarks").glob("*.py")}
    assert scripts == {*BENCHMARKS, "measure", "parity", "peers", "structure", "tpu"}
