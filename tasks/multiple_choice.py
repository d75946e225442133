# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Multiple choice: selects the best continuation or answer (paper, section 4.4).

Input: SWAG in its own files, or TSV, CSV or JSONL tables with a header. The label is
the right choice: its index from 0 or, if no label is 0 and one is the number of
choices, from 1; its letter, A to Z; or the name of its column. A row may have empty
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
predictions_dev.tsv: id, prompt, index of the best choice, and the probability of each
choice. A test set (test.csv or test.tsv in --data_dir, or --test_file) adds
predictions_test.tsv; it needs no labels.

Expected: BERT base has 81.6 % accuracy on the dev set of SWAG (table 4).
"""

from __future__ import annotations

import dataclasses
import string
from collections.abc import Mapping, Sequence

import numpy as np
from absl import logging

from bert_tf import cli, finetuning
from bert_tf.lazy import lazy_import

scipy = lazy_import("scipy")
tf = lazy_import("tensorflow")

DATA_SETS: Mapping[str, finetuning.DataSet] = {
    "swag": finetuning.DataSet(
        # `sent2` is the stem, the beginning of every choice.
        texts=("sent1", "sent2", "ending0", "ending1", "ending2", "ending3"),
        files={"train": "train.csv", "dev": "val.csv", "test": "test.csv"},
    ),
}


class MultipleChoice(finetuning.TableTask):
    """See the module docstring."""

    kind = "multiple_choice"
    head: Mapping = {}
    benchmarks = DATA_SETS
    columns = ("prompt", "choices", "label")

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Config(finetuning.TablesConfig):
        """Options of `python -m tasks.multiple_choice`."""

        task: str = cli.option(
            "", help="Data set in --data_dir.", choices=("", *DATA_SETS), common=True
        )
        prompt: str = cli.option("", help="Column of the prompt.", common=True)
        choices: str = cli.option(
            "",
            help="Columns of the choices, separated by commas, or one of lists.",
            common=True,
        )
        label: str = cli.option("", help="Column of the right choice.", common=True)

    @classmethod
    def own_data_set(cls, options: Config) -> finetuning.DataSet:
        """Returns the columns that the flags select."""
        names = tuple(name.strip() for name in options.choices.split(","))
        texts, nested = (options.prompt, *names), names if len(names) == 1 else ()
        return finetuning.DataSet(texts=texts, label=options.label, nested=nested)

    @classmethod
    def read_input(cls, options, path):
        data_set = DATA_SETS.get(options.task) or cls.own_data_set(options)
        for row in super().read_input(options, path):
            yield _example(row, data_set)[0]

    def __init__(self, options, encoder):
        super().__init__(options, encoder)
        found = {
            name: [_example(row, self.data_set) for row in rows]
            for name, rows in self.data.items()
        }
        self.data = {name: [x for x, _ in rows] for name, rows in found.items()}
        known = [*self.data["train"], *self.data["dev"]]
        golds, (_, names) = {x.gold for x in known}, found["train"][0]
        counts_from_one = "0" not in golds and any(
            x.gold == str(len(x.inputs[1])) for x in known
        )
        others = {"0", *names, *string.ascii_uppercase}
        if not counts_from_one and golds.isdisjoint(others):
            logging.warning(
                "Labels count from 0, although none is 0. If the first choice is 1, "
                "use letters (A, B, ...) as labels."
            )
        self.labels = {
            name: [
                _label(*row, self.data_set.label, int(counts_from_one)) for row in rows
            ]
            for name, rows in found.items()
            if rows[0][0].gold is not None
        }

    def dataset(self, name: str) -> finetuning.Split:
        prompts, choices = zip(*(example.inputs for example in self.data[name]))
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
        answers = {"choice": best, "probabilities": probabilities}
        rows = finetuning.prediction_rows(self.data[split.name], answers)
        return finetuning.Evaluation(metrics, rows)


def _example(
    row: finetuning.Example, data_set: finetuning.DataSet
) -> tuple[finetuning.Example, Sequence[str]]:
    """Returns the prompt and the choices of a row, and the names of the choices.

    An empty choice counts as missing. SWAG has a stem of all choices.
    """
    start = 2 if data_set is DATA_SETS["swag"] else 1
    prompt, *stem = row.inputs[:start]
    names, texts = data_set.texts[start:], row.inputs[start:]
    if data_set.nested:
        names, (texts,) = [], texts
        if isinstance(texts, dict):
            names, texts = texts.get("label", []), texts.get("text")
        are_lists = isinstance(names, list) and isinstance(texts, list)
        if not are_lists or {*map(type, names + texts)} - {str, int, bool}:
            raise ValueError(
                f"{row.location}: column {data_set.nested[0]!r} must be a list of "
                "texts, or --choices must name a column for each choice."
            )
        names, texts = (list(map(str, column)) for column in (names, texts))
    choices = tuple(" ".join([*stem, x.strip()]) if x.strip() else "" for x in texts)
    if sum(map(bool, choices)) < 2:
        raise ValueError(f"{row.location}: fewer than two choices are not empty.")
    return row._replace(texts={"prompt": prompt}, inputs=(prompt, choices)), names


def _label(
    example: finetuning.Example, names: Sequence[str], column: str, first: int
) -> int:
    """Returns the index of the right choice. Numbers of choices start at `first`."""
    choices = example.inputs[1]
    last, indices = first + len(choices) - 1, {}
    for known in (string.ascii_uppercase, map(str, range(first, last + 1)), names):
        indices |= zip(known, range(len(choices)))
    if example.gold not in indices:
        raise ValueError(
            f"{example.location}: column {column!r} must be the index of the right "
            f"choice, {first} to {last}, its letter, or the name of its column. Got "
            f"{example.gold!r}."
        )
    label = indices[example.gold]
    if not choices[label]:
        raise ValueError(f"{example.location}: the right choice, {label}, is empty.")
    return label


def main(options: MultipleChoice.Config | finetuning.PredictConfig) -> None:
    """Fine-tunes, or predicts a file."""
    finetuning.run_task(MultipleChoice, options)


if __name__ == "__main__":
    cli.run(main, MultipleChoice.Config, predict=finetuning.PredictConfig)
