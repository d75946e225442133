# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a downstream task must say to be fine-tuned, scored and served.

A module of `tasks/` subclasses `Task`; `bert_tf.finetune` does the rest. In: the
task's own files. Out: `Split`s, tokenised examples in memory, and answers. Imports no
TensorFlow before it is used, so that `--help` of a task answers at once.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from bert_tf import cli
from bert_tf.lazy import lazy_import

tf = lazy_import("tensorflow")

if TYPE_CHECKING:
    import keras

    from bert_tf.modeling.bert import BertBackbone
    from bert_tf.serving.signatures import Signature
    from bert_tf.text.tokenizer import Tokenizer

# Texts tokenised at once: enough to amortise the call, little enough memory.
_TEXTS_AT_ONCE = 4096


@dataclasses.dataclass(frozen=True, kw_only=True)
class ComputeOptions(cli.Options):
    """Where and in what arithmetic fine-tuning computes."""

    strategy: str = cli.option(
        "default",
        help="Where to train: default (first GPU or CPU), mirrored (all GPUs), tpu.",
        choices=("default", "mirrored", "tpu"),
        resumable=True,
    )
    precision: str = cli.option(
        "float32",
        help="Arithmetic of the layers; weights stay float32.",
        choices=("float32", "mixed_bfloat16"),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuneConfig(ComputeOptions):
    """Options that all tasks share (recipe: paper, appendix A.3)."""

    init_from: str = cli.option(
        "",
        help="Pre-trained (or fine-tuned) encoder: a model directory, or a checkpoint "
        "of Google, Hugging Face or KerasHub.",
        common=True,
    )
    size: str = cli.option(
        "",
        help="Instead of --init_from: random weights of this size, for comparison; "
        "tiny, mini, small, medium, base, large, or the path of a bert_config.json.",
    )
    vocabulary: str = cli.option("", help="Vocabulary file of --size.")
    lowercase: bool = cli.option(
        True, help="Whether --vocabulary is lower-cased; --init_from knows it."
    )
    bilstm: bool = cli.option(
        False, help="Put a bidirectional LSTM on the encoder (paper, section 5.1)."
    )
    output: str = cli.option(help="Model directory to write.", resumable=True)
    export: str = cli.option(
        "",
        help="Folder for a SavedModel of the result, e.g. saved_models/sst2.",
        common=True,
        resumable=True,
    )
    export_precision: str = cli.option(
        "float32",
        help="Arithmetic of the exported encoder; mixed_bfloat16 pays on processors "
        "that have it.",
        choices=("float32", "mixed_bfloat16"),
        resumable=True,
    )
    batch_size: int = cli.option(
        32,
        help="Examples in a step, all replicas together.",
        minimum=1,
        grid=True,
        common=True,
    )
    epochs: int = cli.option(
        3,
        help="Passes over the training data.",
        minimum=1,
        grid=True,
        common=True,
    )
    learning_rate: float = cli.option(
        5e-5,
        help="Peak of the learning rate: reached after a tenth of the steps, then "
        "falling linearly to 0.",
        minimum=0,
        grid=True,
        common=True,
    )
    max_sequence_length: int = cli.option(
        128,
        help="Tokens of an example, [CLS] and [SEP] included.",
        minimum=3,
        common=True,
    )
    seed: int = cli.option(
        0, help="Of the head's weights, dropout and shuffling.", minimum=0
    )
    seeds: int = cli.option(
        1,
        help="Restarts, with the seeds --seed, --seed + 1 and so on.",
        minimum=1,
        common=True,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TablesConfig(FinetuneConfig):
    """Options of a task whose data are tables: those of a data set, or one's own."""

    data_dir: str = cli.option(
        "",
        help="Folder of the files of --task.",
        common=True,
        resumable=True,
    )
    train_file: str = cli.option(
        "",
        help="Instead of --task: training data of one's own, a TSV, .csv or .jsonl "
        "file with a header.",
        common=True,
    )
    dev_file: str = cli.option(
        "",
        help="Data like --train_file's, to choose the best epoch by.",
        common=True,
    )
    test_file: str = cli.option(
        "",
        help="Data to predict, with or without labels; also with --task.",
        common=True,
        resumable=True,
    )


class Task(abc.ABC):
    """One downstream task: its data, its head, its score, its answers.

    `finetune.main` calls, in this order: the constructor, which reads the task's
    files, so that all that is wrong with them is said before anything is built;
    `head`; `model`; `dataset` for training; `dataset`, `evaluate`, `compare` and
    `write_predictions` for each split that is evaluated; `serve`.

    Args:
        options: An instance of the task's `Config`.
        tokenizer: The tokenizer of the encoder.
    """

    Config: ClassVar[type[FinetuneConfig]]
    """Options of the task, added to those of every task. Each is a flag."""

    kind: ClassVar[str]
    """The task's name in `config.json`."""

    metric: str
    """The key of `evaluate`'s result, larger is better, that chooses the epoch."""

    def __init__(self, options: FinetuneConfig, tokenizer: Tokenizer):
        self.options = options
        self.tokenizer = tokenizer

    @property
    @abc.abstractmethod
    def head(self) -> Mapping[str, Any]:
        """What it takes to build and understand the head again, e.g. its labels."""

    @property
    @abc.abstractmethod
    def evaluation_splits(self) -> Sequence[str]:
        """Names of the splits to evaluate; the first chooses the best epoch."""

    @abc.abstractmethod
    def model(self, backbone: BertBackbone) -> keras.Model:
        """Returns a functional model that ends in logits.

        Its `compile` needs no argument but the optimizer: it knows its losses, with
        `reduction="sum"`, as the weights of a batch sum to one.
        """

    def trained_part(self, model: keras.Model) -> keras.Model:
        """Returns the part of `model` whose inputs the splits hold: all of it.

        Unless a part of the model is frozen and `dataset` has computed its outputs.
        """
        return model

    @abc.abstractmethod
    def dataset(self, name: str) -> Split:
        """Returns the split called `name`, `"train"` or an evaluation split."""

    @abc.abstractmethod
    def evaluate(self, split: Split, outputs: Sequence[Any]) -> dict[str, float]:
        """Scores the outputs of the model, one for each example of the split."""

    def chance(self, split: Split) -> float:
        """Returns the best score of one answer for every example of the split.

        A training that does no better has collapsed.
        """
        return 0.0

    @abc.abstractmethod
    def compare(
        self, split: Split, outputs: Sequence[Any]
    ) -> tuple[Sequence, Sequence]:
        """Returns gold and predicted answers, as many: names, or floating numbers."""

    @abc.abstractmethod
    def write_predictions(
        self, split: Split, outputs: Sequence[Any], folder: pathlib.Path
    ) -> pathlib.Path:
        """Writes what the outputs mean to a file in `folder`; returns its path."""

    @abc.abstractmethod
    def serve(self, model: keras.Model) -> Mapping[str, Signature]:
        """Returns the signatures to export, by name.

        `serving_default` takes strings and returns answers; its names of inputs and
        outputs are those that clients use.
        """


# --- Data ------------------------------------------------------------------------


class MappedColumn:
    """Arrays of N examples, of different lengths, in a file too large for the memory.

    Args:
        values: Those of all examples, one after the other [tokens, ...], usually mapped
            from a file.
        row_splits: Where each example begins, and where the last one ends [N + 1].
    """

    def __init__(self, values: np.ndarray, row_splits: np.ndarray):
        self._values = values
        self._row_splits = row_splits

    def take(self, rows: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
        """Returns examples, padded or cut, [B, length, ...]; a graph function."""
        inner, dtype = self._values.shape[1:], self._values.dtype

        def read(rows: np.ndarray, length: np.ndarray) -> np.ndarray:
            batch = np.zeros([len(rows), length, *inner], dtype)
            for place, row in enumerate(rows):
                start, end = self._row_splits[row : row + 2]
                values = self._values[start : min(end, start + length)]
                batch[place, : len(values)] = values
            return batch

        taken = tf.numpy_function(read, [rows, length], dtype, stateful=False)
        return tf.ensure_shape(taken, [None, None, *inner])


# One value for each of N examples: [N, ...], ragged where their lengths differ.
Column: TypeAlias = "tf.Tensor | tf.RaggedTensor | MappedColumn"


@dataclasses.dataclass(frozen=True)
class Split:
    """One split of a data set, tokenised, in memory; N examples.

    An example is what the model sees as one: several may come from one question
    whose passage is long.

    Attributes:
        name: `"train"`, `"dev"`, ...
        source: What the task needs beyond the inputs for scores and predictions.
        inputs: The model's inputs; `padding_mask` [N, (S)], or [N, (C), (S)] where an
            example has C sequences, is one of them.
        targets: What the loss compares the outputs with, a column or one for each
            output; None where there are no labels.
        weights: How much each target counts, float32; 1 each when None.
    """

    name: str
    source: Any
    inputs: Mapping[str, Column]
    targets: Column | Mapping[str, Column] | None = None
    weights: Column | None = None

    def __len__(self) -> int:
        return len(self.lengths)

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """Tokens of each example, of its longest sequence [N]."""
        mask = self.inputs["padding_mask"]
        lengths = mask.row_lengths(axis=mask.ragged_rank)
        if isinstance(lengths, tf.RaggedTensor):
            lengths = tf.reduce_max(lengths, axis=1)
        return lengths.numpy()


def encode(
    tokenizer: Tokenizer,
    text_a: Sequence[str],
    text_b: Sequence[str] | None = None,
    *,
    max_sequence_length: int,
    keep: str = "head",
) -> dict[str, tf.RaggedTensor]:
    """Tokenises N texts or pairs without padding; see `Tokenizer.encode`.

    Returns:
        `token_ids`, `segment_ids` and `padding_mask`, each [N, (S)] int32.
    """
    parts = []
    for start in range(0, len(text_a), _TEXTS_AT_ONCE):
        texts = [
            tf.constant(texts[start : start + _TEXTS_AT_ONCE], tf.string)
            for texts in (text_a, text_b)
            if texts is not None
        ]
        padded = tokenizer.encode(
            *texts, max_sequence_length=max_sequence_length, keep=keep
        )
        lengths = tf.reduce_sum(padded["padding_mask"], axis=1)
        parts.append(
            {k: tf.RaggedTensor.from_tensor(v, lengths) for k, v in padded.items()}
        )
    return {name: tf.concat([part[name] for part in parts], 0) for name in parts[0]}
