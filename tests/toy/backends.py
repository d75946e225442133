# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Trains models with all optimizers on the current backend of Keras.

    KERAS_BACKEND=jax python -m tests.toy.backends model.keras

Prints the losses.
"""

import json
import sys

import keras
import numpy as np

from bert_tf import heads, modeling, training


def train(file: str) -> dict[str, list[float]]:
    """Returns the losses of three steps by the names of model and optimizer.

    Checks that the models are the same after saving them to `file`.
    """
    rng = np.random.default_rng(0)
    ids = rng.integers(5, 40, (4, 6))
    inputs = {"token_ids": ids, "segment_ids": ids % 2, "padding_mask": ids * 0 + 1}
    inputs["padding_mask"][1:, 4:] = 0
    config = modeling.BertConfig(
        vocabulary_size=40,
        num_layers=1,
        num_heads=2,
        hidden_dim=16,
        intermediate_dim=32,
        dropout=0.0,
        attention_dropout=0.0,
        max_sequence_length=32,
    )
    spans = {"start_logits": ids[:, 0] % 4, "end_logits": ids[:, 1] % 4}
    masked = {"mask_positions": ids[:, :2] % 4, "first_positions": ids[:, :1] * 0}
    targets = {"mlm": ids[:, :2], "nsp": ids[:, :1] % 2}
    embedding = heads.EmbeddingConfig(max_sequence_length=8)
    choices = {name: x.reshape(2, 2, 6) for name, x in inputs.items()}
    cases = (
        (heads.SequenceClassifier, [3], inputs, ids[:, 0] % 3),
        (heads.TokenClassifier, [3], inputs, ids % 3),
        (heads.ChoiceScorer, [], choices, ids[:2, 0] % 2),
        (heads.FeatureTagger, [3, "weighted_sum_all", 4], inputs, ids % 3),
        (heads.SentenceEncoder, [embedding], inputs, ids[:, :1] * np.ones((4, 16))),
        (modeling.BertPretrainer, [], inputs | masked, targets),
        (heads.SpanPredictor, [], inputs, spans),  # The last is for all optimizers.
    )
    losses = {}

    def fit(name, x, y, optimizer):
        for weight, value in zip(model.weights, initial, strict=True):
            weight.assign(value)
        loss = "mse" if name == "SentenceEncoder" else None
        model.compile(optimizer, loss)
        history = model.fit(x, y, batch_size=4, epochs=3, shuffle=False, verbose=0)
        losses[f"{name} {type(optimizer).__name__}"] = history.history["loss"]

    schedule = training.WarmupDecay(0.01, 2, 6)
    for model_class, arguments, x, y in cases:
        model = model_class(modeling.BertBackbone(config), *arguments)
        initial = [rng.normal(0, 0.2, weight.shape) for weight in model.weights]
        fit(model_class.__name__, x, y, training.AdamW(schedule))
        model.save(file)
        predicted = keras.saving.load_model(file).predict(x, verbose=0)
        outputs = keras.tree.flatten(model.predict(x, verbose=0))
        for output, again in zip(outputs, keras.tree.flatten(predicted), strict=True):
            np.testing.assert_array_equal(output, again)
    for optimizer in (training.Lamb(schedule), training.Muon(schedule)):
        fit(model_class.__name__, x, y, optimizer)
    return losses


if __name__ == "__main__":
    print(json.dumps(train(sys.argv[1])))
