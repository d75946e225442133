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
each evaluated split predictions_<split>.tsv and, for SQuAD's scripts,
predictions_<split>.json. Expected F1 on the dev set of SQuAD 1.1 with BERT base: 88.5
(table 2).

Long passages are cut into overlapping windows, in training and in the exported model.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np

from bert_tf import cli, finetuning, heads, text_files
from bert_tf.finetuning import squad
from bert_tf.lazy import lazy_import

tf = lazy_import("tensorflow")

# --- The task --------------------------------------------------------------------


class QuestionAnswering(finetuning.Task):
    """Extracts answers from passages; see the module docstring."""

    kind = "question_answering"
    metric = "f1"

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Config(finetuning.RowsConfig):
        """Options of `python -m tasks.question_answering`."""

        question: str = cli.option("question", help="Column of the question.")
        context: str = cli.option("context", help="Column of the passage.")
        answer: str = cli.option("answer", help="Column of the answer; may be empty.")
        answer_start: str = cli.option("", help="Column of its offset in characters.")
        max_sequence_length: int = cli.option(
            384, help="Tokens of a window, with the question.", minimum=5, common=True
        )
        max_question_length: int = cli.option(64, help="Question tokens.", minimum=1)
        stride: int = cli.option(128, help="Tokens between window starts.", minimum=1)
        max_answer_length: int = cli.option(30, help="Tokens of an answer.", minimum=1)

    def __init__(self, options, encoder):
        super().__init__(options, encoder)
        if options.max_sequence_length < options.max_question_length + 4:
            raise ValueError(
                "--max_sequence_length must be at least --max_question_length + 4, for "
                "three special tokens and one token of the passage. Got "
                f"{options.max_sequence_length} and {options.max_question_length}."
            )
        columns, rows = _columns(options), {}
        for name, path in options.files().items():
            others = _others(options, options.group if name == "train" else "")
            rows[name] = squad.read(path, columns, split=name, others=others)
        self.data = self.split(rows)
        self.settings = {"no_answer": not all(q.answers for q in self.data["train"])}

    @classmethod
    def read_input(cls, options, path):
        return squad.stream(path, _columns(options), _others(options))

    def dataset(self, name: str) -> finetuning.Split:
        """Returns a split of windows of `heads.Passages`.

        Only the training data have targets, and only the others keep the passages.
        """
        questions = self.data[name]
        passages = self.head.passages(*zip(*(x.inputs for x in questions)))
        if name != "train":
            return finetuning.Split(name, passages.windows, passages=passages)
        targets = answer_targets(passages, questions)
        return finetuning.Split(name, passages.windows, targets)

    def evaluate(self, split, outputs, decision=None):
        questions, remaining = self.data[split.name], iter(outputs)

        def logits(windows: Sequence) -> dict[str, tf.Tensor]:
            part = list(itertools.islice(remaining, len(windows)))
            columns = {name: [output[name] for output in part] for name in part[0]}
            return {k: tf.ragged.stack(x).to_tensor() for k, x in columns.items()}

        found = self.head.candidates(split.passages, logits)

        def best(threshold: float | None) -> dict[str, np.ndarray]:
            return heads.to_numpy(found.best(threshold))

        if decision is None:
            decision = {}
            if self.settings["no_answer"]:
                texts, odds = best(None)["answer"], found.null_odds.numpy()
                decision["threshold"] = squad.best_threshold(questions, texts, odds)
        answers, scores = best(decision.get("threshold")), {}
        if all(question.answers is not None for question in questions):
            scores = squad.scores(questions, answers["answer"]) | decision
        return finetuning.Evaluation(scores, answers, decision)

    @classmethod
    def prediction(cls, example, answer, settings, options):
        found, references = answer["answer"], (x for x, _ in example.answers or ())
        # Any reference is right.
        gold = next((x for x in references if cls.is_correct(x, found)), example.gold)
        return finetuning.Prediction(found, answer["score"], gold=gold)

    @classmethod
    def is_correct(cls, gold, prediction):
        return squad.normalize(gold) == squad.normalize(prediction)

    def write_predictions(self, name, answers, folder):
        """Writes a table, and the answers in the format of SQuAD's scripts."""
        super().write_predictions(name, answers, folder)
        ids = [question.id for question in self.data[name]]
        found = dict(zip(ids, answers["answer"]))
        text_files.write_json(folder / f"predictions_{name}.json", found)


def _columns(options: QuestionAnswering.Config) -> tuple[str, ...]:
    return options.question, options.context, options.answer, options.answer_start


def _others(options: QuestionAnswering.Config, group: str = "") -> tuple[str, ...]:
    return options.id, group, *options.kept


# --- Windows of passages ---------------------------------------------------------


def answer_targets(
    passages: heads.Passages, questions: Sequence[finetuning.Example]
) -> dict[str, np.ndarray]:
    """Returns the first and last token of the answer in each window; eager only.

    Args:
        passages: N passages, W windows.
        questions: The N questions, with answers.

    Returns:
        `start_logits` and `end_logits`, tokens [W] int32; both are 0, [CLS], if the
        window does not contain the whole answer of `answer_bytes`.

    Raises:
        ValueError: An answer has no token.
    """
    splits = passages.pieces.ids.row_splits.numpy()[len(questions) :]
    starts = passages.pieces.starts.values.numpy()
    ends = passages.pieces.ends.values.numpy()
    spans = np.full([len(questions), 2], -1)
    for row, question in enumerate(questions):
        answer = squad.answer_bytes(question)
        if answer:
            in_passage = slice(*splits[row : row + 2])
            first = np.searchsorted(ends[in_passage], answer[0], side="right")
            last = np.searchsorted(starts[in_passage], answer[1], side="left") - 1
            if first > last:
                raise ValueError(
                    f"{question.path}, question {question.id!r}: the answer must "
                    f"contain a token. Got {question.answers[0][0]!r}."
                )
            spans[row] = first, last
    windows = passages.windows
    start, row = windows.start.numpy(), windows.row.numpy()
    first, last = spans[row].T
    is_inside = (first >= start) & (last < start + windows.size.numpy())
    offset = windows.first_token.numpy() - start
    return {
        "start_logits": np.where(is_inside, first + offset, 0).astype(np.int32),
        "end_logits": np.where(is_inside, last + offset, 0).astype(np.int32),
    }


def main(options: QuestionAnswering.Config | finetuning.PredictConfig) -> None:
    """Fine-tunes, or predicts a file."""
    finetuning.run_task(QuestionAnswering, options)


if __name__ == "__main__":
    cli.run(main, QuestionAnswering.Config, predict=finetuning.PredictConfig)
