# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import pathlib
import types

import keras
import numpy as np
import pytest

from bert_tf.training import monitor as monitoring


def test_history_replaces_rows_behind_the_last_checkpoint(tmp_path):
    for step in (10, 20, 30, 20):
        row = {"step": step, "loss": 1 / step}
        monitoring._append_history(tmp_path / "history.csv", row)
    rows = monitoring.read_history(tmp_path)
    assert [row["step"] for row in rows] == [10, 20]
    assert rows[1]["loss"] == 1 / 20


def test_no_history_is_empty(tmp_path):
    assert monitoring.read_history(tmp_path) == []


def monitor(directory, loss_band):
    """A monitor at the beginning of an epoch, of a model that is not there."""
    optimizer = types.SimpleNamespace(
        gradient_norm=np.float32(1),
        learning_rate=np.float32(1),
        dynamic_loss_scale=False,
    )
    state = types.SimpleNamespace(
        step=0, directory=types.SimpleNamespace(path=directory)
    )
    watching = monitoring.TrainingMonitor(
        state,
        steps=1000,
        total_steps=1000,
        batch_tokens=1,
        batch_flops=1,
        peak=1,
        loss_band=loss_band,
        chief=False,
    )
    model = types.SimpleNamespace(
        optimizer=optimizer, trainable_weights=[], stop_training=False
    )
    watching.set_model(model)
    watching.on_train_begin()
    watching.on_epoch_begin(0)
    return watching


def watch(watching, losses):
    """Shows the losses of single steps to a monitor, as Keras does: as their mean."""
    for i in range(len(losses)):
        logs = {"loss": np.mean(losses[: i + 1]), "mlm_accuracy": 0.0}
        watching.on_train_batch_end(i, logs)


def test_loss_that_leaves_its_band_halts_the_training(tmp_path):
    falling, high = np.linspace(9, 3, 300), np.full(100, 6.0)
    with pytest.raises(monitoring.TrainingFailed, match=r"was 3\.99") as failure:
        watch(monitor(tmp_path, 1.0), np.concatenate([falling, high]))
    # Lowest is the mean of the last 100 falling ones; 3 above it would take all.
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
def test_single_bad_steps_and_no_band_do_not_halt(tmp_path, losses, loss_band):
    watch(monitor(tmp_path, loss_band), losses)


def test_speed_is_that_of_training_without_the_evaluation(tmp_path, monkeypatch):
    clock = types.SimpleNamespace(now=0.0)
    monkeypatch.setattr(monitoring.time, "perf_counter", lambda: clock.now)
    watching = monitor(tmp_path, 1.0)
    for step in range(1, 5):
        clock.now += 0.5
        watching.on_train_batch_end(step, {"loss": 3.0, "mlm_accuracy": 0.0})
    clock.now += 100  # The evaluation, which Keras counts to the epoch.
    logs = {}
    watching.on_epoch_end(0, logs)
    assert logs["tokens_per_second"] == 2  # A token in a step, a step in 0.5 s.
    assert logs["share_of_peak"] == 2


def test_draws_this_run_and_others(tmp_path):
    for name, scale in (("mine", 1.0), ("other", 2.0)):
        (tmp_path / name).mkdir()
        for step in (10, 20, 30):
            row = {"step": step, "tokens": 1e6 * step, "loss": scale * 20 / step}
            row |= {"val_loss": row["loss"] + 0.1}
            row |= {"val_mlm_accuracy": 0.01 * step, "val_nsp_accuracy": 0.5}
            monitoring._append_history(tmp_path / name / "history.csv", row)
    others = monitoring.read_others(f"{tmp_path / 'other'}")
    assert list(others) == ["other"]
    alone = monitoring.plot_history(tmp_path / "mine", 0.05).read_bytes()
    together = monitoring.plot_history(tmp_path / "mine", 0.05, others).read_bytes()
    assert alone != together


def test_curves_of_the_documentation_can_be_compared_with():
    curves = pathlib.Path(__file__).parents[2] / "docs/curves"
    files = sorted(map(str, curves.glob("*.csv")))
    others = monitoring.read_others(",".join(files))
    assert len(others) == len(files) > 0
    for rows in others.values():
        assert rows[-1]["val_loss"] < rows[0]["val_loss"]


@pytest.mark.parametrize("path", ["nowhere", "docs"])
def test_what_is_no_history_is_refused(path):
    with pytest.raises(ValueError, match=f"--compare: {path} is neither a history"):
        monitoring.read_others(path)


def test_finds_weights_that_are_not_finite():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
    assert monitoring.weights_are_finite(model)
    model.layers[0].bias.assign(np.array([0.0, np.inf]))
    assert not monitoring.weights_are_finite(model)
