# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import collections
import dataclasses
import shutil

import numpy as np
import pytest
import tensorflow as tf
from scipy import special

import bert_tf
from bert_tf import cli, serving
from bert_tf.data import read_table
from experiments import ensemble
from tests.toy import tasks as toy
from tests.toy.documents import documented

# As `QuestionAnsweringHead.candidates` returns it.
Candidates = collections.namedtuple("Candidates", ["columns", "null_odds"])


@pytest.fixture
def models(request, tmp_path, one_layer, vocabulary):
    """Returns two models of the task `request.param`, with different encoders."""
    found = []
    for number in (1, 2):
        (folder := tmp_path / str(number)).mkdir()
        tf.keras.utils.set_random_seed(number)
        config = dataclasses.replace(one_layer, num_heads=number)
        found.append(toy.write_model(request.param, folder, config, vocabulary))
    return found


def options(models, tmp_path, **changes):
    paths = ",".join(str(model.path) for model in models)
    output = str(tmp_path / "mean")
    return ensemble.EnsembleConfig(models=paths, output=output, **changes)


def answers(task, model, name="dev"):
    """Returns the answers of a `serving.Predictor` to a split, and rows of a table."""
    examples = task.data[name]
    if task.kind == "tagging":
        examples = [*task.read_input(task.options, task.options.dev_file)]
    columns = [*zip(*(example.inputs for example in examples))]
    found = task.answer(model, columns, batch_size=8)
    rows = task.prediction_rows(examples, found, task.settings, task.options)
    return found, [{name: str(x) for name, x in row.items()} for row in rows]


KINDS = [
    pytest.param(name, marks=[pytest.mark.slow] * (name != "spans"))
    for name in ("classes", "labels", "scores", "spans", "choices", "tags")
]


def check_files(task, rows, folder):
    """Checks that the files of the dev set have these predictions."""
    if task.kind == "tagging":
        lines = (folder / "predictions_dev.conll").read_text().split("\n")
        tags = " ".join(line.split()[-1] for line in lines if line)
        written = [{"prediction": tags}]
    else:
        written = read_table(folder / "predictions_dev.tsv")
    for row, expected in zip(rows, written, strict=True):
        if task.problem == "regression":
            assert float(row["prediction"]) == pytest.approx(
                float(expected["prediction"]), abs=1e-5
            )
        else:
            assert row["prediction"] == expected["prediction"]
        if task.kind != "tagging" and "confidence" in expected:
            confidence = float(expected["confidence"])
            assert float(row["confidence"]) == pytest.approx(confidence, abs=2e-6)


