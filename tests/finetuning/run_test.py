# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import dataclasses
import pathlib
import random
import re
import shutil
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import serving
from bert_tf.checkpoints import open_checkpoint
from bert_tf.data import read_table, write_table
from bert_tf.finetuning import ColumnFile, PredictConfig, batching, fine_tune, run_task
from bert_tf.finetuning import run as run_module
from bert_tf.finetuning.train import FineTuning
from bert_tf.heads import TaggingHead, TokenClassifier
from bert_tf.modeling import BertBackbone, BertPretrainer
from bert_tf.training import TrainingLoop
from tasks.classification import Classification
from tasks.tagging import Tagging
from tests.toy.checkpoints import assert_equal
from tests.toy.interruption import at_step
from tests.toy.models import model_directory
from tests.toy.tasks import predict_file

# --- Fixtures --------------------------------------------------------------------


@pytest.fixture(scope="module")
def encoder(tmp_path_factory, one_layer, vocabulary):
    """Returns the model directory of an encoder with random weights."""
    path = tmp_path_factory.mktemp("encoder")
    directory = model_directory(path, one_layer, vocabulary)
    keras.utils.set_random_seed(7)
    directory.save_weights(BertPretrainer(BertBackbone(one_layer)))
    return directory


@pytest.fixture(scope="module")
def options(encoder, tmp_path_factory):
    """Options of a tagger: "cat the" is a P, "mats" an L. The test set has no tags."""
    folder = tmp_path_factory.mktemp("models")
    sizes = {"train": 160, "some": 40, "few": 32, "dev": 21, "test": 21}
    rng, tags = random.Random(0), {"cat": "B-P", "the": "I-P", "mats": "B-L"}
    for name, size in sizes.items():
        lines = []
        for _ in range(size):
            words = rng.choices(["a", "b", "c", "sat", "mats", "cat the"], k=11)
            words = " ".join(words[: rng.randint(1, 11)]).split()
            lines += [f"{word} {tags.get(word, 'O')}" for word in words]
            lines.append("")
        if name == "test":
            lines = [line.partition(" ")[0] for line in lines]
        (folder / name).write_text("\n".join(lines))
    return Tagging.Config(
        **{f"{name}_file": str(folder / name) for name in ("train", "dev", "test")},
        init_from=str(encoder.path),
        output=str(folder / "tagger"),
        batch_size=16,
        epochs=3,
        learning_rate=3e-2,
        max_sequence_length=24,
    )


@pytest.fixture(scope="module")
def finished(options):
    """Returns the options and metrics of a finished run."""
    return options, fine_tune(Tagging, options)


def weights(options):
    """Returns the weights in the output directory of a run."""
    return open_checkpoint(options.output).read_weights()


def test_reused_graphs_give_equal_results(finished, tmp_path):
    options, _ = finished

    def run(name, cache=None, **changes):
        changes = {"output": str(tmp_path / name), "epochs": 1, **changes}
        config = dataclasses.replace(options, **changes)
        metrics = fine_tune(Tagging, config, cache=cache)
        del metrics["training"]["seconds"]
        return metrics, weights(config)

    cache, changes = {}, {"seed": 5, "init_from": options.output}
    run("first", cache)
    graphs = cache["compiled"]
    found = run("second", cache, **changes)
    assert cache["compiled"] is graphs
    alone = run("alone", **changes)
    assert found[0] == alone[0]
    assert_equal(found[1], alone[1])
    steps = graphs[2].steps.cache_info()
    assert (steps.hits, steps.misses) == (1, 1)
    run("other", cache, batch_size=8)
    assert cache["compiled"] is not graphs


def other(options, tmp_path, name="other", examples="train", **changes):
    changes["train_file"] = options.train_file.replace("train", examples)
    return dataclasses.replace(options, output=str(tmp_path / name), **changes)


# --- Tests -----------------------------------------------------------------------


