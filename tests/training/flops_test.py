# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import pytest

from bert_tf.modeling import BertConfig
from bert_tf.training import flops


def test_base_at_512_tokens_is_what_the_weights_say():
    # Six operations per weight of the layers and token (2001.08361, table 1), and the
    # attention; the head has the token table of V x H and a dense layer.
    base = BertConfig.from_size("base", 30_522)
    per_token = 6 * (85e6 + 12 * 2 * 512 * 768)
    head = 6 * 77 * (768 * 30_522 + 768**2)
    count = flops.training_step(base, rows=2, length=512, predictions=77)
    assert count == pytest.approx(2 * (512 * per_token + head), rel=1e-3)


def test_peak_is_what_repeated_multiplication_reaches(tiny_config):
    measured = flops.peak(BertConfig.from_size("tiny", 100), 512, "float32")
    assert 1e8 < measured < 1e15
