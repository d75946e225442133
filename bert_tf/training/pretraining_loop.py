# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The loop of pre-training: progress, history, memory, early failure."""

from __future__ import annotations

import collections
import functools
import math
import pathlib
import re
import resource
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import keras
import numpy as np
import tensorflow as tf
import tqdm

from bert_tf.data import pretrain_dataset, read_table, write_table
from bert_tf.lazy import lazy_import
from bert_tf.modeling import BertPretrainer
from bert_tf.training import steps
from bert_tf.training.loop import StopSignals, TrainingLoop
from bert_tf.training.pretrain_config import Phase, PretrainConfig
from bert_tf.training.strategy import JaxDevices
from bert_tf.training.training_state import TrainingState

jax = lazy_import("jax")

_HISTORY = "history.csv"
# A training stops if the mean loss of this many steps rises this far above its minimum.
_BAND_STEPS, _LOSS_BAND = 100, 1.0

History = Sequence[Mapping[str, float]]


class TrainingFailed(ValueError):
    """The training diverged. Continuing would not help.

    Attributes:
        step: The step, counted from 1, that failed.
    """

    def __init__(self, message: str, step: int):
        super().__init__(message)
        self.step = step


class PretrainingLoop(TrainingLoop):
    """Trains a phase: evaluates, writes history and checkpoints, stops if it diverges.

    Args:
        options: The options of the training.
        phase: The phase to train.
        model, strategy, state, signals: See `TrainingLoop`.
        total_steps: Steps of the whole training, for the progress bar.
    """

    def __init__(
        self,
        options: PretrainConfig,
        phase: Phase,
        model: BertPretrainer,
        strategy: tf.distribute.Strategy | JaxDevices,
        state: TrainingState,
        signals: StopSignals,
        total_steps: int,
    ):
        if isinstance(strategy, JaxDevices):
            step = steps.jax_step(model, options.micro_batch_size)
        else:
            xla = options.xla == "true"
            if options.xla == "auto":
                xla = bool(tf.config.list_physical_devices("GPU"))
            step = steps.tensorflow_step(model, options.micro_batch_size, xla)
        super().__init__(model, strategy, state, signals, options.save_every, step)
        self._phase = phase
        self._validate_every = options.validate_every
        replicas = strategy.num_replicas_in_sync
        self._batches = functools.partial(masked_batches, options, replicas, phase)
        real_tokens = 1 - phase.manifest["padding_share"]
        self._batch_tokens = phase.batch_size * phase.length * real_tokens
        self._saved_step = self.step
        self._recent_losses = collections.deque(maxlen=_BAND_STEPS)
        self._lowest_mean = math.inf
        self._bar = tqdm.tqdm(
            total=total_steps,
            initial=self.step,
            unit="step",
            dynamic_ncols=True,
            disable=None if state.write else True,  # Only on terminals.
        )

    def train(self) -> None:
        """Trains to the end of the phase.

        Raises:
            ValueError: The training diverged. The failed batch is saved.
        """
        first_step = self._phase.first_step
        try:
            self.run(
                lambda step: self._batches(first_step=step),
                first_step=first_step,
                steps=self._phase.steps,
                steps_per_epoch=self._validate_every,
            )
        except TrainingFailed as failure:
            if not self.state.write:
                raise
            batch = next(iter(self._batches(first_step=failure.step - 1 - first_step)))
            path = save_failed_batch(self.state.directory.path, batch)
            raise ValueError(f"{failure} The failed batch is in {path}.") from failure
        finally:
            self._bar.close()

    def after_steps(self, logs, count):
        loss, norms = float(logs["loss"]), logs["gradient_norm"]
        finite = np.isfinite(norms)
        failed = self.step if finite.all() else self.step - count + 1 + finite.argmin()
        if not math.isfinite(loss):
            self.fail(f"The loss of step {failed:,} is not finite ({loss}).", failed)
        # Overflows are normal while the optimizer searches its loss scale.
        if not (finite.all() or self.model.optimizer.dynamic_loss_scale):
            self.fail(f"The gradients of step {failed:,} are not finite.", failed)
        self._check_band(loss, count)
        self.progress["gradient_norms"] += norms[finite].tolist()
        self.progress["tokens"] += count * self._batch_tokens
        accuracy = float(logs["mlm_accuracy"])
        self._bar.update(count)
        self._bar.set_postfix_str(f"loss {loss:.3f}, MLM {accuracy:.1%}", refresh=False)

    def _check_band(self, loss: float, count: int) -> None:
        self._recent_losses.extend([loss] * count)
        mean = sum(self._recent_losses) / _BAND_STEPS
        if len(self._recent_losses) < _BAND_STEPS:
            return
        self._lowest_mean = min(self._lowest_mean, mean)
        if mean > self._lowest_mean + _LOSS_BAND:
            self.fail(
                f"The {_BAND_STEPS}-step mean loss at step {self.step:,} is {mean:.2f},"
                f" more than {_LOSS_BAND} above its minimum of {self._lowest_mean:.2f}."
            )

    def fail(self, reason: str, step: int | None = None) -> NoReturn:
        kept = f"The checkpoint of step {self._saved_step:,} is kept in"
        if not self._saved_step:
            kept = "No checkpoint was saved yet in"
        raise TrainingFailed(
            f"{reason} {kept} {self.state.directory.path}. Try a lower "
            "--learning_rate or more --warmup_steps.",
            step or self.step,
        )

    def save(self, *, weights: bool = False) -> None:
        super().save(weights=weights)
        self._saved_step = self.step

    def evaluate(self):
        scores = self.evaluate_on(self._batches(split="validation"))
        return {f"val_{name}": value for name, value in scores.items()}

    def end_epoch(self, logs):
        norms = self.progress["gradient_norms"]
        rate = self.model.optimizer.learning_rate
        speed = self.epoch_steps / self.seconds if self.epoch_steps else math.nan
        row = logs | {
            "step": self.step,
            "tokens": round(self.progress["tokens"]),
            "learning_rate": float(keras.ops.convert_to_numpy(rate)),
            "gradient_norm": float(np.mean(norms)) if norms else math.nan,
            "gradient_norm_max": max(norms, default=math.nan),
            "tokens_per_second": float(np.round(speed * self._batch_tokens)),
            "peak_memory_gb": peak_memory() / 1e9,
        }
        self.progress["gradient_norms"] = []
        self.progress["history"].append({k: float(row[k]) for k in sorted(row)})
        self.save(weights=True)
        if not self.state.write:
            return
        # After the state, which has the history, so that a history implies a state.
        path = self.state.directory.path
        write_history(path, self.progress["history"])
        self.write_tensorboard(row, self.step)
        self._bar.write(
            f"step {self.step:,}: loss {row['loss']:.3f}; held-out loss "
            f"{row['val_loss']:.3f}, MLM accuracy {row['val_mlm_accuracy']:.2%}, "
            f"NSP accuracy {row['val_nsp_accuracy']:.2%}; gradient norm "
            f"{row['gradient_norm']:.2f}; {row['tokens_per_second']:,.0f} tokens/s, "
            f"{row['peak_memory_gb']:.1f} GB"
        )


