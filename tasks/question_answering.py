# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Answers to questions, cut out of passages (paper, sections 4.2 and 4.3).

SQuAD 1.1 or 2.0, or data of one's own: in their layout, where `answer_start` counts
characters (code points)::

    {"version": "v2.0", "data": [{"title": "...", "paragraphs": [{
      "context": "The Normans gave their name to Normandy, a region in France.",
      "qas": [{"id": "1", "question": "Where is Normandy?", "is_impossible": false,
               "answers": [{"text": "France", "answer_start": 53}]}]}]}]}

    python -m tasks.question_answering --train_file=train-v2.0.json \\
        --dev_file=dev-v2.0.json --init_from=models/base --output=models/squad

or a TSV, CSV or JSONL file with named columns, in which an empty answer is none. An
answer is an exact part of its passage; without `--answer_start` it is the first that
stands there as whole words::

    question             context                                   answer    start
    Where is Normandy?   The Normans gave their name to Norman...  France    53

    python -m tasks.question_answering --train_file=train.csv --dev_file=dev.csv \\
        --question=question --context=context --answer=answer --answer_start=start \\
        --init_from=models/base --output=models/answers

Out: the fine-tuned model directory, exact match and F1 on dev in metrics.json, and
predictions_dev.json, nbest_dev.json and, if there are questions without an answer,
null_odds_dev.json, as SQuAD's own scripts read them; of a table predictions_dev.csv as
well. --test_file may be without answers. Several runs make an ensemble::

    python -m tasks.question_answering --ensemble=models/squad0,models/squad1 \\
        --dev_file=dev-v2.0.json --output=models/squad_ensemble

Passages of any length are cut into windows; what is served does so too. BERT base
reaches an F1 of 88.5 % on the dev set of SQuAD 1.1 (table 2).
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bert_tf import cli, finetuning, serving, storage
from bert_tf.data import write_table
from bert_tf.finetuning import squad
from bert_tf.finetuning.squad import Predictions, Question
from bert_tf.finetuning.task import FinetuneConfig, Task
from bert_tf.lazy import lazy_import

finetune = lazy_import("bert_tf.finetuning.run")
heads = lazy_import("bert_tf.modeling.heads")
keras = lazy_import("keras")
passages = lazy_import("bert_tf.text.passages")
tf = lazy_import("tensorflow")

if TYPE_CHECKING:
    from bert_tf.finetuning import Split
    from bert_tf.modeling.bert import BertBackbone
    from bert_tf.text.tokenizer import Pieces, Tokenizer

# Texts tokenised at once: at most so many questions and bytes, unless one passage alone
# is longer.
_QUESTIONS_AT_ONCE = 1024
_BYTES_AT_ONCE = 2_000_000

# Candidates that are served.
_SERVED = 5

# --- The task --------------------------------------------------------------------


class Chunk(NamedTuple):
    """Some questions of a split, tokenised.

    Attributes:
        context: Their passages [N] string.
        pieces: Of their texts, from `passages.cut`.
        windows: From there as well; the W examples that the model sees.
    """

    context: tf.Tensor
    pieces: Pieces
    windows: passages.Windows


