# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Compiles a pre-training for TPUs on a machine without one, and estimates its time.

    python -m bert_tf.tpu_plan --records=records --strategy=v5e-8 --size=base \\
      --precision=mixed_bfloat16 --output=plan.json

The flags are those of `python -m bert_tf.pretrain`; `--strategy` names the TPU. Prints
whether the step compiles, its memory, and lower bounds of its time. Install
requirements-tpu-plan.txt.
"""

from __future__ import annotations

import math
import os
from typing import Any

from bert_tf import cli, storage, training
from bert_tf.training import PlanConfig


def main(options: PlanConfig) -> None:
    """Prints the plan of each phase and writes all of them as JSON."""
    # Before Keras and JAX are imported. The variables are on the CPU.
    os.environ |= {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    plans = training.tpu.plan(options)
    for row in plans:
        print(_summary(row, options.strategy))
    if options.output:
        storage.write_json(options.output, plans)
    print(f"{sum(row['days'] for row in plans):.2f} days for the training, at least.")


def _summary(row: dict[str, Any], strategy: str) -> str:
    seconds = row["seconds"]
    lines = [f"{row['records']} on {strategy}, {row['rows']:,} rows per step:"]
    if row["error"]:
        lines += ["does not compile. The compiler reports:", row["error"][:3000]]
    else:
        lines.append("compiles")
    if not math.isnan(row["memory"]):
        lines.append(
            f"memory       {row['memory'] / 2**30:.2f} of "
            f"{row['device_memory'] / 2**30:.0f} GiB per device"
        )
    if not row["error"]:
        lines += [
            f"compute      {row['flops']:.3g} FLOP: {1e3 * seconds['compute']:.1f} ms",
            f"HBM          {row['bytes']:.3g} bytes: {1e3 * seconds['memory']:.1f} ms",
            f"all-reduce   {row['all_reduce']:.3g} bytes: "
            f"{1e3 * seconds['all_reduce']:.1f} ms",
            f"step         {1e3 * seconds['total']:.1f} ms at least, "
            f"{row['tokens_per_second']:,.0f} tokens/s, {row['mfu']:.0%} MFU at most",
            f"training     {row['steps']:,} steps, {row['days']:.2f} days at least",
        ]
    for key, name in (("largest_batch", ""), ("largest_batch_recompute", " recompute")):
        if key in row:
            lines.append(f"largest batch{name}: {row[key]:,} rows per chip")
    return "\n  ".join(lines)


if __name__ == "__main__":
    cli.run(main, PlanConfig)
