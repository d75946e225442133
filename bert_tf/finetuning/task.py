# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The interface of a downstream task, and the options that all tasks share.

A module in `tasks/` subclasses `Task`; `bert_tf.finetuning.fine_tune` does the rest.
This module does not import TensorFlow, so that `--help` of a task is fast.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import pathlib
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from absl import logging

from bert_tf import checkpoints, cli, data, heads, serving, text, training
from bert_tf.finetuning import splits

if TYPE_CHECKING:
    import keras

    from bert_tf.finetuning.batching import Split


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuneConfig(cli.Options):
    """Options that all tasks share (paper, appendix A.3)."""

    init_from: str = cli.option(
        "", help="Checkpoint of the encoder.", common=True, resumable=True
    )
    size: str = cli.option("", help="Random weights: --size of bert_tf.pretrain.")
    vocabulary: str = cli.option("", help="Vocabulary file for --size.", resumable=True)
    output: str = cli.option(help="Model directory to write.", resumable=True)
    export: str = cli.option(
        "", help="Folder of the SavedModel to write.", common=True, resumable=True
    )
    batch_size: int = cli.option(
        32, help="Examples per step, summed over all replicas.", minimum=1, common=True
    )
    epochs: int = cli.option(3, help="Training epochs.", minimum=1, common=True)
    learning_rate: float | None = cli.option(
        None, help="Peak rate; 5e-5, more for small encoders.", minimum=0, common=True
    )
    max_sequence_length: int = cli.option(
        128, help="Tokens per example, with [CLS] and [SEP].", minimum=3, common=True
    )
    seed: int = cli.option(0, help="Random seed.", minimum=0, common=True)
    warmup_ratio: float = cli.option(
        0.1, help="Share of the steps of the warm-up.", minimum=0, maximum=0.9
    )
    strategy: str = cli.option(
        "default",
        help="Where to train: default (first GPU or CPU) or mirrored (all GPUs).",
        choices=("default", "mirrored"),
        resumable=True,
    )
    precision: str = cli.option(
        "float32", help="Compute dtype.", choices=("float32", "mixed_bfloat16")
    )
    weight_decay: float = cli.option(0.01, help="Decay of matrices.", minimum=0)
    dropout: float | None = cli.option(
        None, help="Dropout rate; the encoder's own by default.", minimum=0, maximum=0.9
    )
    frozen_layers: int = cli.option(
        0, help="Lowest layers that are not trained, nor embeddings.", minimum=0
    )
    early_stopping_patience: int = cli.option(
        0, help="Epochs without a better score that end the training.", minimum=0
    )
    layers: tuple[int, ...] = cli.option(
        (), help="Layers of --init_from to keep, e.g. 1,3,5."
    )
    teacher: str = cli.option(
        "", help="Fine-tuned model to learn from as well.", resumable=True
    )
    teacher_share: float = cli.option(
        0.5, help="Weight of the teacher's outputs in the loss.", minimum=0, maximum=1
    )
    teacher_temperature: float = cli.option(
        2.0, help="Divides the logits of teacher and student.", minimum=0.1
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class FilesConfig(FinetuneConfig):
    """Options of a task that reads the user's own files."""

    train_file: str = cli.option("", help="Training data.", common=True, local=True)
    dev_file: str = cli.option(
        "", help="Dev set, which selects the best epoch.", common=True, local=True
    )
    test_file: str = cli.option(
        "", help="Data to predict.", common=True, resumable=True, local=True
    )
    dev_share: float = cli.option(
        0.0, help="Share of --train_file held out.", minimum=0, maximum=0.5, common=True
    )
    test_share: float = cli.option(
        0.0, help="The same as test set.", minimum=0, maximum=0.5, common=True
    )
    split_seed: int = cli.option(0, help="Seed of the rows to hold out.")

    def files(self) -> dict[str, str]:
        """Returns the file of each split that has one."""
        if not (self.train_file and (self.dev_file or self.dev_share)):
            raise ValueError(
                "Pass --train_file, and --dev_file or --dev_share=0.1, which holds out "
                "rows of --train_file."
            )
        files = {x: getattr(self, f"{x}_file") for x in ("train", "dev", "test")}
        return {split: path for split, path in files.items() if path}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowsConfig(FilesConfig):
    """Options of a task on tables, in which each row is an example."""

    group: str = cli.option(
        "", help="Column whose equal values stay in one split.", common=True
    )
    id: str = cli.option("id", help="Column of ids.", common=True, resumable=True)
    keep: str = cli.option(
        "", help="Columns to copy to predictions.", common=True, resumable=True
    )

    @property
    def kept(self) -> tuple[str, ...]:
        """The columns of `keep`."""
        names = tuple(filter(None, map(str.strip, self.keep.split(","))))
        if both := {"id", "prediction", "confidence", "gold"}.intersection(names):
            raise ValueError(
                f"--keep must not name columns of predictions. Got {', '.join(both)}. "
                "Rename them in the table."
            )
        return names


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictConfig(cli.Options):
    """Predicts a file with a finished model.

        python -m tasks.classification --predict --model=models/verdict \\
            --input=new.csv --output=answers.csv

    All tasks take the same flags. The input has the columns of the training data; gold
    labels may be missing. The rows of the output have id, texts, prediction, its
    probability, the gold label if there is one, and the columns of --keep.
    """

    predict: bool = cli.option(help="Predict instead of training.")
    model: str = cli.option(help="Model directory, or another checkpoint of the task.")
    input: str = cli.option(help="File to predict, as training data.", local=True)
    output: str = cli.option(help="File to write: TSV, .csv or .jsonl.", local=True)
    split: str = cli.option(
        "", help="Only training rows that were held out.", choices=("", "dev", "test")
    )
    id: str = cli.option("", help="Column of ids; by default that of the training.")
    keep: str = cli.option("", help="Columns to copy; by default as in the training.")
    batch_size: int = cli.option(128, help="Examples per batch.", minimum=1)


class Example(NamedTuple):
    """An example to predict.

    Attributes:
        id: Its `id` in the data, or its position.
        texts: The texts to show with the prediction, by column; None for the inputs.
        inputs: The inputs of the exported model's signature.
        gold: The gold label; None without labels.
        path: The file of the example.
        line: Its line in the file; the number of a question.
        answers: Of a question about a passage: the reference answers, (text, offset in
            the passage in characters). Empty if the passage does not answer it; None
            without labels.
        choices: Of multiple choice: the names of the choices, as labels have them.
        kept: The cells of `--keep`, by column.
        group: Examples of a group are in one split; "" if only equal inputs are.
    """

    id: str
    texts: Mapping[str, str] | None
    inputs: Sequence[str | Sequence[str]]
    gold: str | None = None
    path: pathlib.Path = pathlib.Path()
    line: int = 0
    answers: Sequence[tuple[str, int]] | None = None
    choices: Sequence[str] = ()
    kept: Mapping[str, str] = types.MappingProxyType({})
    group: str = ""

    @property
    def location(self) -> str:
        """Prefix of error messages about the example."""
        return f"{self.path}, line {self.line}"


class Prediction(NamedTuple):
    """The prediction for an example, as tables show it.

    Attributes:
        value: A name or an index; a number or a vector for scores.
        confidence: Its probability, or those of its parts; None for none.
        columns: Further columns by name: numbers or vectors.
        gold: The gold label to compare with `value`; None for that of the example.
    """

    value: Any
    confidence: Any = None
    columns: Mapping[str, Any] = types.MappingProxyType({})
    gold: str | None = None


class Evaluation(NamedTuple):
    """Scores and answers of a split.

    Attributes:
        metrics: Scores by name; empty without labels.
        answers: The answers to the examples by name, arrays with N rows, as those that
            `Task.prediction` takes.
        decision: Settings fitted on the dev set, such as thresholds. metrics.json has
            them, and the exported model.
        report: A table to print, such as the scores of each class.
    """

    metrics: Mapping[str, float]
    answers: Mapping[str, Sequence[Any]]
    decision: Mapping[str, Any] = types.MappingProxyType({})
    report: str = ""


class ScoreScale(NamedTuple):
    """Mean and standard deviation of the scores of a training set.

    A model of scores is trained on standardized ones. Its folder has the weights of a
    model whose output is the score itself.
    """

    mean: float
    deviation: float

    def standardize(self, scores: Any) -> Any:
        return (scores - self.mean) / self.deviation

    def restore(self, scores: Any) -> Any:
        """Inverse of `standardize`."""
        return scores * self.deviation + self.mean

    def standardize_layer(self, layer: keras.layers.Dense) -> None:
        """Changes the weights of a layer whose output is the score itself."""
        layer.kernel.assign(layer.kernel / self.deviation)
        layer.bias.assign(self.standardize(layer.bias))

    def restore_weights(self, weights: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Returns the weights of a model whose output is the score itself."""
        kernel = weights["logits/kernel"] * self.deviation
        bias = self.restore(weights["logits/bias"])
        return {**weights, "logits/kernel": kernel, "logits/bias": bias}


class Task(abc.ABC):
    """A downstream task: its data, model and metrics.

    `fine_tune` calls the constructor, which reads and checks the task's files, before
    it builds or writes anything. Then it builds the model of `head`, and calls
    `dataset("train")` and, for each of `evaluation_splits`, `dataset`, `evaluate` and
    `write_predictions`.

    Args:
        options: An instance of the task's `Config`.
        encoder: The encoder to train. `self.tokenizer` is its tokenizer.
    """

    Config: ClassVar[type[FinetuneConfig]]
    """The task's options. Every field is a flag."""

    kind: ClassVar[str]
    """Key of the head in `bert_tf.heads.HEADS`, see `bert_tf.heads.find_head`."""

    problem: str = "classification"
    """What an output of the model [..., C] is: `"classification"`, logits of one of C
    classes; `"multi_label"`, logits of C independent labels; `"regression"`, scores or
    a vector."""

    metric: str
    """Key in the metrics that selects the best epoch. Higher is better."""

    settings: Mapping[str, Any]
    """The settings of the head for `config.json`, e.g. its labels."""

    scale: ScoreScale | None = None
    """The scale of standardized scores, on which the model is trained."""

    data: Mapping[str, Any]
    """What the constructor has read, by split: lists of `Example`s, unless the task
    overrides `rows`. The first split is `"train"`."""

    held_out: Sequence[Mapping[str, Any]]
    """The rows of held_out.csv: `split`, `line` and `id` of `Example`s."""

    @property
    def evaluation_splits(self) -> Sequence[str]:
        """Names of the evaluation splits. The first selects the best epoch."""
        return sorted(self.data.keys() - {"train"})

    def __init__(self, options: FinetuneConfig, encoder: checkpoints.Checkpoint):
        self.options = options
        self.encoder = encoder
        self.held_out = []
        self.tokenizer = text.Tokenizer.from_checkpoint(encoder)

    # --- Data --------------------------------------------------------------------

    def split(
        self,
        rows: Mapping[str, Sequence[Example]],
        classes: Callable[[Example], Iterable[str]] = lambda row: (),
    ) -> dict[str, Sequence[Example]]:
        """Holds out training rows; warns if a text is in several splits.

        Args:
            rows: The examples by split, in files of their own.
            classes: See `splits.hold_out`.

        Returns:
            The examples by split, with those that `--dev_share` and `--test_share`
            hold out.
        """
        options, rest = self.options, 1.0  # `rest` is the share that is left.
        for name in ("dev", "test"):
            if not (share := getattr(options, f"{name}_share")):
                continue
            if name in rows:
                raise ValueError(f"Pass --{name}_file or --{name}_share, not both.")
            seed, of_rest, rest = options.split_seed, share / rest, rest - share
            parts = splits.hold_out(rows["train"], of_rest, seed, classes)
            if not parts[1]:
                raise ValueError(
                    f"--{name}_share={share} of {len(rows['train'])} rows holds out "
                    "none: rows of a group stay together, and training keeps a row of "
                    "each class."
                )
            rows = {**rows, "train": parts[0], name: parts[1]}
            found = [{"split": name, "line": x.line, "id": x.id} for x in parts[1]]
            self.held_out += found
        if self.held_out:
            counts = ", ".join(f"{len(x):,} {k}" for k, x in rows.items())
            print(f"{options.train_file}: {counts} rows. held_out.csv lists them.")
        found = {k: n for k, n in splits.copies(rows).items() if n and k != "train"}
        counts = ", ".join(f"{n:,} of {len(rows[k]):,} {k}" for k, n in found.items())
        if found:
            message = "Rows whose text is also in another split, so scored too well: %s"
            logging.warning(message, counts)
        return dict(rows)

    # --- Model -------------------------------------------------------------------

    @functools.cached_property
    def head(self) -> heads.Head:
        """The head, which builds the model, and converts texts to its inputs."""
        return self.build_head(self.settings)

    def build_head(self, settings: Mapping[str, Any]) -> heads.Head:
        """Returns the head with other settings, e.g. a decision."""
        options = self.options.to_dict()
        return heads.find_head(self.kind)(settings, options, self.tokenizer)

    def training_model(self, model: keras.Model) -> keras.Model:
        """Returns the model to train, whose inputs `dataset("train")` holds.

        This is `model` itself, unless an example is several of its inputs.
        """
        return model

    # --- Training and evaluation -------------------------------------------------

    @property
    def learning_rate(self) -> float:
        """The peak learning rate, by default one for the size of the encoder.

        From BERT base on, that is the paper's (appendix A.3). Smaller encoders need
        more: `benchmarks/results/finetuning.md` has the scores.
        """
        if self.options.learning_rate is not None:
            return self.options.learning_rate
        hidden_dim = self.encoder.architecture.hidden_dim
        return 5e-5 if hidden_dim >= 768 else 1e-4 if hidden_dim > 256 else 3e-4

    def optimizer(self, steps: int) -> keras.optimizers.Optimizer:
        """Returns the optimizer: AdamW, whose rate warms up and decays linearly.

        Args:
            steps: Steps of the training.
        """
        warmup_steps = int(self.options.warmup_ratio * steps)
        schedule = training.WarmupDecay(self.learning_rate, warmup_steps, steps)
        return training.AdamW(schedule, weight_decay=self.options.weight_decay)

    def should_stop(self, scores: Sequence[float]) -> bool:
        """Returns whether to end the training early, see `early_stopping_patience`.

        Args:
            scores: The score on the dev set after each epoch.
        """
        best = scores.index(max(scores)) + 1
        return 0 < self.options.early_stopping_patience <= len(scores) - best

    @abc.abstractmethod
    def dataset(self, name: str) -> Split:
        """Returns the split `name`, `"train"` or one of `evaluation_splits`.

        Only the training data need targets.
        """

    @abc.abstractmethod
    def evaluate(
        self,
        split: Split,
        outputs: Sequence[Any],
        decision: Mapping[str, Any] | None = None,
    ) -> Evaluation:
        """Returns the answers for a split and, if it is labeled, their metrics.

        Args:
            split: A split from `dataset`.
            outputs: The model's output for each of its N rows.
            decision: The decision to apply; None to fit it on this split, the dev set.
        """

    # --- Predictions -------------------------------------------------------------

    @classmethod
    def read_input(cls, options: FinetuneConfig, path: str) -> Iterator[Example]:
        """Yields the examples of a file for `--predict`.

        Args:
            options: Those of the training; `Config`'s defaults for other checkpoints.
            path: The file.
        """
        raise NotImplementedError

    @classmethod
    def answer(
        cls, model: serving.Predictor, columns: Sequence[Sequence], batch_size: int
    ) -> Mapping[str, np.ndarray]:
        """Returns the answers that `prediction` takes, arrays with N rows.

        Args:
            model: The finished model.
            columns: The `inputs` of N examples, transposed.
            batch_size: Examples per batch.
        """
        return model.predict(*columns, batch_size=batch_size)

    @classmethod
    def prediction(
        cls,
        example: Example,
        answer: Mapping[str, Any],
        settings: Mapping[str, Any],
        options: FinetuneConfig,
    ) -> Prediction:
        """Returns the prediction of an example; by default the first of the answers.

        Args:
            example: The example.
            answer: Its values in the answers.
            settings: The settings of the head.
            options: Those of the training, as for `read_input`.
        """
        (_, value), *others = answer.items()
        return Prediction(value, columns=dict(others))

    @classmethod
    def prediction_rows(
        cls,
        examples: Iterable[Example],
        answers: Mapping[str, Sequence[Any]],
        settings: Mapping[str, Any],
        options: FinetuneConfig,
    ) -> Iterator[dict[str, Any]]:
        """Yields the rows of a table of predictions: `id`; the columns of `--keep`; the
        texts; `prediction`; `confidence`; `gold`, if the input has it; other columns of
        `prediction`.

        Raises:
            ValueError: A column of `--keep` has the name of another column.
        """
        examples = [*examples]
        has_gold = any(example.gold is not None for example in examples)
        for index, example in enumerate(examples):
            answer = {name: values[index] for name, values in answers.items()}
            found = cls.prediction(example, answer, settings, options)
            value, texts = found.value, example.texts
            if not isinstance(value, str | int):
                value = _rounded(value) if np.ndim(value) else float(f"{value:.7g}")
            if texts is None:
                names = ("text_a", "text_b") if len(example.inputs) > 1 else ("text",)
                texts = dict(zip(names, example.inputs))
            row = {"id": example.id, **example.kept, **texts, "prediction": value}
            if found.confidence is not None:
                row["confidence"] = _rounded(found.confidence)
            if has_gold:
                gold = example.gold if found.gold is None else found.gold
                row["gold"] = "" if gold is None else gold
            row |= {name: _rounded(x) for name, x in found.columns.items()}
            for name, value in example.kept.items():
                if row[name] != value:
                    raise ValueError(
                        f"--keep={name} is also the name of another column of the "
                        "predictions. Omit it, or rename it in the table."
                    )
            yield row

    @classmethod
    def is_correct(cls, gold: Any, prediction: Any) -> bool:
        """Whether a prediction of a class or text is right, for report.md."""
        return gold == prediction

    def rows(
        self, name: str, answers: Mapping[str, Sequence[Any]]
    ) -> Iterator[dict[str, Any]]:
        """Yields the rows of the predictions for a split."""
        examples = self.data[name]
        return self.prediction_rows(examples, answers, self.settings, self.options)

    def write_predictions(
        self, name: str, answers: Mapping[str, Sequence[Any]], folder: pathlib.Path
    ) -> None:
        """Writes the predictions for a split to files in `folder`."""
        path = folder / f"predictions_{name}.tsv"
        data.write_table(path, self.rows(name, answers))


def _rounded(value: Any) -> float | str:
    """Returns a string, a number with six decimals, or several of them as a string."""
    if np.ndim(value):
        values = np.ravel(value).tolist()
        return " ".join(x if isinstance(x, str) else f"{x:.6f}" for x in values)
    return value if isinstance(value, str) else round(float(value), 6)
