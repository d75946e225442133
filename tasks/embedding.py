# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Sentence embeddings: vectors whose cosine is the similarity of two texts.

Input: STS-B in its own files, or TSV, CSV or JSONL tables with a
header. The training file decides what is learned:

- pairs with scores (numbers in the column --label): the higher the score, the higher
  the cosine;
- pairs without scores, or with hard negatives (--texts=question,answer,wrong_answer):
  the first text finds the second among all texts of the batch;
- single texts, with --loss=simcse: each text finds itself, encoded with another dropout
  mask. They are all texts in the columns --texts; only the first is required.

A dev set with scores measures correlation. Without, each first text is a query among
all second texts. Example::

    sentence1                 sentence2                         score
    A plane is taking off.    An air plane is taking off.       5.0

    python -m tasks.embedding --task=stsb --data_dir=glue/STS-B \\
        --init_from=models/base --output=models/similarity

    python -m tasks.embedding --train_file=train.csv --dev_file=dev.csv \\
        --texts=question,paragraph --batch_size=64 \\
        --init_from=models/base --output=models/search

Output: a fine-tuned model directory with Spearman and Pearson correlation, or mean
reciprocal rank and recall, in metrics.json. predictions_dev.tsv has the similarity of
each pair, and in a search the rank of its second text. Pooling and similarity are those
of --init_from if it is a sentence encoder, else the mean over all tokens (or --pooling)
and the cosine. Its prompts are not used: put them into the texts.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping

import numpy as np
from absl import logging

from bert_tf import cli, finetuning, heads
from bert_tf.lazy import lazy_import

tf = lazy_import("tensorflow")

_STSB = dataclasses.replace(
    finetuning.GLUE["stsb"], optional={"predict": ["sentence2"]}
)
_RECALL_AT = (1, 5, 10)
_QUERIES_AT_ONCE = 256  # Compared with all texts.


