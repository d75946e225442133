# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Sentence embeddings: vectors whose cosine is the similarity of two texts.

Input: STS-B, SICK or MNLI in their own files, or TSV, CSV or JSONL tables with a
header. The training file decides what is learned:

- pairs with scores (numbers in the column --label): the higher the score, the higher
  the cosine;
- pairs without scores, or with hard negatives (--texts=question,answer,wrong_answer):
  the first text finds the second among all texts of the batch;
- pairs with NLI labels (entailment, neutral, contradiction): entailed pairs are to be
  found, contradictions of the same premise are hard negatives;
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
reciprocal rank and recall, in metrics.json. predictions_dev.tsv has the cosine of each
pair, or the rank of its second text in a search. The pooling is that of --init_from if
it is a sentence encoder, else the mean over all tokens, unless --pooling is set. Its
prompts are not used: put them into the texts.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from absl import logging

from bert_tf import checkpoints, cli, finetuning, heads, serving, text
from bert_tf.lazy import lazy_import

scipy = lazy_import("scipy")
tf = lazy_import("tensorflow")

if TYPE_CHECKING:
    import keras

    from bert_tf.finetuning import Row, Split

DATA_SETS: Mapping[str, finetuning.DataSet] = {
    "stsb": finetuning.GLUE["stsb"],
    "sick": finetuning.DataSet(
        texts=("sentence_A", "sentence_B"),
        label="relatedness_score",
        files={
            "train": [["SICK_train.txt"]],
            "dev": [["SICK_trial.txt"]],
            "test": [["SICK_test_annotated.txt"]],
        },
    ),
    # Without the test sets, which have no labels.
    "mnli": dataclasses.replace(
        finetuning.GLUE["mnli"], files={"dev": [["dev_matched.tsv"]]}
    ),
}

_NLI = ("entailment", "neutral", "contradiction")
_RECALL_AT = (1, 5, 10)
_QUERIES_AT_ONCE = 256  # Compared with all texts.


class Examples(NamedTuple):
    """N examples of C texts.

    Attributes:
        texts: The texts of each example; "" for a missing hard negative.
        scores: The score of each pair [N] float32; None without.
    """

    texts: Sequence[Sequence[str]]
    scores: np.ndarray | None = None


