# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The ablations at a toy scale, from text to reports, without fakes."""

import importlib
import json
import pathlib

import pytest

from bert_tf import cli, corpus, data, vocab
from experiments.ablation import AblationConfig

ROOT = pathlib.Path(__file__).parents[2]
SENTENCES = [("The cat sat on the mat.", "A cat sat."), ("It rained.", "A dog ran.")]


@pytest.mark.slow
@pytest.mark.usefixtures("eagerly")
def test_all_ablations_from_text_to_reports(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for page in map(ROOT.joinpath, ("README.md", "docs/adding_a_task.md")):
        for number, part in enumerate(page.read_text(encoding="utf-8").split("\n#")):
            (tmp_path / f"{page.stem}-{number}.md").write_text(part, encoding="utf-8")
    text = {"input": str(tmp_path / "*.md"), "document_separator": "file"}
    vocab.main(vocab.VocabularyConfig(output="vocab.txt", vocabulary_size=600, **text))
    text |= {"vocabulary": "vocab.txt", "output": "records", "held_out_share": 0.2}
    corpus.main(data.CorpusConfig(max_sequence_length=32, num_workers=1, **text))
    pairs = [{"a": a, "b": b, "score": n} for n, (a, b) in enumerate(SENTENCES)]
    data.write_table("pairs.csv", pairs * 4)
    pathlib.Path("tags.conll").write_text("The O\ncat B-X\n\nIt O\nrained O\n" * 4)
    usual = {"epochs": 1, "max_sequence_length": 32}
    columns = {"text_a": "a", "text_b": "b", "label": "score", "problem": "regression"}
    train_and_dev = ("train_file", "dev_file")
    pairs = {"kind": "classification", **dict.fromkeys(train_and_dev, "pairs.csv")}
    tags = {"kind": "tagging", **dict.fromkeys(train_and_dev, "tags.conll")}
    sets = {"MNLI": {**pairs, **usual, **columns}, "NER": {**tags, **usual}}
    pathlib.Path("sets.json").write_text(json.dumps(sets))
    flags = ["--records=records", "--data_sets=sets.json", "--output=out"]
    flags += ["--steps=5", "--batch_size=8", "--restarts=1"]
    for name, *more in (
        ("pretraining_tasks", "--rows=1,4", "--columns=NER"),
        ("model_size", "--rows=1", "--columns=MNLI"),
        ("features", "--rows=1,6"),
        ("masking", "--rows=2", "--columns=NER"),
        ("steps", "--rows=1"),
    ):
        command = importlib.import_module(f"experiments.{name}")
        command.main(cli.parse(AblationConfig, [*flags, *more]))
        for suffix in ("md", "svg", "csv"):
            assert pathlib.Path("out", f"{name}.{suffix}").stat().st_size > 200
    rows = [*data.read_table("out/pretraining_tasks.csv")]
    commands = ["bert_tf.pretrain", "tasks.tagging"] * 2
    assert [row["command"] for row in rows] == commands
    encoders = ["", "", "LeftToRightBackbone", "LeftToRightBiLstmBackbone"]
    assert [row["encoder"] for row in rows] == encoders
    assert len([*data.read_table("out/steps.csv")]) == 1 + 5
    # BERT, left-to-right, one layer, one mixture: other rows share them.
    assert len([*pathlib.Path("out/pretrain").iterdir()]) == 4
