# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Dev scores of exported encoders in float32 and in mixed_bfloat16.

    python -m benchmarks.export_precision --models=models/sst2,models/wnut

Input: model directories of fine-tuned models and the data files that they were trained
on. Output: a table of the dev scores with the encoders as exported.
"""

from __future__ import annotations

import dataclasses

from bert_tf import checkpoints, cli, finetuning, modeling, serving, text
from tasks.classification import Classification
from tasks.multiple_choice import MultipleChoice
from tasks.question_answering import QuestionAnswering
from tasks.tagging import Tagging

_TASKS = {
    task.kind: task
    for task in (Classification, MultipleChoice, QuestionAnswering, Tagging)
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrecisionConfig(cli.Options):
    """Options of `python -m benchmarks.export_precision`."""

    models: str = cli.option(help="Model directories, separated by commas.")


def main(options: PrecisionConfig) -> None:
    """Prints the table."""
    print("| model | dev | float32 | bfloat16 |")
    print("|---|---|---|---|")
    for path in options.models.split(","):
        before, after = (scores(path, dtype) for dtype in ("float32", "mixed_bfloat16"))
        for name, score in before.items():
            print(f"| {path} | {name} | {score:.4f} | {after[name]:.4f} |", flush=True)


def scores(path: str, dtype: str) -> dict[str, float]:
    """Returns the dev scores of a model with the exported encoder."""
    directory = checkpoints.ModelDirectory.open(path)
    kind = _TASKS[directory.head["kind"]]
    task = kind(
        kind.Config.from_dict({**directory.options, "output": path}),
        text.Tokenizer(directory.vocabulary, lowercase=directory.lowercase),
    )
    model = task.model(modeling.BertBackbone(directory.architecture, dtype=dtype))
    directory.load_weights(model)
    split = task.dataset(task.evaluation_splits[0])
    outputs = finetuning.predict(
        serving.optimize_for_inference(model),
        split,
        batch_size=32,
        max_length=task.options.max_sequence_length,
    )
    return task.evaluate(split, task.decode(split, outputs))


if __name__ == "__main__":
    cli.run(main, PrecisionConfig)
