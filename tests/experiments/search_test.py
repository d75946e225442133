# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import contextlib
import dataclasses
import pathlib
import random
import re
import sys

import numpy as np
import pytest

from bert_tf import finetuning, training
from bert_tf.checkpoints import Checkpoint, open_checkpoint
from bert_tf.data import read_table, write_table
from bert_tf.modeling import BertBackbone
from experiments import search
from tasks.tagging import Tagging
from tests.toy.documents import documented
from tests.toy.models import model_directory


@pytest.fixture
def options(tmp_path, random_encoder):
    """Options of two runs of a tagger, in which "cat" is a P. One fails."""
    rng = random.Random(0)
    for name, size in {"train": 160, "dev": 16, "test": 16}.items():
        lines = []
        for _ in range(size):
            words = rng.choices(["a", "b", "mat", "sat", "cat"], k=8)
            lines += [f"{w} {'B-P' if w == 'cat' else 'O'}" for w in words] + [""]
        (tmp_path / name).write_text("\n".join(lines))
    return search.search_options(Tagging.Config)(
        **{f"{name}_file": str(tmp_path / name) for name in ("train", "dev", "test")},
        **random_encoder(tmp_path, num_layers=1),
        output=str(tmp_path / "best"),
        max_sequence_length=12,
        batch_size=(16,),
        epochs=(2,),
        learning_rate=(3e-2, 0.0),
        seed=(0,),
    )


@pytest.mark.slow
def test_keeps_the_best_run_and_reports_failed_ones(options, tmp_path, monkeypatch):
    evaluate_really = Tagging.evaluate

    def evaluate(self, split, outputs, decision=None):
        if not self.options.learning_rate:  # Predict O.
            outputs = [np.add(np.zeros_like(row), [1, 0, 0]) for row in outputs]
        return evaluate_really(self, split, outputs, decision)

    monkeypatch.setattr(Tagging, "evaluate", evaluate)
    good, failed = search.search(Tagging, options)
    assert good.options["learning_rate"] == 3e-2
    assert failed.failure == "all predictions are 'O'"
    assert not failed.scores
    output = tmp_path / "best"
    rows = read_table(output / "search.csv")
    assert [row["failure"] for row in rows] == ["", failed.failure]
    page = (output / "search.md").read_text()
    assert re.search(r"\| .*learning_rate 0.03 \| [\d.]+ \| [\d.]+ \|", page)
    assert "learning_rate 0.0 | failed | failed |" in page

    # The same as the run alone.
    fields = dataclasses.fields(Tagging.Config)
    alone = {f.name: getattr(options, f.name) for f in fields} | {"seed": 0}
    alone |= {"batch_size": 16, "epochs": 2, "learning_rate": 3e-2}
    alone |= {"output": str(tmp_path / "alone")}
    metrics = finetuning.fine_tune(Tagging, Tagging.Config(**alone))
    assert good.scores == {k: 100 * metrics[k]["f1"] for k in ("dev", "test")}
    models = [open_checkpoint(tmp_path / x).read_weights() for x in ("best", "alone")]
    for name, weight in models[0].items():
        np.testing.assert_array_equal(weight, models[1][name])
    assert len([*output.rglob("*.safetensors")]) == 1

    # Resuming trains only new runs.
    trained, train = [], training.TrainingLoop.intervals
    monkeypatch.setattr(
        training.TrainingLoop,
        "intervals",
        lambda *x, **options: trained.append(x) or train(*x, **options),
    )
    assert search.search(Tagging, options)[0].scores == good.scores
    assert not trained
    more = dataclasses.replace(options, seed=(0, 1), learning_rate=(3e-2,))
    assert len(search.search(Tagging, more)) == 2
    assert len(trained) == 1


