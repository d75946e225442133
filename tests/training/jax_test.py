# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Models and pre-training on the JAX backend of Keras, in processes of its own."""

import functools
import importlib.util
import json
import pathlib
import signal
import subprocess
import sys

import numpy as np
import pytest

from bert_tf.checkpoints import open_checkpoint
from bert_tf.modeling import BertBackbone, BertPretrainer
from bert_tf.training import PretrainConfig, pretrain
from bert_tf.training.pretraining import read_history
from tests.toy import workers
from tests.toy.checkpoints import assert_equal
from tests.toy.models import model_directory
from tests.toy.records import write_both_splits

pytestmark = pytest.mark.skipif(
    not importlib.util.find_spec("jax"), reason="JAX is not installed."
)

# Trains with each of the options. After step `stop_after`, a process gets SIGTERM, the
# second one of two; after `kill_after`, SIGKILL. With a `message`, it must fail.
PRETRAIN = """
import contextlib, json, os, signal, sys
from bert_tf.training import PretrainConfig, TrainingLoop, pretrain

check_signals = TrainingLoop.check_signals
for options in json.loads(sys.argv[1]):
    message = options.pop("message", None)
    signals = {
        options.pop("stop_after", None): signal.SIGTERM,
        options.pop("kill_after", None): signal.SIGKILL,
    }

    def stop(self):
        if self.step in signals and self.devices.has_peers != self.devices.is_chief:
            os.kill(os.getpid(), signals[self.step])
        check_signals(self)

    TrainingLoop.check_signals = stop
    with contextlib.suppress(SystemExit):
        try:
            pretrain(PretrainConfig(**options))
        except ValueError as error:
            if not message or message not in str(error):
                raise
"""


def arguments(options: dict, folder: pathlib.Path, runs: list[tuple[str, dict]]):
    """Returns the arguments of Python that train in `folder`, by name and flags."""
    runs = [options | flags | {"output": str(folder / name)} for name, flags in runs]
    return "-c", PRETRAIN, json.dumps(runs)


def pretrain_on_jax(*options, devices: int) -> None:
    command = sys.executable, *arguments(*options)
    subprocess.run(command, env=workers.on_jax(devices), check=True)


@pytest.fixture(scope="module")
def options(tmp_path_factory, vocabulary, one_layer):
    """Options of ten steps with packed rows, from the same weights, without dropout."""
    folder = tmp_path_factory.mktemp("jax")
    packed = {"length": 32, "pairs_per_row": 2}
    write_both_splits(folder / "records", vocabulary, count=256, **packed)
    initial = model_directory(folder / "initial", one_layer, vocabulary)
    initial.save_weights(BertPretrainer(BertBackbone(one_layer)))
    options = {"records": str(folder / "records"), "init_from": str(initial.path)}
    options |= {"batch_size": 16, "steps": 10, "warmup_steps": 2}
    return options | {"learning_rate": 1e-3, "validate_every": 5}


# The flags of each run on eight devices, and the tolerance of its weights.
RUNS = {
    "adamw": ({}, 2e-5),
    "muon": ({"optimizer": "muon"}, 2e-5),
    # Adam's step has the size of the learning rate also for gradients that are rounding
    # errors, of either sign.
    "bfloat16": ({"precision": "mixed_bfloat16"}, 4e-3),
    "memory": ({"micro_batch_size": 1, "recompute": True}, 2e-5),
}
FLOAT16 = {"dropout": 0.1, "precision": "mixed_float16"}


@pytest.fixture(scope="module")
def on_jax(options, tmp_path_factory):
    """The folder of all model directories trained on JAX."""
    folder = tmp_path_factory.mktemp("models")
    mirrored = {"strategy": "mirrored"}
    runs = [(name, flags | mirrored) for name, (flags, _) in RUNS.items()]
    dropout = {"dropout": 0.1, **mirrored}
    runs += [("dropout", dropout)]
    runs += [("stopped", {"stop_after": 7, **dropout}), ("stopped", dropout)]
    # TensorFlow resumes from the state that JAX wrote.
    runs += [("unfinished", {"stop_after": 7})]
    # Two processes with a device each compute the same.
    runs += [("float16", FLOAT16)]
    pretrain_on_jax(options, folder, runs, devices=8)
    return folder