class QuestionAnswering(Task):
    """See the module docstring."""

    kind = "question_answering"
    metric = "f1"

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Config(FinetuneConfig):
        """Options of `python -m tasks.question_answering`."""

        train_file: str = cli.option(
            "",
            help="JSON in the layout of SQuAD, or a TSV, .csv or .jsonl file with a "
            "header.",
            common=True,
        )
        dev_file: str = cli.option(
            "",
            help="Data like --train_file's, to choose the best epoch by and, where "
            "questions may be without an answer, the threshold.",
            common=True,
        )
        test_file: str = cli.option(
            "",
            help="Questions to answer, like --dev_file's, with or without answers.",
            common=True,
            resumable=True,
        )
        question: str = cli.option(
            "question", help="Column of the question, in tables."
        )
        context: str = cli.option("context", help="Column of the passage, in tables.")
        answer: str = cli.option(
            "answer", help="Column of the answer, in tables; empty for no answer."
        )
        answer_start: str = cli.option(
            "",
            help="Column of the character of the passage, from 0, at which the answer "
            "begins, in tables.",
        )
        max_sequence_length: int = cli.option(
            384,
            help="Tokens of a window: question, part of the passage, [CLS], two [SEP].",
            minimum=5,
            common=True,
        )
        max_question_length: int = cli.option(
            64, help="Tokens of a question; the rest is left out.", minimum=1
        )
        stride: int = cli.option(
            128, help="Tokens from one window of a passage to the next.", minimum=1
        )
        max_answer_length: int = cli.option(30, help="Tokens of an answer.", minimum=1)
        n_best: int = cli.option(
            20, help="Answers listed for each question in nbest_dev.json.", minimum=1
        )
        ensemble: str = cli.option(
            "",
            help="Instead of training: model directories of earlier runs, separated by "
            "commas, whose n-best lists for --dev_file are averaged into --output.",
        )

    def __init__(self, options: Config, tokenizer: Tokenizer):
        super().__init__(options, tokenizer)
        if options.max_sequence_length < options.max_question_length + 4:
            raise ValueError(
                "A window must have room for [CLS], the question, [SEP], a token of "
                "the passage and [SEP]. Received: --max_sequence_length="
                f"{options.max_sequence_length}, --max_question_length="
                f"{options.max_question_length}"
            )
        self.questions = {
            split: _read(options, split)
            for split in ("train", "dev", "test")
            if split != "test" or options.test_file
        }
        self.no_answer = not all(q.answers for q in self.questions["train"])
        # Until dev has been evaluated.
        self.threshold = 0.0 if self.no_answer else None

    @property
    def head(self) -> Mapping[str, Any]:
        return {"no_answer": self.no_answer}

    @property
    def evaluation_splits(self) -> Sequence[str]:
        return [name for name in self.questions if name != "train"]

    def model(self, backbone: BertBackbone) -> keras.Model:
        return heads.SpanPredictor(backbone)

    def dataset(self, name: str) -> Split:
        questions = self.questions[name]
        is_labelled = all(question.answers is not None for question in questions)
        chunks, inputs, targets = [], [], []
        for some in _in_chunks(questions):
            chunk = self._cut(some)
            padded = passages.inputs(self.tokenizer, chunk.pieces, chunk.windows)
            lengths = tf.reduce_sum(padded["padding_mask"], axis=1)
            inputs.append(
                {k: tf.RaggedTensor.from_tensor(x, lengths) for k, x in padded.items()}
            )
            if is_labelled:
                targets.append(_targets(some, chunk))
            if name != "train":
                chunks.append(chunk)

        def concat(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
            return {key: tf.concat([p[key] for p in parts], 0) for key in parts[0]}

        return finetuning.Split(
            name, chunks, concat(inputs), concat(targets) if is_labelled else None
        )

    def evaluate(self, split: Split, outputs: Sequence[Any]) -> dict[str, float]:
        questions = self.questions[split.name]
        predictions = self._predictions(split, outputs)
        if not self.no_answer:
            return squad.scores(questions, predictions.best())
        if split.name == "dev":
            self.threshold = squad.best_threshold(
                questions, predictions.best(), predictions.null_odds
            )
        scores = squad.scores(questions, predictions.best(self.threshold))
        return scores | {"threshold": self.threshold}

    def majority_baseline(self, split: Split) -> float:
        questions = self.questions[split.name]
        return squad.scores(questions, dict.fromkeys((q.id for q in questions), ""))[
            self.metric
        ]

    def gold_and_predicted(
        self, split: Split, outputs: Sequence[Any]
    ) -> tuple[list[str], list[str]]:
        """Whether there is an answer, and whether one with a word of it was given."""
        questions = self.questions[split.name]
        answers = self._predictions(split, outputs).best(self.threshold)
        f1 = squad.scores_of_each(questions, answers)["f1"]
        gold = ["answer" if question.answers else "no answer" for question in questions]
        predicted = [
            "no answer" if not answers[question.id] else "answer" if score else "wrong"
            for question, score in zip(questions, f1, strict=True)
        ]
        return gold, predicted

    def write_predictions(
        self, split: Split, outputs: Sequence[Any], folder: pathlib.Path
    ) -> pathlib.Path:
        predictions = self._predictions(split, outputs)
        path = predictions.write(folder, split.name, self.threshold)
        questions = self.questions[split.name]
        if questions[0].path.suffix != ".json":
            answers = predictions.best(self.threshold)
            rows = [
                {"id": q.id, "question": q.question, "prediction": answers[q.id]}
                for q in questions
            ]
            write_table(path.with_suffix(".csv"), rows)
        return path

    def serve(self, model: keras.Model) -> dict[str, serving.Signature]:
        """The signatures of the exported model, for N questions.

        serving_default  question, context [N] ->
                         answer [N] string: a substring of the context; "" for none
                         start, end [N] int32: its first character and the one behind
                         start_byte, end_byte [N] int32: the same in bytes of UTF-8
                         score [N] float32: its probability among the candidates
                         answers [N, 5] and so on, starts, ends, start_bytes, end_bytes,
                         scores: the five best candidates, the most probable first, ""
                         with probability 0 where there are fewer
                         no_answer_score [N] float32, if the model has learned that
                         there may be none: above 0 where `answer` is ""
        ids              token_ids, segment_ids, padding_mask [N, S] ->
                         start_logits, end_logits [N, S] float32
        """
        options, threshold = self.options, self.threshold

        @serving.signature(
            serving.string_input("question"), serving.string_input("context")
        )
        def serving_default(question, context):
            pieces, windows = self.preprocess(question, context)
            spans = passages.spans_of(
                model,
                self.tokenizer,
                pieces,
                windows,
                max_answer_length=options.max_answer_length,
                n_best=options.n_best,
            )
            best = passages.merge(windows, spans, tf.size(question))
            found = passages.answers(context, pieces, best, no_answer=self.no_answer)
            answer = passages.chosen(found, threshold)
            outputs = {
                "answer": answer.texts,
                "start": answer.starts,
                "end": answer.ends,
                "start_byte": answer.start_bytes,
                "end_byte": answer.end_bytes,
                "score": answer.probabilities,
                "answers": found.texts[:, :_SERVED],
                "starts": found.starts[:, :_SERVED],
                "ends": found.ends[:, :_SERVED],
                "start_bytes": found.start_bytes[:, :_SERVED],
                "end_bytes": found.end_bytes[:, :_SERVED],
                "scores": found.probabilities[:, :_SERVED],
            }
            if threshold is not None:
                outputs["no_answer_score"] = found.null_odds - threshold
            return outputs

        return {"serving_default": serving_default, "ids": serving.ids_signature(model)}

    # --- Windows and answers -----------------------------------------------------

    def preprocess(self, question: tf.Tensor, context: tf.Tensor):
        return passages.cut(
            self.tokenizer,
            question,
            context,
            max_sequence_length=self.options.max_sequence_length,
            max_question_length=self.options.max_question_length,
            stride=self.options.stride,
        )

    def _cut(self, questions: Sequence[Question]) -> Chunk:
        context = tf.constant([question.context for question in questions])
        question = tf.constant([question.question for question in questions])
        return Chunk(context, *self.preprocess(question, context))

    def _predictions(self, split: Split, outputs: Sequence[Any]) -> Predictions:
        n_best, null_odds = {}, {}
        questions, begin = iter(self.questions[split.name]), 0
        for chunk in split.source:
            end = begin + len(chunk.windows.row)
            found = self._answers(chunk, outputs[begin:end])
            begin = end
            for row, odds in enumerate(found.null_odds):
                name = next(questions).id
                n_best[name] = [
                    {
                        "text": text.decode(errors="replace"),
                        "probability": float(probability),
                        "start_logit": float(start),
                        "end_logit": float(end),
                    }
                    for text, probability, start, end in zip(
                        found.texts[row],
                        found.probabilities[row],
                        found.start_logits[row],
                        found.end_logits[row],
                    )
                    if probability > 0
                ]
                if self.no_answer:
                    null_odds[name] = float(odds)
        return Predictions(n_best, null_odds)

    def _answers(self, chunk: Chunk, outputs: Sequence[Any]) -> passages.Answers:
        """The candidates for the questions of a chunk, as numpy arrays."""
        options, parts = self.options, []
        for begin in range(0, len(outputs), _QUESTIONS_AT_ONCE):
            some = slice(begin, begin + _QUESTIONS_AT_ONCE)
            logits = {
                name: keras.utils.pad_sequences(
                    [output[name] for output in outputs[some]], None, "float32", "post"
                )
                for name in ("start_logits", "end_logits")
            }
            parts.append(
                passages.spans(
                    passages.Windows(*(x[some] for x in chunk.windows)),
                    **logits,
                    max_answer_length=options.max_answer_length,
                    n_best=options.n_best,
                )
            )
        spans = passages.Spans(*(tf.concat(p, axis=0) for p in zip(*parts)))
        best = passages.merge(chunk.windows, spans, len(chunk.context))
        found = passages.answers(
            chunk.context, chunk.pieces, best, no_answer=self.no_answer
        )
        return passages.Answers(*(values.numpy() for values in found))


def _read(options: QuestionAnswering.Config, split: str) -> list[Question]:
    path = getattr(options, f"{split}_file")
    if not path:
        raise ValueError(f"--{split}_file is missing.")
    columns = squad.Columns(
        options.question, options.context, options.answer, options.answer_start
    )
    return squad.read(path, columns, needs_answers=split != "test")


def _in_chunks(questions: Sequence[Question]) -> Iterator[list[Question]]:
    chunk, size = [], 0
    for question in questions:
        if chunk and (
            size + len(question.context) > _BYTES_AT_ONCE
            or len(chunk) == _QUESTIONS_AT_ONCE
        ):
            yield chunk
            chunk, size = [], 0
        chunk.append(question)
        size += len(question.context)
    yield chunk


def _targets(questions: Sequence[Question], chunk: Chunk) -> dict[str, np.ndarray]:
    """First and last token of the answer in each window [W] int32.

    Both are 0, [CLS], where the answer is not wholly in the window or there is none.
    """
    starts, ends = chunk.pieces.starts, chunk.pieces.ends
    row_splits = starts.row_splits.numpy()[len(questions) :]  # Those of the passages.
    starts, ends = starts.values.numpy(), ends.values.numpy()
    answers = np.full([len(questions), 2], -1)
    for row, question in enumerate(questions):
        span = squad.answer_bytes(question)
        if span:
            of_passage = slice(*row_splits[row : row + 2])
            first = np.searchsorted(ends[of_passage], span[0], side="right")
            last = np.searchsorted(starts[of_passage], span[1], side="left") - 1
            if first > last:
                raise ValueError(
                    f"{question.path}, question {question.id!r}: the answer "
                    f"{question.answers[0][0]!r} has nothing that is a token."
                )
            answers[row] = first, last
    windows = passages.Windows(*(values.numpy() for values in chunk.windows))
    first, last = answers[windows.row].T
    is_inside = (first >= windows.first) & (last < windows.first + windows.size)
    offset = windows.passage_start - windows.first
    return {
        "start_logits": np.where(is_inside, first + offset, 0).astype(np.int32),
        "end_logits": np.where(is_inside, last + offset, 0).astype(np.int32),
    }


# --- Ensembles -------------------------------------------------------------------


def ensemble(options: QuestionAnswering.Config) -> dict[str, float]:
    """Writes and scores the mean of several runs, see the module docstring."""
    questions = _read(options, "dev")
    predictions = squad.average(options.ensemble.split(","), "dev")
    if predictions.n_best.keys() != {question.id for question in questions}:
        raise ValueError(f"The runs are not about the questions of {options.dev_file}.")
    folder = pathlib.Path(options.output)
    folder.mkdir(parents=True, exist_ok=True)
    threshold = None
    if predictions.null_odds:
        threshold = squad.best_threshold(
            questions, predictions.best(), predictions.null_odds
        )
    scores = squad.scores(questions, predictions.best(threshold))
    predictions.write(folder, "dev", threshold)
    storage.write_json(folder / "metrics.json", {"dev": scores})
    print("dev: " + ", ".join(f"{name} {score:.4f}" for name, score in scores.items()))
    return scores


def main(*grid: QuestionAnswering.Config) -> None:
    """Fine-tunes, or averages runs if `--ensemble` names some."""
    if grid[0].ensemble:
        ensemble(grid[0])
    else:
        finetune.main(QuestionAnswering, *grid)


if __name__ == "__main__":
    cli.run(main, QuestionAnswering.Config)
