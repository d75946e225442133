# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tasks of all kinds on data files of one to three rows, and models for them."""

import json
import pathlib
from collections.abc import Mapping
from typing import Any

import keras
import pytest

from bert_tf import finetuning, heads, serving
from bert_tf.checkpoints import Checkpoint, ModelDirectory
from bert_tf.data import read_table
from bert_tf.finetuning import PredictConfig, Task
from bert_tf.modeling import BertBackbone, BertConfig
from bert_tf.text import Vocabulary
from tasks.classification import Classification
from tasks.embedding import Embedding
from tasks.multiple_choice import MultipleChoice
from tasks.question_answering import QuestionAnswering
from tasks.tagging import Tagging
from tests.toy.checkpoints import encoder
from tests.toy.models import model_directory, randomize_weights

_QUESTION = {"id": "1", "question": "a", "answers": [], "is_impossible": True}
_PARAGRAPH = {"context": "b", "qas": [_QUESTION]}
_FILES = {
    ".tsv": "x\ty\tname\tscore\tright\na\tb\tno\t1\t0\nthe\tcat\tyes\t2.5\t1\n",
    ".json": json.dumps({"data": [{"paragraphs": [_PARAGRAPH]}]}),
    ".conll": "the O\ncat B-P\nsat B-L\n",
}
_SUFFIXES = {QuestionAnswering: ".json", Tagging: ".conll"}

_TEXTS = {"text_a": "x", "label": "name"}
_PAIRS = _TEXTS | {"text_b": "y"}
# Name -> kind of task, options that fit the files above.
TASKS = {
    "texts": (Classification, _TEXTS),
    "windows": (Classification, _TEXTS | {"long_text": "window_mean"}),
    "classes": (Classification, _PAIRS),
    "labels": (Classification, _PAIRS | {"label_separator": "e"}),
    "scores": (Classification, _PAIRS | {"label": "score", "problem": "regression"}),
    "spans": (QuestionAnswering, {"max_question_length": 8}),
    "choices": (MultipleChoice, {"prompt": "x", "choices": "x,y", "label": "right"}),
    "tags": (Tagging, {}),
    "features": (Tagging, {"features": "weighted_sum_all", "lstm_units": 8}),
    "vectors": (Embedding, {"texts": "x,y", "label": "score"}),
    "search": (Embedding, {"texts": "x,y"}),
}


def make_task(
    name: str, folder: pathlib.Path, vocabulary: Vocabulary, **changes
) -> Task:
    """Writes a data file to `folder` and returns one of `TASKS` that reads it.

    Rows have at most 32 tokens. `changes` are further options.
    """
    kind, options = TASKS[name]
    suffix = _SUFFIXES.get(kind, ".tsv")
    file = folder / f"data{suffix}"
    file.write_text(_FILES[suffix])
    files = dict.fromkeys(("train_file", "dev_file"), str(file))
    options = {"output": "unused", "max_sequence_length": 32, **files, **options}
    return kind(kind.Config(**options | changes), encoder(vocabulary))


def write_model(
    name: str,
    folder: pathlib.Path,
    config: BertConfig,
    vocabulary: Vocabulary,
    **attributes,
) -> ModelDirectory:
    """Writes `folder`/random, a model directory of a task with random weights."""
    task = make_task(name, folder, vocabulary)
    head = {"kind": task.kind, **task.settings}
    attributes = {"options": task.options.to_dict(), **attributes}
    path = folder / "random"
    directory = model_directory(path, config, vocabulary, head, **attributes)
    model = task.head.build(directory.build_backbone())
    directory.save_weights(randomize_weights(model))
    return directory


def serve(
    task: Task, model: keras.Model, decision: Mapping[str, Any] | None = None
) -> dict[str, heads.Signature]:
    """Returns the signatures that an export of the task's model has."""
    head = task.build_head({**task.settings, **(decision or {})})
    return serving.head_signatures(head, model)


def export(
    name: str,
    folder: pathlib.Path,
    backbone: BertBackbone,
    checkpoint: Checkpoint,
    **changes,
) -> pathlib.Path:
    """Exports the signature for strings of one of `TASKS` to `folder`/name.

    The head on `backbone` has random weights. `changes` are further options.
    """
    task = make_task(name, folder, checkpoint.vocabulary, **changes)
    signatures = serve(task, task.head.build(backbone))
    signatures = {"serving_default": signatures["serving_default"]}
    return serving.export_saved_model(signatures, folder / name, checkpoint=checkpoint)


def predict_file(
    task_class: type[Task], model: serving.Predictor, file: str, output: pathlib.Path
) -> list[dict[str, str]]:
    """Returns the rows of `--predict`, from a model whose graph is traced already."""
    options = PredictConfig(
        predict=True, model="unused", input=file, output=str(output)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serving, "load", lambda _: model)
        finetuning.run_task(task_class, options)
    return read_table(output)
