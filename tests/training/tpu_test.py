# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests that pre-training meets the requirements of TPUs, without a TPU."""

import dataclasses
import os
import pathlib
import re
import subprocess

import pytest
import tensorflow as tf

from bert_tf.modeling import BertBackbone, BertPretrainer
from bert_tf.text import Tokenizer
from bert_tf.training import (
    AdamW,
    Lamb,
    Muon,
    create_devices,
    create_training_variables,
)
from bert_tf.training.tensorflow_devices import tensorflow_step
from tests.toy.records import make_batch, write_both_splits

ROOT = pathlib.Path(__file__).parents[2]

TOKENIZE = """
import sys
import tensorflow as tf
from bert_tf import Tokenizer, Vocabulary
tokenizer = Tokenizer(Vocabulary.from_file(sys.argv[1]))
inputs = tokenizer(tf.constant(sys.argv[2:]))
print(tf.__version__, inputs["token_ids"].numpy().tolist())
"""


@pytest.mark.slow
def test_tensorflow_tpu_pretrains_and_tokenizes_on_cpus(
    vocabulary, random_encoder, tmp_path
):
    python = os.environ.get("BERT_TF_TPU_PYTHON")
    if not python:
        pytest.skip("BERT_TF_TPU_PYTHON, a Python with tensorflow-tpu, is not set")
    write_both_splits(tmp_path / "records", vocabulary, count=8)
    flags = [f"--records={tmp_path / 'records'}", f"--output={tmp_path / 'model'}"]
    flags += [f"--size={random_encoder(tmp_path)['size']}", "--batch_size=4"]
    texts = ["the cat sat", "Ça va?"]
    vocabulary.write(tmp_path / "vocab.txt")

    def run(*command):
        # Without it, libtpu asks Google Cloud for the TPU, 30 times per variable.
        variables = os.environ | {"TPU_SKIP_MDS_QUERY": "1"}
        command = (python, *command)
        options = {"cwd": ROOT, "env": variables, "text": True, "check": True}
        return subprocess.run(command, stdout=subprocess.PIPE, **options).stdout

    printed = run("-m", "bert_tf.pretrain", *flags, "--steps=2", "--warmup_steps=1")
    assert "Finished step 2." in printed
    printed = run("-c", TOKENIZE, str(tmp_path / "vocab.txt"), *texts)
    token_ids = Tokenizer(vocabulary)(tf.constant(texts))["token_ids"]
    assert printed.startswith("2.20.")
    assert printed.endswith(f" {token_ids.numpy().tolist()}\n")


def packed_batch(vocabulary):
    """Returns a batch of rows with two slots for pairs, of arbitrary content."""
    x, y, weights = make_batch(vocabulary, batch_size=4, seed=0)
    x = x | {"first_positions": tf.zeros((4, 2), tf.int32)}
    y = y | {"nsp": tf.zeros((4, 2), tf.int32)}
    return x, y, weights | {"nsp": tf.ones((4, 2)) / 8}


@pytest.mark.slow
@pytest.mark.usefixtures("without_fusion")
@pytest.mark.parametrize(
    ("precision", "packed", "optimizer", "options"),
    [
        ("mixed_bfloat16", True, Muon, {}),
        ("float32", False, Lamb, {"micro_batch_size": 2}),
        ("float32", False, AdamW, {"recompute": True}),
    ],
)
def test_training_step_compiles_with_static_shapes(
    one_layer, vocabulary, precision, packed, optimizer, options
):
    config = dataclasses.replace(one_layer, dropout=0.1)
    recompute = options.get("recompute", False)
    backbone = BertBackbone(config, recompute=recompute, dtype=precision)
    model = BertPretrainer(backbone)
    model.compile(optimizer(1e-3))
    create_training_variables(model)
    batch = packed_batch(vocabulary) if packed else make_batch(vocabulary, 4, seed=0)

    @tf.function(jit_compile=True)
    def step(x, y, weights):  # Forward, backward, update, metrics.
        tensorflow_step(model, options.get("micro_batch_size", 0))((x, y, weights))
        return model.get_metrics_result()

    program = step.experimental_get_compiler_ir(*batch)(stage="hlo")
    assert "[<=" not in program, "a dynamic shape"
    assert "custom-call" not in program
    types = set(re.findall(r"\b([a-z]+\d+|pred)\[", program))
    floats = {"f32"} if precision == "float32" else {"f32", "bf16"}
    # Keras casts labels to 64 bits, and dropout uses 64-bit seeds; TPUs emulate both.
    assert types == floats | {"s32", "pred", "u32", "s64", "u64"}


def test_missing_tpu_is_named():
    with pytest.raises(ValueError, match=r"finds no TPU.*docs/accelerators"):
        create_devices("tpu")
