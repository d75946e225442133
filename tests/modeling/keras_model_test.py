# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import dataclasses
import sys

import keras
import numpy as np
import pytest

from bert_tf.modeling import (
    BertBackbone,
    BertPretrainer,
    SequenceClassifier,
    cross_entropies,
)
from bert_tf.training import AdamW, WarmupDecay


@pytest.fixture(scope="module")
def classifier(tiny_config):
    return SequenceClassifier(BertBackbone(tiny_config), num_classes=3)


def test_losses_are_weighted_sums():
    """Weights that sum to one over the global batch make the mean."""
    logits = np.array([[2.0, 0.0], [0.0, 1.0], [3.0, 3.0]], "float32")
    labels, weights = np.array([0, 0, 1]), np.array([0.5, 0.25, 0.25])
    expected = weights @ [np.log1p(np.exp(-2)), np.log1p(np.exp(1)), np.log(2)]

    compiled = cross_entropies({"one": logits, "other": logits})

    assert compiled["loss"].keys() == {"one", "other"}
    loss = compiled["loss"]["one"](labels, logits, sample_weight=weights)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    accuracy = compiled["weighted_metrics"]["other"][0]
    accuracy.update_state(labels, logits, sample_weight=weights)
    # Equal logits count as the first class.
    np.testing.assert_allclose(accuracy.result(), 0.5, rtol=1e-5)


def test_compile_disables_xla_on_cpu(classifier):
    classifier.compile("sgd")
    assert not classifier.jit_compile
    classifier.compile("sgd", jit_compile=True)
    assert classifier.jit_compile


def test_training_continues_from_a_keras_file(tiny_config, tmp_path):
    keras.utils.set_random_seed(1)
    tiny_config = dataclasses.replace(tiny_config, dropout=0.0, attention_dropout=0.0)
    model = BertPretrainer(BertBackbone(tiny_config))
    ids = np.array([[2, 7, 8, 3]])
    inputs = {"token_ids": ids, "segment_ids": 0 * ids, "padding_mask": 0 * ids + 1}
    inputs["mask_positions"] = ids[:, :2] * 0 + 1
    inputs["first_positions"] = ids[:, :1] * 0
    labels = {"mlm": np.array([[7, 8]]), "nsp": np.array([[1]])}
    model.compile(AdamW(WarmupDecay(1e-2, warmup_steps=0, total_steps=9)))
    model.fit(inputs, labels, epochs=2, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")

    model.fit(inputs, labels, verbose=0)
    again.fit(inputs, labels, verbose=0)

    assert again.optimizer.iterations == 3
    for a, b in zip(model.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Exceptions take no notes.")
def test_errors_of_fit_show_keys_and_shapes(tiny_config):
    model = BertPretrainer(BertBackbone(tiny_config))
    model.compile("sgd")
    inputs = dict.fromkeys(model.input, np.ones((3, 12), "int32"))
    inputs["mask_positions"] = np.ones((3, 4), "int32")
    inputs["first_positions"] = np.zeros((3, 1), "int32")
    with pytest.raises(ValueError, match="different structures") as caught:
        model.fit(inputs, {"mlm": inputs["mask_positions"]}, verbose=0)
    given, taken = caught.value.__notes__
    assert "token_ids: int32 [3, 12], segment_ids: int32 [3, 12]" in given
    assert "mlm: int32 [3, 4]" in given
    assert "mask_positions: int32 [?, ?]" in taken
    assert "mlm: float32 [?, ?, " in taken
