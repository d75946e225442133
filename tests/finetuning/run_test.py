# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import dataclasses
import functools
import json
import os
import pathlib
import re
import shutil
import signal
import time
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints import ModelDirectory, open_checkpoint
from bert_tf.data import read_table
from bert_tf.finetuning import (
    Evaluation,
    FinetuneConfig,
    Split,
    Task,
    batching,
    encode,
    fine_tune,
)
from bert_tf.finetuning import run as run_module
from bert_tf.modeling import BertBackbone, BertPretrainer
from bert_tf.text import SPECIAL_TOKENS
from bert_tf.training import TrainingLoop

# --- A minimal task: find the word "cat" ------------------------------------------


class Tagger(keras.Model):
    """Logits [B, S, 2]."""

    def __init__(self, backbone):
        hidden = backbone(backbone.input)["sequence_output"]
        logits = keras.layers.Dense(2, dtype="float32", name="logits")(hidden)
        super().__init__(backbone.input, logits)

    def compile(self, optimizer, **kwargs):
        loss = keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction="sum"
        )
        super().compile(optimizer, loss=loss, **kwargs)


class FindCats(Task):
    """A token-level task: ragged targets, and outputs of different shapes."""

    kind = "cats"
    metric = "recall"
    head = types.MappingProxyType({"animals": ["cat"]})
    evaluation_splits = ("dev", "test")

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Config(FinetuneConfig):
        examples: int = 160

    def model(self, backbone, head=None):
        backbone.pooler.trainable = False  # It has no gradient.
        return Tagger(backbone)

    def dataset(self, name):
        rng = np.random.default_rng(["train", "dev", "test"].index(name))
        count = self.options.examples if name == "train" else 21
        words = ["a", "b", "c", "cat", "mat", "sat"]
        texts = [" ".join(rng.choice(words, rng.integers(1, 20))) for _ in range(count)]
        preprocess = functools.partial(self.tokenizer.encode, max_sequence_length=24)
        inputs = encode(preprocess, texts)
        cat = self.tokenizer.vocabulary.tokens.index("cat")
        tags = tf.cast(inputs["token_ids"] == cat, tf.int32)
        return Split(name, tags, inputs, tags, tf.ones_like(tags, tf.float32))

    def evaluate(self, split, outputs, decision=None):
        pairs = zip(split.source, outputs, strict=True)
        rows = [logits[: len(tags)].argmax(axis=-1) for tags, logits in pairs]
        found, gold = np.concatenate(rows), split.source.values.numpy()
        predictions = ({"tags": row.tolist()} for row in rows)
        if split.name == "test":  # It has no labels.
            return Evaluation({}, predictions)
        metrics = {"recall": float(found[gold > 0].mean())}
        names = np.where(gold, "cat", "else"), np.where(found, "cat", "else")
        return Evaluation(metrics, predictions, {}, *names)


# --- Fixtures --------------------------------------------------------------------


@pytest.fixture(scope="module")
def encoder(tmp_path_factory, tiny_config, vocabulary):
    """Returns the model directory of an encoder with random weights."""
    architecture = dataclasses.replace(tiny_config, num_layers=1)
    directory = ModelDirectory.create(
        tmp_path_factory.mktemp("encoder"),
        architecture=architecture,
        vocabulary=vocabulary,
        lowercase=True,
        head={"kind": "pretrainer"},
        options={},
    )
    keras.utils.set_random_seed(7)
    directory.save_weights(BertPretrainer(BertBackbone(architecture)))
    return directory


@pytest.fixture(scope="module")
def options(encoder, tmp_path_factory):
    return FindCats.Config(
        init_from=str(encoder.path),
        output=str(tmp_path_factory.mktemp("models") / "cats"),
        batch_size=16,
        epochs=3,
        learning_rate=3e-2,
        max_sequence_length=24,
    )


@pytest.fixture(scope="module")
def finished(options):
    """Returns the options and metrics of a finished run."""
    metrics = fine_tune(FindCats, options)
    return options, metrics


def weights(options):
    """Returns the weights in the output directory of a run."""
    directory = open_checkpoint(options.output)
    model = Tagger(BertBackbone(directory.architecture))
    directory.load_into(model)
    return [weight.numpy() for weight in model.weights]


def other(options, tmp_path, name="other", **changes):
    return dataclasses.replace(options, output=str(tmp_path / name), **changes)