def masked_batches(
    options: PretrainConfig,
    replicas: int,
    phase: Phase,
    *,
    first_step: int = 0,
    split: str = "train",
) -> tf.data.Dataset:
    """Returns the masked batches of a phase from a step on, counted from its start."""
    batch_size = phase.batch_size
    masking = {
        "mask_selection_rate": phase.mask_selection_rate,
        "whole_word_masking": options.whole_word_masking,
    }
    if split == "validation":  # There may be fewer rows than in a batch.
        rows = phase.manifest["validation_rows"]
        batch_size = min(batch_size, rows // replicas * replicas)
        masking = {}  # As in the paper, so that the losses of runs compare.
    return pretrain_dataset(
        phase.records,
        batch_size=batch_size,
        split=split,
        first_step=first_step,
        seed=options.seed,
        **masking,
    )


def save_failed_batch(directory: pathlib.Path, batch: Any) -> pathlib.Path:
    """Writes a batch `(x, y, sample_weight)` as `failed_batch.npz`."""
    x, y, weights = batch
    arrays = {name: tensor.numpy() for name, tensor in x.items()}
    arrays |= {f"{name}_labels": tensor.numpy() for name, tensor in y.items()}
    arrays |= {f"{name}_weights": tensor.numpy() for name, tensor in weights.items()}
    path = directory / "failed_batch.npz"
    np.savez_compressed(path, **arrays)
    return path


def peak_memory() -> int:
    """Returns the peak memory in bytes: of the first GPU, else of this process."""
    if keras.backend.backend() == "jax":
        statistics = jax.local_devices()[0].memory_stats()
        if statistics:  # None on CPUs.
            return statistics["peak_bytes_in_use"]
    if tf.config.list_logical_devices("GPU"):
        return tf.config.experimental.get_memory_info("GPU:0")["peak"]
    # On Linux, getrusage may return the peak of the parent process instead.
    status = pathlib.Path("/proc/self/status")
    if status.exists():
        return 1024 * int(re.search(r"VmHWM:\s+(\d+)", status.read_text())[1])
    usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return usage if sys.platform == "darwin" else usage * 1024


# --- History ---------------------------------------------------------------------


def write_history(path: pathlib.Path, history: History) -> None:
    """Writes the `history.csv` of a model directory."""
    write_table(path / _HISTORY, history)


def read_history(path: pathlib.Path | str) -> list[dict[str, float]]:
    """Reads a `history.csv`, which has one row per evaluation.

    Args:
        path: The file, or its model directory.

    Returns:
        The rows; none if the file does not exist.
    """
    path = pathlib.Path(path)
    path = path / _HISTORY if path.is_dir() else path
    if not path.is_file():
        return []
    return [{k: float(v) for k, v in row.items()} for row in read_table(path)]
