# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Models and optimizers on other Keras backends, each in a process of its own."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parents[2]

# Prints losses of all models and optimizers, and the error of a function that needs
# TensorFlow.
TRAIN = """
import json, pathlib, sys
import bert_tf, keras, numpy as np
from bert_tf import heads, modeling, training

rng = np.random.default_rng(0)
ids = rng.integers(5, 40, (4, 6))
inputs = {"token_ids": ids, "segment_ids": ids % 2, "padding_mask": ids * 0 + 1}
inputs["padding_mask"][1:, 4:] = 0
config = modeling.BertConfig(
    vocabulary_size=40, num_layers=2, num_heads=2, hidden_dim=16, intermediate_dim=32,
    dropout=0.0, attention_dropout=0.0, max_sequence_length=32,
)
spans = {"start_logits": ids[:, 0] % 4, "end_logits": ids[:, 1] % 4}
masked = inputs | {"mask_positions": ids[:, :2] % 4, "first_positions": ids[:, :1] * 0}
targets = {"mlm": ids[:, :2], "nsp": ids[:, :1] % 2}
embedding = heads.EmbeddingConfig(max_sequence_length=8)
choices = {name: x.reshape(2, 2, 6) for name, x in inputs.items()}
cases = (
    (heads.SequenceClassifier, [3], inputs, ids[:, 0] % 3),
    (heads.TokenClassifier, [3], inputs, ids % 3),
    (heads.ChoiceScorer, [], choices, ids[:2, 0] % 2),
    (heads.FeatureTagger, [3, "weighted_sum_all", 4], inputs, ids % 3),
    (heads.SentenceEncoder, [embedding], inputs, ids[:, :1] * np.ones((4, 16))),
    (modeling.BertPretrainer, [], masked, targets),
    (heads.SpanPredictor, [], inputs, spans),  # The last is for all optimizers.
)
losses = {}
def fit(name, x, y, optimizer):
    for weight, value in zip(model.weights, initial, strict=True):
        weight.assign(value)
    loss = "mse" if name == "SentenceEncoder" else None
    model.compile(optimizer, loss)
    history = model.fit(x, y, batch_size=4, epochs=3, shuffle=False, verbose=0)
    losses[f"{name} {optimizer.name}"] = history.history["loss"]

schedule = training.WarmupDecay(0.01, 2, 6)
for model_class, arguments, x, y in cases:
    model = model_class(modeling.BertBackbone(config), *arguments)
    initial = [rng.normal(0, 0.2, weight.shape) for weight in model.weights]
    fit(model_class.__name__, x, y, training.AdamW(schedule))
    model.save(sys.argv[1])
    predicted = keras.saving.load_model(sys.argv[1]).predict(x, verbose=0)
    outputs = keras.tree.flatten(model.predict(x, verbose=0))
    for output, again in zip(outputs, keras.tree.flatten(predicted), strict=True):
        np.testing.assert_array_equal(output, again)
for optimizer in (training.Lamb(schedule), training.Muon(schedule)):
    fit(model_class.__name__, x, y, optimizer)
try:
    bert_tf.load("none")
except ValueError as error:
    print(json.dumps([losses, str(error)]))
"""


def train(backend: str, file: pathlib.Path) -> tuple[dict[str, list], str]:
    environment = {"KERAS_BACKEND": backend, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", TRAIN, str(file)],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    return train("tensorflow", tmp_path_factory.mktemp("backends") / "model.keras")[0]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_models_and_optimizers_train_as_on_tensorflow(request, backend, tmp_path):
    if not importlib.util.find_spec(backend):
        pytest.skip(f"{backend} is not installed.")
    expected = request.getfixturevalue("expected")
    actual, error = train(backend, tmp_path / "model.keras")
    assert actual.keys() == expected.keys()
    for name, losses in expected.items():
        np.testing.assert_allclose(actual[name], losses, rtol=1e-4, err_msg=name)
    assert error.startswith("bert_tf.load needs the TensorFlow backend of Keras.")