class Embedding(finetuning.Task):
    """See the module docstring."""

    kind = "embedding"
    target_kind = "score"

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Config(finetuning.TablesConfig):
        """Options of `python -m tasks.embedding`."""

        task: str = cli.option(
            "", help="Data set in --data_dir.", choices=("", *DATA_SETS), common=True
        )
        texts: str = cli.option(
            "",
            help="Columns of the first and second text, then of hard negatives in the "
            "training data, separated by commas.",
            common=True,
        )
        label: str = cli.option(
            "",
            help="Column of scores or NLI labels. The training data may lack it.",
            common=True,
        )
        loss: str = cli.option(
            "auto",
            help="cosent orders the cosines of pairs like their scores, cosine is the "
            "squared error. auto: cosent with scores, in_batch_negatives without.",
            choices=("auto", "cosent", "cosine", "in_batch_negatives", "simcse"),
            common=True,
        )
        temperature: float = cli.option(
            0.05, help="Divides cosines in the loss.", minimum=1e-3
        )
        pooling: str = cli.option(
            "",
            help="How tokens become a vector: mean, cls, max, ... By default as in "
            "--init_from, or mean if that is no sentence encoder.",
        )
        micro_batch_size: int = cli.option(
            0,
            help="Examples to compute at once; saves memory with large batches, at the "
            "same gradients (GradCache). 0: the whole batch.",
            minimum=0,
            resumable=True,
        )

    def __init__(self, options: Config, tokenizer: text.Tokenizer):
        super().__init__(options, tokenizer)
        rows = _read(options)
        self.evaluation_splits = [name for name in rows if name != "train"]
        self.examples = {name: _examples(rows[name]) for name in self.evaluation_splits}
        self.is_search = self.examples["dev"].scores is None
        self.metric = "mrr" if self.is_search else "spearman"
        self.loss = options.loss
        if options.loss == "simcse":
            texts = dict.fromkeys(
                filter(None, itertools.chain(*(row.texts for row in rows["train"])))
            )
            train, self.loss = Examples([(t, t) for t in texts]), "in_batch_negatives"
        else:
            train = _examples(rows["train"])
        if options.loss == "auto":
            self.loss = "in_batch_negatives" if train.scores is None else "cosent"
        elif train.scores is None and self.loss != "in_batch_negatives":
            raise ValueError(
                f"--loss={options.loss} requires scores. Pass their column as --label."
            )
        self.examples["train"] = train
        self.score_range = _score_range(train.scores, self.examples["dev"].scores)
        head = {"max_sequence_length": options.max_sequence_length}
        if options.pooling:
            head["pooling"] = options.pooling
        if options.init_from:
            encoder = checkpoints.open_checkpoint(options.init_from).head
            head = encoder | head if encoder["kind"] == self.kind else head
            if prompts := encoder.get("prompts"):
                logging.warning(
                    "%s: training adds no prompts to texts, so the new model has no "
                    "prompts. It drops %s.",
                    options.init_from,
                    ", ".join(prompts),
                )
        self.head = heads.EmbeddingConfig.from_dict(head).to_dict()

    @classmethod
    def read_input(cls, options: Config, path: str) -> Iterator[finetuning.Example]:
        data_set = DATA_SETS.get(options.task) or _own_data_set(options)
        optional = {"test": data_set.texts[1:]}
        data_set = dataclasses.replace(data_set, optional=optional)
        paths, flags = [pathlib.Path(path)], "the training's --texts"
        for row in finetuning.read_rows(data_set, "test", paths, flags):
            inputs = row.texts[:2]
            texts = dict(zip(("first", "second"), inputs))
            yield finetuning.Example(row.id, texts, inputs, row.label)

    @classmethod
    def answer(
        cls, model: serving.Predictor, columns: Sequence[Sequence], batch_size: int
    ) -> dict[str, np.ndarray]:
        """Returns the cosines of pairs, or the vectors of single texts."""
        vectors = [
            model.predict(column, batch_size=batch_size)["sentence_embedding"]
            for column in columns
        ]
        if len(vectors) == 1:
            return {"score": vectors[0]}
        norms = np.prod([np.linalg.norm(v, axis=1) for v in vectors], axis=0)
        return {"score": np.prod(vectors, axis=0).sum(axis=1) / norms}

    def training_model(self, model: keras.Model) -> keras.Model:
        options = self.options
        return finetuning.SiameseEncoder(
            model, self.loss, options.temperature, options.micro_batch_size
        )

    def dataset(self, name: str) -> Split:
        """Returns the examples to train, or the U distinct texts of another split.

        The split's `source` is the indices of the first two texts of each example,
        [N, 2].
        """
        examples, scores = self.examples[name]
        texts, indices = np.unique(np.array(examples, object), return_inverse=True)
        indices = indices.reshape(len(examples), -1)
        ids = tf.constant(np.where(texts == "", -1, np.arange(len(texts))), tf.int32)
        inputs = finetuning.encode(self.served_head().encode, texts)  # [U, (S)]
        targets = None
        if name == "train":
            inputs = {key: tf.gather(x, indices) for key, x in inputs.items()}
            is_scored = self.loss != "in_batch_negatives"
            targets = self.as_cosines(scores) if is_scored else tf.gather(ids, indices)
        return finetuning.Split(name, indices[:, :2], inputs, targets)

    def evaluate(self, split, outputs, decision=None):
        """Scores the cosine of each pair, or the rank of its second text."""
        pairs, scores = self.examples[split.name]
        vectors = np.stack(outputs)  # [U, E]
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        metrics, gold = {}, None
        if self.is_search:
            predicted = ranks(vectors, split.source)
            metrics = retrieval_metrics(split.source[:, 0], predicted)
        else:
            predicted = np.sum(np.prod(vectors[split.source], axis=1), axis=1)
        if not self.is_search and scores is not None:
            gold, stats = self.as_cosines(scores), scipy.stats
            functions = {"spearman": stats.spearmanr, "pearson": stats.pearsonr}
            metrics = {  # The correlation with a constant is NaN.
                name: float(np.nan_to_num(function(gold, predicted).statistic))
                for name, function in functions.items()
            }
        labels = itertools.repeat(None) if scores is None else scores.tolist()
        examples = (
            finetuning.Example(str(i), {"first": pair[0], "second": pair[1]}, (), label)
            for i, (pair, label) in enumerate(zip(pairs, labels))
        )
        answers = ({"score": score} for score in predicted)
        rows = finetuning.prediction_rows(examples, answers)
        return finetuning.Evaluation(metrics, rows, {}, gold, predicted)

    def as_cosines(self, scores: np.ndarray) -> np.ndarray:
        """Scales scores to the range of cosines."""
        low, high = self.score_range
        return (scores - low) / (high - low)


