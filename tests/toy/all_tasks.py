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
import tempfile
from concurrent import futures

import keras
import numpy as np

import bert_tf
from bert_tf import finetuning
from bert_tf.finetuning import PredictConfig
from bert_tf.modeling import BertConfig
from bert_tf.text import Vocabulary
from tests.toy import tasks as toy

# "student" learns from "classes"; "texts" trains as "windows".
TASKS = (*(name for name in toy.TASKS if name != "texts"), "student")
ON_SEVERAL = ("labels", "student", "search")


def _task(name: str) -> str:
    return "classes" if name == "student" else name


def write_models(
    folder: pathlib.Path, config: BertConfig, vocabulary: Vocabulary
) -> None:
    """Writes a model directory `<task>/random` for each task.

    The backends initialize new layers differently.
    """
    for name in TASKS:
        (folder / name).mkdir(parents=True)
        toy.write_model(_task(name), folder / name, config, vocabulary, options={})


def train(folder: pathlib.Path, strategy: str = "default") -> dict[str, dict]:
    """Returns losses, predictions and the answers of `--predict` and `load` by task.

    Args:
        folder: That of `write_models`. The results are written to it.
        strategy: Where the tasks `ON_SEVERAL` run.
    """
    results = {}
    for name in TASKS:
        initial = bert_tf.open_checkpoint(folder / name / "random")
        task = toy.make_task(_task(name), folder / name, initial.vocabulary)
        task_options = dataclasses.replace(
            task.options,
            init_from=str(initial.path),
            output=str(folder / name / "model"),
            teacher=str(folder / "classes/model") if name == "student" else "",
            strategy=strategy if name in ON_SEVERAL else "default",
            epochs=3,
            batch_size=2,
            learning_rate=1e-3,
        )
        metrics = finetuning.fine_tune(type(task), task_options)
        output = folder / name / "answers.tsv"
        paths = {"model": task_options.output, "input": task_options.dev_file}
        predict = PredictConfig(predict=True, output=str(output), **paths)
        finetuning.run_task(type(task), predict)
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
        ids = ids[:, None] if name == "choices" else ids
        inputs = {"token_ids": ids, "segment_ids": ids * 0, "padding_mask": ids * 0 + 1}
        answers = model.predict(*inputs.values(), signature="ids")
        with futures.ThreadPoolExecutor(4) as pool:
            arguments = (model.predict, *inputs.values())
            calls = [pool.submit(*arguments, signature="ids") for _ in range(8)]
            for call in calls:
                keras.tree.map_structure(
                    np.testing.assert_array_equal, call.result(), answers
                )
        _check_saving(task.head.build(initial.build_backbone()), inputs)
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


def _check_saving(model: keras.Model, inputs: dict[str, np.ndarray]) -> None:
    """Checks that Keras loads the model that it saves."""
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/model.keras")
        again = keras.saving.load_model(f"{folder}/model.keras")
    # `predict` would divide the row among several devices of JAX.
    expected, found = (keras.tree.flatten(m(inputs)) for m in (model, again))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


if __name__ == "__main__":
    print(json.dumps(train(pathlib.Path(sys.argv[1]), "mirrored")))