@pytest.fixture(scope="module")
def on_two_processes(options, tmp_path_factory):
    """The folder of models that two processes trained, and what the first printed."""
    folder = tmp_path_factory.mktemp("processes")
    runs = [
        ("float16", FLOAT16),
        ("memory", RUNS["memory"][0] | {"stop_after": 7}),
        ("adamw", {"kill_after": 7}),
    ]
    output, _ = workers.run(
        *arguments(options | {"strategy": "multi_worker"}, folder, runs),
        environment=workers.on_jax(devices=1),
        statuses=(1, -signal.SIGKILL),
    )
    return folder, output


@pytest.fixture(scope="module")
def on_tensorflow(options, tmp_path_factory):
    """Returns a function that trains with flags on TensorFlow, once for each."""
    folder = tmp_path_factory.mktemp("tensorflow")

    @functools.cache
    def train(**flags: str) -> pathlib.Path:
        path = folder / ("".join(flags.values()) or "adamw")
        pretrain(PretrainConfig(**options | flags | {"output": str(path)}))
        return path

    return train


def assert_same_training(
    one: pathlib.Path, other: pathlib.Path, atol: float, rtol: float = 2e-3
) -> None:
    # The first gradients show factors that Adam and clipping hide.
    for a, b in zip(read_history(one), read_history(other), strict=True):
        for name in ("loss", "val_loss", "gradient_norm_max", "learning_rate"):
            assert a[name] == pytest.approx(b[name], rel=rtol), name
    assert_equal(weights(one), weights(other), atol=atol)


def weights(path: pathlib.Path) -> list[np.ndarray]:
    return open_checkpoint(path).load_model(BertPretrainer).get_weights()


@pytest.mark.parametrize("name", RUNS)
def test_ten_steps_equal_tensorflow(on_jax, on_tensorflow, name):
    flags, atol = RUNS[name]
    # On TensorFlow, one replica and the whole batch.
    chosen = {k: v for k, v in flags.items() if k in ("optimizer", "precision")}
    # Without AVX-512, TensorFlow's products of bfloat16 are rounded more often.
    rtol = 2**-8 if name == "bfloat16" else 2e-3
    assert_same_training(on_jax / name, on_tensorflow(**chosen), atol, rtol)


def test_two_processes_draw_the_masks_of_one_with_loss_scaling(
    on_jax, on_two_processes
):
    found = on_two_processes[0] / "float16"
    assert_same_training(found, on_jax / "float16", atol=3e-3, rtol=2e-3)


@pytest.mark.parametrize(("name", "step"), [("memory", 7), ("adamw", 5)])
def test_one_process_resumes_what_two_began(
    options, on_two_processes, on_tensorflow, name, step
):
    """After SIGTERM to the second process, and after SIGKILL."""
    folder, output = on_two_processes
    states = (folder / name).glob("training_state/*")
    assert max(path.name for path in states) == f"ckpt-{step}.npz"
    assert "Step 7 is saved in" in output
    assert "Lost the connection to another worker" in output
    flags, atol = RUNS[name]
    chosen = {k: v for k, v in flags.items() if k == "optimizer"}
    pretrain(PretrainConfig(**options | chosen | {"output": str(folder / name)}))
    assert_same_training(folder / name, on_tensorflow(**chosen), atol)


def test_resume_is_bit_equal_after_sigterm(on_jax):
    assert (on_jax / "stopped/training_state/ckpt-10.npz").exists()
    assert_equal(weights(on_jax / "dropout"), weights(on_jax / "stopped"))
    histories = read_history(on_jax / "dropout"), read_history(on_jax / "stopped")
    for a, b in zip(*histories, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-6)


def test_tensorflow_resumes_from_a_state_of_jax(options, on_jax, on_tensorflow):
    unfinished = on_jax / "unfinished"
    assert read_history(unfinished)[-1]["step"] == 5
    assert (unfinished / "training_state/ckpt-7.npz").exists()
    pretrain(PretrainConfig(**options | {"output": str(unfinished)}))
    assert_same_training(unfinished, on_tensorflow(), atol=2e-5)


def test_missing_devices_are_named(options, tmp_path):
    messages = {
        "multi_worker": "cannot join the other processes. Start the same command",
        "tpu": "--strategy=tpu does not find its devices",
        "mirrored": "does not find its devices. Use --strategy=default",
    }
    runs = [("model", {"strategy": k, "message": v}) for k, v in messages.items()]
    pretrain_on_jax(options, tmp_path, runs, devices=1)
    assert not (tmp_path / "model").exists()