@pytest.mark.parametrize("models", KINDS, indirect=True)
def test_predicts_and_exports_the_mean(
    models, tmp_path, eagerly, plain_encoder, monkeypatch
):
    exported = []
    monkeypatch.setattr(
        serving,
        "export_saved_model",
        lambda signatures, folder, checkpoint: exported.extend(
            [checkpoint, signatures]
        ),
    )
    flags = options(models, tmp_path, export=str(tmp_path / "export"))
    metrics = ensemble.main(flags)
    assert len(metrics["dev"]) == 3  # Of the two models and their ensemble.
    table = (tmp_path / "mean/ensemble.md").read_text()
    assert "| single models |" in table
    assert "| ensemble |" in table

    # The export answers as the predictions of the dev set.
    task = ensemble.open_task(flags, models)
    found, rows = answers(task, serving.Predictor(*exported))
    check_files(task, rows, tmp_path / "mean")

    # They are means.
    name = "score" if task.problem == "regression" else "probabilities"
    if name in found:
        each = [answers(task, bert_tf.load(model.path))[0][name] for model in models]
        assert np.ptp(each, axis=0).max() > 1e-4
        np.testing.assert_allclose(found[name], np.mean(each, axis=0), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("models", KINDS, indirect=True)
def test_exported_ensemble_answers_like_its_files(models, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for index in range(3):
        shutil.copytree(models[index % 2].path, f"models/squad{index}")
    signatures, export = {}, serving.export_saved_model

    def keep(found, *arguments, **options):
        signatures.update(found)
        return export(found, *arguments, **options)

    monkeypatch.setattr(serving, "export_saved_model", keep)
    arguments = documented("docs/experiments.md", "experiments.ensemble")
    metrics = ensemble.main(cli.parse(ensemble.EnsembleConfig, arguments))
    assert len(metrics["dev"]) == 4
    exported = tf.saved_model.load("saved_models/squad_ensemble/1")

    class Model:
        def predict(self, *columns, signature="serving_default", batch_size=0):
            names = [spec.name for spec in signatures[signature].input_signature]
            inputs = dict(zip(names, map(tf.constant, columns), strict=True))
            outputs = exported.signatures[signature](**inputs)
            found = {name: x.numpy() for name, x in outputs.items()}
            texts = {k: x for k, x in found.items() if x.dtype == object}
            decode = np.vectorize(bytes.decode, "O")
            return found | {name: decode(x) for name, x in texts.items()}

    task = ensemble.open_task(options(models, tmp_path), models)
    _, rows = answers(task, Model())
    check_files(task, rows, tmp_path / "models/squad_ensemble")


@pytest.mark.slow
@pytest.mark.parametrize("models", ["vectors"], indirect=True)
def test_averages_similarities(models, tmp_path, eagerly):
    ensemble.main(options(models, tmp_path))
    task = ensemble.open_task(options(models, tmp_path), models)
    each = [answers(task, bert_tf.load(model.path))[0]["score"] for model in models]
    rows = read_table(tmp_path / "mean/predictions_dev.tsv")
    found = [float(row["prediction"]) for row in rows]
    np.testing.assert_allclose(found, np.mean(each, axis=0), atol=1e-6)


@pytest.mark.parametrize("models", ["classes"], indirect=True)
def test_refuses_models_that_do_not_fit(models, tmp_path, one_layer, vocabulary):
    other = toy.write_model("labels", tmp_path, one_layer, vocabulary)
    with pytest.raises(ValueError, match="with equal tokenizers and labels"):
        ensemble.main(options([models[0], other], tmp_path))
    fits = options(models, tmp_path)
    with pytest.raises(ValueError, match="--output must not be a model directory"):
        ensemble.main(dataclasses.replace(fits, output=str(other.path)))
    encoder = dataclasses.replace(models[0], head={"kind": "pretraining"})
    with pytest.raises(ValueError, match=r"--module may name.* kind pretraining: "):
        ensemble.open_task(fits, [encoder])


# --- Averages --------------------------------------------------------------------


def test_probabilities_of_averages_are_means_of_probabilities():
    logits = np.random.default_rng(0).normal(scale=4, size=[3, 5, 4])
    found = ensemble.average("classification", list(logits))
    expected = special.softmax(logits, axis=-1).mean(axis=0)
    np.testing.assert_allclose(special.softmax(found, axis=-1), expected)
    found = ensemble.average("multi_label", list(logits))
    expected = special.expit(logits).mean(axis=0)
    np.testing.assert_allclose(special.expit(found), expected)


@pytest.mark.parametrize("models", ["spans"], indirect=True)
def test_merges_n_best_lists(models, tmp_path):
    task = ensemble.open_task(options(models, tmp_path), models)
    head = ensemble.ensemble_head(task, 3)
    rng = np.random.default_rng(0)
    lists = []
    for _ in range(3):
        texts = [rng.choice([*"abcdef", ""], 4, replace=False) for _ in range(5)]
        score = -np.sort(-rng.dirichlet(np.ones(4), 5))
        start = np.arange(20).reshape(5, 4)
        columns = {"answer": texts, "start": start, "score": np.float32(score)}
        columns = {name: tf.constant(np.array(x)) for name, x in columns.items()}
        lists.append(Candidates(columns, tf.zeros(5)))

    found = head.merge(lists)

    for row in range(5):
        expected = collections.Counter()
        for answers_ in lists:
            columns = {k: x.numpy()[row] for k, x in answers_.columns.items()}
            for text, score in zip(columns["answer"], columns["score"]):
                expected[text] += score / 3
        best = [probability for _, probability in expected.most_common(4)]
        np.testing.assert_allclose(found.columns["score"][row], best, rtol=1e-5)
        texts = found.columns["answer"].numpy()[row]
        assert texts.tolist() == [text for text, _ in expected.most_common(4)]
        best = max(probability for text, probability in expected.items() if text)
        odds = np.log(max(expected[b""], 1e-30) / best)
        assert float(found.null_odds[row]) == pytest.approx(odds, rel=1e-4)
