# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes with transformers and torch, as a reference for the tasks' scores.

    python -m benchmarks.finetune_parity --model=all-MiniLM-L6-v2 --task=mrpc \\
        --data_dir=glue/MRPC --learning_rate=1e-4 --output=torch_mrpc.tsv
    python -m benchmarks.finetune_parity --model=all-MiniLM-L6-v2 \\
        --train_file=train-v2.0.json --dev_file=dev-v2.0.json --batch_size=16 \\
        --max_sequence_length=192 --stride=96 --epochs=2 --output=torch_squad.tsv
    python -m benchmarks.finetune_parity --model=all-MiniLM-L6-v2 \\
        --train_file=train.tsv --dev_file=dev.tsv --text_a=text --label=labels \\
        --label_separator=";" --output=torch_labels.tsv

Trains transformers' `BertForSequenceClassification` or, without --task and --label,
`BertForQuestionAnswering` on the examples of `tasks/` with the recipe of
`bert_tf.finetuning`: AdamW with bias correction, no weight decay of biases and
LayerNorm, gradients clipped to norm 1, warm-up over a tenth of the steps and linear
decay. As in transformers' Trainer, batches are shuffled and padded to their longest
example. The task scores the outputs after each epoch, and each seed keeps its best
epoch. Seeds with a score in --output are not trained again. Needs torch and
transformers.
"""

from __future__ import annotations

import dataclasses
import math
import pathlib
import statistics
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks import peers
from bert_tf import checkpoints, cli, data, text

if TYPE_CHECKING:
    from bert_tf.finetuning import Split, Task


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParityConfig(cli.Options):
    """Options of `python -m benchmarks.finetune_parity`."""

    model: str = cli.option(help="Folder of a BERT checkpoint of transformers.")
    output: str = cli.option(help="TSV file for the scores.")
    task: str = cli.option("", help="GLUE data set; empty for SQuAD.")
    data_dir: str = cli.option("", help="Folder of the GLUE data set.")
    train_file: str = cli.option("", help="SQuAD training file, or a table.")
    dev_file: str = cli.option("", help="SQuAD dev file, or a table.")
    text_a: str = cli.option("", help="Column of the text in a table.")
    label: str = cli.option("", help="Column of the class or classes in a table.")
    label_separator: str = cli.option("", help="Separator of several labels.")
    max_sequence_length: int = cli.option(128, help="Tokens per example.")
    stride: int = cli.option(128, help="Tokens between the starts of windows.")
    batch_size: int = cli.option(32, help="Examples per step.", minimum=1)
    epochs: int = cli.option(3, help="Passes over the training data.", minimum=1)
    learning_rate: float = cli.option(1e-4, help="Peak learning rate.")
    seeds: int = cli.option(3, help="Number of seeds.", minimum=1)


def main(options: ParityConfig) -> None:
    """Trains missing seeds and prints the mean and standard deviation of all."""
    path = pathlib.Path(options.output)
    rows = data.read_table(path) if path.exists() else []
    done = {int(row["seed"]) for row in rows}
    for seed in sorted({*range(options.seeds)} - done):
        task = _task(options)
        start = time.process_time()
        best = max(_train(options, task, seed), key=lambda scores: scores[task.metric])
        seconds = round(time.process_time() - start)
        rows.append({"seed": seed, **best, "processor_seconds": seconds})
        data.write_table(path, rows)
    names = [name for name in rows[0] if name != "seed"]
    for name in names:
        values = [float(row[name]) for row in rows]
        deviation = statistics.stdev(values) if len(values) > 1 else 0.0
        print(f"{name}: {statistics.mean(values):.4f} ± {deviation:.4f}")
    print(f"Scores of {len(rows)} seeds in {path}.")


def _task(options: ParityConfig) -> Task:
    """Returns the task, which makes the examples and computes the scores."""
    from tasks.classification import Classification
    from tasks.question_answering import QuestionAnswering

    is_classification = options.task or options.label
    task_class = Classification if is_classification else QuestionAnswering
    names = {field.name for field in dataclasses.fields(task_class.Config)}
    shared = {k: v for k, v in vars(options).items() if k in names}
    source = checkpoints.open_checkpoint(options.model)
    tokenizer = text.Tokenizer(source.vocabulary, lowercase=source.lowercase)
    return task_class(task_class.Config(**shared), tokenizer)


def _train(options: ParityConfig, task: Task, seed: int) -> Iterator[dict[str, float]]:
    """Yields the scores on the dev set after each epoch."""
    import torch

    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    split, dev = task.dataset("train"), task.dataset(task.evaluation_splits[0])
    model = _model(options, task)
    steps = options.epochs * math.ceil(len(split) / options.batch_size)
    optimizer, schedule = peers.torch_optimizer(model, options.learning_rate, steps)
    for epoch in range(options.epochs):
        model.train()
        order = rng.permutation(len(split))
        for start in range(0, len(order), options.batch_size):
            rows = order[start : start + options.batch_size]
            loss = model(**_inputs(split, rows), **_labels(split, rows)).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        outputs = list(_predict(options, model, dev))
        scores = task.evaluate(dev, task.decode(dev, outputs))
        named = ", ".join(f"{name} {score:.4f}" for name, score in scores.items())
        print(f"seed {seed}, epoch {epoch + 1}: {named}", flush=True)
        yield scores


def _model(options: ParityConfig, task: Task):
    import transformers

    if not (options.task or options.label):
        return transformers.BertForQuestionAnswering.from_pretrained(options.model)
    problems = {"other": "regression", "class": "single_label_classification"}
    return transformers.BertForSequenceClassification.from_pretrained(
        options.model,
        num_labels=len(task.labels) or 1,
        problem_type=problems.get(task.target_kind, "multi_label_classification"),
    )


def _inputs(split: Split, rows: np.ndarray) -> dict[str, Any]:
    """Returns a batch, padded to its longest example."""
    length = int(split.lengths[rows].max())
    return peers.transformers_inputs(peers.padded_rows(split.inputs, rows, length))


def _labels(split: Split, rows: np.ndarray) -> dict[str, Any]:
    import torch

    def column(values) -> Any:
        return torch.tensor(np.asarray(values)[rows])

    if not isinstance(split.targets, dict):
        labels = column(split.targets)
        return {"labels": labels if labels.is_floating_point() else labels.long()}
    return {
        "start_positions": column(split.targets["start_logits"]).long(),
        "end_positions": column(split.targets["end_logits"]).long(),
    }


def _predict(options: ParityConfig, model, split: Split) -> Iterator[Any]:
    """Yields the outputs for each example, as `Task.evaluate` takes them."""
    import torch

    model.eval()
    for start in range(0, len(split), options.batch_size):
        rows = np.arange(start, min(start + options.batch_size, len(split)))
        with torch.no_grad():
            outputs = model(**_inputs(split, rows))
        if options.task or options.label:
            yield from outputs.logits.numpy()
        else:
            for ends in zip(outputs.start_logits.numpy(), outputs.end_logits.numpy()):
                yield dict(zip(("start_logits", "end_logits"), ends, strict=True))


if __name__ == "__main__":
    cli.run(main, ParityConfig)
