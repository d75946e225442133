# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The best of several continuations or answers (paper, section 4.4).

SWAG or CODAH in their own files, or a TSV, CSV or JSONL file with named columns::

    prompt                           a                    b                label
    The chicken cannot fly. It       spreads its wings.   crosses the road.    1

    python -m tasks.multiple_choice --task=swag --data_dir=swagaf/data \\
        --init_from=models/base --output=models/swag --learning_rate=2e-5

    python -m tasks.multiple_choice --train_file=train.csv --dev_file=dev.csv \\
        --prompt=prompt --choices=a,b --label=label \\
        --init_from=models/base --output=models/choice

The label is the number of the right choice, from 0, or the name of its column. Rows may
have fewer choices than there are columns: an empty cell is none.

Out: the fine-tuned model directory, its accuracy on dev in metrics.json, and
predictions_dev.tsv with the index, the number of the best choice, and the probability
of each. With a test set (test.csv or test.tsv in --data_dir, or --test_file) there is
predictions_test.tsv as well; it needs no labels. BERT base reaches 81.6 % on SWAG's dev
set (table 4).
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bert_tf import cli, finetuning, serving
from bert_tf.data import Table, write_table
from bert_tf.finetuning.data_sets import TablesConfig
from bert_tf.finetuning.task import Task
from bert_tf.lazy import lazy_import

finetune = lazy_import("bert_tf.finetuning.run")
heads = lazy_import("bert_tf.modeling.heads")
scipy = lazy_import("scipy")
tf = lazy_import("tensorflow")

if TYPE_CHECKING:
    import keras

    from bert_tf.finetuning import Split
    from bert_tf.modeling.bert import BertBackbone
    from bert_tf.text.tokenizer import Tokenizer


# --- Data sets -------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class DataSet:
    """Where the examples of a data set are.

    Attributes:
        prompt: The column with the prompt.
        choices: The columns with the choices.
        label: The column with the right one.
        files: For each split the alternatives, of which the first that exists is read.
        columns: Names of the columns of files without a header.
        stem: A column whose text every choice begins with, if any.
    """

    prompt: str
    choices: Sequence[str]
    label: str
    files: Mapping[str, Sequence[str]]
    columns: Sequence[str] = ()
    stem: str = ""


DATA_SETS: Mapping[str, DataSet] = {
    "swag": DataSet(
        prompt="sent1",
        choices=[f"ending{number}" for number in range(4)],
        label="label",
        files={"train": ["train.csv"], "dev": ["val.csv"], "test": ["test.csv"]},
        stem="sent2",
    ),
    # The folds of its authors' cross-validation have no dev set.
    "codah": DataSet(
        prompt="prompt",
        choices=[f"answer{number}" for number in range(4)],
        label="label",
        files={
            "train": ["train.tsv"],
            "dev": ["dev.tsv", "test.tsv"],
            "test": ["test.tsv"],
        },
        columns=("category", "prompt", *(f"answer{n}" for n in range(4)), "label"),
    ),
}


# --- The task --------------------------------------------------------------------


class Example(NamedTuple):
    """A row of a file.

    Attributes:
        prompt: The first segment.
        choices: C second segments; an empty one is none.
        label: The number of the right one; None where the file has no labels.
    """

    prompt: str
    choices: tuple[str, ...]
    label: int | None


