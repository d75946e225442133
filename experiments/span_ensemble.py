# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The head of an ensemble for question answering, see `ensemble.py`."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from bert_tf import heads

# Of an answer, for log-odds: probabilities in float32 may be 0.
_MIN_PROBABILITY = 1e-30


class SpanEnsemble(heads.QuestionAnsweringHead):
    """Merges the n-best lists of several models.

    Attributes:
        size: The number of models.
    """

    size: int

    def candidates(self, passages, logits):
        """As the base class; `logits` gives the outputs of one model after another."""
        of_one_model = super().candidates
        return self.merge([of_one_model(passages, logits) for _ in range(self.size)])

    def merge(self, lists):
        """Returns the `Candidates` with the mean probabilities of those in `lists`."""
        columns = {
            name: tf.concat([each.columns[name] for each in lists], axis=1)
            for name in lists[0].columns
        }
        texts = columns["answer"]  # [N, K]
        is_equal = texts[:, :, tf.newaxis] == texts[:, tf.newaxis]  # [N, K, K]
        mean = columns["score"] / len(lists)
        mean = tf.linalg.matvec(tf.cast(is_equal, tf.float32), mean)
        is_earlier = np.tri(texts.shape[1], k=-1, dtype=bool)
        is_duplicate = tf.reduce_any(is_equal & is_earlier, axis=2)
        columns = {
            name: tf.where(is_duplicate, tf.zeros([], x.dtype), x)
            for name, x in {**columns, "score": mean}.items()
        }
        is_null, score = columns["answer"] == "", columns["score"]
        null, best = (
            tf.math.log(tf.reduce_max(tf.where(x, score, _MIN_PROBABILITY), axis=1))
            for x in (is_null, ~is_null)
        )
        order = tf.math.top_k(score, lists[0].columns["score"].shape[1]).indices
        columns = {k: tf.gather(x, order, batch_dims=1) for k, x in columns.items()}
        return lists[0]._replace(columns=columns, null_odds=null - best)

    def run(self, models, question, context):
        passages = self.passages(question, context)
        lists = [
            super(SpanEnsemble, self).candidates(passages, lambda x, m=m: m(x.inputs()))
            for m in models
        ]
        return self.outputs(self.merge(lists))
