# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import math
import pathlib
import types

import numpy as np
import pytest

from bert_tf.modeling import BertBackbone, BertPretrainer
from bert_tf.training import AdamW, PretrainConfig, monitor, resumable
from bert_tf.training.pretrain_config import Phase


def test_history_round_trip(tmp_path):
    history = [{"loss": 1 / step, "step": step} for step in (10.0, 20.0)]
    monitor.write_history(tmp_path, history)
    assert monitor.read_history(tmp_path) == history


def test_missing_history_is_empty(tmp_path):
    assert monitor.read_history(tmp_path) == []


@pytest.fixture
def monitor_of(tmp_path, tiny_config):
    """Returns a monitor at the start of an epoch, with a fake model and state.

    A step has 15 real tokens.
    """
    model = BertPretrainer(BertBackbone(tiny_config))
    model.compile(AdamW())
    model.optimizer.build(model.trainable_variables)
    model.optimizer.gradient_norm.assign(1)

    def create():
        options = PretrainConfig(records="", output="")
        manifest = {"max_sequence_length": 10, "padding_share": 0.25}
        phase = Phase(
            records="",
            manifest=manifest,
            vocabulary=None,
            first_step=0,
            steps=1000,
            batch_size=2,
            mask_selection_rate=0.15,
        )
        directory = types.SimpleNamespace(path=tmp_path)
        state = types.SimpleNamespace(
            step=0,
            directory=directory,
            save=lambda weights: None,
            write=True,
            progress={"history": [], "tokens": 0, "gradient_norms": []},
        )
        callback = monitor.TrainingMonitor(
            options, phase, state, resumable.StopSignals(), None, 1000
        )
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
        report(monitor_of(), np.concatenate([falling, high]))
    # The minimum is the mean of the last 100 falling losses.
    means = [
        np.mean(np.concatenate([falling[200 + k :], high[:k]])) for k in range(101)
    ]
    assert failure.value.step == 300 + np.argmax(np.array(means) > means[0] + 1)


def test_single_spike_does_not_stop(monitor_of):
    falling, low = np.linspace(9, 3, 200), np.full(99, 3.0)
    report(monitor_of(), np.concatenate([falling, [50.0], low]))


def test_failure_before_the_first_checkpoint_says_so(monitor_of):
    message = r"The loss of step 1 is not finite \(nan\)\. No checkpoint was saved yet"
    with pytest.raises(monitor.TrainingFailed, match=message):
        report(monitor_of(), [math.nan])


def test_throughput_excludes_the_evaluation(monitor_of, tmp_path, monkeypatch):
    clock = types.SimpleNamespace(now=0.0)
    monkeypatch.setattr(monitor.time, "perf_counter", lambda: clock.now)
    callback = monitor_of()
    for step in range(1, 5):
        clock.now += 0.5
        callback.on_train_batch_end(step, {"loss": 3.0, "mlm_accuracy": 0.0})

    def evaluate(*_, **__):
        clock.now += 100
        return {"loss": 3.0, "mlm_accuracy": 0.0, "nsp_accuracy": 0.0}

    monkeypatch.setattr(callback.model, "evaluate", evaluate)
    callback.on_epoch_end(0, {"loss": 3.0})
    (row,) = monitor.read_history(tmp_path)
    assert (row["step"], row["tokens"]) == (4, 60)
    assert row["tokens_per_second"] == 30  # 15 tokens per step of 0.5 s.


def test_reads_the_curves_of_finished_runs():
    curves = pathlib.Path(__file__).parents[2] / "benchmarks/results"
    files = list(curves.glob("*.csv"))
    assert files
    for file in files:
        rows = monitor.read_history(file)
        assert rows[-1]["val_loss"] < rows[0]["val_loss"]


def test_weights_that_are_not_finite_are_not_saved(monitor_of):
    callback = monitor_of()
    report(callback, [3.0])
    callback.save()
    callback.model.trainable_weights[0].assign(
        np.full(callback.model.trainable_weights[0].shape, np.inf)
    )
    with pytest.raises(monitor.TrainingFailed, match="weights after step 1 are not"):
        callback.save()


def test_peak_memory_includes_a_freed_array():
    before = monitor.peak_memory()
    size = np.ones(before // 4, "float32").nbytes  # As large as all memory in use.
    assert monitor.peak_memory() >= before + size / 2
