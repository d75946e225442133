# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest
import tensorflow as tf
from seqeval.metrics.sequence_labeling import get_entities

from bert_tf.finetuning.conll import to_iob2
from bert_tf.finetuning.entities import find_entities


@pytest.mark.parametrize("words", [0, 1, 200])
def test_entities_match_seqeval(words):
    labels = ["O", "B-A", "I-A", "B-B", "I-B"]
    rng = np.random.default_rng(words)
    tags = rng.choice(5, words, p=[0.3, 0.1, 0.3, 0.1, 0.2])
    rows = np.sort(rng.integers(0, 40, words))  # Some texts are empty.
    tag, first, last = find_entities(
        tf.constant(tags, tf.int32), tf.constant(rows, tf.int32)
    )
    expected, iob2 = [], []
    for row in range(40):
        row_tags = [labels[tag] for tag in tags[rows == row]]
        offset = int((rows < row).sum())
        for entity_type, start, end in get_entities(row_tags):
            expected.append((entity_type, offset + start, offset + end))
        iob2 += to_iob2(row_tags)
    assert [labels[t] for t in tag] == iob2
    types = [labels[t][2:] for t in tf.gather(tag, first)]
    found = list(zip(types, first.numpy(), last.numpy(), strict=True))
    assert found == expected
