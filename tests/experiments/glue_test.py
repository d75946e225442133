# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import dataclasses
import zipfile

import pytest

from bert_tf import cli
from bert_tf.data import read_table, write_table
from bert_tf.modeling import BertBackbone
from experiments import glue, search
from tests.toy.documents import documented
from tests.toy.models import model_directory

PAIR = {"sentence1": "the cat", "sentence2": "a mat sat"}


def number_of_rows(name):
    return 7 if name.endswith(("mismatched", "-mm")) else 8


def write(folder, label, values, splits):
    """Writes tables; those of test sets have no labels."""
    folder.mkdir(parents=True)
    for split in splits:
        labels = {} if split.startswith(("test", "diag")) else {label: values}
        rows = [
            {"index": i, **PAIR, **{k: x[i % len(x)] for k, x in labels.items()}}
            for i in range(number_of_rows(split))
        ]
        write_table(folder / f"{split}.tsv", rows)


@pytest.mark.slow
def test_trains_what_is_there_and_writes_submissions(
    tmp_path, monkeypatch, one_layer, vocabulary, eagerly
):
    monkeypatch.chdir(tmp_path)
    rates = {"learning_rate": (5e-5, 2e-5)}
    monkeypatch.setattr(search, "GRID", rates)
    # So small a model predicts the same for all examples.
    monkeypatch.setattr(search, "_check_predictions", lambda rows: None)
    data = tmp_path / "glue"
    write(data / "STS-B", "score", [0, 5, 2.5], ["train", "dev", "test"])
    matched = ["dev_matched", "dev_mismatched", "test_matched", "test_mismatched"]
    labels = ["neutral", "entailment", "contradiction"]
    write(data / "MNLI", "gold_label", labels, ["train", *matched])
    write(data / "diagnostic", "label", [], ["diagnostic"])
    (data / "QNLI").mkdir()
    config = dataclasses.replace(one_layer, max_sequence_length=128)
    encoder = model_directory("models/base", config, vocabulary)
    encoder.save_weights(BertBackbone(config))
    arguments = documented("docs/experiments.md", "experiments.glue")
    output = tmp_path / "models/glue"

    scores = glue.main(cli.parse(glue.GlueConfig, arguments))

    assert scores.keys() == {"MNLI-m", "MNLI-mm", "STS-B"}
    names = {"MNLI-m", "MNLI-mm", "AX", "STS-B"}
    with zipfile.ZipFile(output / "submission.zip") as archive:
        assert {*archive.namelist()} == {f"{name}.tsv" for name in names}
    for name in names:
        rows = read_table(output / f"submission/{name}.tsv")
        assert [row["index"] for row in rows] == [
            *map(str, range(number_of_rows(name)))
        ]
        predictions = {row["prediction"] for row in rows}
        if name == "STS-B":
            assert all(0 <= float(value) <= 5 for value in predictions)
        else:
            assert predictions <= {*labels}
    page = (output / "glue.md").read_text()
    assert "qnli: The train set is missing: --data_dir=" in page
    assert "| MNLI-m |" in page
    assert len(read_table(output / "glue.csv")) == 2 * 2  # Tasks, learning rates.


def test_scores_of_submissions_are_in_the_range_of_sts_b(tmp_path):
    (tmp_path / "submission").mkdir()
    source, target = tmp_path / "predictions.tsv", tmp_path / "submission/STS-B.tsv"
    write_table(source, [{"prediction": x} for x in (-0.3, 2.0004, 5.2)])
    glue.write_submission(source, target)
    lines = ["index\tprediction", "0\t0.000", "1\t2.000", "2\t5.000"]
    assert target.read_text().splitlines() == lines


def test_published_averages_are_those_of_the_paper():
    """Table 1: the mean of nine columns, without WNLI."""
    for name, average in {"base": 79.6, "large": 82.1}.items():
        values = map(float, glue.PUBLISHED[f"BERT {name}, test (paper)"].split())
        assert sum(values) / 9 == pytest.approx(average, abs=0.05)
    assert len(glue.COLUMNS) == 10


def test_folders_without_data_are_refused(tmp_path):
    flags = {"glue_dir": str(tmp_path), "init_from": "x", "output": "y"}
    with pytest.raises(ValueError, match=r"No task of .* was trained"):
        glue.main(glue.GlueConfig(**flags))
