# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs are found by their options; the ablations share them. Nothing is trained."""

import importlib
import json
import math
import pathlib
import shutil

import pytest

from bert_tf import data, finetuning, training
from experiments import ablation, runs
from experiments.left_to_right import LeftToRightBackbone
from tasks.classification import Classification
from tasks.tagging import Tagging

OPTIONS = {"train_file": "a.csv", "dev_file": "b.csv", "init_from": "model"}
ABLATIONS = ("pretraining_tasks", "model_size", "features", "masking", "steps")


@pytest.fixture
def trained(monkeypatch):
    """The configurations and encoder classes of all trainings, which are fake."""
    done = []

    def fake(config, encoder_class):
        done.append((config, encoder_class))
        folder = pathlib.Path(config.output)
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_text("")

    def fine_tune(task_class, config, *, encoder_class=None, cache=None):
        fake(config, encoder_class)
        if config.seed == 13:
            raise training.DivergedError("The loss is NaN.")
        return {"training": {"score": 0.5, "metric": "dev f1"}, "dev": {"f1": 0.5}}

    def pretrain(config, *, encoder_class=None):
        fake(config, encoder_class)
        return {"val_mlm_loss": 2.0}

    monkeypatch.setattr(finetuning, "fine_tune", fine_tune)
    monkeypatch.setattr(training, "pretrain", pretrain)
    monkeypatch.setattr("keras.backend.clear_session", lambda: None)  # Is slow.
    return done


def test_finished_runs_are_found_by_their_options(trained, tmp_path):
    first = runs.Runs(tmp_path / "a").fine_tune(Tagging, seed=1, **OPTIONS)
    assert first.score == 50
    assert first.path.parent == tmp_path / "a/tagging"
    assert not list(first.path.glob("*.safetensors"))
    shutil.move(tmp_path / "a", tmp_path / "b")
    moved = runs.Runs(tmp_path / "b")
    found = moved.fine_tune(Tagging, seed=1, epochs=3, strategy="default", **OPTIONS)
    assert (found.path.name, found.metrics) == (first.path.name, first.metrics)
    assert len(trained) == 1
    assert list(moved.used) == [found.path]
    others = [{"seed": 2}, {"seed": 1, "encoder_class": LeftToRightBackbone}]
    for changes in others:
        assert moved.fine_tune(Tagging, **OPTIONS, **changes).path != found.path
    assert trained[-1][1] is LeftToRightBackbone


def test_a_model_in_the_folder_is_named_relative_to_it(trained, tmp_path):
    paths = []
    for name in ("a", "b"):
        own = runs.Runs(tmp_path / name)
        model = own.pretrain(records="records", steps=10)
        assert model.score == pytest.approx(math.exp(2))
        run = own.fine_tune(Tagging, **OPTIONS | {"init_from": str(model.path)})
        paths.append(run.path.relative_to(own.folder))
    assert paths[0] == paths[1]


def test_runs_whose_weights_are_needed_are_trained_again(trained, tmp_path):
    own = runs.Runs(tmp_path)
    for keep, count in ((False, 1), (True, 2), (True, 2), (False, 2)):
        run = own.fine_tune(Tagging, keep_weights=keep, **OPTIONS)
        assert len(trained) == count
    assert (run.path / "model.safetensors").exists()


def test_diverged_runs_are_recorded_and_not_repeated(trained, tmp_path):
    for _ in range(2):
        run = runs.Runs(tmp_path).fine_tune(Tagging, seed=13, **OPTIONS)
        assert math.isnan(run.score)
    assert len(trained) == 1


