# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Predictions of files, their tables, and reports."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import sklearn.metrics
import sklearn.preprocessing
from tqdm import tqdm

from bert_tf import data, serving
from bert_tf.finetuning.task import Example, PredictConfig, Task

_MAX_CLASSES = 30  # Rarer classes are merged, so that tables stay readable.
_CHUNK = 1024  # Examples that are sorted by length, for batches of similar texts.

# --- Predictions -----------------------------------------------------------------


def predict_file(task_class: type[Task], options: PredictConfig) -> None:
    """Predicts `options.input` with a finished model, without its training files.

    The rows of `options.output` have the columns of `predictions_<split>.tsv`. Input
    and output are streamed, so that they may be larger than the memory. The output
    appears when it is complete.

    Raises:
        ValueError: The model is for another task, or the input is malformed.
        OSError: A file cannot be read or written.
    """
    model, config_class = serving.load(options.model), task_class.Config
    checkpoint, head = model.checkpoint, model.checkpoint.head
    if head["kind"] != task_class.kind:
        raise ValueError(
            f"--model must be a model for {task_class.kind}. {checkpoint.path} is a "
            f"model for {head['kind']}."
        )
    required = (field.name for field in dataclasses.fields(config_class))
    config = config_class.from_dict(dict.fromkeys(required, "") | checkpoint.options)
    examples = iter(task_class.read_input(config, options.input))

    def rows() -> Iterator[dict[str, Any]]:
        while chunk := list(itertools.islice(examples, _CHUNK)):
            order = np.argsort([len(str(x.inputs)) for x in chunk], kind="stable")
            columns = [*zip(*(chunk[index].inputs for index in order), strict=True)]
            answers = task_class.answer(model, columns, options.batch_size)
            in_input_order = (
                {name: values[row] for name, values in answers.items()}
                for row in np.argsort(order)
            )
            yield from prediction_rows(chunk, in_input_order, head.get("labels", ()))

    count = data.write_table(options.output, tqdm(rows(), unit=" rows", disable=None))
    print(f"{count:,} rows in {options.output}.")


def prediction_rows(
    examples: Iterable[Example],
    answers: Iterable[Mapping[str, Any]],
    labels: Sequence[str] = (),
) -> Iterator[dict[str, Any]]:
    """Yields the rows of a table of predictions.

    Args:
        examples: The inputs.
        answers: For each, the outputs of the exported model that define the prediction:
            `label` or `labels`, and `probabilities`; `choice` and `probabilities`;
            `answer` and `score`; `tags` and `scores`; or only `score`, a number or a
            vector.
        labels: The names of the probabilities.

    Yields:
        `id`; the texts; `prediction`; `confidence`, its probability; `gold`, if the
        input has it; and the probability of each label, `P(<label>)`. Several labels
        are independent: the confidence is the probability that all are right.
    """
    for example, answer in zip(examples, answers, strict=True):
        yield _prediction_row(example, answer, labels)


def _prediction_row(
    example: Example, answer: Mapping[str, Any], labels: Sequence[str]
) -> dict[str, Any]:
    names = ("label", "labels", "choice", "answer", "tags", "score")
    kind = next((name for name in names if name in answer), "")
    if not kind:
        raise ValueError(
            "The signature serving_default must have one of the outputs "
            f"{', '.join(names)} to predict files. Got {', '.join(answer)}."
        )
    prediction, probabilities = answer[kind], answer.get("probabilities", ())
    if kind == "labels":
        chosen = set(prediction)
        pairs = zip(labels, probabilities)
        confidence = math.prod(p if name in chosen else 1 - p for name, p in pairs)
        prediction = ",".join(filter(None, prediction))
    elif kind == "tags":
        tags = [tag for tag in prediction if tag]  # Of the padded row.
        confidence, prediction = answer["scores"][: len(tags)], " ".join(tags)
    elif kind == "score":
        confidence, prediction = None, _rounded(prediction)
    elif kind == "choice":
        confidence, prediction = max(probabilities), int(prediction)
    else:
        confidence = answer["score"] if kind == "answer" else max(probabilities)
    row = {"id": example.id, **example.texts, "prediction": prediction}
    if confidence is not None:
        row["confidence"] = _rounded(confidence)
    if example.gold is not None:
        row["gold"] = example.gold
    if kind == "choice":  # Their number may vary. Batches are padded.
        count = len(example.inputs[1])
        return row | {"probabilities": _rounded(probabilities[:count])}
    return row | {f"P({n})": _rounded(p) for n, p in zip(labels, probabilities)}


def _rounded(value: Any) -> float | str:
    """Returns a number, or numbers separated by spaces, with six decimals."""
    if np.ndim(value):
        return " ".join(f"{x:.6f}" for x in value)
    return round(float(value), 6)


# --- Reports ---------------------------------------------------------------------


def prediction_table(kind: str, gold: Sequence, predicted: Sequence) -> str:
    """Returns precision, recall and F1 of each class, or quartiles of scores, as text.

    Args:
        kind: `Task.target_kind`, which says what the labels are.
        gold: Gold labels.
        predicted: As many predictions.
    """
    report = sklearn.metrics.classification_report
    options = {"digits": 4, "zero_division": 0}
    if kind == "score":
        gold, predicted = np.asarray(gold), np.asarray(predicted)
        rows = {"gold": gold, "predicted": predicted, "|error|": abs(predicted - gold)}
        names = ("", "minimum", "25 %", "median", "75 %", "maximum")
        lines = ["{:10}{:>9}{:>9}{:>9}{:>9}{:>9}".format(*names)]
        for name, values in rows.items():
            quartiles = np.quantile(values, [0, 0.25, 0.5, 0.75, 1])
            lines.append(f"{name:10}" + "".join(f"{value:9.3f}" for value in quartiles))
        return "\n".join(lines) + "\n"
    if kind == "tags":
        # seqeval's top level imports Keras' metrics.
        from seqeval.metrics.sequence_labeling import classification_report as report
    elif kind == "labels":
        binarizer = sklearn.preprocessing.MultiLabelBinarizer().fit([*gold, *predicted])
        gold, predicted = map(binarizer.transform, (gold, predicted))
        options["target_names"] = binarizer.classes_
    else:
        gold, predicted = _merge_rare_classes(gold, predicted)
    return report(gold, predicted, **options)


def _merge_rare_classes(gold: Sequence, predicted: Sequence) -> list[np.ndarray]:
    """Renames all but the most frequent classes to "(others)"."""
    names, counts = np.unique(np.concatenate([gold, predicted]), return_counts=True)
    kept = names[np.argsort(-counts, kind="stable")[:_MAX_CLASSES]]
    return [np.where(np.isin(v, kept), v, "(others)") for v in (gold, predicted)]