@pytest.mark.slow
def test_documented_command(tmp_path, monkeypatch, one_layer, vocabulary, eagerly):
    monkeypatch.chdir(tmp_path)
    # So small a model predicts the same for all examples.
    monkeypatch.setattr(search, "_check_predictions", lambda rows: None)
    config = dataclasses.replace(one_layer, max_sequence_length=128)
    encoder = model_directory("models/base", config, vocabulary)
    encoder.save_weights(BertBackbone(config))
    pair = {"#1 String": "a cat", "#2 String": "the mat"}
    rows = [{**pair, "Quality": label} for label in (0, 1, 1)]
    (tmp_path / "glue/MRPC").mkdir(parents=True)
    for name in ("train", "test"):
        write_table(f"glue/MRPC/msr_paraphrase_{name}.txt", rows)
    arguments = documented("docs/finetuning.md", "experiments.search")
    grid = ["--batch_size=16", "--learning_rate=5e-5", "--epochs=1"]
    monkeypatch.setattr(sys, "argv", ["search", *arguments, *grid])
    search.main()
    scores = [float(row["score"]) for row in read_table("models/mrpc/search.csv")]
    assert len(scores) == 3  # Seeds.
    best = open_checkpoint("models/mrpc").read_metrics()["training"]["score"]
    assert 100 * best == pytest.approx(np.nanmax(scores), abs=1e-3)


def test_options_of_a_search(options):
    found = [*search.combinations(Tagging.Config, options)]
    assert [settings for settings, _ in found] == [
        {"batch_size": 16, "epochs": 2, "learning_rate": rate}
        for rate in options.learning_rate
    ]
    fields = {f.name: f.default for f in dataclasses.fields(options)}
    assert len(fields["batch_size"]) * len(fields["epochs"]) == 6  # The paper's grid.
    assert fields["learning_rate"] == (5e-5, 4e-5, 3e-5, 2e-5)
    more = dataclasses.replace(options, dropout=(0.0, 0.3), seed=(1, 2))
    found = [*search.combinations(Tagging.Config, more)]
    assert len(found) == 8
    assert {settings["dropout"] for settings, _ in found} == {0.0, 0.3}
    assert [settings["seed"] for settings, _ in found] == [1, 2] * 4


@pytest.mark.parametrize(
    ("predictions", "gold", "fails"),
    [
        (["a", "a"], ["a", "b"], True),
        (["a", "a"], ["a", "a"], False),
        (["a", "b"], ["a", "b"], False),
        ([2.501, 2.502], ["0", "5"], True),
        ([2001.0, 2019.0], ["1990", "2020"], False),
    ],
)
def test_the_same_answer_for_all_is_a_failure(predictions, gold, fails):
    rows = [{"prediction": x, "gold": y} for x, y in zip(predictions, gold)]
    expected = pytest.raises(training.DivergedError, match="all predictions are")
    with expected if fails else contextlib.nullcontext():
        search._check_predictions(iter(rows))


def test_runs_share_data_but_not_their_encoder(options, tmp_path):
    (_, first), _ = search.combinations(Tagging.Config, options)
    options = Tagging.Config(**first)
    encoder = Checkpoint.untrained(options.size, options.vocabulary)
    shared = search._share_data(Tagging, stop_failed=False)
    tasks = [shared(options, each) for each in (encoder, dataclasses.replace(encoder))]
    assert tasks[0].dataset("train") is tasks[1].dataset("train")
    assert tasks[0].encoder is encoder is not tasks[1].encoder


def test_a_search_whose_runs_all_fail_trains_one_to_the_end(
    options, tmp_path, monkeypatch
):
    """On WNLI, the larger class is the best answer that is known."""
    exports = []

    def fine_tune(task_class, config, *, encoder_class=None, cache=None):
        exports.append(config.export)
        (folder := pathlib.Path(config.output)).mkdir(parents=True, exist_ok=True)
        (folder / "model.safetensors").write_text("")
        if len(exports) <= 2:
            raise training.DivergedError("all predictions are 'O'")
        return {"training": {"metric": "dev f1", "score": 0.5}}

    monkeypatch.setattr(finetuning, "fine_tune", fine_tune)
    options = dataclasses.replace(options, export="served")
    found = search.search(Tagging, options)
    assert [run.failure for run in found] == ["", "all predictions are 'O'"]
    assert exports == ["", "", "", "served"]  # Two runs, one again, the best one.
    assert search.search(Tagging, options)[0].score == 50
    assert len(exports) == 4


def test_does_not_replace_another_model(options, tmp_path):
    (tmp_path / "best").mkdir()
    (tmp_path / "best/config.json").write_text("{}")
    with pytest.raises(ValueError, match="has the model of another command"):
        search.search(Tagging, options)