def test_parts_of_files(tmp_path):
    (tmp_path / "a.tsv").write_text("x\ty\n1\t2\n3\t4\n5\t6\n")
    questions = [{"id": "1", "answers": ["a"]}, {"id": "2", "answers": []}]
    questions += [{"id": "3", "is_impossible": True, "answers": ["a"]}]
    questions += [{"id": "4", "is_impossible": True}]
    article = {"paragraphs": [{"context": "a", "qas": questions}]}
    (tmp_path / "b.json").write_text(json.dumps({"data": [1, 2, article]}))
    files = {"train_file": "a.tsv[:1]", "dev_file": "a.tsv[2:]"}
    squad = {"train_file": "b.json[1:2]", "dev_file": "b.json"}
    squad["test_file"] = "b.json[2:, answered]"
    entries = {
        "MNLI": {"name": "own", "kind": "classification", "epochs": 2, **files},
        "SQuAD": {"kind": "question_answering", **squad},
    }
    (tmp_path / "sets.json").write_text(json.dumps(entries))
    found = runs.read_data_sets(tmp_path / "sets.json", str(tmp_path), tmp_path)
    own = found["MNLI"]
    assert (own.name, own.task_class) == ("own", Classification)
    assert own.options["epochs"] == 2
    rows = [[*data.read_table(own.options[f"{x}_file"])] for x in ("train", "dev")]
    assert rows == [[{"x": "1", "y": "2"}], [{"x": "5", "y": "6"}]]
    squad = found["SQuAD"].options
    read = [
        json.loads(pathlib.Path(squad[f"{x}_file"]).read_text())["data"]
        for x in ("train", "test")
    ]
    article["paragraphs"][0]["qas"] = questions[:1]
    assert read == [[2], [article]]
    assert squad["dev_file"] == str(tmp_path / "b.json")
    entries["MNLI"]["dev_file"] = "a.tsv[2:, answered]"
    (tmp_path / "sets.json").write_text(json.dumps(entries))
    with pytest.raises(ValueError, match="only JSON files have questions"):
        runs.read_data_sets(tmp_path / "sets.json", str(tmp_path), tmp_path)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"kind": "tag"}, "MNLI: kind must be a module of tasks, .*tasks.tag'"),
        ({"kind": "tagging", "epoch": 3}, "MNLI: .* options of its command.*'epoch'"),
    ],
)
def test_invalid_data_sets_are_refused(tmp_path, entry, message):
    (tmp_path / "sets.json").write_text(json.dumps({"MNLI": entry}))
    with pytest.raises(ValueError, match=message):
        runs.read_data_sets(tmp_path / "sets.json", "", tmp_path)
    (tmp_path / "sets.json").write_text("{")
    with pytest.raises(ValueError, match="must be a JSON file"):
        runs.read_data_sets(tmp_path / "sets.json", "", tmp_path)


def test_finds_the_task_of_a_module():
    assert runs.find_task("tasks.tagging") is Tagging
    with pytest.raises(ValueError, match="json must define one task"):
        runs.find_task("json")


def run_ablations(folder, **options):
    """Runs all ablations on data sets that are not read."""
    names = ("MNLI", "QNLI", "MRPC", "SST-2", "NER")
    files = {"train_file": "a.conll", "dev_file": "b.conll"}
    entries = {name: {"kind": "classification"} for name in names}
    entries["NER"] = {"kind": "tagging", **files}
    (folder / "sets.json").write_text(json.dumps(entries))
    options = ablation.AblationConfig(
        records="records",
        output=str(folder / "out"),
        data_sets=str(folder / "sets.json"),
        steps=51,
        restarts=2,
        **options,
    )
    for name in ABLATIONS:
        importlib.import_module(f"experiments.{name}").main(options)
    return folder / "out"


@pytest.fixture
def no_plot(monkeypatch):
    monkeypatch.setattr("experiments.report.draw", lambda table: "<svg/>")


def test_ablations_share_their_runs(trained, tmp_path, no_plot):
    folder = run_ablations(tmp_path)
    models = [config for config, _ in trained if hasattr(config, "records")]
    # BERT, no NSP, left-to-right; five other sizes; five other mixtures.
    assert len(models) == 3 + 5 + 5
    assert {config.steps for config in models} == {50}
    assert len({str(config) for config, _ in trained}) == len(trained)
    rates = {(config.mask_token_rate, config.random_token_rate) for config in models}
    assert rates == {
        (0.8, 0.1), (1.0, 0.0), (0.8, 0.2), (0.8, 0.0), (0.0, 0.8), (0.0, 1.0),
        (0.0, 0.0),
    }  # fmt: skip
    tables = {path.stem: path.read_text() for path in folder.glob("*.md")}
    assert sorted(tables) == sorted(ABLATIONS)
    assert "| + BiLSTM | 50.0 ± 0.0 | 82.1 |" in tables["pretraining_tasks"]
    assert "| 1/256/4 (3/768/12) | 7.4 | 5.84 | 50.0" in tables["model_size"]
    assert "| 0/20/80 | 50.0 ± 0.0 | 83.7 | 50.0 ± 0.0 | 94.8 |" in tables["masking"]
    assert "| 20 | 50.0 ± 0.0 | 50.0 ± 0.0 |" in tables["steps"]
    count = len(trained)
    run_ablations(tmp_path)
    assert len(trained) == count


def test_rows_and_columns_are_selected(trained, tmp_path, no_plot):
    folder = run_ablations(tmp_path, rows=(2,), columns="NER")
    text = (folder / "masking.md").read_text()
    assert "100/0/0" in text
    assert "80/10/10" not in text
    assert "MNLI" not in text
    for options, message in (
        ({"rows": (9,)}, "--rows must be from 1 to 4. Got"),
        ({"columns": "NER,WNLI"}, "--columns must be among .* Got .*WNLI"),
    ):
        with pytest.raises(ValueError, match=message):
            run_ablations(tmp_path, **options)
