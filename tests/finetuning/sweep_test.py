# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import csv
import dataclasses
import json

import pytest

from bert_tf.checkpoints.model_directory import CONFIG, METRICS, VOCABULARY, WEIGHTS
from bert_tf.finetuning import sweep
from bert_tf.finetuning.task import FinetuneConfig

# Scores of runs by learning rate and seed; None for one whose loss is not finite.
SCORES = {(1e-5, 4): 0.5, (1e-5, 5): 0.7, (1e-4, 4): 0.8, (1e-4, 5): None}


@pytest.fixture
def grid(tmp_path):
    options = FinetuneConfig(output=str(tmp_path / "best"), seed=4, seeds=2)
    return [dataclasses.replace(options, learning_rate=rate) for rate in (1e-5, 1e-4)]


@pytest.fixture
def train(tmp_path):
    """Stands in for a training; counts its calls."""

    def train(options):
        train.trained.append((options.learning_rate, options.seed))
        folder = tmp_path.joinpath(options.output)
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / METRICS).exists():
            return json.loads((folder / METRICS).read_text())
        score = SCORES[options.learning_rate, options.seed]
        (folder / CONFIG).write_text(json.dumps(options.to_dict()))
        (folder / VOCABULARY).touch()
        (folder / WEIGHTS).write_text(f"weights that score {score}")
        if score is None:
            raise sweep.Diverged("The loss is not finite.")
        training = {
            "metric": "dev f1",
            "score": score,
            "majority_baseline": 0.5,
            "seconds": 1.5,
        }
        (folder / METRICS).write_text(json.dumps({"training": training}))
        return {"training": training}

    train.trained = []
    return train


def test_the_best_is_kept_and_no_other_weights(grid, train, tmp_path, capsys):
    winner = sweep.best(sweep.expand(grid), train)
    assert (winner.learning_rate, winner.seed) == (1e-4, 4)
    assert winner.output == grid[0].output
    best = tmp_path / "best"
    assert (best / WEIGHTS).read_text() == "weights that score 0.8"
    assert json.loads((best / METRICS).read_text())["training"]["score"] == 0.8
    assert json.loads((best / CONFIG).read_text())["seed"] == 4
    assert list(best.rglob(WEIGHTS)) == [best / WEIGHTS]
    with (best / "runs.tsv").open() as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert [row["score"] for row in rows] == ["0.5", "0.7", "0.8", "nan"]
    assert [row["state"] for row in rows] == ["collapsed", "", "", "diverged"]
    shown = capsys.readouterr().out
    assert "1e-05          0.6000 ± 0.1414    0.7000  2, 1 collapsed" in shown
    assert "0.0001         0.8000             0.8000  2, 1 diverged" in shown


@pytest.mark.slow
def test_a_sweep_goes_on_where_it_stopped(grid, train, tmp_path):
    sweep.best(sweep.expand(grid[:1]), train)
    assert (tmp_path / "best" / WEIGHTS).read_text() == "weights that score 0.7"
    winner = sweep.best(sweep.expand(grid), train)
    assert winner.learning_rate == 1e-4
    again = sweep.best(sweep.expand(grid), train)
    assert again == winner
    assert (tmp_path / "best" / WEIGHTS).read_text() == "weights that score 0.8"


def test_when_each_run_diverges(grid, train, monkeypatch):
    monkeypatch.setattr(f"{__name__}.SCORES", dict.fromkeys(SCORES))
    with pytest.raises(ValueError, match="Each of the 4 runs diverged"):
        sweep.best(sweep.expand(grid), train)


def test_a_single_model_is_not_replaced(grid, train):
    train(grid[1])
    with pytest.raises(ValueError, match="single training"):
        sweep.best(sweep.expand(grid), train)


def test_expand_gives_each_seed_to_each(grid):
    runs = sweep.expand(grid)
    assert [(run.learning_rate, run.seed) for run in runs] == list(SCORES)
    assert {run.seeds for run in runs} == {1}
    assert sweep.expand(runs) == runs
