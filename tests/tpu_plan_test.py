# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Compiles the training step for TPUs, in a process with libtpu."""

import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import unittest.mock

import pytest

from bert_tf.training import PlanConfig, tpu
from tests.toy.records import write_records

ROOT = pathlib.Path(__file__).parents[1]
needs_libtpu = pytest.mark.skipif(
    not importlib.util.find_spec("libtpu"), reason="libtpu is not installed."
)

# Prints what `compile_step` returns, for each set of flags.
COMPILE = """
import dataclasses, json, sys
from bert_tf.training import PlanConfig, tpu

for flags in json.loads(sys.argv[1]):
    evaluation = flags.pop("evaluation", False)
    options = PlanConfig(**flags)
    program = tpu.compile_step(options, options.phases()[0], evaluation=evaluation)
    print(json.dumps(dataclasses.asdict(program)), flush=True)
"""

VARIANTS = {
    "adamw": {},
    "lamb": {"optimizer": "lamb"},
    "micro_batches": {"micro_batch_size": 4},
    "recompute": {"recompute": True},
    "evaluation": {"evaluation": True},
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory, vocabulary):
    """Returns the programs by chip and variant; "too_large" does not fit."""
    records = tmp_path_factory.mktemp("plan") / "records"
    pair = [2, *range(5, 11), 3, *range(11, 17), 3]
    write_records(records, vocabulary, [(pair, 8, 0)] * 8, length=128, pairs_per_row=2)
    base = {
        "records": str(records),
        "size": "2/128/2",
        "batch_size": 64,
        "precision": "mixed_bfloat16",
        "steps": 10,
        "warmup_steps": 1,
    }
    runs = {
        (chip, name): base | flags | {"strategy": f"{chip}-8"}
        for chip in ("v5e", "v6e")
        for name, flags in VARIANTS.items()
    }
    runs["tpu7x", "adamw"] = base | {"strategy": "tpu7x-8"}
    runs["v5e", "too_large"] = base | {"strategy": "v5e-8", "batch_size": 2**18}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE, json.dumps(list(runs.values()))],
        env=os.environ
        | {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        check=True,
    )
    return dict(zip(runs, map(json.loads, done.stdout.splitlines()), strict=True))


@needs_libtpu
@pytest.mark.parametrize("chip", ["v5e", "v6e"])
def test_all_variants_compile(programs, chip):
    for variant in VARIANTS:
        program = programs[chip, variant]
        assert not program["error"]
        assert 0 < program["memory"] < 2**30
        assert program["flops"] > 0
    # 128 * 128 tokens, two layers of 12 * 128**2 weights, 6 FLOP for each.
    dense = 6 * 64 / 8 * 128 * 2 * 12 * 128**2
    flops = programs[chip, "adamw"]["flops"]
    assert dense < flops < 2.5 * dense
    assert flops == pytest.approx(programs[chip, "micro_batches"]["flops"], rel=0.2)
    # Two layers and 512 positions. The compiler reduces matrices in bfloat16.
    gradients = 4 * (2 * 12 * 128**2 + 512 * 128)
    assert gradients / 2 < programs[chip, "adamw"]["all_reduce"] < 1.5 * gradients


@needs_libtpu
def test_reductions_on_sparse_cores_are_counted(programs):
    reduced = programs["tpu7x", "adamw"]["all_reduce"]
    assert reduced == programs["v5e", "adamw"]["all_reduce"]


@needs_libtpu
def test_step_that_does_not_fit_is_reported(programs):
    program = programs["v5e", "too_large"]
    message, largest = program["error"].split("Largest tensors, of all chips:\n")
    assert "memory" in message
    assert re.match(r"\d+\.\d+ GiB: \w+\[[\dx]+\] at bert_tf/", largest)
    assert program["memory"] > 15 * 2**30


