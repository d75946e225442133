# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests that pre-training meets the requirements of TPUs, without a TPU."""

import dataclasses
import pathlib
import re
import subprocess
import sys

import pytest
import tensorflow as tf

from bert_tf.modeling import BertBackbone, BertPretrainer
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

# Packages that conflict with tensorflow-tpu or that pre-training does not need.
MISSING = (
    *("tensorflow_text", "tensorflow_serving", "keras_hub"),
    *("sklearn", "scipy", "seqeval"),
)


@pytest.mark.slow
def test_pretraining_runs_with_the_packages_of_tpus(
    vocabulary, random_encoder, tmp_path
):
    write_both_splits(tmp_path / "records", vocabulary, count=8)
    size = random_encoder(tmp_path)["size"]
    # Importing a module whose entry is None raises ModuleNotFoundError.
    script = f"import runpy, sys; sys.modules |= dict.fromkeys({MISSING}); "
    script += "runpy.run_module('bert_tf.pretrain', run_name='__main__')"
    flags = [f"--records={tmp_path / 'records'}", f"--output={tmp_path / 'model'}"]
    flags += [f"--size={size}", "--batch_size=4", "--steps=2", "--warmup_steps=1"]
    run = subprocess.run(
        [sys.executable, "-c", script, *flags], cwd=ROOT, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert "Finished step 2." in run.stdout


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
