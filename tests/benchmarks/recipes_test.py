# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import dataclasses

import pytest

from benchmarks import recipes
from bert_tf.data import read_table
from tests.toy.records import write_records

CURVES = {
    "adamw": [
        {"tokens": 1e6, "seconds": 60.0, "mlm_loss": 7.0}
        | {"mlm_accuracy": 0.1, "nsp_accuracy": 0.5},
        {"tokens": 2e6, "seconds": 120.0, "mlm_loss": 6.5}
        | {"mlm_accuracy": 0.125, "nsp_accuracy": 0.55},
    ]
}


def make_options(tmp_path, **settings):
    return recipes.RecipesConfig(
        output=str(tmp_path / "curves"),
        size="2/16/2",
        warmup_steps=2,
        validate_every=4,
        precision="float32",
        **settings,
    )


@pytest.mark.slow
def test_runs_write_curves_and_are_not_repeated(tmp_path, vocabulary, monkeypatch):
    pair = [2, *range(5, 11), 3, *range(11, 17), 3]
    for split in ("train", "validation"):
        write_records(tmp_path / "records", vocabulary, [(pair, 8, 0)] * 32, split)
    names = ["adamw", "adamw_residuals", "muon_30_local", "muon_30_local_average"]
    records = str(tmp_path / "records")
    options = make_options(
        tmp_path, records=records, runs=",".join(names), batch_size=8, steps=8
    )
    recipes.main(options)
    for name in names:
        rows = read_table(tmp_path / f"curves/{name}-0.csv")
        assert [float(row["step"]) for row in rows] == [4, 8]
        losses = [float(row["mlm_loss"]) for row in rows]
        assert losses[1] < losses[0] < 5
    assert (tmp_path / "curves/recipes.png").exists()
    monkeypatch.setattr(recipes, "train", None)
    recipes.main(options)


@pytest.mark.slow
def test_stages_have_their_rows_lengths_and_masking_rates(
    tmp_path, vocabulary, monkeypatch
):
    for length in (16, 32):
        pair = [2, *([5] * (length // 2 - 2)), 3, *([11] * (length // 2 - 1)), 3]
        for split in ("train", "validation"):
            rows = [(pair, length // 2, 0)] * 32
            folder = tmp_path / str(length)
            write_records(folder, vocabulary, rows, split, length)
    used = []
    create = recipes.data.pretrain_dataset

    def pretrain_dataset(records, *, batch_size, **settings):
        used.append((records[-2:], batch_size, settings.get("mask_selection_rate")))
        return create(records, batch_size=batch_size, **settings)

    monkeypatch.setattr(recipes.data, "pretrain_dataset", pretrain_dataset)
    stages = (
        recipes.Stage(0.25, batch_size=2, records=0),
        recipes.Stage(0.25),
        recipes.Stage(0.5, batch_size=2, mask_selection_rate=0.2),
    )
    records = f"{tmp_path / '16'},{tmp_path / '32'}"
    options = make_options(tmp_path, records=records, batch_size=4, steps=16)
    curve = recipes.train(options, recipes.Recipe(stages=stages))
    assert used[1:] == [("16", 8, 0.15), ("32", 4, 0.15), ("32", 8, 0.2)]
    assert [row["step"] for row in curve] == [4, 8, 10, 12]
    # The manifest of toy records has a padding share of a quarter.
    assert [row["tokens"] for row in curve] == [384, 768, 1152, 1536]


def test_unknown_recipe_raises(tmp_path):
    options = recipes.RecipesConfig(
        records="records", output=str(tmp_path / "new"), runs="adamw,sgd"
    )
    with pytest.raises(ValueError, match="Received: \\['sgd'\\]"):
        recipes.main(options)
    assert not (tmp_path / "new").exists()


def test_short_rows_first_without_shorter_records_raises(tmp_path):
    runs = "adamw,adamw_short_rows_first"
    options = make_options(tmp_path, records="records64", runs=runs)
    with pytest.raises(ValueError, match=r"two folders.*Received: records64"):
        recipes.main(options)
    assert not (tmp_path / "curves").exists()


def test_table_has_the_last_evaluation():
    assert recipes.table(CURVES).splitlines()[2:] == [
        "| adamw | 2.0 | 2.0 | 6.500 | 12.5% | 55.0% |"
    ]


def test_figure_plots_loss_against_tokens_and_minutes():
    by_tokens, by_time = recipes.draw(CURVES).axes
    (line,) = by_tokens.lines
    assert line.get_xydata().tolist() == [[1.0, 7.0], [2.0, 6.5]]
    (line,) = by_time.lines
    assert line.get_xydata().tolist() == [[1.0, 7.0], [2.0, 6.5]]


def test_every_recipe_differs_from_the_others():
    settings = [dataclasses.astuple(recipe) for recipe in recipes.RECIPES.values()]
    assert all(settings.count(setting) == 1 for setting in settings)