class Embedding(finetuning.TableTask):
    """See the module docstring.

    Attributes:
        data: The examples of each split. Their inputs are C texts, "" for a missing
            hard negative.
        scores: The scores of the pairs of each split [N] float64; None without.
    """

    kind = "embedding"
    benchmarks: Mapping = {"stsb": _STSB}
    columns = ("texts",)
    other_flags = ("label",)

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Config(finetuning.TablesConfig):
        """Options of `python -m tasks.embedding`."""

        task: str = cli.option(
            "", help="Data set in --data_dir.", choices=("", "stsb"), common=True
        )
        texts: str = cli.option(
            "",
            help="Columns of two texts and of hard negatives, separated by commas.",
            common=True,
        )
        label: str = cli.option("", help="Column of scores, if any.", common=True)
        loss: str = cli.option(
            "auto",
            help="auto is cosent with scores, in_batch_negatives without.",
            choices=("auto", "cosent", "in_batch_negatives", "simcse"),
            common=True,
        )
        temperature: float = cli.option(0.05, help="Divides the cosines.", minimum=1e-3)
        pooling: str = cli.option("", help="How to pool tokens: mean, cls or max.")

    @classmethod
    def own_data_set(cls, options: Config) -> finetuning.DataSet:
        """Returns the columns that the flags select; `text` by default."""
        columns = tuple((options.texts or "text").split(","))
        simcse = columns[1:] if options.loss == "simcse" else ()
        optional = dict.fromkeys(("dev", "test"), columns[2:])
        optional |= {"train": (options.label, *simcse), "predict": columns[1:]}
        return finetuning.DataSet(
            texts=columns, label=options.label, optional=optional, problem="regression"
        )

    @classmethod
    def answer(cls, model, columns, batch_size):
        """Returns the similarities of pairs, or the vectors of single texts.

        Pairs get the model's prompts for queries and documents, if it has them.
        """
        head, output = model.checkpoint.head, "sentence_embedding"
        names = heads.search_signatures(head) if len(columns) > 1 else [output]
        vectors = [
            model.predict(column, signature=name, batch_size=batch_size)[output]
            for column, name in zip(columns, names)
        ]
        if len(vectors) == 1:
            return {"score": vectors[0]}
        return {"score": pair_similarities(head["similarity_fn_name"], *vectors)}

    def __init__(self, options, encoder):
        if "," not in options.texts and not options.task:
            raise ValueError(
                "--texts must be at least two columns; with --loss=simcse, the "
                f"training file may lack the second. Got --texts={options.texts}."
            )
        super().__init__(options, encoder)
        for split in self.evaluation_splits:
            row = self.data[split][0]
            if len(row.inputs) < 2:
                raise ValueError(
                    f"{row.path}: the {split} set must have at least two columns of "
                    f"--texts={options.texts}. Pass another --dev_file, also instead "
                    "of --dev_share."
                )
        self.loss = options.loss
        if self.loss == "simcse":
            texts = itertools.chain(*(row.inputs for row in self.data["train"]))
            self.data["train"] = [
                finetuning.Example(str(index), {}, (text, text))
                for index, text in enumerate(dict.fromkeys(filter(None, texts)))
            ]
            self.loss = "in_batch_negatives"
        self.scores = {k: finetuning.scores(rows) for k, rows in self.data.items()}
        train, dev = self.scores["train"], self.scores["dev"]
        if self.loss == "auto":
            self.loss = "in_batch_negatives" if train is None else "cosent"
        elif train is None and self.loss != "in_batch_negatives":
            raise ValueError(
                f"--loss={options.loss} requires scores. Pass their column as --label."
            )
        has_negatives = len(self.data["train"][0].inputs) > 2
        if options.batch_size == 1 and not has_negatives:
            raise ValueError(
                f"--loss={self.loss} compares the examples of a batch. --batch_size "
                "must be at least 2. Got 1."
            )
        if self.loss == "cosent" and (has_negatives or np.ptp(train) == 0):
            raise ValueError(
                "--loss=cosent compares pairs with different scores. For hard negatives"
                " or similar pairs only, pass --loss=in_batch_negatives. Received: "
                f"--texts={options.texts}, scores {min(train):g} to {max(train):g}"
            )
        self.is_search = dev is None
        self.metric = "mrr" if self.is_search else "spearman"
        head = {**encoder.head, "max_sequence_length": options.max_sequence_length}
        if options.pooling:
            head["pooling"] = options.pooling
        if prompts := encoder.head.get("prompts"):
            logging.warning(
                "%s: training adds no prompts to texts, so the new model has no "
                "prompts. It drops %s.",
                encoder.path, ", ".join(prompts),
            )  # fmt: skip
        self.settings = heads.EmbeddingConfig.from_dict(head).to_dict()

    def training_model(self, model):
        return finetuning.SiameseEncoder(model, self.loss, self.options.temperature)

    def dataset(self, name: str) -> finetuning.Split:
        """Returns the examples to train, or the U distinct texts of another split."""
        texts, indices = self._distinct_texts(name)
        rows = self.head.encode(texts)  # [U]
        if name != "train":
            return finetuning.Split(name, rows)
        if self.loss == "in_batch_negatives":
            targets = np.where(texts[indices] == "", -1, indices).astype(np.int32)
        else:
            # The loss compares scores. Ranks are exact in float32.
            _, targets = np.unique(self.scores[name], return_inverse=True)
            targets = targets.astype(np.float32)
        return finetuning.Split(name, rows[indices], targets)

    def _distinct_texts(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Returns the texts of a split [U], and the indices of each example [N, C]."""
        rows = np.array([example.inputs for example in self.data[name]], object)
        texts, indices = np.unique(rows, return_inverse=True)
        return texts, indices.reshape(rows.shape)

    def evaluate(self, split, outputs, decision=None):
        """Scores the pairs; in a search, also the ranks of their second texts."""
        scores, vectors = self.scores[split.name], np.stack(outputs)  # [U, E]
        metrics, similarity = {}, self.settings["similarity_fn_name"]
        pairs = self._distinct_texts(split.name)[1][:, :2]
        predicted = pair_similarities(similarity, *(vectors[i] for i in pairs.T))
        answers = {"score": predicted}
        if self.is_search:
            answers["rank"] = ranks(vectors, pairs, similarity)
            metrics = retrieval_metrics(pairs[:, 0], answers["rank"])
        elif scores is not None:
            metrics = finetuning.correlations(scores, predicted)
        return finetuning.Evaluation(metrics, answers)


# --- Search ----------------------------------------------------------------------


def pair_similarities(name: str, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Returns `heads.similarities` of each pair of vectors [N, E], as [N]."""
    blocks = (slice(start, start + 32) for start in range(0, len(first), 32))
    parts = (heads.similarities(name, first[x], second[x]).diagonal() for x in blocks)
    return np.concatenate([*parts])


def ranks(vectors: np.ndarray, pairs: np.ndarray, name: str = "cosine") -> np.ndarray:
    """Searches all second texts for each first one.

    Args:
        vectors: The embedding of each text [U, E].
        pairs: Indices of texts [N, 2].
        name: The similarity, see `heads.similarities`.

    Returns:
        The rank of the second text of each pair [N], from 1; the worst among equally
        similar texts. A text does not find itself.
    """
    texts, column = np.unique(pairs[:, 1], return_inverse=True)
    found = []
    for start in range(0, len(pairs), _QUERIES_AT_ONCE):
        part = slice(start, start + _QUERIES_AT_ONCE)
        query = pairs[part, :1]  # [Q, 1]
        similar = heads.similarities(name, vectors[query[:, 0]], vectors[texts])
        own = np.take_along_axis(similar, column[part, np.newaxis], axis=1)
        others = (query != texts) & (column[part, np.newaxis] != np.arange(len(texts)))
        found.append(1 + np.count_nonzero((similar >= own) & others, axis=1))
    return np.concatenate(found)


def retrieval_metrics(queries: np.ndarray, ranks: np.ndarray) -> dict[str, float]:
    """Returns mean reciprocal rank and recall at several ranks.

    Both are means over the distinct queries. A query may have several right texts: its
    reciprocal rank is that of the first, its recall the share of them.

    Args:
        queries: The query of each pair [N].
        ranks: The rank of its text [N].
    """
    _, query, counts = np.unique(queries, return_inverse=True, return_counts=True)
    reciprocal = np.zeros(len(counts))
    np.maximum.at(reciprocal, query, 1 / ranks)
    recall = {
        f"recall_at_{k}": float(np.mean(np.bincount(query, ranks <= k) / counts))
        for k in _RECALL_AT
    }
    return {"mrr": float(reciprocal.mean()), **recall}


def main(options: Embedding.Config | finetuning.PredictConfig) -> None:
    """Fine-tunes, or predicts a file."""
    finetuning.run_task(Embedding, options)


if __name__ == "__main__":
    cli.run(main, Embedding.Config, predict=finetuning.PredictConfig)
