# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Compiles the training step for TPUs, in a process with libtpu."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest

from benchmarks import tpu
from bert_tf import modeling

ROOT = pathlib.Path(__file__).parents[2]
needs_libtpu = pytest.mark.skipif(
    not importlib.util.find_spec("libtpu"), reason="libtpu is not installed."
)

# Prints what `compile_step` returns, for each set of flags.
COMPILE = """
import json, sys
from benchmarks import tpu

for flags in json.loads(sys.argv[1]):
    try:
        result = tpu.compile_step(tpu.TpuConfig(**flags))._asdict()
    except ValueError as error:
        result = str(error)
    print(json.dumps(result), flush=True)
"""

VARIANTS = {
    ("v5e", "adamw"): {},
    ("v5e", "lamb"): {"optimizer": "lamb", "recompute": True},
    ("v5e", "micro_batches"): {"micro_batch_size": 4},
    ("v5e", "evaluation"): {"evaluation": True},
    ("tpu7x", "adamw"): {},
}


@pytest.fixture(scope="module")
def programs():
    """Returns the programs by chip and variant; "too_large" does not fit."""
    base = {"size": "2/128/2", "batch_size": 64, "vocabulary_size": 40}
    runs = {
        (chip, name): base | flags | {"strategy": f"{chip}-8"}
        for (chip, name), flags in VARIANTS.items()
    }
    runs["v5e", "too_large"] = base | {"strategy": "v5e-8", "batch_size": 2**18}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE, json.dumps(list(runs.values()))],
        cwd=ROOT,
        env=os.environ | {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        check=True,
    )
    return dict(zip(runs, map(json.loads, done.stdout.splitlines()), strict=True))


@needs_libtpu
def test_all_variants_compile(programs):
    for key in VARIANTS:
        assert 0 < programs[key]["memory"] < 2**30
        assert programs[key]["flops"] > 0
    # 128 * 128 tokens, two layers of 12 * 128**2 weights, 6 FLOP for each.
    dense = 6 * 64 / 8 * 128 * 2 * 12 * 128**2
    flops = programs["v5e", "adamw"]["flops"]
    assert dense < flops < 2.5 * dense
    assert flops == pytest.approx(programs["v5e", "micro_batches"]["flops"], rel=0.2)
    # Two layers and 512 positions. The compiler reduces matrices in bfloat16.
    gradients = 4 * (2 * 12 * 128**2 + 512 * 128)
    assert gradients / 2 < programs["v5e", "adamw"]["all_reduce"] < 1.5 * gradients


@needs_libtpu
def test_step_that_does_not_fit_is_reported(programs):
    assert "memory" in programs["v5e", "too_large"]


def test_flops_of_base_follow_from_its_number_of_weights():
    # Six operations per weight and token (arXiv 2001.08361, table 1), plus attention.
    # The head has the token embedding [V, H] and a dense layer.
    per_token = 6 * (85e6 + 12 * 2 * 512 * 768)
    head = 6 * 77 * (768 * 30_522 + 768**2)
    base = modeling.BertConfig.from_size("base", 30_522)
    count = tpu.step_flops(base, 2, 512)
    assert count == pytest.approx(2 * (512 * per_token + head), rel=1e-3)
