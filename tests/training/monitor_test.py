# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import pathlib
import types

import keras
import numpy as np
import pytest

from bert_tf.modeling import BertBackbone, BertPretrainer
from bert_tf.training import AdamW, PretrainConfig, monitor
from bert_tf.training.pretrain_config import Phase


def test_resumed_run_replaces_rows_after_its_checkpoint(tmp_path):
    for step in (10, 20, 30, 20):
        row = {"step": step, "loss": 1 / step}
        monitor._append_history(tmp_path / "history.csv", row)
    rows = monitor.read_history(tmp_path)
    assert [row["step"] for row in rows] == [10, 20]
    assert rows[1]["loss"] == 1 / 20


def test_missing_history_is_empty(tmp_path):
    assert monitor.read_history(tmp_path) == []


@pytest.fixture
def monitor_of(tmp_path, tiny_config, monkeypatch):
    """Returns a monitor at the start of an epoch, with a fake model and state.

    A step has 15 real tokens and 1 FLOP, and the peak is 1 FLOP/s.
    """
    monkeypatch.setattr(monitor.estimates, "step_flops", lambda *_, **__: 1)
    monkeypatch.setattr(monitor.estimates, "measure_peak", lambda *_: 1)
    model = BertPretrainer(BertBackbone(tiny_config))
    model.compile(AdamW())
    model.optimizer.build(model.trainable_variables)
    model.optimizer.gradient_norm.assign(1)

    def create(loss_band):
        options = PretrainConfig(records="", output="", loss_band=loss_band)
        manifest = {"max_sequence_length": 10, "padding_share": 0.25}
        phase = Phase("", manifest, None, first_step=0, steps=1000, batch_size=2)
        directory = types.SimpleNamespace(path=tmp_path)
        state = types.SimpleNamespace(step=0, directory=directory, save=lambda: None)
        callback = monitor.TrainingMonitor(options, phase, state, 1000, chief=True)
        callback.set_model(model)
        callback.on_train_begin()
        callback.on_epoch_begin(0)
        return callback

    return create


def report(callback, losses):
    """Reports the losses of single steps as Keras does: as their running mean."""
    for i in range(len(losses)):
        logs = {"loss": np.mean(losses[: i + 1]), "mlm_accuracy": 0.0}
        callback.on_train_batch_end(i, logs)


def test_loss_above_its_band_stops_training(monitor_of):
    falling, high = np.linspace(9, 3, 300), np.full(100, 6.0)
    with pytest.raises(monitor.TrainingFailed, match=r"minimum of 3\.99") as failure:
        report(monitor_of(1.0), np.concatenate([falling, high]))
    # The minimum is the mean of the last 100 falling losses.
    means = [
        np.mean(np.concatenate([falling[200 + k :], high[:k]])) for k in range(101)
    ]
    assert failure.value.step == 300 + np.argmax(np.array(means) > means[0] + 1)


@pytest.mark.parametrize(
    ("losses", "loss_band"),
    [
        (np.concatenate([np.linspace(9, 3, 200), [50.0], np.full(99, 3.0)]), 1.0),
        (np.linspace(3, 9, 300), 0.0),
    ],
)
def test_single_spike_or_disabled_band_does_not_stop(monitor_of, losses, loss_band):
    report(monitor_of(loss_band), losses)


def test_throughput_excludes_the_evaluation(monitor_of, tmp_path, monkeypatch):
    clock = types.SimpleNamespace(now=0.0)
    monkeypatch.setattr(monitor.time, "perf_counter", lambda: clock.now)
    callback = monitor_of(1.0)
    for step in range(1, 5):
        clock.now += 0.5
        callback.on_train_batch_end(step, {"loss": 3.0, "mlm_accuracy": 0.0})
    clock.now += 100  # The evaluation, which is part of Keras' epoch.
    logs = dict.fromkeys(("val_mlm_accuracy", "val_nsp_accuracy"), 0.0)
    callback.on_epoch_end(0, logs | {"loss": 3.0, "val_loss": 3.0})
    (row,) = monitor.read_history(tmp_path)
    assert (row["step"], row["tokens"]) == (4, 60)
    assert row["tokens_per_second"] == 30  # 15 tokens per step of 0.5 s.
    assert row["share_of_peak"] == 2


def history(scale):
    return [
        {
            "tokens": 1e6 * step,
            "loss": scale * 20 / step,
            "val_loss": scale * 21 / step,
            "val_mlm_accuracy": 0.01 * step,
            "val_nsp_accuracy": 0.5,
        }
        for step in (10, 20, 30)
    ]


def test_learning_curve_plots_loss_and_accuracies_of_all_runs():
    own, other = history(1.0), history(2.0)
    figure = monitor.learning_curve(own, 0.05, {"other": other})
    lines = {}
    for axes in figure.axes:
        assert axes.get_xlabel() == "million tokens"
        for line in axes.lines:
            lines[axes.get_ylabel(), line.get_label()] = line
    assert len(lines) == 8
    for ylabel, label, rows, column in (
        ("loss (MLM + NSP)", "training", own, "loss"),
        ("loss (MLM + NSP)", "held out", own, "val_loss"),
        ("loss (MLM + NSP)", "other, held out", other, "val_loss"),
        ("accuracy", "MLM, held out", own, "val_mlm_accuracy"),
        ("accuracy", "NSP, held out", own, "val_nsp_accuracy"),
        ("accuracy", "other, MLM", other, "val_mlm_accuracy"),
        ("accuracy", "other, NSP", other, "val_nsp_accuracy"),
    ):
        line = lines[ylabel, label]
        np.testing.assert_array_equal(line.get_xdata(), [10, 20, 30])
        np.testing.assert_array_equal(line.get_ydata(), [row[column] for row in rows])
    unigram = lines["accuracy", "MLM, most frequent token"]
    assert set(unigram.get_ydata()) == {0.05}


def test_reads_the_curves_in_the_docs():
    curves = pathlib.Path(__file__).parents[2] / "docs/curves"
    files = sorted(map(str, curves.glob("*.csv")))
    others = monitor.read_histories(",".join(files))
    assert len(others) == len(files) > 0
    for rows in others.values():
        assert rows[-1]["val_loss"] < rows[0]["val_loss"]


@pytest.mark.parametrize("path", ["nowhere", "docs"])
def test_path_without_history_raises(path):
    with pytest.raises(ValueError, match=f"--compare: {path} must be a history"):
        monitor.read_histories(path)


def test_weights_are_finite():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
    assert monitor.weights_are_finite(model)
    model.layers[0].bias.assign(np.array([0.0, np.inf]))
    assert not monitor.weights_are_finite(model)
