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
        (folder / "config.json").write_text('{"hidden_size": 256}')

    def fine_tune(task_class, config, *, encoder_class=None, cache=None):
        fake(config, encoder_class)
        if config.seed == 13:
            raise training.DivergedError("The loss is NaN.")
        return {"training": {"score": 0.5, "metric": "dev f1"}, "dev": {"f1": 0.5}}

    def pretrain(config, *, encoder_class=None):
        fake(config, encoder_class)
        for step in range(10, config.steps + 1, 10):
            folder = pathlib.Path(config.output, "checkpoints", f"step-{step}")
            folder.mkdir(parents=True)
            (folder / "config.json").write_text("{}")
        if config.mask_token_rate == 1:
            raise training.DivergedError("The loss is NaN.")
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


def test_runs_on_changed_files_are_other_runs(trained, tmp_path):
    found = []
    for name, text in (("a", "x"), ("a", "x"), ("b", "x"), ("b", "y")):
        (tmp_path / name).mkdir(exist_ok=True)
        (file := tmp_path / name / "train.csv").write_text(text)
        options = OPTIONS | {"train_file": str(file)}
        found.append(runs.Runs(tmp_path / "runs").fine_tune(Tagging, **options).path)
    assert found[0] == found[1] == found[2] != found[3]


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


def open_data_sets(folder):
    entries = runs.read_data_sets(folder / "sets.json")
    return {
        name: runs.open_data_set(entry, name, str(folder), folder)
        for name, entry in entries.items()
    }


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
    found = open_data_sets(tmp_path)
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
        open_data_sets(tmp_path)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"kind": "tag"}, "MNLI: kind must be a module of tasks, .*tasks.tag'"),
        ({"kind": "tagging", "epoch": 3}, "MNLI: .* options of its command.*'epoch'"),
        ({"kind": "tagging", "dev_file": "b[:2]"}, "MNLI: dev_file must be in --data_"),
    ],
)
def test_invalid_data_sets_are_refused(tmp_path, entry, message):
    (tmp_path / "sets.json").write_text(json.dumps({"MNLI": entry}))
    with pytest.raises(ValueError, match=message):
        open_data_sets(tmp_path)
    for text in ("{", "[]", '{"MNLI": 1}'):
        (tmp_path / "sets.json").write_text(text)
        with pytest.raises(ValueError, match="must be a JSON file"):
            open_data_sets(tmp_path)


def test_finds_the_task_of_a_module():
    assert runs.find_task("tasks.tagging") is Tagging
    with pytest.raises(ValueError, match="json must define one task"):
        runs.find_task("json")
    with pytest.raises(ValueError, match="must be a module with a task: No"):
        runs.find_task("tasks.tag")


def run_ablations(folder, *ablations, **options):
    """Runs ablations on data sets that are not read. SQuAD is missing."""
    names = ("MNLI", "QNLI", "MRPC", "SST-2", "NER")
    files = {"train_file": "a.conll", "dev_file": "b.conll"}
    entries = {name: {"kind": "classification"} for name in names}
    entries["NER"] = {"kind": "tagging", **files}
    entries["SQuAD"] = {"kind": "question_answering", "train_file": "missing.json[:1]"}
    for name in files.values():
        (folder / name).write_text("")
    (folder / "sets.json").write_text(json.dumps(entries))
    options = ablation.AblationConfig(
        records="records",
        output=str(folder / "out"),
        data_sets=str(folder / "sets.json"),
        data_dir=str(folder),
        steps=51,
        restarts=2,
        **options,
    )
    for name in ablations:
        importlib.import_module(f"experiments.{name}").main(options)
    return folder / "out"


@pytest.fixture
def no_plot(monkeypatch):
    monkeypatch.setattr("experiments.report.draw", lambda table: "<svg/>")


def test_ablations_share_their_runs(trained, tmp_path, no_plot):
    def run():
        return run_ablations(tmp_path, "pretraining_tasks", columns="MNLI,QNLI,NER")

    folder = run()
    run_ablations(tmp_path, *ABLATIONS[1:])
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
    assert "| 100/0/0 | failed | 84.3 | failed | 94.9 |" in tables["masking"]
    assert "| 20 | 50.0 ± 0.0 | 50.0 ± 0.0 |" in tables["steps"]
    count = len(trained)
    run()
    run_ablations(tmp_path, *ABLATIONS[1:])
    assert len(trained) == count


def test_rows_and_columns_are_selected(trained, tmp_path, no_plot):
    folder = run_ablations(tmp_path, "masking", rows=(4,), columns="NER")
    text = (folder / "masking.md").read_text()
    assert "80/20/0" in text
    assert "80/10/10" not in text
    assert "MNLI" not in text
    count = len(trained)
    for options, message in (
        ({"rows": (9,)}, "--rows must be from 1 to 6. Got"),
        ({"columns": "NER,MRPC"}, "--columns must be .*: MNLI, NER. Got .'MRPC'"),
    ):
        with pytest.raises(ValueError, match=message):
            run_ablations(tmp_path, "masking", **options)
    with pytest.raises(ValueError, match="SQuAD: train_file must be in --data_dir"):
        run_ablations(tmp_path, "pretraining_tasks")
    assert len(trained) == count


def test_changes_of_a_row_win(trained, tmp_path):
    (file := tmp_path / "sets.json").write_text("{}")
    options = ablation.AblationConfig(
        records="a", output=str(tmp_path / "out"), batch_size=8, data_sets=str(file)
    )
    study = ablation.Ablation(options, "warmup", "Warm-up", "", ["NER"])
    study.pretrain(warmup_steps=7, records="b", batch_size=16, steps=20)
    ((config, _),) = trained
    found = config.warmup_steps, config.records, config.batch_size, config.steps
    assert found == (7, "b", 16, 20)