class MultipleChoice(Task):
    """See the module docstring."""

    kind = "multiple_choice"
    metric = "accuracy"

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Config(TablesConfig):
        """Options of `python -m tasks.multiple_choice`."""

        task: str = cli.option(
            "",
            help=f"Data set in its own files, one of {', '.join(DATA_SETS)}.",
            common=True,
        )
        prompt: str = cli.option(
            "",
            help="Column of the prompt.",
            common=True,
        )
        choices: str = cli.option(
            "",
            help="Columns of the choices, separated by commas.",
            common=True,
        )
        label: str = cli.option(
            "",
            help="Column of the right choice.",
            common=True,
        )

    def __init__(self, options: Config, tokenizer: Tokenizer):
        super().__init__(options, tokenizer)
        self.data_set = _known(options) if options.task else _own(options)
        self.examples = {
            split: self._read(split, path)
            for split in self.data_set.files
            if (path := self._find(split))
        }

    @property
    def head(self) -> Mapping[str, Any]:
        return {}

    @property
    def evaluation_splits(self) -> Sequence[str]:
        return [name for name in self.examples if name != "train"]

    def model(self, backbone: BertBackbone) -> keras.Model:
        return heads.ChoiceScorer(backbone)

    def preprocess(self, prompt: tf.Tensor, choices: tf.Tensor) -> dict[str, tf.Tensor]:
        """Encodes `prompt` [N] with each of `choices` [N, C]; inputs are [N, C, S].

        The `padding_mask` of an empty choice is 0.
        """
        shape = tf.shape(choices)
        inputs = self.tokenizer.encode(
            tf.repeat(prompt, shape[1]),
            tf.reshape(choices, [-1]),
            max_sequence_length=self.options.max_sequence_length,
        )
        inputs = {
            name: tf.reshape(x, [shape[0], shape[1], tf.shape(x)[1]])
            for name, x in inputs.items()
        }
        exists = tf.cast(choices != "", tf.int32)
        inputs["padding_mask"] *= exists[:, :, tf.newaxis]
        return inputs

    def dataset(self, name: str) -> Split:
        examples = self.examples[name]
        inputs = finetuning.encode(
            self.preprocess,
            [example.prompt for example in examples],
            [example.choices for example in examples],
        )  # [N, C, (S)]
        labels = [example.label for example in examples]
        targets = None if labels[0] is None else tf.constant(labels)
        return finetuning.Split(name, labels, inputs, targets)

    def evaluate(self, split: Split, outputs: Sequence[np.ndarray]) -> dict[str, float]:
        best = np.argmax(outputs, axis=1)
        return {"accuracy": float(np.mean(best == split.source))}

    def majority_baseline(self, split: Split) -> float:
        return float(np.bincount(split.source).max() / len(split.source))

    def gold_and_predicted(
        self, split: Split, outputs: Sequence[np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """The numbers of the choices, from 0, as names."""
        best = np.argmax(outputs, axis=1)
        return np.asarray(split.source).astype(str), best.astype(str)

    def write_predictions(
        self, split: Split, outputs: Sequence[np.ndarray], folder: pathlib.Path
    ) -> pathlib.Path:
        probabilities = scipy.special.softmax(np.stack(outputs), axis=1)  # [N, C]
        rows = [
            {"index": index, "prediction": row.argmax()}
            | {f"P({number})": f"{p:.6f}" for number, p in enumerate(row)}
            for index, row in enumerate(probabilities)
        ]
        path = folder / f"predictions_{split.name}.tsv"
        write_table(path, rows)
        return path

    def serve(self, model: keras.Model) -> dict[str, serving.Signature]:
        """The signatures of the exported model, for N prompts with C choices each.

        serving_default  prompt [N], choices [N, C] -> choice [N] int32, the number of
                         the best one from 0, and probabilities [N, C] float32. C is any
                         number; an empty string is no choice, its probability is 0.
        ids              token_ids, segment_ids, padding_mask [N, C, S] -> logits [N, C]
        """

        @serving.signature(
            serving.string_input("prompt"),
            tf.TensorSpec([None, None], tf.string, "choices"),
        )
        def serving_default(prompt, choices):
            tf.debugging.assert_equal(
                tf.size(prompt), tf.shape(choices)[0], "`choices` must be of [N, C]."
            )
            logits = model(self.preprocess(prompt, choices), training=False)  # [N, C]
            return {
                "choice": tf.argmax(logits, axis=1, output_type=tf.int32),
                "probabilities": tf.nn.softmax(logits),
            }

        return {"serving_default": serving_default, "ids": serving.ids_signature(model)}

    # --- Reading -----------------------------------------------------------------

    def _find(self, split: str) -> pathlib.Path | None:
        """Returns the file of a split; None for a test set that is not there."""
        folder = pathlib.Path(self.options.data_dir)
        names = self.data_set.files[split]
        for path in (folder / name for name in names):
            if path.is_file():
                return path
        if self.options.task and split == "test" and not self.options.test_file:
            return None
        raise ValueError(
            f"The {split} set is missing: there is no {' or '.join(names)} in "
            f"{folder.absolute()}."
        )

    def _read(self, split: str, path: pathlib.Path) -> list[Example]:
        data = self.data_set
        table = Table(path, data.columns)
        columns = [data.prompt, *data.choices]
        if data.stem:
            columns.append(data.stem)
        is_labelled = split != "test" or data.label in table.columns
        if is_labelled:
            columns.append(data.label)
        table.require(columns, "--prompt, --choices and --label, or by --task")
        examples = []
        for line, values in table.rows(columns):
            row = dict(zip(columns, values, strict=True))
            choices = tuple(row[name].strip() for name in data.choices)
            if data.stem:
                choices = tuple(f"{row[data.stem]} {c}" if c else "" for c in choices)
            where = f"{path}, line {line}"
            if sum(map(bool, choices)) < 2:
                raise ValueError(f"{where}: fewer than two choices are not empty.")
            label = (
                _label(row[data.label], choices, data, where) if is_labelled else None
            )
            examples.append(Example(row[data.prompt], choices, label))
        if not examples:
            raise ValueError(f"{path} has a header but no rows.")
        return examples


def _label(text: str, choices: Sequence[str], data: DataSet, where: str) -> int:
    """The number of the right choice."""
    if text in data.choices:
        number = data.choices.index(text)
    elif text.isdecimal() and int(text) < len(choices):
        number = int(text)
    else:
        raise ValueError(
            f"{where}: the column {data.label!r} must have the number of the right "
            f"choice, 0 to {len(choices) - 1}, or its column's name. Received: {text!r}"
        )
    if not choices[number]:
        raise ValueError(f"{where}: the right choice, {text}, is empty.")
    return number


def _known(options: MultipleChoice.Config) -> DataSet:
    if options.task not in DATA_SETS:
        raise ValueError(
            f"--task must be one of {', '.join(DATA_SETS)}. "
            f"Received: task={options.task!r}"
        )
    names = ("train_file", "dev_file", "prompt", "choices", "label")
    given = [f"--{name}" for name in names if getattr(options, name)]
    if given:
        raise ValueError(
            f"--task={options.task} says its files and columns itself; leave out "
            f"{', '.join(given)}."
        )
    data_set = DATA_SETS[options.task]
    if options.test_file:
        test_file = str(pathlib.Path(options.test_file).absolute())
        files = {**data_set.files, "test": [test_file]}
        data_set = dataclasses.replace(data_set, files=files)
    return data_set


def _own(options: MultipleChoice.Config) -> DataSet:
    for name in ("train_file", "dev_file", "prompt", "choices", "label"):
        if not getattr(options, name):
            raise ValueError(
                f"--{name} is missing. Data of one's own need --train_file, "
                "--dev_file, --prompt, --choices and --label; known data sets --task "
                "and --data_dir."
            )
    if options.data_dir:
        raise ValueError("--data_dir goes with --task; leave it out.")
    splits = {
        "train": options.train_file,
        "dev": options.dev_file,
        "test": options.test_file,
    }
    return DataSet(
        prompt=options.prompt,
        choices=options.choices.split(","),
        label=options.label,
        files={split: [file] for split, file in splits.items() if file},
    )


def main(*grid: MultipleChoice.Config) -> None:
    """Fine-tunes once for each of the options, see `finetune.main`."""
    finetune.main(MultipleChoice, *grid)


if __name__ == "__main__":
    cli.run(main, MultipleChoice.Config)
