# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Settings of a classifier that are fitted on the dev set after its training.

Letters: N texts, C classes, L labels.
"""

from __future__ import annotations

import numpy as np
import scipy.optimize
import scipy.special
import sklearn.metrics

_ECE_BINS = 15  # As in arXiv 1706.04599.


def best_thresholds(gold: np.ndarray, probabilities: np.ndarray) -> list[float]:
    """Returns the threshold of each label with the highest F1.

    A label is predicted if its probability is above its threshold. Labels without a
    positive text have the threshold 0.5.

    Args:
        gold: 0 or 1 for each label [N, L].
        probabilities: [N, L].
    """
    thresholds = []
    for is_right, scores in zip(gold.T, probabilities.T):
        if not is_right.any():
            thresholds.append(0.5)
            continue
        precision, recall, values = sklearn.metrics.precision_recall_curve(
            is_right, scores
        )
        f1 = precision * recall / np.maximum(precision + recall, 1e-12)
        best = f1[:-1].argmax()
        # Halfway to the next lower probability, to be robust to rounding.
        lower = scores[scores < values[best]].max(initial=0.0)
        thresholds.append(float(values[best] + lower) / 2)
    return thresholds


def best_temperature(gold: np.ndarray, logits: np.ndarray) -> float:
    """Returns the divisor of the logits with the lowest cross-entropy.

    Args:
        gold: Class indices [N].
        logits: [N, C].
    """

    def loss(log_temperature: float) -> float:
        scores = scipy.special.log_softmax(logits / np.exp(log_temperature), axis=1)
        return -scores[np.arange(len(gold)), gold].mean()

    bounds = np.log([0.05, 20])
    return float(np.exp(scipy.optimize.minimize_scalar(loss, bounds=bounds).x))


def calibration_error(gold: np.ndarray, probabilities: np.ndarray) -> float:
    """Returns the expected calibration error (arXiv 1706.04599, section 2).

    Args:
        gold: Class indices [N].
        probabilities: [N, C].
    """
    confidence = probabilities.max(axis=1)
    is_right = probabilities.argmax(axis=1) == gold
    # Bins are open on the left: (0, 1/15], (1/15, 2/15], ...
    bins = np.ceil(confidence * _ECE_BINS).astype(int)
    return float(np.abs(np.bincount(bins, is_right - confidence)).sum() / len(gold))
