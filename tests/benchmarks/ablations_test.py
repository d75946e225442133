# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest

from benchmarks import ablations
from bert_tf.modeling import BertPretrainer
from tests.toy.encoder import (
    BATCH,
    LENGTH,
    PREDICTIONS,
    check_packed_rows,
    make_encoder_inputs,
    make_inputs,
)


@pytest.fixture(scope="module")
def backbone(tiny_config):
    return ablations.LeftToRightBackbone(tiny_config)


def test_left_to_right_does_not_see_later_tokens(backbone, tiny_config):
    inputs = make_encoder_inputs(tiny_config)
    before = backbone(inputs)["sequence_output"].numpy()
    position = 4
    changed = {**inputs, "token_ids": inputs["token_ids"].copy()}
    changed["token_ids"][0, position] = 5 + (inputs["token_ids"][0, position] - 4) % 30
    after = backbone(changed)["sequence_output"].numpy()
    np.testing.assert_array_equal(after[0, :position], before[0, :position])
    difference = np.abs(after[0, position:] - before[0, position:])
    assert (difference.max(axis=-1) > 1e-4).all()
    # The beginning alone has the same states.
    beginning = {name: value[:, :position] for name, value in inputs.items()}
    alone = backbone(beginning)["sequence_output"]
    np.testing.assert_allclose(alone[:2], before[:2, :position], atol=1e-6)


def test_left_to_right_pools_the_last_token(backbone, tiny_config):
    inputs = make_encoder_inputs(tiny_config)
    outputs = backbone(inputs)
    last = inputs["padding_mask"].sum(1) - 1  # 11, 6, 2
    hidden = outputs["sequence_output"].numpy()[np.arange(BATCH), last]
    kernel, bias = (weight.numpy() for weight in backbone.pooler.weights)
    expected = np.tanh(hidden @ kernel + bias)
    np.testing.assert_allclose(outputs["pooled_output"], expected, atol=1e-6)


def test_left_to_right_keeps_packed_sequences_apart(backbone, tiny_config):
    check_packed_rows(BertPretrainer(backbone), tiny_config)


def test_bilstm_sees_both_sides_but_no_padding(tiny_config, backbone):
    with_lstm = ablations.LeftToRightBiLstmBackbone(tiny_config)
    encoder = {weight.path for weight in backbone.weights}
    added = [w.path for w in with_lstm.weights if w.path not in encoder]
    assert len(added) == 6
    assert all(path.startswith("bilstm/") for path in added)
    inputs = make_encoder_inputs(tiny_config)
    outputs = with_lstm(inputs)
    assert outputs["sequence_output"].shape == (BATCH, LENGTH, tiny_config.hidden_dim)
    changed = {**inputs, "token_ids": inputs["token_ids"].copy()}
    changed["token_ids"][0, -1] = 5 + (inputs["token_ids"][0, -1] - 4) % 30
    changed["token_ids"][1, -1] = 9  # Padding.
    after = with_lstm(changed)
    assert np.abs(after["sequence_output"] - outputs["sequence_output"])[0, 0].max() > 0
    np.testing.assert_array_equal(
        after["pooled_output"][1], outputs["pooled_output"][1]
    )


def test_next_token_is_predicted_at_the_position_before(tiny_config):
    inputs = make_inputs(tiny_config)
    inputs["mask_positions"][0] = [1, 2, 5, 0]  # The last one is an empty slot.
    labels, weights = {"mlm": np.ones((BATCH, PREDICTIONS))}, {}
    x, y, sample_weight = ablations.predict_next_token(inputs, labels, weights)
    np.testing.assert_array_equal(x["mask_positions"][0], [0, 1, 4, 0])
    assert (y, sample_weight) == (labels, weights)
    assert {k: v for k, v in x.items() if k != "mask_positions"} == {
        k: v for k, v in inputs.items() if k != "mask_positions"
    }
