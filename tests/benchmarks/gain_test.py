# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import json
import pathlib

import pytest

from benchmarks import gain
from bert_tf import data, finetuning
from bert_tf.checkpoints import ModelDirectory
from bert_tf.modeling import BertConfig


@pytest.fixture
def options(tmp_path, tiny_config, vocabulary):
    """A table of 40 letters, also with a sample of 10; a model without weights."""
    rows = [{"text": "ab"[i % 2], "label": i % 2} for i in range(40)]
    data.write_table(tmp_path / "letters.csv", rows)
    file = str(tmp_path / "letters.csv")
    entry = {"kind": "classification", "train_file": file, "dev_file": file}
    entry |= {"text_a": "text", "label": "label", "examples": [10]}
    (tmp_path / "tasks.json").write_text(json.dumps({"Letters": entry}))
    ModelDirectory.create(
        tmp_path / "model",
        architecture=tiny_config,
        vocabulary=vocabulary,
        lowercase=True,
        head={"kind": "pretrainer"},
        options={},
    )
    return gain.GainConfig(
        model=str(tmp_path / "model"),
        tasks=str(tmp_path / "tasks.json"),
        output=str(tmp_path / "out"),
        seeds=2,
    )


def test_pretrained_and_random_weights_train_alike(
    options, tiny_config, vocabulary, monkeypatch
):
    runs = []

    def fine_tune(task_class, run):
        runs.append(run)
        score = (0.9 if run.init_from else 0.6) + 0.01 * run.seed
        path = pathlib.Path(run.output)
        path.mkdir(parents=True)
        training = {"score": score, "majority_baseline": 0.5}
        (path / "metrics.json").write_text(json.dumps({"training": training}))

    monkeypatch.setattr(finetuning, "fine_tune", fine_tune)
    gain.main(options)
    gain.main(options)  # Repeats nothing.
    pretrained, from_random = runs[:2], runs[2:4]
    assert [r.init_from for r in pretrained] == [options.model] * 2
    for run in from_random:
        assert not run.init_from
        assert BertConfig.resolve(run.size, vocabulary.size) == tiny_config
    assert [run.seed for run in runs] == [0, 1] * 4
    rows = [len(data.read_table(run.train_file)) for run in runs]
    assert rows == [10] * 4 + [40] * 4
    table = pathlib.Path(options.output, "gain.md").read_text().splitlines()
    assert table[2:] == [
        f"| Letters | {size} | 90.5 ± 0.7 | 60.5 ± 0.7 | 50.0 | +30.0 | 42.4 |"
        for size in ("10", "all")
    ]
    assert pathlib.Path(options.output, "gain.png").read_bytes()[:4] == b"\x89PNG"
