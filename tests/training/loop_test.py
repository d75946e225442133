# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Failures and records of the loop of pre-training, with a fake state."""

import math
import types

import numpy as np
import pytest
import tensorflow as tf
import tqdm

from bert_tf.modeling import BertBackbone, BertPretrainer
from bert_tf.training import AdamW, PretrainConfig, StopSignals, read_history
from bert_tf.training.pretrain_config import Phase
from bert_tf.training.pretraining import PretrainingLoop


@pytest.fixture
def create_loop(tmp_path, tiny_config):
    """Returns a loop at the start of an epoch with a fake state.

    A step has 15 real tokens.
    """
    model = BertPretrainer(BertBackbone(tiny_config))
    model.compile(AdamW())
    model.optimizer.build(model.trainable_variables)

    def create():
        options = PretrainConfig(records="", output="", steps=1000)
        manifest = {"max_sequence_length": 10, "padding_share": 0.25}
        phase = Phase("", manifest, None, 0, 0, 1000, 2, 0.15)
        state = types.SimpleNamespace(
            model=model,
            step=0,
            directory=types.SimpleNamespace(path=tmp_path),
            save=lambda weights: None,
            write=True,
            progress={"history": [], "tokens": 0, "gradient_norms": []},
        )
        strategy = tf.distribute.get_strategy()
        bar = tqdm.tqdm(disable=True)
        return PretrainingLoop(options, phase, strategy, state, StopSignals(), bar)

    return create


def report(loop, losses):
    """Reports the losses of single steps."""
    for loss in losses:
        loop.step += 1
        logs = {"loss": loss, "mlm_accuracy": 0.0, "gradient_norm": np.ones(1)}
        loop.after_steps(logs, 1)


def test_failure_names_the_step_among_several_and_the_checkpoint(create_loop):
    loop = create_loop()
    loop.step = 20
    norms = np.array([1, np.nan, np.nan, np.nan])
    logs = {"loss": math.nan, "mlm_accuracy": 0.0, "gradient_norm": norms}
    message = r"The loss of step 18 is not finite \(nan\)\. No checkpoint was saved yet"
    with pytest.raises(ValueError, match=message):
        loop.after_steps(logs, 4)


def test_throughput_is_that_of_the_steps(create_loop, tmp_path):
    loop = create_loop()
    report(loop, [3.0] * 4)
    loop.epoch_steps, loop.seconds = 4, 2.0
    scores = {f"val_{name}": 0.5 for name in ("loss", "mlm_accuracy", "nsp_accuracy")}
    loop.end_epoch({"loss": 3.0} | scores)
    (row,) = read_history(tmp_path)
    assert (row["step"], row["tokens"]) == (4, 60)
    assert row["tokens_per_second"] == 30  # 15 tokens per step of 0.5 s.


def test_weights_that_are_not_finite_are_not_saved(create_loop):
    loop = create_loop()
    report(loop, [3.0])
    loop.save()
    weight = loop.model.trainable_weights[0]
    weight.assign(np.full(weight.shape, np.inf))
    message = "weights after step 1 are not finite. The checkpoint of step 1 is kept"
    with pytest.raises(ValueError, match=message):
        loop.save()
