# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Predictions of files, decisions that are fitted on predictions, and reports.

Letters: N texts, C classes, L labels.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import matplotlib.figure
import numpy as np
import scipy.optimize
import scipy.sparse
import scipy.special
import sklearn.metrics
import sklearn.preprocessing
import sklearn.svm
import tensorflow as tf
from tqdm import tqdm

from bert_tf import data, serving, storage
from bert_tf.finetuning.task import Example, PredictConfig, Task
from bert_tf.text import Vocabulary, join_features

_ECE_BINS = 15  # As in arXiv 1706.04599.
_MAX_CLASSES = 30  # Rarer classes are merged, so that tables and plots stay readable.
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


# --- Decisions -------------------------------------------------------------------


def best_thresholds(gold: np.ndarray, probabilities: np.ndarray) -> list[float]:
    """Returns the threshold of each label with the highest F1.

    A label is predicted if its probability is above its threshold. Labels without a
    positive text have the threshold 0.5.

    Args:
        gold: 0 or 1 for each label [N, L].
        probabilities: [N, L].
    """
    thresholds = []
    for is_right, scores in zip(gold.T, probabilities.T):
        if not is_right.any():
            thresholds.append(0.5)
            continue
        precision, recall, values = sklearn.metrics.precision_recall_curve(
            is_right, scores
        )
        f1 = precision * recall / np.maximum(precision + recall, 1e-12)
        best = f1[:-1].argmax()
        # Halfway to the next lower probability, to be robust to rounding.
        lower = scores[scores < values[best]].max(initial=0.0)
        thresholds.append(float(values[best] + lower) / 2)
    return thresholds


def best_temperature(gold: np.ndarray, logits: np.ndarray) -> float:
    """Returns the divisor of the logits with the lowest cross-entropy.

    Args:
        gold: Class indices [N].
        logits: [N, C].
    """

    def loss(log_temperature: float) -> float:
        scores = scipy.special.log_softmax(logits / np.exp(log_temperature), axis=1)
        return -scores[np.arange(len(gold)), gold].mean()

    bounds = np.log([0.05, 20])
    return float(np.exp(scipy.optimize.minimize_scalar(loss, bounds=bounds).x))


def calibration_error(gold: np.ndarray, probabilities: np.ndarray) -> float:
    """Returns the expected calibration error (arXiv 1706.04599, section 2).

    Args:
        gold: Class indices [N].
        probabilities: [N, C].
    """
    confidence = probabilities.max(axis=1)
    is_right = probabilities.argmax(axis=1) == gold
    # Bins are open on the left: (0, 1/15], (1/15, 2/15], ...
    bins = np.ceil(confidence * _ECE_BINS).astype(int)
    return float(np.abs(np.bincount(bins, is_right - confidence)).sum() / len(gold))


def fit_join_weights(
    ids: tf.RaggedTensor, words: np.ndarray, vocabulary: Vocabulary
) -> str:
    """Fits which words of BERT's basic tokenizer a corpus joins, as in U.S.

    Args:
        ids: Pieces of N texts that are split into words, ragged [N, (pieces)] int32.
        words: Index of the word of each piece [pieces].
        vocabulary: Vocabulary of the pieces.

    Returns:
        The `join_weights` of `find_words`; "" if no words are joined.
    """
    is_basic_word = ~vocabulary.is_continuation[ids.values]
    is_joined = np.diff(words, prepend=-1)[is_basic_word] == 0
    if not is_joined.any():
        return ""
    features, size = join_features(ids, vocabulary)
    columns = features.numpy()[is_basic_word]
    rows, per_row = columns.shape
    matrix = scipy.sparse.csr_matrix(
        (np.ones(columns.size), columns.ravel(), np.arange(rows + 1) * per_row),
        shape=(rows, size),
    )
    # The L1 penalty makes most weights zero.
    model = sklearn.svm.LinearSVC(
        penalty="l1",
        C=0.2,
        tol=0.01,
        dual=False,
        fit_intercept=False,
        random_state=0,
    )
    weights = model.fit(matrix, is_joined).coef_[0].round(2)
    return " ".join(f"{index}:{weights[index]}" for index in weights.nonzero()[0])


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


def prediction_plot(
    kind: str, gold: Sequence, predicted: Sequence
) -> matplotlib.figure.Figure | None:
    """Returns a confusion matrix of classes, or a scatter plot of scores.

    For tags and labels there is no plot, only the table.
    """
    if kind in ("tags", "labels"):
        return None
    figure = matplotlib.figure.Figure(layout="constrained")
    axes = figure.add_subplot(xlabel="predicted", ylabel="gold")
    if kind == "score":
        axes.scatter(predicted, gold, s=12, alpha=0.4, linewidths=0)
        axes.axline((np.mean(gold), np.mean(gold)), slope=1, color="gray")
        return figure
    gold, predicted = _merge_rare_classes(gold, predicted)
    size = 3 + 0.6 * len({*gold, *predicted})
    figure.set_size_inches(size, size)
    sklearn.metrics.ConfusionMatrixDisplay.from_predictions(
        gold,
        predicted,
        normalize="true",
        values_format=".0%",
        xticks_rotation="vertical",
        cmap="Blues",
        colorbar=False,
        ax=axes,
    )
    return figure


def learning_plot(training: Mapping[str, Any]) -> matplotlib.figure.Figure:
    """Returns the loss and the score on the dev set after each epoch.

    Args:
        training: The metrics of the training; see `train.train`.
    """
    history, metric = training["epochs"], training["metric"]
    epochs = range(1, len(history) + 1)
    figure = matplotlib.figure.Figure(figsize=(8, 3.5), layout="constrained")
    curves = {"training loss": "loss", metric: metric.replace(" ", "_")}
    for axes, (title, name) in zip(figure.subplots(1, 2), curves.items()):
        axes.plot(epochs, [row[name] for row in history], marker="o")
        axes.set(title=title, xlabel="epoch")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3)
    best = training["best_epoch"]
    axes.axvline(best, color="gray", linewidth=1, linestyle="--", label="kept")
    axes.legend()
    return figure


def write_plot(figure: matplotlib.figure.Figure, path: pathlib.Path) -> None:
    """Writes a PNG file atomically."""
    with storage.atomic_path(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)


def _merge_rare_classes(gold: Sequence, predicted: Sequence) -> list[np.ndarray]:
    """Renames all but the most frequent classes to "(others)"."""
    names, counts = np.unique(np.concatenate([gold, predicted]), return_counts=True)
    kept = names[np.argsort(-counts, kind="stable")[:_MAX_CLASSES]]
    return [np.where(np.isin(v, kept), v, "(others)") for v in (gold, predicted)]
