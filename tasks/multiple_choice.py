# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Multiple choice: selects the best continuation or answer (paper, section 4.4).

Input: SWAG in its own files, or TSV, CSV or JSONL tables with a header. The label is
the right choice: the name of its column; its number, from 0 or from 1; or its letter,
A to Z. The first of these that fits all labels is how they are read, unless
--choice_labels selects one. A row may have empty choices::

    prompt                           a                    b                label
    The chicken cannot fly. It       spreads its wings.   crosses the road.    1

    python -m tasks.multiple_choice --task=swag --data_dir=swagaf/data \\
        --init_from=models/base --output=models/swag --learning_rate=2e-5

    python -m tasks.multiple_choice --train_file=train.csv --dev_file=dev.csv \\
        --prompt=prompt --choices=a,b --label=label \\
        --init_from=models/base --output=models/choice

In a JSONL file, --choices may name one column with a list of texts, or with an object
of texts and their names as in ARC and CommonsenseQA:
{"text": ["Paris", "Rome"], "label": ["A", "B"]}.

Output: a fine-tuned model directory with dev accuracy in metrics.json and
predictions_dev.tsv: id, prompt, the best choice as labels name it, and the probability
of each choice. A test set (test.csv or test.tsv in --data_dir, or --test_file) adds
predictions_test.tsv; it needs no labels.

Expected: BERT base has 81.6 % accuracy on the dev set of SWAG (table 4).
"""

from __future__ import annotations

import dataclasses
import string
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from absl import logging

from bert_tf import cli, finetuning, heads
from bert_tf.lazy import lazy_import

tf = lazy_import("tensorflow")

# By value of --choice_labels: a function of the names in the data and the number C of
# choices that returns the names of the choices in labels.
_NAMES: Mapping[str, Callable[[Sequence[str], int], Sequence[str]]] = {
    "name": lambda names, count: names,
    "from_0": lambda names, count: [str(i) for i in range(count)],
    "from_1": lambda names, count: [str(i) for i in range(1, count + 1)],
    "letter": lambda names, count: list(string.ascii_uppercase[:count]),
}

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
    settings: Mapping = {}
    benchmarks = DATA_SETS
    columns = ("prompt", "choices", "label")
    other_flags = ("choice_labels",)

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
        choice_labels: str = cli.option(
            "auto",
            help="What labels are: the name of the right choice, its number or letter.",
            choices=("auto", *_NAMES),
        )

    @classmethod
    def own_data_set(cls, options: Config) -> finetuning.DataSet:
        """Returns the columns that the flags select."""
        names = tuple(name.strip() for name in options.choices.split(","))
        texts, nested = (options.prompt, *names), names if len(names) == 1 else ()
        return finetuning.DataSet(texts=texts, label=options.label, nested=nested)

    @classmethod
    def read(cls, options, split, paths):
        data_set = cls.find_data_set(options)
        for row in super().read(options, split, paths):
            example = _example(row, data_set)
            yield example._replace(choices=_names(example, options.choice_labels))

    def __init__(self, options, encoder):
        super().__init__(options, encoder)
        known, kind = [*self.data["train"], *self.data["dev"]], options.choice_labels

        def fits(kind: str) -> int:
            return sum(row.gold in _names(row, kind) for row in known)

        if kind == "auto":
            kind = max(_NAMES, key=fits)  # The first of the best.
            if kind == "from_0" and "0" not in {row.gold for row in known}:
                logging.warning(
                    "Labels count from 0, although none is 0. If the first choice is "
                    "1, pass --choice_labels=from_1."
                )
        self.options = dataclasses.replace(options, choice_labels=kind)
        self.data = {
            name: [row._replace(choices=_names(row, kind)) for row in part]
            for name, part in self.data.items()
        }
        self.labels = {
            name: [_label(row, self.data_set.label) for row in part]
            for name, part in self.data.items()
            if part[0].gold is not None
        }

    def dataset(self, name: str) -> finetuning.Split:
        prompts, choices = zip(*(example.inputs for example in self.data[name]))
        size = max(map(len, choices))
        choices = [(*texts, *[""] * (size - len(texts))) for texts in choices]
        rows, labels = self.head.encode(prompts, choices), self.labels.get(name)
        return finetuning.Split(name, rows, labels and tf.constant(labels))

    def evaluate(self, split, outputs, decision=None):
        answers = heads.to_numpy(self.head.answers(np.stack(outputs)))
        metrics, gold = {}, self.labels.get(split.name)
        if gold is not None:
            most_frequent = np.bincount(self.labels["train"]).argmax()
            predicted = {"accuracy": answers["choice"]}
            predicted["majority_accuracy"] = most_frequent
            metrics = {k: float(np.mean(x == gold)) for k, x in predicted.items()}
        return finetuning.Evaluation(metrics, answers)

    @classmethod
    def prediction(cls, example, answer, settings, options):
        best, shares = int(answer["choice"]), answer["probabilities"]
        value = example.choices[best] if example.choices else best
        # Their number may vary. Batches are padded.
        columns = {"probabilities": shares[: len(example.inputs[1])]}
        return finetuning.Prediction(value, shares.max(), columns)


def _example(
    row: finetuning.Example, data_set: finetuning.DataSet
) -> finetuning.Example:
    """Returns the prompt and the choices of a row, with the names in the data.

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
        are_lists = are_lists and len(names) in (0, len(texts))
        if not are_lists or {*map(type, names + texts)} - {str, int, bool}:
            raise ValueError(
                f"{row.location}: column {data_set.nested[0]!r} must be a list of "
                "texts, or --choices must name a column for each choice."
            )
        names, texts = (list(map(str, column)) for column in (names, texts))
    choices = tuple(" ".join([*stem, x.strip()]) if x.strip() else "" for x in texts)
    if sum(map(bool, choices)) < 2:
        raise ValueError(f"{row.location}: fewer than two choices are not empty.")
    texts = {"prompt": prompt}
    return row._replace(texts=texts, inputs=(prompt, choices), choices=names)


def _names(example: finetuning.Example, kind: str) -> Sequence[str]:
    """Returns the names of the choices, as labels have them."""
    names, count = example.choices, len(example.inputs[1])
    return names if kind == "auto" else _NAMES[kind](names, count)


def _label(example: finetuning.Example, column: str) -> int:
    """Returns the index of the right choice."""
    names = example.choices
    if example.gold not in names:
        raise ValueError(
            f"{example.location}: column {column!r} must be one of {', '.join(names)}, "
            f"the name of a choice as in most rows. Got {example.gold!r}. See "
            "--choice_labels."
        )
    label = names.index(example.gold)
    if not example.inputs[1][label]:
        raise ValueError(f"{example.location}: the right choice, {label}, is empty.")
    return label


def main(options: MultipleChoice.Config | finetuning.PredictConfig) -> None:
    """Fine-tunes, or predicts a file."""
    finetuning.run_task(MultipleChoice, options)


if __name__ == "__main__":
    cli.run(main, MultipleChoice.Config, predict=finetuning.PredictConfig)
