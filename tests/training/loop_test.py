# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Failures of the training loop, with a fake state."""

import types

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling import BertBackbone, BertPretrainer
from bert_tf.training import AdamW, TrainingLoop


@pytest.fixture
def loop(tmp_path, tiny_config):
    """A loop at step 20 of a training that saved no state yet."""
    model = BertPretrainer(BertBackbone(tiny_config))
    model.compile(AdamW())
    directory = types.SimpleNamespace(path=tmp_path)
    state = types.SimpleNamespace(
        model=model, step=0, directory=directory, write=True, progress={}
    )
    state.save = lambda weights: None
    loop = TrainingLoop(tf.distribute.get_strategy(), state, 1000)
    loop.step = 20
    return loop


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (
            np.nan,
            r"loss of step 22 is not finite \(nan\)\. No checkpoint was",
        ),
        (1.0, "gradients of step 22 are not finite"),
    ],
)
def test_failure_names_the_step_among_several(loop, loss, message):
    epoch = {"logs": {}, "steps": 20, "gradient_norms": []}
    norms = np.array([1, np.nan, np.nan, np.nan])
    with pytest.raises(ValueError, match=message):
        loop._add(epoch, {"loss": loss}, norms)


def test_weights_that_are_not_finite_are_not_saved(loop):
    loop.save()
    weight = loop.model.trainable_weights[0]
    weight.assign(np.full(weight.shape, np.inf))
    message = "weights after step 20 are not finite. The checkpoint of step 20 is kept"
    with pytest.raises(ValueError, match=message):
        loop.save()
