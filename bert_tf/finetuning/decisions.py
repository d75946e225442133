# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Settings of a model that are fitted apart from its training.

Letters: N texts, C classes, L labels.
"""

from __future__ import annotations

import numpy as np
import scipy.optimize
import scipy.sparse
import scipy.special
import sklearn.metrics
import sklearn.svm
import tensorflow as tf

from bert_tf.text import Vocabulary, join_features

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


def fit_join_weights(
    ids: tf.RaggedTensor, words: np.ndarray, vocabulary: Vocabulary
) -> str:
    """Fits which words of BERT's basic tokenizer a corpus joins, as in U.S.

    Args:
        ids: Pieces of N texts that are split into words, ragged [N, (pieces)] int32.
        words: Index of the word of each piece [pieces].
        vocabulary: Vocabulary of the pieces.

    Returns:
        The `join_weights` of `find_words`; "" if no words are joined.
    """
    is_basic_word = ~vocabulary.is_continuation[ids.values]
    is_joined = np.diff(words, prepend=-1)[is_basic_word] == 0
    if not is_joined.any():
        return ""
    features, size = join_features(ids, vocabulary)
    columns = features.numpy()[is_basic_word]
    rows, per_row = columns.shape
    matrix = scipy.sparse.csr_matrix(
        (np.ones(columns.size), columns.ravel(), np.arange(rows + 1) * per_row),
        shape=(rows, size),
    )
    # The L1 penalty makes most weights zero.
    model = sklearn.svm.LinearSVC(
        penalty="l1",
        C=0.2,
        tol=0.01,
        dual=False,
        fit_intercept=False,
        random_state=0,
    )
    weights = model.fit(matrix, is_joined).coef_[0].round(2)
    return " ".join(f"{index}:{weights[index]}" for index in weights.nonzero()[0])
