# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Extracts answers to questions from passages (paper, sections 4.2 and 4.3).

Input: SQuAD 1.1 or 2.0, or other data in this format. `answer_start` is an offset in
characters (code points)::

    {"version": "v2.0", "data": [{"title": "...", "paragraphs": [{
      "context": "The Normans gave their name to Normandy, a region in France.",
      "qas": [{"id": "1", "question": "Where is Normandy?", "is_impossible": false,
               "answers": [{"text": "France", "answer_start": 53}]}]}]}]}

    python -m tasks.question_answering --train_file=train-v2.0.json \\
        --dev_file=dev-v2.0.json --init_from=models/base --output=models/squad

or a TSV, CSV or JSONL file with named columns. The answer is an exact substring of its
passage, or empty if there is none. Without --answer_start, it is the first occurrence
as whole words. Training skips questions whose answers are not at their offsets::

    question             context                                   answer    start
    Where is Normandy?   The Normans gave their name to Norman...  France    53

    python -m tasks.question_answering --train_file=train.csv --dev_file=dev.csv \\
        --question=question --context=context --answer=answer --answer_start=start \\
        --init_from=models/base --output=models/answers

Output: a fine-tuned model directory with exact match and F1 in metrics.json, and for
each evaluated split predictions_<split>.json, nbest_<split>.json and, if questions can
be unanswerable, null_odds_<split>.json, in the format of SQuAD's scripts; for tables
also predictions_<split>.csv. Expected F1 on the dev set of SQuAD 1.1 with BERT base:
88.5 (table 2).

--ensemble averages the n-best lists of several runs::

    python -m tasks.question_answering --ensemble=models/squad0,models/squad1 \\
        --dev_file=dev-v2.0.json --output=models/squad_ensemble

Long passages are cut into overlapping windows, in training and in the exported model.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bert_tf import cli, data, finetuning, storage, text
from bert_tf.lazy import lazy_import

tf = lazy_import("tensorflow")

if TYPE_CHECKING:
    from bert_tf.finetuning import Question, Split

# --- The task --------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Columns(cli.Options):
    """Columns of a table."""

    question: str = cli.option("question", help="Column of the question.")
    context: str = cli.option("context", help="Column of the passage.")
    answer: str = cli.option(
        "answer", help="Column of the answer; empty if there is none."
    )
    answer_start: str = cli.option(
        "",
        help="Column of the answer's offset in the passage, in characters from 0.",
    )