def test_training_learns_and_writes_metrics(finished):
    options, metrics = finished
    directory = open_checkpoint(options.output)
    epochs = metrics["training"]["epochs"]
    assert len(epochs) == 3
    assert epochs[-1]["loss"] < 0.3 * epochs[0]["loss"]
    best = metrics["training"]["best_epoch"]
    assert metrics["dev"]["f1"] == epochs[best - 1]["dev_f1"] > 0.9
    assert "test" not in metrics  # It has no tags.
    predicted = ColumnFile.read(directory.path / "predictions_test.conll")
    assert len(predicted.sentences) == 21
    assert directory.read_metrics() == metrics
    assert directory.head["labels"] == ["O", "B-L", "I-L", "B-P", "I-P"]
    report = (directory.path / "report.md").read_text(encoding="utf-8")
    assert f"| dev | f1 | {metrics['dev']['f1']:.4f} |" in report
    assert (directory.path / "report.svg").read_text().count('id="axes_') == 2
    (log,) = (directory.path / "logs").rglob("events.*")
    tags = [
        value.tag
        for event in tf.compat.v1.train.summary_iterator(str(log))
        for value in event.summary.value
    ]
    assert tags.count("loss") == tags.count("dev_f1") == 3
    assert tags.count("step_loss") == 30
    rows = read_table(directory.path / "history.csv")
    assert [float(row["dev_f1"]) for row in rows] == [x["dev_f1"] for x in epochs]


class BestInSecondEpoch(Tagging):
    """Has its best score after the second of three epochs, for any outputs."""

    def __init__(self, *args):
        super().__init__(*args)
        self.seen = []
        type(self).last = self

    def evaluate(self, split, outputs, decision=None):
        self.seen.append(np.concatenate(outputs))
        score = [0.5, 0.9, 0.7, 0.9, 0.0][len(self.seen) - 1]
        return super().evaluate(split, outputs)._replace(metrics={"f1": score})


