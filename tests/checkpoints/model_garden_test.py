# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints import open_checkpoint
from tests.toy import checkpoints as toy


@pytest.mark.parametrize("prefix", ["", "bert_encoder_v2/"])
def test_outputs_equal_model_garden(tmp_path, vocabulary, prefix):
    """Golden values: BertEncoder and BertEncoderV2 of tf-models-official 2.20."""
    toy.write_model_garden(tmp_path, vocabulary, prefix)
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.head == {"kind": "encoder"}
    assert checkpoint.unused == []
    encoded = checkpoint.load_backbone()(toy.INPUTS)
    np.testing.assert_allclose(
        encoded["sequence_output"][:, :3, 0],
        [[-0.0036794, 0.3412699, 0.0644748], [-0.0820334, 0.3710336, 0.2323285]],
        atol=2e-6,
    )
    np.testing.assert_allclose(
        encoded["pooled_output"][:, :4],
        [
            [-0.3090781, 0.1883425, 0.1716313, -0.7593714],
            [-0.0460117, 0.1325621, 0.3010353, -0.8194460],
        ],
        atol=2e-6,
    )


def test_other_model_raises(tmp_path, vocabulary):
    toy.write_model_garden(tmp_path, vocabulary)
    variable = tf.Variable([1.0], name="kernel")
    for file in tmp_path.glob("bert_model.ckpt*"):
        file.unlink()
    tf.train.Checkpoint(v=variable).write(str(tmp_path / "bert_model.ckpt"))
    with pytest.raises(ValueError, match="Received: 0 of 1 variables"):
        open_checkpoint(tmp_path)
