# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Pre-trains BERT with masked LM and next sentence prediction (paper, section 3.1).

    python -m bert_tf.pretrain --records=records --output=models/mini --size=mini

`--records` is a folder written by `python -m bert_tf.corpus`. `--output` becomes a
model directory (config.json, vocab.txt, model.safetensors, ..., metrics.json) with
report.md, history.csv, TensorBoard logs and the training state. Rerun the same command
to resume from the last state. The defaults are the recipe of the paper (appendix
A.2). Its two sequence lengths, 128 tokens for 90 % of the steps and 512 for the rest,
are two phases of one training:

    python -m bert_tf.pretrain --records=records128,records512 --steps=900000,100000 ...

With one learning rate per phase, each phase has its own schedule, as in the recipe of
LAMB (arXiv 1904.00962): --optimizer=lamb --learning_rate=6e-3,4e-3
--warmup_steps=2000,200 --decay=polynomial.
"""

from __future__ import annotations

import os

from bert_tf import cli, training
from bert_tf.training import PretrainConfig


def main(options: PretrainConfig) -> None:
    """Pre-trains and prints the final metrics."""
    print("Loading TensorFlow and checking the records ...", flush=True)
    metrics = training.pretrain(options)
    if not metrics:  # Of several workers, only the first one reports.
        return
    print(
        f"Finished step {metrics['step']:,.0f}. Held-out "
        f"{training.report.accuracies(metrics)} (most frequent token: "
        f"{metrics['unigram_accuracy']:.2%}, after the previous one: "
        f"{metrics['bigram_accuracy']:.2%}). Model: {options.output}. Curves, examples "
        f"and the next commands: {os.path.join(options.output, 'report.md')}"
    )


if __name__ == "__main__":
    cli.run(main, PretrainConfig)
