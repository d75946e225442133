# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import gc
import json

import pytest

from bert_tf.data import read_table
from bert_tf.finetuning import sweep
from bert_tf.finetuning.task import FinetuneConfig

# Scores of runs by learning rate and seed; None for a run that diverges.
SCORES = {(1e-5, 4): 0.5, (1e-5, 5): 0.7, (1e-4, 4): 0.8, (1e-4, 5): None}


@pytest.fixture
def grid(tmp_path):
    output = str(tmp_path / "best")
    return [
        FinetuneConfig(output=output, learning_rate=rate, seed=seed)
        for rate, seed in SCORES
    ]


@pytest.fixture
def train(tmp_path, monkeypatch):
    """Writes the files of a run without training."""
    # There are no models to collect, and a collection takes half a second.
    monkeypatch.setattr(gc, "collect", lambda: None)

    def train(options):
        folder = tmp_path.joinpath(options.output)
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / "metrics.json").exists():
            return json.loads((folder / "metrics.json").read_text())
        score = SCORES[options.learning_rate, options.seed]
        (folder / "config.json").write_text(json.dumps(options.to_dict()))
        (folder / "vocab.txt").touch()
        (folder / "model.safetensors").write_text(f"weights that score {score}")
        if score is None:
            raise sweep.DivergedError("The loss is nan.")
        training = {"metric": "dev f1", "score": score}
        training |= {"majority_baseline": 0.5, "seconds": 1.5}
        (folder / "metrics.json").write_text(json.dumps({"training": training}))
        return {"training": training}

    return train


def test_keeps_only_the_weights_of_the_best_run(grid, train, tmp_path, capsys):
    winner = sweep.best_run(grid, train)
    assert (winner.learning_rate, winner.seed) == (1e-4, 4)
    assert winner.output == grid[0].output
    best = tmp_path / "best"
    assert (best / "model.safetensors").read_text() == "weights that score 0.8"
    assert json.loads((best / "metrics.json").read_text())["training"]["score"] == 0.8
    assert json.loads((best / "config.json").read_text())["seed"] == 4
    assert list(best.rglob("model.safetensors")) == [best / "model.safetensors"]
    rows = read_table(best / "runs.tsv")
    assert [row["score"] for row in rows] == ["0.5", "0.7", "0.8", "nan"]
    assert [row["state"] for row in rows] == ["collapsed", "", "", "diverged"]
    shown = capsys.readouterr().out
    assert "1e-05          0.6000 ± 0.1414    0.7000  2, 1 collapsed" in shown
    assert "0.0001         0.8000             0.8000  2, 1 diverged" in shown


def test_resuming_a_sweep_keeps_the_best_run(grid, train, tmp_path):
    sweep.best_run(grid[:2], train)
    assert (
        tmp_path / "best" / "model.safetensors"
    ).read_text() == "weights that score 0.7"
    winner = sweep.best_run(grid, train)
    assert winner.learning_rate == 1e-4
    again = sweep.best_run(grid, train)
    assert again == winner
    assert (
        tmp_path / "best" / "model.safetensors"
    ).read_text() == "weights that score 0.8"


def test_all_runs_diverge(grid, train, monkeypatch):
    monkeypatch.setattr(f"{__name__}.SCORES", dict.fromkeys(SCORES))
    with pytest.raises(sweep.DivergedError, match="All 4 runs diverged"):
        sweep.best_run(grid, train)


def test_sweep_does_not_replace_the_model_of_a_single_run(grid, train):
    train(grid[1])
    with pytest.raises(ValueError, match="the model of a single run"):
        sweep.best_run(grid, train)
