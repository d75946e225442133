# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes all kinds of tasks on the current backend of Keras.

    KERAS_BACKEND=jax python -m tests.toy.all_tasks folder

Prints what `train` returns. Some tasks run on several devices.
"""

import dataclasses
import json
import pathlib
import sys

import numpy as np

import bert_tf
from bert_tf import finetuning
from bert_tf.finetuning import PredictConfig
from bert_tf.modeling import BertConfig
from bert_tf.text import Vocabulary
from tasks.classification import Classification
from tasks.embedding import Embedding
from tasks.multiple_choice import MultipleChoice
from tasks.question_answering import QuestionAnswering
from tasks.tagging import Tagging
from tests.toy.models import model_directory, randomize_weights
from tests.toy.tasks import make_task

PAIRS = {"text_a": "x", "text_b": "y", "label": "name"}
TASKS = {
    "classes": (Classification, PAIRS),
    "labels": (Classification, PAIRS | {"label_separator": "e"}),
    "scores": (Classification, PAIRS | {"label": "score", "problem": "regression"}),
    "windows": (
        Classification,
        {"text_a": "x", "label": "name", "long_text": "window_mean"},
    ),
    "student": (Classification, PAIRS | {"teacher": "classes"}),
    "spans": (QuestionAnswering, {"max_question_length": 8}),
    "choices": (MultipleChoice, {"prompt": "x", "choices": "x,y", "label": "right"}),
    "tags": (Tagging, {}),
    "features": (Tagging, {"features": "weighted_sum_all", "lstm_units": 8}),
    "vectors": (Embedding, {"texts": "x,y", "label": "score"}),
    "search": (Embedding, {"texts": "x,y"}),
}

ON_SEVERAL = ("labels", "student", "search")


def write_models(
    folder: pathlib.Path, config: BertConfig, vocabulary: Vocabulary
) -> None:
    """Writes a model directory `<task>/initial` with random weights for each task.

    The backends initialize new layers differently.
    """
    for name, (kind, options) in TASKS.items():
        (folder / name).mkdir()
        task = make_task(kind, folder / name, vocabulary, **options)
        head, path = {"kind": task.kind, **task.head}, folder / name / "initial"
        directory = model_directory(path, config, vocabulary, head)
        model = task.served_head().build(directory.build_backbone())
        directory.save_weights(randomize_weights(model))


def train(folder: pathlib.Path, strategy: str = "default") -> dict[str, dict]:
    """Returns losses, predictions and the answers of `--predict` and `load` by task.

    Args:
        folder: That of `write_models`. The results are written to it.
        strategy: Where the tasks `ON_SEVERAL` run.
    """
    results = {}
    for name, (kind, options) in TASKS.items():
        initial = bert_tf.open_checkpoint(folder / name / "initial")
        task = make_task(kind, folder / name, initial.vocabulary, **options)
        teacher = task.options.teacher and str(folder / task.options.teacher / "model")
        changes = {
            "init_from": str(initial.path),
            "output": str(folder / name / "model"),
        }
        changes |= {"teacher": teacher, "epochs": 3, "batch_size": 2}
        changes["strategy"] = strategy if name in ON_SEVERAL else "default"
        task_options = dataclasses.replace(task.options, learning_rate=1e-3, **changes)
        metrics = finetuning.fine_tune(kind, task_options)
        output = folder / name / "answers.tsv"
        predict = PredictConfig(
            predict=True,
            model=task_options.output,
            input=task_options.dev_file,
            output=str(output),
        )
        finetuning.run_task(kind, predict)
        model, columns = bert_tf.load(task_options.output), {}
        texts = {"question": "the cat", "choices": ["cat", "a mat", ""]}
        for key, signature in model.signatures.items():
            if key != "ids" and key != "words":
                inputs = [
                    texts.get(x.name, "a cat sat") for x in signature.input_signature
                ]
                answers = model.predict(*([x] for x in inputs), signature=key)
                columns[key] = {k: x.tolist() for k, x in answers.items()}
        ids = np.array([[2, 30, 31, 3]])
        ids = ids[:, None] if kind is MultipleChoice else ids
        answers = model.predict(ids, ids * 0, ids * 0 + 1, signature="ids")
        results[name] = {
            "epochs": metrics["training"]["epochs"],
            "predictions": {
                path.name: path.read_text()
                for path in (folder / name / "model").glob("predictions_dev.*")
            },
            "file": output.read_text(),
            "answers": columns | {"ids": {k: x.tolist() for k, x in answers.items()}},
        }
    return results


if __name__ == "__main__":
    print(json.dumps(train(pathlib.Path(sys.argv[1]), "mirrored")))