class QuestionAnswering(finetuning.Task):
    """Extracts answers from passages; see the module docstring."""

    kind = "question_answering"
    metric = "f1"

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Config(Columns, finetuning.FilesConfig):
        """Options of `python -m tasks.question_answering`."""

        max_sequence_length: int = cli.option(
            384,
            help="Maximum tokens of a window: [CLS], question, [SEP], part of the "
            "passage, [SEP].",
            minimum=5,
            common=True,
        )
        max_question_length: int = cli.option(
            64, help="Maximum tokens of a question; longer ones are cut.", minimum=1
        )
        stride: int = cli.option(
            128, help="Tokens from the start of a window to the next.", minimum=1
        )
        max_answer_length: int = cli.option(
            30, help="Maximum tokens of an answer.", minimum=1
        )
        n_best: int = cli.option(
            20, help="Candidates per question in nbest_<split>.json.", minimum=1
        )

    def __init__(self, options: Config, tokenizer: text.Tokenizer):
        super().__init__(options, tokenizer)
        if options.max_sequence_length < options.max_question_length + 4:
            raise ValueError(
                "--max_sequence_length must be at least --max_question_length + 4, for "
                "three special tokens and one token of the passage. Got "
                f"max_sequence_length={options.max_sequence_length}, "
                f"max_question_length={options.max_question_length}."
            )
        self.evaluation_splits = ("dev", "test") if options.test_file else ("dev",)
        splits = ("train", *self.evaluation_splits)
        self.questions = {split: _read(options, split) for split in splits}
        self.no_answer = not all(q.answers for q in self.questions["train"])
        self.head = {"no_answer": self.no_answer}
        # The F1 of answering no question.
        dev, metrics = self.questions["dev"], finetuning.squad_metrics
        refusals = dict.fromkeys((question.id for question in dev), "")
        self.majority_baseline = metrics.scores(dev, refusals)["f1"]

    @classmethod
    def read_input(cls, options: Config, path: str) -> Iterator[finetuning.Example]:
        return map(_example, finetuning.squad.stream(path, _columns(options)))

    def dataset(self, name: str) -> Split:
        """Returns a split whose examples are windows.

        Its `source` is a list of (questions, `Passages`) pairs.
        """
        source, inputs, targets = [], [], []
        for chunk in finetuning.chunk_questions(self.questions[name]):
            passages = self.served_head().encode(
                tf.constant([question.question for question in chunk]),
                tf.constant([question.context for question in chunk]),
            )
            inputs.append(passages.windows.ragged_inputs())
            if name == "train":
                targets.append(finetuning.answer_targets(passages, chunk))
            else:
                source.append((chunk, passages))

        def concat(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
            return {key: tf.concat([p[key] for p in parts], 0) for key in parts[0]}

        return finetuning.Split(
            name, source, concat(inputs), concat(targets) if targets else None
        )

    def evaluate(self, split, outputs, decision=None):
        questions, metrics = self.questions[split.name], finetuning.squad_metrics
        predictions = self._decode(split, outputs)
        if decision is None:
            threshold = metrics.best_threshold(questions, predictions)
            decision = {} if threshold is None else {"threshold": threshold}
        scores = {}
        if all(question.answers is not None for question in questions):
            answers = predictions.best(decision.get("threshold"))
            scores = metrics.scores(questions, answers) | decision
        return finetuning.Evaluation(scores, predictions, decision)

    def _decode(self, split: Split, outputs: Sequence[Any]) -> finetuning.Predictions:
        head, n_best, null_odds, begin = self.served_head(), {}, {}, 0
        for questions, passages in split.source:
            end = begin + len(passages.windows)
            answers = head.answers_from_logits(outputs[begin:end], passages)
            begin = end
            ids = [question.id for question in questions]
            n_best |= zip(ids, answers.to_n_best())
            if self.no_answer:
                null_odds |= zip(ids, answers.null_odds.numpy().tolist())
        return finetuning.Predictions(n_best, null_odds)

    def write_predictions(self, split, evaluation, folder):
        predictions = evaluation.predictions
        threshold = evaluation.decision.get("threshold")
        path = predictions.write(folder, split.name, threshold)
        questions = self.questions[split.name]
        if finetuning.squad.is_table(questions[0].path):
            answers = []
            for name, answer in predictions.best(threshold).items():
                scores = {c["text"]: c["probability"] for c in predictions.n_best[name]}
                answers.append({"answer": answer, "score": scores.get(answer, 0.0)})
            rows = finetuning.prediction_rows(map(_example, questions), answers)
            data.write_table(path.with_suffix(".csv"), rows)


def _read(
    options: QuestionAnswering.Config | EnsembleConfig, split: str
) -> list[Question]:
    path, columns = getattr(options, f"{split}_file"), _columns(options)
    return finetuning.squad.read(
        path, columns, needs_answers=split != "test", training=split == "train"
    )


def _columns(options: Columns) -> tuple[str, ...]:
    return options.question, options.context, options.answer, options.answer_start


def _example(question: Question) -> finetuning.Example:
    inputs = question.question, question.context
    gold = question.answers
    if gold is not None:
        gold = gold[0][0] if gold else ""
    return finetuning.Example(question.id, {"question": inputs[0]}, inputs, gold)


# --- Ensembles -------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnsembleConfig(Columns):
    """Averages the n-best lists of several runs for a file.

        python -m tasks.question_answering --dev_file=dev-v2.0.json \\
            --ensemble=models/squad0,models/squad1 --output=models/squad_ensemble

    The runs must have been evaluated on the same file.
    """

    ensemble: str = cli.option(
        help="Model directories, separated by commas.", local=True
    )
    dev_file: str = cli.option(help="The --dev_file of the runs.")
    output: str = cli.option(
        help="Folder for the predictions and their scores.", local=True
    )


def ensemble(options: EnsembleConfig) -> dict[str, float]:
    """Writes and scores the averaged predictions of several runs."""
    questions, metrics = _read(options, "dev"), finetuning.squad_metrics
    runs = options.ensemble.split(",")
    predictions = finetuning.squad_metrics.average(runs, "dev", questions)
    folder = pathlib.Path(options.output)
    folder.mkdir(parents=True, exist_ok=True)
    threshold = metrics.best_threshold(questions, predictions)
    scores = metrics.scores(questions, predictions.best(threshold))
    predictions.write(folder, "dev", threshold)
    storage.write_json(folder / "metrics.json", {"dev": scores})
    print("dev: " + ", ".join(f"{name} {score:.4f}" for name, score in scores.items()))
    return scores


def main(
    options: QuestionAnswering.Config | EnsembleConfig | finetuning.PredictConfig,
) -> None:
    """Fine-tunes, averages the predictions of several runs, or predicts a file."""
    if isinstance(options, EnsembleConfig):
        ensemble(options)
    else:
        finetuning.run_task(QuestionAnswering, options)


if __name__ == "__main__":
    cli.run(
        main,
        QuestionAnswering.Config,
        ensemble=EnsembleConfig,
        predict=finetuning.PredictConfig,
    )
