# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Compares the gradients of a pre-training step with those of transformers.

    python -m benchmarks.gradient_parity --model=bert --records=records-unpacked

Both compute masked LM and next sentence loss and the gradients of all weights, for the
same weights and batch. Without dropout, the gradients must be equal. With dropout, the
random numbers differ, so means and variances of many draws are compared:

* z, the difference of the means divided by its standard error, has a standard deviation
  of 1 over all weights if both libraries draw from the same distribution;
* the ratio of the variances is then 1.

The records need one pair per row (`bert_tf.corpus --pack=false`), because transformers
does not support packed rows. Needs torch and transformers.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks import peers
from bert_tf import checkpoints, cli, data, modeling, training
from bert_tf.lazy import lazy_import

keras = lazy_import("keras")
tf = lazy_import("tensorflow")

# Softmax is invariant to this bias: its gradients are rounding errors.
_NO_GRADIENT = "attention.self.key.bias"


@dataclasses.dataclass(frozen=True, kw_only=True)
class GradientConfig(cli.Options):
    """Options of `python -m benchmarks.gradient_parity`."""

    model: str = cli.option(help="Hugging Face folder with both pre-training heads.")
    records: str = cli.option(help="Records with one pair per row.")
    batch_size: int = cli.option(32, help="Pairs.", minimum=1)
    draws: int = cli.option(100, help="Gradients with dropout.", minimum=2)
    dropout: float = cli.option(0.1, help="Rate of both kinds of dropout.")
    precision: str = cli.option(
        "float32",
        help="Compute dtype of bert_tf's layers; transformers computes in float32.",
        choices=("float32", "mixed_bfloat16"),
    )


def main(options: GradientConfig) -> None:
    """Prints both comparisons."""
    keras.utils.set_random_seed(0)
    rows = data.pretrain_dataset(options.records, batch_size=options.batch_size)
    batch = next(iter(rows))
    (ours, _), (theirs, _) = _moments(options, batch, dropout=0.0, draws=1)
    each = {name: _difference(ours[name], theirs[name]) for name in theirs}
    worst = max(each, key=each.get)
    print(
        "Without dropout: relative difference "
        f"{_difference(_flat(ours), _flat(theirs)):.1e}, of the {len(each)} tensors at "
        f"most {each[worst]:.1e} ({worst})",
        flush=True,
    )
    settings = {"dropout": options.dropout, "draws": options.draws}
    (ours, variances), (theirs, others) = _moments(options, batch, **settings)
    errors = np.sqrt((_flat(variances) + _flat(others)) / options.draws)
    used = errors > 0  # Not the embeddings of tokens that the batch does not have.
    z = (_flat(ours) - _flat(theirs))[used] / errors[used]
    ratio = _flat(variances).sum() / _flat(others).sum()
    ratios = [variances[name].sum() / others[name].sum() for name in variances]
    print(
        f"Dropout {options.dropout:g}, {options.draws} draws: standard deviation of z "
        f"{np.std(z):.3f}, ratio of variances {ratio:.3f}, of the {len(ratios)} "
        f"tensors {min(ratios):.2f} to {max(ratios):.2f}"
    )


Gradients = dict[str, np.ndarray]  # By transformers' names of the weights.


def _difference(ours: np.ndarray, theirs: np.ndarray) -> float:
    return np.linalg.norm(ours - theirs) / np.linalg.norm(theirs)


def _moments(
    options: GradientConfig, batch: tuple, *, dropout: float, draws: int
) -> list[list[Gradients]]:
    """Returns mean and variance of the gradients: bert_tf's, then transformers'."""
    import torch
    import transformers

    checkpoint = checkpoints.open_checkpoint(options.model)
    rates = {"dropout": dropout, "attention_dropout": dropout}
    architecture = dataclasses.replace(checkpoint.architecture, **rates)
    backbone = modeling.BertBackbone(architecture, dtype=options.precision)
    model = modeling.BertPretrainer(backbone)
    checkpoint.load_into(model)
    model.compile(training.AdamW())
    torch.manual_seed(0)
    peer = transformers.BertForPreTraining.from_pretrained(
        options.model,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    ).train()
    inputs = peers.transformers_batch(*batch)

    @tf.function
    def draw_ours():
        x, y, weights = batch
        with tf.GradientTape() as tape:
            outputs = model(x, training=True)
            loss = model.compute_loss(x, y, outputs, weights, training=True)
        gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
        return [tf.convert_to_tensor(gradient) for gradient in gradients]

    def draw_theirs():
        peer.zero_grad()
        peer(**inputs).loss.backward()
        return [parameter.grad for parameter in peer.parameters()]

    names = [name for name, _ in peer.named_parameters()]
    ours = [
        _in_hugging_face_format(checkpoint, model, values)
        for values in _mean_and_variance(draw_ours, draws)
    ]
    theirs = [
        dict(zip(names, values, strict=True))
        for values in _mean_and_variance(draw_theirs, draws)
    ]
    compared = [name for name in names if not name.endswith(_NO_GRADIENT)]
    return [[{n: g[n] for n in compared} for g in pair] for pair in (ours, theirs)]


def _mean_and_variance(
    draw: Callable[[], Sequence], draws: int
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Returns mean and variance of each tensor that `draw` returns."""
    sums, squares = 0.0, 0.0
    for _ in range(draws):
        values = np.concatenate([np.ravel(value) for value in draw()]).astype(float)
        sums, squares = sums + values, squares + values**2
    shapes = [tuple(value.shape) for value in draw()]
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1]
    mean = sums / draws
    return tuple(
        [v.reshape(shape) for v, shape in zip(np.split(flat, ends), shapes)]
        for flat in (mean, np.maximum(squares / draws - mean**2, 0.0))
    )


def _in_hugging_face_format(checkpoint, model, values: Sequence) -> Gradients:
    """Converts values of all weights as if they were the weights."""
    from safetensors import numpy as safetensors

    for variable, value in zip(model.trainable_variables, values, strict=True):
        variable.assign(value)
    with tempfile.TemporaryDirectory() as folder:
        checkpoints.write_checkpoint(checkpoint, f"{folder}/keras")
        directory = checkpoints.open_checkpoint(f"{folder}/keras")
        directory.save_weights(model)
        checkpoints.write_checkpoint(directory, f"{folder}/torch", "hugging_face")
        return safetensors.load_file(f"{folder}/torch/model.safetensors")


def _flat(gradients: Gradients) -> np.ndarray:
    return np.concatenate([gradient.ravel() for gradient in gradients.values()])


if __name__ == "__main__":
    cli.run(main, GradientConfig)