# --- Data ------------------------------------------------------------------------


def _read(options: Embedding.Config) -> dict[str, list[Row]]:
    columns, size = tuple(options.texts.split(",")), options.micro_batch_size
    if len(columns) < 2 and not options.task:
        raise ValueError(
            "--texts must be at least two columns; with --loss=simcse, the training "
            f"file may lack the second. Received: --texts={options.texts}"
        )
    if size and options.batch_size % size:
        raise ValueError(
            "--micro_batch_size must divide --batch_size. Received: "
            f"micro_batch_size={size}, batch_size={options.batch_size}"
        )
    if size and options.teacher:
        raise ValueError("--teacher needs whole batches. Omit --micro_batch_size.")
    return finetuning.read_data_set(
        options,
        DATA_SETS,
        _own_data_set(options),
        required=("texts",),
        optional=("label",),
        missing_labels=finetuning.NO_GOLD - {"-1"},  # It can be a cosine.
    )[1]


def _own_data_set(options: Embedding.Config) -> finetuning.DataSet:
    """Returns the columns that the flags select; `text` by default."""
    columns = tuple((options.texts or "text").split(","))
    simcse = columns[1:] if options.loss == "simcse" else ()
    optional = {"train": ("", options.label, *simcse)}
    optional |= dict.fromkeys(("dev", "test"), ("", *columns[2:]))
    return finetuning.DataSet(texts=columns, label=options.label, optional=optional)


def _examples(rows: Sequence[Row]) -> Examples:
    """Returns pairs with scores, examples of NLI labels, or the texts of the rows."""
    if rows[0].label is None:
        return Examples([row.texts for row in rows])
    pairs = collections.defaultdict(list)
    for row in rows:
        pairs[row.label.lower()].append(row.texts[:2])
    if pairs.keys().isdisjoint(_NLI):
        scores = np.array([row.score() for row in rows], np.float32)
        return Examples([row.texts[:2] for row in rows], scores)
    if unknown := pairs.keys() - {*_NLI}:
        raise ValueError(
            f"{rows[0].path}: labels must be numbers, or {', '.join(_NLI)}. Got "
            f"{sorted(unknown)[0]!r}."
        )
    if not pairs["entailment"]:
        raise ValueError(f"{rows[0].path} has no pair with the label entailment.")
    # The contradictions of a premise are hard negatives of its entailments, in turn.
    negatives = collections.defaultdict(list)
    for premise, hypothesis in pairs["contradiction"]:
        negatives[premise].append(hypothesis)
    in_turn = {premise: itertools.cycle(texts) for premise, texts in negatives.items()}
    none = itertools.repeat("")
    entailed = pairs["entailment"]
    return Examples([(*pair, next(in_turn.get(pair[0], none))) for pair in entailed])


def _score_range(*scores: np.ndarray | None) -> tuple[float, float]:
    """Returns the scores that become the cosines 0 and 1: the lowest and the highest.

    Scores from -1 to 1 are cosines already.
    """
    first = next((values for values in scores if values is not None), np.zeros(1))
    low, high = float(first.min()), float(first.max())
    return (low, high) if low < -1 or high > 1 else (0.0, 1.0)


# --- Search ----------------------------------------------------------------------


def ranks(vectors: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Searches all second texts for each first one, by cosine.

    Args:
        vectors: The embedding of each text, of length 1 [U, E].
        pairs: Indices of texts [N, 2].

    Returns:
        The rank of the second text of each pair [N], from 1; the worst among equal
        cosines. A text does not find itself.
    """
    texts, column = np.unique(pairs[:, 1], return_inverse=True)
    found = []
    for start in range(0, len(pairs), _QUERIES_AT_ONCE):
        part = slice(start, start + _QUERIES_AT_ONCE)
        query = pairs[part, :1]  # [Q, 1]
        cosines = vectors[query[:, 0]] @ vectors[texts].T  # [Q, texts]
        own = np.take_along_axis(cosines, column[part, np.newaxis], axis=1)
        others = (query != texts) & (column[part, np.newaxis] != np.arange(len(texts)))
        found.append(1 + np.count_nonzero((cosines >= own) & others, axis=1))
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