@pytest.fixture
def eagerly():
    """Tracing graphs would take longer than running the few steps eagerly."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


# --- Tests -----------------------------------------------------------------------


def test_training_learns_and_writes_metrics(finished):
    options, metrics = finished
    directory = open_checkpoint(options.output)
    epochs = metrics["training"]["epochs"]
    assert len(epochs) == 3
    assert epochs[-1]["loss"] < 0.3 * epochs[0]["loss"]
    best = metrics["training"]["best_epoch"]
    assert metrics["dev"]["recall"] == epochs[best - 1]["dev_recall"] > 0.9
    assert "test" not in metrics  # It has no labels.
    assert len(read_table(directory.path / "predictions_test.tsv")) == 21
    assert directory.read_metrics() == metrics
    assert directory.head == {"kind": "cats", "animals": ["cat"]}
    (log,) = (directory.path / "logs").rglob("events.*")
    tags = [
        value.tag
        for event in tf.compat.v1.train.summary_iterator(str(log))
        for value in event.summary.value
    ]
    assert tags.count("loss") == tags.count("dev_recall") == 3


class BestInSecondEpoch(FindCats):
    """Has its best score after the second of three epochs, for any outputs."""

    def __init__(self, *args):
        super().__init__(*args)
        self.seen = []
        type(self).last = self

    def evaluate(self, split, outputs, decision=None):
        self.seen.append(np.concatenate(outputs))
        score = [0.5, 0.9, 0.7, 0.9, 0.0][len(self.seen) - 1]
        return super().evaluate(split, outputs)._replace(metrics={"recall": score})


@pytest.mark.usefixtures("eagerly")
def test_keeps_the_best_epoch_and_stops_early(
    options, encoder, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("bert_tf.finetuning.train._SECONDS_PER_LINE", 0.0)
    changes = {"early_stopping_patience": 1, "frozen_layers": 1, "dropout": 0.2}
    changes |= {"learning_rate": None}
    run = other(options, tmp_path, examples=32, epochs=9, **changes)
    metrics = fine_tune(BestInSecondEpoch, run)
    shown = capsys.readouterr().out
    assert "learning rate 0.0003;" in shown  # For hidden sizes up to 256.
    lines = re.findall(r"Epoch \d, step (\d+) of (\d+)", shown)
    assert lines == [("1", "2"), ("2", "2")] * 3
    assert metrics["training"]["best_epoch"] == 2
    assert len(metrics["training"]["epochs"]) == 3
    directory = open_checkpoint(run.output)
    assert directory.architecture.dropout == 0.2
    assert changes.items() <= directory.options.items()
    before = encoder.read_weights()
    model = Tagger(BertBackbone(directory.architecture))
    directory.load_into(model)
    changed = {
        weight.path.partition("/")[0]
        for weight in model.weights
        if not np.array_equal(weight, before.get(weight.path))
    }
    assert changed == {"logits"}
    _, second, third, final, _ = BestInSecondEpoch.last.seen  # The last one is test.
    np.testing.assert_allclose(final, second, atol=1e-6)
    assert np.abs(third - second).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("in_evaluation", [False, True])
def test_resume_is_bit_equal_after_sigterm(
    finished, tmp_path, monkeypatch, capsys, in_evaluation
):
    options, metrics = finished
    again = other(options, tmp_path)

    def stop():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.5)  # A thread receives the signal.

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
            fine_tune(FindCats, again)
    assert ended.value.code == 0
    step = 20 if in_evaluation else 14
    assert f"Stopped by SIGTERM. Step {step} is saved in" in capsys.readouterr().out
    again_metrics = fine_tune(FindCats, again)
    assert f"resuming at step {step} of 30" in capsys.readouterr().out
    rows = (m["training"]["epochs"] for m in (metrics, again_metrics))
    for before, after in zip(*rows, strict=True):
        assert after == pytest.approx(before, rel=1e-6)
    for a, b in zip(weights(options), weights(again), strict=True):
        np.testing.assert_array_equal(a, b)


def test_finished_directory_is_only_evaluated(finished, capsys, monkeypatch):
    options, metrics = finished
    monkeypatch.setattr(run_module, "train", None)
    stale = pathlib.Path(options.output, "predictions_test.csv")
    stale.touch()  # Of a test file in another format.
    assert fine_tune(FindCats, options) == metrics
    assert not stale.exists()
    shown = capsys.readouterr().out
    assert "is already trained; skipping training" in shown
    assert "collapsed" not in shown


def test_collapsed_model_is_reported(finished, tmp_path, capsys):
    options, metrics = finished
    copy = shutil.copytree(options.output, tmp_path / "copy")
    training = metrics["training"] | {"majority_baseline": 1.0}
    (copy / "metrics.json").write_text(json.dumps(metrics | {"training": training}))
    fine_tune(FindCats, dataclasses.replace(options, output=str(copy)))
    shown = capsys.readouterr().out
    assert "The model has collapsed: a constant prediction has recall 1.0000" in shown


def test_resuming_with_other_options_or_labels_fails(finished, monkeypatch):
    options, _ = finished
    with pytest.raises(ValueError, match="epochs: 3 before, 4 now"):
        fine_tune(FindCats, dataclasses.replace(options, epochs=4))
    monkeypatch.setattr(FindCats, "head", {"animals": ["dog"]})
    with pytest.raises(ValueError, match=r"animals: \['cat'\] before, \['dog'\] now"):
        fine_tune(FindCats, options)


@pytest.mark.slow
def test_two_replicas_match_one(options, tmp_path):
    # 40 examples in batches of 16: a replica gets only empty rows of the last batch.
    one, two = (
        other(options, tmp_path, strategy, strategy=strategy, epochs=1, examples=40)
        for strategy in ("default", "mirrored")
    )
    (expected,), (found,) = (
        fine_tune(FindCats, run)["training"]["epochs"] for run in (one, two)
    )
    assert found == pytest.approx(expected, rel=1e-5)
    for a, b in zip(weights(one), weights(two), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.slow
@pytest.mark.usefixtures("eagerly")
def test_mixed_bfloat16_keeps_float32_weights(options, tmp_path):
    bfloat16 = other(
        options, tmp_path, precision="mixed_bfloat16", epochs=1, examples=16
    )
    metrics = fine_tune(FindCats, bfloat16)
    assert np.isfinite(metrics["training"]["epochs"][0]["loss"])
    assert {weight.dtype for weight in weights(bfloat16)} == {np.dtype("float32")}


@pytest.mark.usefixtures("eagerly")
def test_diverged_loss_stops_training(options, tmp_path):
    with pytest.raises(ValueError, match=r"The loss is (nan|inf) in epoch 1, step \d+"):
        fine_tune(FindCats, other(options, tmp_path, learning_rate=1e38))


@pytest.mark.parametrize("head_is_for", ["no task", "the same task", "another task"])
def test_initial_weights_are_those_of_the_checkpoint(
    options, encoder, finished, head_is_for, tmp_path, monkeypatch, capsys
):
    source = encoder
    if head_is_for != "no task":
        source = open_checkpoint(finished[0].output)
        if head_is_for == "another task":
            source = dataclasses.replace(source, head={"kind": "find_dogs"})
    monkeypatch.setattr(run_module, "open_checkpoint", lambda _: source)
    started = {}

    def keep(task, model, *_):
        started.update({weight.path: weight.numpy() for weight in model.weights})
        raise InterruptedError

    monkeypatch.setattr(run_module, "train", keep)
    with pytest.raises(InterruptedError):
        fine_tune(FindCats, other(options, tmp_path))
    expected = source.read_weights()
    same = {
        name for name, x in started.items() if np.array_equal(x, expected.get(name))
    }
    head = {"logits/kernel", "logits/bias"}
    assert started.keys() - same == (set() if head_is_for == "the same task" else head)
    random = "none" if head_is_for == "the same task" else "logits"
    assert f"Newly initialized layers: {random}.\n" in capsys.readouterr().out


def test_casing_of_a_vocabulary_is_printed(options, tmp_path, capsys):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join([*SPECIAL_TOKENS, "the", "Cat"]), encoding="utf-8")
    changes = {"init_from": "", "size": "tiny", "vocabulary": str(path)}
    run_module._open_encoder(dataclasses.replace(options, **changes))
    assert "Assumed to be cased" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"init_from": ""}, "Pass either --init_from, or both --size and --vocabulary"),
        ({"max_sequence_length": 64}, "at most 32, as in the encoder. .*=64"),
        ({"strategy": "mirrored", "batch_size": 15}, "use --batch_size=16"),
        ({"frozen_layers": 2}, "frozen_layers must be at most 1"),
        ({"class_weight": "balanced"}, "class_weight requires one"),
    ],
)
def test_invalid_options_write_no_files(options, tmp_path, changes, message):
    wrong = other(options, tmp_path, **changes)
    with pytest.raises(ValueError, match=message):
        fine_tune(FindCats, wrong)
    assert not list(tmp_path.iterdir())


# --- Reports ---------------------------------------------------------------------

TAGS = [["B-PER", "I-PER", "O", "B-LOC"]], [["B-PER", "I-PER", "O", "B-PER"]]
LABELS = [("PER",), ("LOC", "x")], [("PER",), ("PER", "x")]


@pytest.mark.parametrize(
    ("kind", "pair", "row"),
    [
        ("class", (["a", "a", "b", "b"], ["a", "b", "b", "b"]), "a 1. 0.5 0.6667 2"),
        ("other", (["a", "a", "b", "b"], ["a", "b", "b", "b"]), "a 1. 0.5 0.6667 2"),
        ("tags", TAGS, "PER 0.5 1. 0.6667 1"),
        ("labels", LABELS, "PER 0.5 1. 0.6667 1"),
        ("labels", ([("PER",), ()], [("PER",), ("PER",)]), "PER 0.5 1. 0.6667 1"),
        ("labels", ([()], [()]), "(none) 0. 0. 0. 0."),
    ],
)
def test_table(kind, pair, row):
    lines = map(str.split, run_module.prediction_table(kind, *pair).splitlines())
    name, *numbers = row.split()
    (found,) = (numbers for first, *numbers in filter(None, lines) if first == name)
    assert list(map(float, found)) == list(map(float, numbers))
