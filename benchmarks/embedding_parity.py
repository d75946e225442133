# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes sentence encoders with bert_tf and with sentence-transformers.

    python -m benchmarks.embedding_parity --model=all-MiniLM-L6-v2 \\
        --data_dir=glue/STS-B --loss=cosent --output=embedding.tsv

Both start from the same weights and train on the same pairs of STS-B with the same loss
and recipe (see `peers.torch_optimizer`). sentence-transformers contributes its model,
its tokenizer, its losses and `encode`; the loop is written here, because its trainer
has other defaults. Its batches are random and padded to their longest text; those of
bert_tf have texts of similar length. Prints the Spearman correlation on the dev set and
the processor time of training and evaluation, as means and standard deviations over the
seeds. Runs with a score in --output are not repeated. Needs torch and
sentence-transformers.
"""

from __future__ import annotations

import dataclasses
import math
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable

import numpy as np

from benchmarks import peers
from bert_tf import checkpoints, cli, data, finetuning, text
from bert_tf.lazy import lazy_import
from tasks.embedding import Embedding

scipy = lazy_import("scipy")

LIBRARIES = ("bert_tf", "sentence-transformers")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParityConfig(cli.Options):
    """Options of `python -m benchmarks.embedding_parity`."""

    model: str = cli.option(help="Folder of a sentence-transformers model.")
    data_dir: str = cli.option(help="Folder of STS-B.")
    output: str = cli.option(help="TSV file for the scores.")
    loss: str = cli.option(
        "cosent", help="Loss of both.", choices=("cosent", "cosine", "simcse")
    )
    train_pairs: int = cli.option(0, help="Training pairs; 0 for all.", minimum=0)
    max_sequence_length: int = cli.option(128, help="Tokens per text.")
    batch_size: int = cli.option(16, help="Examples per step.", minimum=1)
    epochs: int = cli.option(1, help="Passes over the training data.", minimum=1)
    learning_rate: float = cli.option(2e-5, help="Peak learning rate.")
    seeds: int = cli.option(3, help="Number of seeds.", minimum=1)


def main(options: ParityConfig) -> None:
    """Trains what is missing and prints means and standard deviations."""
    path = pathlib.Path(options.output)
    rows = data.read_table(path) if path.exists() else []
    done = {(row["library"], int(row["seed"])) for row in rows}
    train: dict[str, Callable] = dict(zip(LIBRARIES, (_train_ours, _train_theirs)))
    with tempfile.TemporaryDirectory() as folder:
        shared = _shared_options(options, pathlib.Path(folder))
        for seed in range(options.seeds):
            for library in LIBRARIES:
                if (library, seed) in done:
                    continue
                output = f"{folder}/{library}{seed}"
                own = dataclasses.replace(shared, seed=seed, output=output)
                start = time.process_time()
                spearman = train[library](own)
                seconds = round(time.process_time() - start, 1)
                row = {"library": library, "seed": seed, "spearman": spearman}
                rows.append(row | {"processor_seconds": seconds})
                print(rows[-1], flush=True)
                data.write_table(path, rows)
    for library in LIBRARIES:
        for name in ("spearman", "processor_seconds"):
            values = [float(r[name]) for r in rows if r["library"] == library]
            deviation = statistics.stdev(values) if len(values) > 1 else 0.0
            mean = statistics.mean(values)
            print(f"{library}: {name} {mean:.4f} ± {deviation:.4f}")


def _shared_options(options: ParityConfig, folder: pathlib.Path) -> Embedding.Config:
    """Writes the training pairs to `folder` and returns the options of the task."""
    source = pathlib.Path(options.data_dir)
    header, *lines = (source / "train.tsv").read_text(encoding="utf-8").splitlines()
    order = np.random.default_rng(0).permutation(len(lines))
    chosen = [lines[i] for i in order[: options.train_pairs or None]]
    (folder / "train.tsv").write_text("\n".join([header, *chosen]), encoding="utf-8")
    return Embedding.Config(
        init_from=options.model,
        output="",
        train_file=str(folder / "train.tsv"),
        dev_file=str(source / "dev.tsv"),
        texts="sentence1,sentence2",
        label="score",
        loss=options.loss,
        max_sequence_length=options.max_sequence_length,
        batch_size=options.batch_size,
        epochs=options.epochs,
        learning_rate=options.learning_rate,
    )


def _train_ours(options: Embedding.Config) -> float:
    return finetuning.fine_tune(Embedding, options)["training"]["score"]


def _train_theirs(options: Embedding.Config) -> float:
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import losses

    task = _task(options)
    torch.manual_seed(options.seed)
    rng = np.random.default_rng(options.seed)
    model = SentenceTransformer(options.init_from, device="cpu")
    model.max_seq_length = options.max_sequence_length
    scale = 1 / options.temperature
    loss_function = {
        "cosent": lambda: losses.CoSENTLoss(model, scale=scale),
        "cosine": lambda: losses.CosineSimilarityLoss(model),
        "simcse": lambda: losses.MultipleNegativesRankingLoss(model, scale=scale),
    }[options.loss]()
    examples, scores = task.examples["train"]
    labels = np.zeros(len(examples)) if scores is None else task.as_cosines(scores)
    steps = math.ceil(len(examples) / options.batch_size)
    optimizer, schedule = peers.torch_optimizer(
        model, options.learning_rate, steps * options.epochs
    )
    best = -1.0
    for _ in range(options.epochs):
        model.train()
        for rows in np.array_split(rng.permutation(len(examples)), steps):
            columns = zip(*(examples[row] for row in rows))
            features = [model.tokenize(list(column)) for column in columns]
            batch_labels = torch.tensor(labels[rows], dtype=torch.float32)
            optimizer.zero_grad()
            loss_function(features, batch_labels).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        best = max(best, _evaluate(model, task, options.batch_size))
    return best


def _task(options: Embedding.Config) -> Embedding:
    source = checkpoints.open_checkpoint(options.init_from)
    return Embedding(options, text.Tokenizer(source.vocabulary, source.lowercase))


def _evaluate(model, task: Embedding, batch_size: int) -> float:
    """Returns the Spearman correlation on the dev set."""
    model.eval()
    pairs, scores = task.examples["dev"]
    first, second = (
        model.encode(list(column), batch_size=batch_size, normalize_embeddings=True)
        for column in zip(*pairs)
    )
    cosines = np.sum(first * second, axis=1)
    return float(scipy.stats.spearmanr(scores, cosines).statistic)


if __name__ == "__main__":
    cli.run(main, ParityConfig)
