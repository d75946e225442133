# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Multiple choice: selects the best continuation or answer (paper, section 4.4).

Input: SWAG or CODAH in their own files, or TSV, CSV or JSONL tables with a header. The
label is the right choice: its index from 0 or, if no label is 0 and one is the number
of choices, from 1; its letter, A to Z; or the name of its column. A row may have empty
choices::

    prompt                           a                    b                label
    The chicken cannot fly. It       spreads its wings.   crosses the road.    1

    python -m tasks.multiple_choice --task=swag --data_dir=swagaf/data \\
        --init_from=models/base --output=models/swag --learning_rate=2e-5

    python -m tasks.multiple_choice --train_file=train.csv --dev_file=dev.csv \\
        --prompt=prompt --choices=a,b --label=label \\
        --init_from=models/base --output=models/choice

In a JSONL file, --choices may name one column with a list of texts, or with an object
of texts and their labels as in ARC and CommonsenseQA:
{"text": ["Paris", "Rome"], "label": ["A", "B"]}.

Output: a fine-tuned model directory with dev accuracy in metrics.json and
predictions_dev.tsv: index, index of the best choice, and the probability of each
choice. A test set (test.csv or test.tsv in --data_dir, or --test_file) adds
predictions_test.tsv; it needs no labels.

Expected: BERT base has 81.6 % accuracy on the dev set of SWAG (table 4).
"""

from __future__ import annotations

import dataclasses
import pathlib
import string
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bert_tf import cli, finetuning, text
from bert_tf.lazy import lazy_import

scipy = lazy_import("scipy")
tf = lazy_import("tensorflow")

if TYPE_CHECKING:
    from bert_tf.finetuning import Row, Split


DATA_SETS: Mapping[str, finetuning.DataSet] = {
    "swag": finetuning.DataSet(
        # `sent2` is the stem, the beginning of every choice.
        texts=("sent1", "sent2", "ending0", "ending1", "ending2", "ending3"),
        files={"train": [["train.csv"]], "dev": [["val.csv"]], "test": [["test.csv"]]},
    ),
    # The authors' cross-validation folds have no dev set.
    "codah": finetuning.DataSet(
        texts=("prompt", *(f"answer{n}" for n in range(4))),
        files={"dev": [["dev.tsv"], ["test.tsv"]]},
        columns=dict.fromkeys(
            ("train", "dev", "test"),
            ("category", "prompt", *(f"answer{n}" for n in range(4)), "label"),
        ),
    ),
}


# How to call a model of SWAG; in its head, so that its export tells clients.
_SWAG_USAGE = {
    "inputs": {
        "prompt": "sent1",
        "choices": "sent2 and an ending, joined by a space, for each choice",
    },
    "example": {
        "prompt": ["A man sits down at a piano."],
        "choices": [["He starts to play a song.", "He paints the wall with it."]],
    },
}


class MultipleChoice(finetuning.Task):
    """See the module docstring."""

    kind = "multiple_choice"
    metric = "accuracy"

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Config(finetuning.TablesConfig):
        """Options of `python -m tasks.multiple_choice`."""

        task: str = cli.option(
            "", help="Data set in --data_dir.", choices=("", *DATA_SETS), common=True
        )
        prompt: str = cli.option("", help="Column of the prompt.", common=True)
        choices: str = cli.option(
            "",
            help="Columns of the choices, separated by commas, or one column of a "
            "JSONL file with a list.",
            common=True,
        )
        label: str = cli.option("", help="Column of the right choice.", common=True)

    def __init__(self, options: Config, tokenizer: text.Tokenizer):
        super().__init__(options, tokenizer)
        data_set, splits = finetuning.read_data_set(
            options,
            DATA_SETS,
            _own_data_set(options),
            required=("prompt", "choices", "label"),
        )
        self.head = _SWAG_USAGE if options.task == "swag" else {}
        columns = _choice_columns(options, data_set)
        self.examples = {
            name: [_example(row, columns) for row in rows]
            for name, rows in splits.items()
        }
        rows = [*splits["train"], *splits["dev"]]
        counts_from_one = all(row.label != "0" for row in rows) and any(
            row.label == str(len(_choices(row, columns)[0])) for row in rows
        )
        self.labels = {
            name: [
                _label(row, columns, data_set.label, int(counts_from_one))
                for row in rows
            ]
            for name, rows in splits.items()
            if rows[0].label is not None
        }
        self.evaluation_splits = [name for name in splits if name != "train"]
        dev = self.labels["dev"]
        self.majority_baseline = max(map(dev.count, dev)) / len(dev)

    @classmethod
    def read_input(cls, options: Config, path: str) -> Iterator[finetuning.Example]:
        data_set = DATA_SETS.get(options.task) or _own_data_set(options)
        columns = _choice_columns(options, data_set)
        flags = "the training's --prompt and --choices"
        for row in finetuning.read_rows(data_set, "test", [pathlib.Path(path)], flags):
            yield _example(row, columns)

    def dataset(self, name: str) -> Split:
        prompts, choices = zip(*(example.inputs for example in self.examples[name]))
        size = max(map(len, choices))
        choices = [(*texts, *[""] * (size - len(texts))) for texts in choices]
        inputs = finetuning.encode(self.served_head().encode, prompts, choices)
        labels = self.labels.get(name)
        targets = None if labels is None else tf.constant(labels)
        return finetuning.Split(name, labels, inputs, targets)

    def evaluate(self, split, outputs, decision=None):
        probabilities = scipy.special.softmax(np.stack(outputs), axis=1)  # [N, C]
        best, gold, metrics = probabilities.argmax(axis=1), split.source, {}
        if gold is not None:
            metrics = {"accuracy": float(np.mean(best == gold))}
            gold = [str(choice) for choice in gold]
        answers = ({"choice": p.argmax(), "probabilities": p} for p in probabilities)
        rows = finetuning.prediction_rows(self.examples[split.name], answers)
        return finetuning.Evaluation(metrics, rows, {}, gold, best.astype(str))


def _own_data_set(options: MultipleChoice.Config) -> finetuning.DataSet:
    """Returns the columns that the flags select."""
    names = tuple(name.strip() for name in options.choices.split(","))
    return finetuning.DataSet(
        texts=(options.prompt, *names),
        label=options.label,
        nested=names if len(names) == 1 else (),
    )


def _choice_columns(
    options: MultipleChoice.Config, data_set: finetuning.DataSet
) -> Sequence[str]:
    """Returns the columns of the choices. SWAG has a stem of all choices before."""
    return data_set.texts[2 if options.task == "swag" else 1 :]


def _choices(row: Row, columns: Sequence[str]) -> tuple[list[str], Sequence[str]]:
    """Returns the texts of the choices, and their names if they have any."""
    names, texts = columns, row.texts[-len(columns) :]
    if len(columns) == 1:
        names, (texts,) = [], texts
        if isinstance(texts, dict):
            names, texts = texts.get("label"), texts.get("text")
        if not all(
            isinstance(column, list) and all(isinstance(x, str) for x in column)
            for column in (names, texts)
        ):
            raise ValueError(
                f"{row.location}: column {columns[0]!r} must be a list of texts, or "
                "--choices must name a column for each choice."
            )
    return [value.strip() for value in texts], names


def _example(row: Row, columns: Sequence[str]) -> finetuning.Example:
    """Returns the prompt and the choices of a row; `columns` are those of the choices.

    An empty choice counts as missing.
    """
    prompt, *stem = row.texts[: -len(columns)]
    choices, _ = _choices(row, columns)
    if sum(map(bool, choices)) < 2:
        raise ValueError(f"{row.location}: fewer than two choices are not empty.")
    choices = tuple(" ".join([*stem, choice]) if choice else "" for choice in choices)
    inputs = prompt, choices
    return finetuning.Example(row.id, {"prompt": prompt}, inputs, row.label)


def _label(
    row: Row, columns: Sequence[str], label_column: str, first_label: int
) -> int:
    """Returns the index of the right choice."""
    choices, names = _choices(row, columns)
    last_label = first_label + len(choices) - 1
    numbers = map(str, range(first_label, last_label + 1))
    indices = {}
    for known in (string.ascii_uppercase, numbers, names):
        indices |= zip(known, range(len(choices)))
    if row.label not in indices:
        raise ValueError(
            f"{row.location}: column {label_column!r} must be the index of the right "
            f"choice, {first_label} to {last_label}, its letter, or the name of its "
            f"column. Received: {row.label!r}"
        )
    label = indices[row.label]
    if not choices[label]:
        raise ValueError(f"{row.location}: the right choice, {label}, is empty.")
    return label


def main(options: MultipleChoice.Config | finetuning.PredictConfig) -> None:
    """Fine-tunes, or predicts a file."""
    finetuning.run_task(MultipleChoice, options)


if __name__ == "__main__":
    cli.run(main, MultipleChoice.Config, predict=finetuning.PredictConfig)