def test_compiler_errors_name_lines_of_our_source():
    text = f"""
    %2 = stablehlo.add %0, %1 : tensor<1024x1024x512xf32> loc(#loc3)
    %3 = stablehlo.convert %2 : (tensor<8xf32>) -> tensor<8xbf16> loc(#loc5)
#loc1 = loc("{tpu._PACKAGE}/modeling/fused.py":10:3 to :5)
#loc2 = loc("{ROOT}/keras/nn.py":7:1 to :5)
#loc3 = loc("jit(step)/add"(#loc4))
#loc4 = loc(callsite(#loc2 at #loc1))
#loc5 = loc("jit(step)/convert"(#loc2))
"""
    lowered = unittest.mock.Mock(as_text=lambda debug_info: text)
    assert tpu._explain("No memory.", lowered) == (
        "No memory.\nLargest tensors, of all chips:\n"
        "2.00 GiB: f32[1024x1024x512] at bert_tf/modeling/fused.py:10"
    )
    message = 'No %add.1, metadata={op_name="jit(step)/add" stack_frame_id=1}'
    expected = (
        f"{message}\nIn our source:\njit(step)/add at bert_tf/modeling/fused.py:10"
    )
    assert tpu._explain(message, lowered) == expected


def test_traffic_counts_hbm_and_iterations():
    program = """HloModule step

%body (x: f32[4]) -> f32[4] {
  %x = f32[4]{0} parameter(0)
  ROOT %sum = f32[4]{0} all-reduce(%x), replica_groups={}
}

ENTRY %main (a: f32[100], b: bf16[8,8]) -> f32[4] {
  %a = f32[100]{0:T(128)} parameter(0)
  %b = bf16[8,8]{1,0} parameter(1)
  %c = (f32[100]{0:T(128)S(1)}, f32[100]{0}, u32[]) copy-start(%a)
  %d = f32[100]{0:T(128)S(1)} copy-done(%c)
  %e = bf16[8,8]{1,0} fusion(%d, %b), kind=kLoop, calls=%fused
  %f = ((f32[4]), f32[4]{0}) call-start(%e), to_apply=%body
  ROOT %w = f32[4]{0} while(%e), condition=%stop, body=%body
}
"""
    # The copy, operand and result of the fusion, the call, and the loop.
    assert tpu._traffic(program, 3) == (400 + 128 + 128 + 4 * (16 + 16), 4 * 16)


@pytest.mark.parametrize("text", ["v5e", "v5e-0", "v5e-12", "h100-8", "v5e-x"])
def test_wrong_slice_is_refused(text):
    with pytest.raises(ValueError, match=r"a power of two, e\.g\. v5e-8\. Received"):
        tpu.parse_slice(text)


@pytest.mark.parametrize("limit", [0, 1, 7, 31, 32, 33, 100, 1000])
@pytest.mark.parametrize("share_of_rows", [1.0, 0.9, 0.5])
def test_largest_batch_is_found(monkeypatch, limit, share_of_rows):
    compiled = []

    def compile_step(_, phase):
        rows = phase.batch_size // 8
        compiled.append(rows)
        memory = share_of_rows * rows + (1 - share_of_rows) * limit
        return tpu.Program(memory, error="" if rows <= limit else "No memory.")

    monkeypatch.setattr(tpu, "compile_step", compile_step)
    options = PlanConfig(records="records", strategy="v5e-8")
    phase = tpu.Phase("records", {}, None, 0, 10, 8 * 32, mask_selection_rate=0.15)
    first = compile_step(options, phase)
    found = tpu.largest_batch(options, phase, first, device_memory=limit)
    assert limit * 7 / 8 <= found <= limit
    assert len(compiled) == len(set(compiled)) <= 10


def test_seconds_of_a_step():
    program = tpu.Program(flops=197e12, bytes=819e9 / 2, all_reduce=200e9)
    seconds = tpu.step_seconds("v5e", 8, 8, program)
    assert seconds["compute"] == pytest.approx(1)
    assert seconds["memory"] == pytest.approx(0.5)
    assert seconds["all_reduce"] == pytest.approx(2 * 7 / 8)
    assert seconds["total"] == pytest.approx(1 + 2 * 7 / 8)
