# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""What one process saves, another loads that imports bert_tf."""

import json
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest

import bert_tf
from bert_tf import heads, keras_private, modeling, text, training

ROOT = pathlib.Path(__file__).parents[1]

LOAD = """
import json, pathlib, sys
import bert_tf
assert "keras" not in sys.modules
import keras
ours = {*keras.saving.get_custom_objects()}
folder = pathlib.Path(sys.argv[1])
model = keras.saving.load_model(folder / "own.keras")
output = model({name: keras.ops.ones((1, 4), "int32") for name in model.input})
for config in json.loads((folder / "objects.json").read_text()):
    value = keras.saving.deserialize_keras_object(config)
    name = f"bert_tf>{getattr(value, '__name__', type(value).__name__)}"
    assert name in ours and name in config.values(), config
print(float(keras.ops.sum(output)))
strings = keras.saving.load_model(folder / "strings.keras")
print(float(keras.ops.sum(strings(keras.ops.array(["the cats", "a mat"])))))
"""
TEXTS = ["the cats", "a mat"]


def test_every_registered_class_loads_after_importing_bert_tf(
    one_layer, vocabulary, tmp_path
):
    backbone = modeling.BertBackbone(one_layer)
    embedding = heads.EmbeddingConfig(max_sequence_length=8)
    models = [
        backbone,
        modeling.BertPretrainer(backbone),
        heads.ChoiceScorer(backbone),
        heads.FeatureTagger(backbone, 3, "last", 4),
        heads.SentenceEncoder(backbone, embedding),
        heads.SequenceClassifier(backbone, 2, multi_label=True),
        heads.SpanPredictor(backbone),
        heads.TokenClassifier(backbone, 3),
    ]
    unpack = keras.saving.get_registered_object("bert_tf>UnpackRows")
    schedule = training.WarmupDecay(0.1, warmup_steps=1, total_steps=3)
    optimizers = training.AdamW(schedule), training.Lamb(), training.Muon()
    objects = [*optimizers, schedule, unpack(), text.Tokenizer(vocabulary)]
    for model in models:
        if hasattr(model, "_losses_and_metrics"):
            model.compile(training.AdamW(schedule))
            objects += keras.tree.flatten(model._losses_and_metrics())
        objects += [model, *keras_private.nested_layers(model)]
    objects = {keras.saving.get_registered_name(type(x)): x for x in objects}
    registered = keras.saving.get_custom_objects()
    ours = {name for name in registered if name.startswith("bert_tf>")}
    assert ours <= objects.keys()
    listed = {f"bert_tf>{x}" for names in bert_tf._REGISTERED.values() for x in names}
    assert ours == listed
    configs = [keras.saving.serialize_keras_object(objects[name]) for name in ours]
    (tmp_path / "objects.json").write_text(json.dumps(configs))
    tokens = backbone.output["sequence_output"]
    own = keras.Model(backbone.input, keras.layers.Dense(1)(tokens))
    own.save(tmp_path / "own.keras")
    output = own(dict.fromkeys(own.input, np.ones((1, 4), "int32")))
    texts = keras.Input((), dtype="string")
    strings = keras.Model(texts, own(text.Tokenizer(vocabulary)(texts)))
    strings.save(tmp_path / "strings.keras")
    sums = [float(keras.ops.sum(x)) for x in (output, strings(keras.ops.array(TEXTS)))]

    done = subprocess.run(
        [sys.executable, "-c", LOAD, str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr
    loaded = [float(line) for line in done.stdout.splitlines()]
    assert loaded == pytest.approx(sums, rel=1e-5, abs=1e-5)