@pytest.mark.usefixtures("eagerly")
def test_keeps_the_best_epoch_and_stops_early(
    options, encoder, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("bert_tf.training.loop._SECONDS_PER_LINE", 0.0)
    changes = {"early_stopping_patience": 1, "frozen_layers": 1, "dropout": 0.2}
    changes |= {"learning_rate": None}
    run = other(options, tmp_path, examples="few", epochs=9, **changes)
    metrics = fine_tune(BestInSecondEpoch, run)
    shown = capsys.readouterr().out
    assert "learning rate 0.0003;" in shown  # For hidden sizes up to 256.
    lines = re.findall(r"^Step (\d+) of 18: loss", shown, re.MULTILINE)
    assert lines == list("123456")
    assert metrics["training"]["best_epoch"] == 2
    assert len(metrics["training"]["epochs"]) == 3
    directory = open_checkpoint(run.output)
    assert directory.architecture.dropout == 0.2
    assert changes.items() <= directory.options.items()
    before, after = encoder.read_weights(), weights(run)
    changed = {k for k, x in after.items() if not np.array_equal(x, before.get(k))}
    assert changed == {"logits/kernel", "logits/bias"}
    _, second, third, final, _ = BestInSecondEpoch.last.seen  # The last one is test.
    np.testing.assert_allclose(final, second, atol=1e-6)
    assert np.abs(third - second).max() > 1e-3


class TrainedOnOtherData(Tagging):
    def dataset(self, name):
        return super().dataset("dev" if name == "train" else name)


class TrainedOnOtherLabels(Tagging):
    def dataset(self, name):
        split = super().dataset(name)
        if name == "train":
            split = dataclasses.replace(split, targets=1 - split.targets)
        return split


@pytest.mark.slow
def test_resume_is_bit_equal_after_sigterm(finished, tmp_path, monkeypatch, capsys):
    options, metrics = finished
    again = other(options, tmp_path)
    # Within an epoch, and in an evaluation.
    for step, owner, name in (
        (14, TrainingLoop, "check_signals"),
        (20, batching, "predict"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, at_step(step, getattr(owner, name)))
            with pytest.raises(SystemExit) as ended:
                fine_tune(Tagging, again)
        assert ended.value.code == 0
        line = f"Stopped by SIGTERM. Step {step} is saved in"
        assert line in capsys.readouterr().out
        message = f"training data have changed since step {step} "
        for changed in (TrainedOnOtherData, TrainedOnOtherLabels):
            with pytest.raises(ValueError, match=message):
                fine_tune(changed, again)
    again_metrics = fine_tune(Tagging, again)
    assert "resuming at step 20 of 30" in capsys.readouterr().out
    rows = (m["training"]["epochs"] for m in (metrics, again_metrics))
    for before, after in zip(*rows, strict=True):
        assert after == pytest.approx(before, rel=1e-6)
    assert_equal(weights(again), weights(options))


def by_text(answer, *names):
    """Rows of the named outputs for each text, without padding."""
    columns = [answer[name].tolist() for name in names]
    return [
        [row for row in zip(*rows, strict=True) if row[0]]
        for rows in zip(*columns, strict=True)
    ]


@pytest.mark.usefixtures("eagerly")
def test_answers_of_the_finished_model(finished, tmp_path):
    options, _ = finished
    served, output = serving.load(options.output), tmp_path / "tags.csv"
    rows = predict_file(Tagging, served, options.dev_file, output)
    path = pathlib.Path(options.output, "predictions_dev.conll")
    for row, sentence in zip(rows, ColumnFile.read(path).sentences, strict=True):
        columns = [row[name].split() for name in ("text", "gold", "prediction")]
        assert [*zip(*columns)] == [tuple(word) for word in sentence.rows]
    with pytest.raises(ValueError, match=r"for classification\. .* the kind tagging"):
        predict_file(Classification, served, options.dev_file, output)

    # A row for each sentence, also without words.
    write_table(tmp_path / "x.jsonl", [{"tokens": x} for x in ([], ["the", "cat"], [])])
    rows = predict_file(Tagging, served, str(tmp_path / "x.jsonl"), output)
    assert [row["id"] for row in rows] == ["1", "2", "3"]
    assert [len(row["prediction"].split()) for row in rows] == [0, 2, 0]

    # Texts that are split into words. Padding may be anywhere.
    words = ["", "mats.b.", "", "cat", "the", "\u200b", ""]
    answer = served.predict([words, [""] * len(words)], signature="words")
    assert answer["tags"][0, :5].tolist() == ["", "B-L", "", "B-P", "I-P"]
    np.testing.assert_array_equal(answer["scores"] > 0, answer["tags"] != "")
    assert answer["scores"][0, 5] > 0  # The word without pieces.

    text = "a é cat thé b mats\u00a0cat"
    answer = served.predict(["", text])
    names = ("entities", "entity_types", "entity_starts", "entity_ends")
    entities = [("cat thé", "P", 4, 11), ("mats", "L", 14, 18), ("cat", "P", 19, 22)]
    assert by_text(answer, *names) == [[], entities]
    names = ("entities", "entity_start_bytes", "entity_end_bytes")
    for entity, start, end in by_text(answer, *names)[1]:
        assert text.encode()[start:end].decode() == entity


@pytest.mark.usefixtures("eagerly")
def test_finished_directory_is_only_evaluated(
    finished, encoder, tmp_path, monkeypatch, capsys
):
    """Encoders are compared by content."""
    options, metrics = finished
    monkeypatch.setattr(FineTuning, "train", None)
    moved = shutil.copytree(encoder.path, tmp_path / "moved")
    options = dataclasses.replace(options, init_from=str(moved))
    assert fine_tune(Tagging, options) == metrics
    shown = capsys.readouterr().out
    assert "is already trained; skipping training" in shown
    following = f"tasks.tagging --predict --model={options.output} --input=... --out"
    assert f"Next: python -m {following}" in shown.splitlines()[-1]
    model = encoder.load_model(BertPretrainer)
    model.mlm_head.bias.assign_add(np.ones(model.mlm_head.bias.shape))
    dataclasses.replace(encoder, path=moved).save_weights(model)
    with pytest.raises(ValueError, match=r"init_from_content: '\w+' before, '\w+' now"):
        fine_tune(Tagging, options)


@pytest.mark.slow
def test_two_replicas_match_one(options, tmp_path):
    # 40 examples in batches of 16: a replica gets only empty rows of the last batch.
    one, two = (
        other(options, tmp_path, strategy, strategy=strategy, epochs=1, examples="some")
        for strategy in ("default", "mirrored")
    )
    (expected,), (found,) = (
        fine_tune(Tagging, run)["training"]["epochs"] for run in (one, two)
    )
    assert found == pytest.approx(expected, rel=1e-5)
    assert_equal(weights(two), weights(one), atol=1e-5)


class FailsInEvaluation(Tagging):
    def evaluate(self, split, outputs, decision=None):
        raise ZeroDivisionError


class SetsItsLoss(TokenClassifier):
    """Has the `compile` that docs/adding_a_task.md asks for."""

    def compile(self, optimizer):
        super().compile(optimizer)


@pytest.mark.usefixtures("eagerly")
def test_error_in_evaluation_does_not_lose_the_epoch(
    options, random_encoder, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(TaggingHead, "model_class", SetsItsLoss)
    random = {"init_from": "", **random_encoder(tmp_path, num_layers=1)}
    run = other(options, tmp_path, examples="few", epochs=1, **random)
    with pytest.raises(ZeroDivisionError):
        fine_tune(FailsInEvaluation, run)
    fine_tune(Tagging, run)
    assert "resuming at step 2 of 2." in capsys.readouterr().out


@pytest.mark.usefixtures("eagerly")
def test_diverged_loss_stops_training(options, tmp_path):
    with pytest.raises(ValueError, match=r"loss of step \d+ is not finite"):
        fine_tune(Tagging, other(options, tmp_path, learning_rate=1e38))


@pytest.mark.parametrize(
    ("kind", "new"),
    [(None, "logits"), ("tagging", "pooler"), ("find_dogs", "pooler, logits")],
    ids=["an encoder", "a tagger", "another task"],
)
def test_initial_weights_are_those_of_the_checkpoint(
    options, encoder, finished, kind, new, tmp_path, monkeypatch, capsys
):
    source = encoder
    if kind:
        source = open_checkpoint(finished[0].output)
        source = dataclasses.replace(source, head={**source.head, "kind": kind})
    monkeypatch.setattr(run_module.checkpoints, "open_checkpoint", lambda _: source)
    started = {}

    def keep(_, model):
        started.update({weight.path: weight.numpy() for weight in model.weights})
        raise InterruptedError

    monkeypatch.setattr(FineTuning, "train", keep)
    with pytest.raises(InterruptedError):
        fine_tune(Tagging, other(options, tmp_path))
    expected = source.read_weights()
    random = [k for k, x in started.items() if not np.array_equal(x, expected.get(k))]
    assert ", ".join(dict.fromkeys(k.partition("/")[0] for k in random)) == new
    assert f"Newly initialized layers: {new}.\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"init_from": ""}, "Pass either --init_from, or both --size and --vocabulary"),
        ({"max_sequence_length": 64}, "--max_sequence_length must be at most 32"),
        ({"strategy": "mirrored", "batch_size": 15}, "use --batch_size=16"),
        ({"frozen_layers": 2}, "--frozen_layers must be at most 1, as in the"),
        ({"layers": (1, 3)}, "must be numbers of layers of --init_from, from 1 to 1"),
        ({"teacher": "a", "features": "last"}, "Omit --features"),
    ],
)
def test_invalid_options_write_no_files(options, tmp_path, changes, message):
    wrong = other(options, tmp_path, **changes)
    with pytest.raises(ValueError, match=message):
        fine_tune(Tagging, wrong)
    assert not list(tmp_path.iterdir())


def test_predictions_do_not_replace_their_input(tmp_path):
    file = tmp_path / "new.csv"
    file.write_text("text\na\n")
    (tmp_path / "link.csv").symlink_to(file)
    for output in (tmp_path, file, tmp_path / "link.csv"):
        options = PredictConfig(
            predict=True, model="unused", input=str(file), output=str(output)
        )
        with pytest.raises(ValueError, match="--output must be a file other than"):
            run_task(Tagging, options)


def test_model_of_another_project_has_the_columns_of_its_signature(tmp_path):
    received = []

    def predict(*columns, batch_size):
        received.extend(map(list, columns))
        return {"label": "xy", "probabilities": np.ones((2, 1))}

    specs = [tf.TensorSpec([None], tf.string, name) for name in ("text_a", "text_b")]
    model = types.SimpleNamespace(
        checkpoint=types.SimpleNamespace(
            head={"kind": "classification", "labels": ["x"]}, options={}
        ),
        signatures={"serving_default": types.SimpleNamespace(input_signature=specs)},
        predict=predict,
    )
    file = tmp_path / "x.csv"
    file.write_text("text_b,text_a\nb,a\nd,c\n")
    rows = predict_file(Classification, model, str(file), tmp_path / "y.csv")
    assert received == [["a", "c"], ["b", "d"]]
    assert [row["prediction"] for row in rows] == ["x", "y"]


@pytest.mark.usefixtures("eagerly")
def test_reruns_and_predict_see_the_same_held_out_rows(encoder, tmp_path):
    path = tmp_path / "x.csv"
    names = ("key", "shop", "text", "label")
    rows = [(f"R-{i}", f"S{i}", f"a {i}", ("no", "yes")[i % 2]) for i in range(40)]
    rows = [dict(zip(names, row)) for row in rows]
    write_table(path, rows)
    options = {"text_a": "text", "label": "label", "id": "key", "keep": "shop"}
    options |= {"dev_share": 0.1, "test_share": 0.1, "max_sequence_length": 8}
    options |= {"epochs": 1, "train_file": str(path), "init_from": str(encoder.path)}
    options = Classification.Config(**options, output=str(tmp_path / "model"))
    metrics = fine_tune(Classification, options)
    assert {"dev", "test"} <= metrics.keys()
    written = {
        x: read_table(tmp_path / f"model/predictions_{x}.tsv") for x in ("dev", "test")
    }
    listed = read_table(tmp_path / "model/held_out.csv")
    for split, found in written.items():
        ids = [row["id"] for row in found]
        assert ids == [row["id"] for row in listed if row["split"] == split]
        assert [row["shop"] for row in found] == [x.replace("R-", "S") for x in ids]
    report = (tmp_path / "model/report.md").read_text()
    assert "| id | shop | text | label | prediction | confidence |" in report
    assert re.search(r"^\| R-\d+ \| S\d+ \| a \d+ \| (yes|no) \|", report, re.MULTILINE)
    # The training is finished: this only evaluates.
    assert fine_tune(Classification, options)["dev"] == metrics["dev"]
    paths = {"model": options.output, "input": str(path), "output": f"{tmp_path}/y.tsv"}
    predict = PredictConfig(predict=True, split="test", **paths)
    run_task(Classification, predict)
    found = read_table(predict.output)
    assert [row["id"] for row in found] == [row["id"] for row in written["test"]]
    assert found[0].keys() == written["test"][0].keys()
    # A rerun may change the column of ids.
    fine_tune(Classification, dataclasses.replace(options, id="shop"))
    run_task(Classification, predict)
    assert read_table(predict.output) == found

    write_table(path, rows[1:])
    with pytest.raises(ValueError, match=r"train_file_content: '.*' before"):
        fine_tune(Classification, options)
    with pytest.raises(ValueError, match=r"--split requires .*_file of .*, unchanged"):
        run_task(Classification, predict)
    conll = dataclasses.replace(predict, keep="shop", split="")
    with pytest.raises(ValueError, match="--model must have a head for tagging"):
        run_task(Tagging, conll)
