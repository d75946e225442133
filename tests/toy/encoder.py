# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Random inputs of encoders, and a check of packed rows."""

import numpy as np

from bert_tf.modeling import BertConfig, BertPretrainer

BATCH, LENGTH, PREDICTIONS = 3, 12, 4


def make_inputs(config: BertConfig, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    lengths = np.array([LENGTH, 7, 3])
    padding_mask = np.arange(LENGTH) < lengths[:, None]
    token_ids = rng.integers(5, config.vocabulary_size, (BATCH, LENGTH)) * padding_mask
    segment_ids = (np.arange(LENGTH) >= 2) & padding_mask
    inputs = {
        "token_ids": token_ids,
        "segment_ids": segment_ids,
        "padding_mask": padding_mask,
        "mask_positions": rng.integers(0, 3, (BATCH, PREDICTIONS)),
        "first_positions": np.zeros((BATCH, 1)),
    }
    return {name: value.astype("int32") for name, value in inputs.items()}


def make_encoder_inputs(config: BertConfig) -> dict[str, np.ndarray]:
    inputs = make_inputs(config)
    return {k: inputs[k] for k in ("token_ids", "segment_ids", "padding_mask")}


def check_packed_rows(pretrainer: BertPretrainer, config: BertConfig) -> None:
    """Compares the logits of packed rows with those of one pair per row."""
    inputs = make_inputs(config, seed=3)
    lengths = inputs["padding_mask"].sum(1)  # 12, 7, 3
    rows = {"padding_mask": np.array([[1] * 12 + [0] * 3, [1] * 10 + [0] * 5], "int32")}
    for name in ("token_ids", "segment_ids"):
        first, second, third = (v[:n] for v, n in zip(inputs[name], lengths))
        rows[name] = np.zeros((2, 15), "int32")
        rows[name][0, :12] = first
        rows[name][1, :10] = np.concatenate([second, third])
    rows["first_positions"] = np.array([[0, 0], [0, 7]], "int32")
    positions = inputs["mask_positions"]
    rows["mask_positions"] = np.zeros((2, 2 * PREDICTIONS), "int32")
    rows["mask_positions"][0, :PREDICTIONS] = positions[0]
    rows["mask_positions"][1] = np.concatenate([positions[1], positions[2] + 7])
    alone, together = pretrainer(inputs), pretrainer(rows)
    assert together["nsp"].shape == (2, 2, 2)
    for head, size in (("mlm", PREDICTIONS), ("nsp", 1)):
        expected = np.reshape(alone[head], (BATCH, size, -1))
        found = np.array(together[head])
        found = [found[0, :size], found[1, :size], found[1, size:]]
        np.testing.assert_allclose(found, expected, atol=2e-6)
