# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning by two processes."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest

from bert_tf.checkpoints import open_checkpoint
from tests.toy import workers


@pytest.fixture(scope="module")
def command(tmp_path_factory, random_encoder):
    """A training on 45 examples: the last batch of 8 has empty rows."""
    folder = tmp_path_factory.mktemp("workers")
    rng = np.random.default_rng(0)
    for name, count in (("train", 45), ("dev", 21)):
        texts = [" ".join(rng.choice(list("abcdef"), 1 + i % 9)) for i in range(count)]
        rows = (f"{text}\t{'good' if 'a' in text else 'bad'}\n" for text in texts)
        (folder / f"{name}.tsv").write_text("text\tlabel\n" + "".join(rows))
    encoder = random_encoder(folder)
    return [
        "tasks.classification",
        f"--train_file={folder / 'train.tsv'}",
        f"--dev_file={folder / 'dev.tsv'}",
        "--text_a=text",
        "--label=label",
        f"--size={encoder['size']}",
        f"--vocabulary={encoder['vocabulary']}",
        "--max_sequence_length=16",
        "--batch_size=8",
        "--learning_rate=1e-3",
    ]


def _weights(output):
    return open_checkpoint(output).read_weights()


def _assert_bit_equal(first, second):
    for name, weight in _weights(first).items():
        np.testing.assert_array_equal(weight, _weights(second)[name], err_msg=name)


@pytest.mark.slow
def test_two_workers_match_one(command, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    subprocess.run([sys.executable, "-m", *command, f"--output={one}"], check=True)
    first, second = workers.run(*command, f"--output={two}")
    for name, weight in _weights(one).items():
        np.testing.assert_allclose(_weights(two)[name], weight, atol=2e-5, err_msg=name)
    expected, found = (json.loads((x / "metrics.json").read_text()) for x in (one, two))
    epochs = (m["training"]["epochs"] for m in (expected, found))
    for before, after in zip(*epochs, strict=True):
        assert after == pytest.approx(before, rel=1e-4)
    assert found["dev"] == pytest.approx(expected["dev"], rel=1e-4)
    files = [{path.relative_to(x) for path in x.glob("*")} for x in (one, two)]
    assert files[0] == files[1]
    # Only the first worker writes and reports.
    assert len(list((two / "logs").rglob("events.*"))) == 1
    assert "Best epoch" in first
    assert "Best epoch" not in second
    # Again, it is only evaluated.
    first, second = workers.run(*command, f"--output={two}")
    assert "is already trained" in first
    assert json.loads((two / "metrics.json").read_text()) == found


@pytest.mark.slow
def test_resume_is_bit_equal_after_a_worker_is_lost(command, tmp_path):
    command = [*command, "--epochs=30"]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    workers.run(*command, f"--output={whole}")
    states, command = broken / "training_state", [*command, f"--output={broken}"]

    # SIGTERM to one worker stops both; the first one saves.
    (status, output, _), (other_status, *_) = workers.interrupt(
        *command,
        after=states / "ckpt-6.npz",
        act=lambda processes: processes[1].terminate(),
    )
    assert (status, other_status) == (0, 0)
    step = int(re.search(r"Stopped by SIGTERM\. Step (\d+) is saved", output)[1])
    assert (states / f"ckpt-{step}.npz").exists()

    # If a worker dies, the other one exits with a message.
    _, (status, output, error) = workers.interrupt(
        *command,
        after=states / f"ckpt-{step // 6 * 6 + 6}.npz",
        act=lambda processes: processes[0].kill(),
    )
    assert f"resuming at step {step} of 180" in output
    assert status == 1
    assert "error: Lost the connection to another worker." in error
    assert "Traceback" not in error, error

    workers.run(*command)
    _assert_bit_equal(whole, broken)
