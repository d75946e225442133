# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import dataclasses
import os
import random
import re
import shutil
import signal
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints import open_checkpoint
from bert_tf.data import read_table
from bert_tf.finetuning import ColumnFile, PredictConfig, batching, fine_tune, run_task
from bert_tf.finetuning import run as run_module
from bert_tf.finetuning.train import FineTuning
from bert_tf.heads import TaggingHead, TokenClassifier
from bert_tf.modeling import BertBackbone, BertPretrainer
from bert_tf.training import TrainingLoop
from tasks.classification import Classification
from tasks.tagging import Tagging
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
    """Options of a tagger that finds the word "cat". The test set has no tags."""
    folder = tmp_path_factory.mktemp("models")
    sizes = {"train": 160, "some": 40, "few": 32, "dev": 21, "test": 21}
    rng, vocabulary = random.Random(0), ["a", "b", "c", "mat", "sat", "cat"]
    for name, size in sizes.items():
        lines = []
        for _ in range(size):
            words = rng.choices(vocabulary, k=rng.randint(1, 19))
            lines += [f"{word} {'B-CAT' if word == 'cat' else 'O'}" for word in words]
            lines.append("")
        if name == "test":
            lines = [line.partition(" ")[0] for line in lines]
        (folder / name).write_text("\n".join(lines))
    return Tagging.Config(
        **{f"{name}_file": str(folder / name) for name in ("train", "dev", "test")},
        init_from=str(encoder.path),
        output=str(folder / "cats"),
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
    assert directory.head["labels"] == ["O", "B-CAT", "I-CAT"]
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


@pytest.mark.slow
@pytest.mark.parametrize("in_evaluation", [False, True])
def test_resume_is_bit_equal_after_sigterm(
    finished, tmp_path, monkeypatch, capsys, in_evaluation
):
    options, metrics = finished
    again = other(options, tmp_path)

    def stop():
        os.kill(os.getpid(), signal.SIGTERM)

    def check_signals(self):
        if not in_evaluation and self.step == 14:
            stop()
        check(self)

    def predict(model, split, *args, **kwargs):
        if in_evaluation and int(model.optimizer.iterations) == 20:
            stop()
        return batching_predict(model, split, *args, **kwargs)

    batching_predict, check = batching.predict, TrainingLoop.check_signals
    with monkeypatch.context() as patch:
        patch.setattr(batching, "predict", predict)
        patch.setattr(TrainingLoop, "check_signals", check_signals)
        with pytest.raises(SystemExit) as ended:
            fine_tune(Tagging, again)
    assert ended.value.code == 0
    step = 20 if in_evaluation else 14
    assert f"Stopped by SIGTERM. Step {step} is saved in" in capsys.readouterr().out
    with pytest.raises(
        ValueError, match=f"training data have changed since step {step} "
    ):
        fine_tune(TrainedOnOtherData, again)
    again_metrics = fine_tune(Tagging, again)
    assert f"resuming at step {step} of 30" in capsys.readouterr().out
    rows = (m["training"]["epochs"] for m in (metrics, again_metrics))
    for before, after in zip(*rows, strict=True):
        assert after == pytest.approx(before, rel=1e-6)
    found = weights(again)
    for name, weight in weights(options).items():
        np.testing.assert_array_equal(found[name], weight)


def test_finished_directory_is_only_evaluated(finished, capsys, monkeypatch):
    options, metrics = finished
    monkeypatch.setattr(FineTuning, "train", None)
    assert fine_tune(Tagging, options) == metrics
    shown = capsys.readouterr().out
    assert "is already trained; skipping training" in shown
    following = f"tasks.tagging --predict --model={options.output} --input=... --out"
    assert f"Next: python -m {following}" in shown.splitlines()[-1]


def test_encoder_is_compared_by_content(finished, encoder, tmp_path, monkeypatch):
    options, metrics = finished
    monkeypatch.setattr(FineTuning, "train", None)
    moved = shutil.copytree(encoder.path, tmp_path / "moved")
    options = dataclasses.replace(options, init_from=str(moved))
    assert fine_tune(Tagging, options) == metrics
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
    found = weights(two)
    for name, weight in weights(one).items():
        np.testing.assert_allclose(found[name], weight, atol=1e-5)


class FailsInEvaluation(Tagging):
    def evaluate(self, split, outputs, decision=None):
        raise ZeroDivisionError


class SetsItsLoss(TokenClassifier):
    """Has the `compile` that docs/adding_a_task.md asks for."""

    def compile(self, optimizer):
        super().compile(optimizer)


@pytest.mark.usefixtures("eagerly")
def test_error_in_evaluation_does_not_lose_the_epoch(
    options, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(TaggingHead, "model_class", SetsItsLoss)
    run = other(options, tmp_path, examples="few", epochs=1)
    with pytest.raises(ZeroDivisionError):
        fine_tune(FailsInEvaluation, run)
    fine_tune(Tagging, run)
    assert "resuming at step 2 of 2." in capsys.readouterr().out


@pytest.mark.usefixtures("eagerly")
def test_diverged_loss_stops_training(options, tmp_path):
    with pytest.raises(ValueError, match=r"loss of step \d+ is not finite"):
        fine_tune(Tagging, other(options, tmp_path, learning_rate=1e38))


@pytest.mark.parametrize(
    ("head_is_for", "new"),
    [
        ("no task", "logits"),
        ("the same task", "pooler"),
        ("another task", "pooler, logits"),
    ],
)
def test_initial_weights_are_those_of_the_checkpoint(
    options, encoder, finished, head_is_for, new, tmp_path, monkeypatch, capsys
):
    source = encoder
    if head_is_for != "no task":
        source = open_checkpoint(finished[0].output)
        if head_is_for == "another task":
            source = dataclasses.replace(source, head={"kind": "find_dogs"})
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
        ({"layers": "1,3"}, "from 1 to 1, separated by commas"),
        ({"layers": "one"}, "must be numbers of layers of --init_from"),
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
