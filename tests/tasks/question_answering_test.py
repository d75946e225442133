# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import json
import pathlib
import random
import re

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import serving
from bert_tf.data import Table
from bert_tf.finetuning import fine_tune, predict, squad
from bert_tf.modeling import BertBackbone
from bert_tf.text import Tokenizer
from tasks.question_answering import QuestionAnswering
from tests.toy import tasks as toy_tasks

LIMITS = {"max_sequence_length": 16, "max_question_length": 4, "stride": 4}


def write_squad(path, rows, *, version_2=True):
    """Writes rows (context, question, answer or None, start)."""
    paragraphs = []
    for number, (context, question, answer, start) in enumerate(rows):
        answers = [] if answer is None else [{"text": answer, "answer_start": start}]
        entry = {"id": f"q{number}", "question": question, "answers": answers}
        if version_2:
            entry["is_impossible"] = answer is None
        paragraphs.append({"context": context, "qas": [entry]})
    path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    return str(path)


@pytest.fixture(scope="module")
def tokenizer(vocabulary):
    return Tokenizer(vocabulary)


@pytest.fixture
def read(tmp_path, tokenizer):
    """Creates the task with the same rows for train and dev."""

    def read(rows, **options):
        path = write_squad(tmp_path / "data.json", rows)
        options = {"train_file": path, "dev_file": path, **LIMITS, **options}
        return QuestionAnswering(
            QuestionAnswering.Config(output="unused", **options), tokenizer
        )

    return read


# --- Targets ---------------------------------------------------------------------


def test_targets_from_character_offsets(read, vocabulary):
    # Characters of one to four bytes; the answer ends inside a word.
    context = "é 漢🙂 the cats, sat"
    task = read([(context, "a b", "cat", 9), (context, "c", None, 0)])
    train = task.dataset("train")
    start, end = (train.targets[k].numpy() for k in ("start_logits", "end_logits"))
    token = vocabulary.tokens[train.inputs["token_ids"][0, start[0]]]
    assert (token, end[0]) == ("cat", start[0])
    assert (start[1], end[1]) == (0, 0)
    assert task.no_answer


def test_targets_of_windows_without_the_answer_are_cls(read):
    context = "a b c d e f g h i j k l m n o p q r"
    task = read([(context, "x y", "j k l m", context.index("j"))])
    train = task.dataset("train")
    found = []
    for row, ids in enumerate(train.inputs["token_ids"]):
        start, end = (int(t[row]) for t in train.targets.values())
        tokens = [task.tokenizer.vocabulary.tokens[i] for i in ids]
        found.append(" ".join(tokens[start : end + 1]))
    # Windows of eleven words with a stride of four.
    assert found == ["[CLS]", "j k l m", "j k l m"]
    assert not task.no_answer


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([("a b", "c", "b", 1)], {}, "1 of 1 questions have no answer at its offset"),
        (
            [("a \u200b", "c", "\u200b", 2)],
            {},
            "'q0': the answer must contain a token. Got '\\u200b'",
        ),
        (
            [("a", "c", "a", 0)],
            {"max_sequence_length": 7},
            "Got max_sequence_length=7, max_q",
        ),
    ],
)
def test_bad_input(read, rows, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        read(rows, **options).dataset("train")


def test_targets_and_predictions_of_tables(read, tmp_path, tiny_config):
    files = {
        "train": "ask,text,found,at\nx,a cat on a mat,a,9\nx,the cat,,\n",
        "test": 'ask,text\n"a, b",the cat\nc,a mat\n',
    }
    for name, text in files.items():
        (tmp_path / f"{name}.csv").write_text(text)
    task = read(
        [],
        train_file=str(tmp_path / "train.csv"),
        dev_file=str(tmp_path / "train.csv"),
        test_file=str(tmp_path / "test.csv"),
        question="ask",
        context="text",
        answer="found",
        answer_start="at",
    )
    # [CLS] x [SEP] a cat on a mat [SEP]; [CLS] x [SEP] the cat [SEP]
    targets = task.dataset("train").targets["start_logits"]
    assert targets.numpy().tolist() == [6, 0]
    test = task.dataset("test")
    model = task.model(BertBackbone(tiny_config))
    outputs = predict(model, test, 8, max_length=16)
    task.write_predictions(test, task.evaluate(test, outputs, {}), tmp_path)
    predictions = json.loads((tmp_path / "predictions_test.json").read_text())
    table = Table(tmp_path / "predictions_test.csv")
    rows = [row for _, row in table.rows(["id", "question", "prediction"])]
    assert rows == [["2", "a, b", predictions["2"]], ["3", "c", predictions["3"]]]


# --- Fine-tuning and serving -----------------------------------------------------


def toy_rows(count, seed):
    """The answer is the word after "cat", if there is one."""
    rng, rows = random.Random(seed), []
    for _ in range(count):
        words = rng.choices("abcdefgh", k=rng.randint(4, 8))
        at = rng.randrange(len(words) - 1)
        answer = words[at + 1] if rng.random() < 0.7 else None
        if answer:
            words[at] = "cat"
        context = " ".join(words)
        rows.append((context, "the", answer, context.find("cat") + 4))
    return rows


@pytest.fixture(scope="module")
def toy(tmp_path_factory, random_encoder):
    """Options of a fine-tuning run of seconds, without `output`."""
    folder = tmp_path_factory.mktemp("toy")
    (folder / "test.jsonl").write_text('{"question": "the", "context": "a cat b"}\n')
    return {
        **random_encoder(folder, initializer_range=0.1),
        "train_file": write_squad(folder / "train.json", toy_rows(250, 0)),
        "dev_file": write_squad(folder / "dev.json", toy_rows(60, 1)),
        "test_file": str(folder / "test.jsonl"),
        "batch_size": 16,
        "epochs": 4,
        "learning_rate": 1e-2,
        # Windows of four words, all of one shape.
        "max_sequence_length": 8,
        "max_question_length": 1,
        "stride": 2,
    }


@pytest.fixture(scope="module")
def finished(toy, tmp_path_factory):
    """Options and metrics of a finished run."""
    folder = tmp_path_factory.mktemp("finished")
    options = QuestionAnswering.Config(**toy, output=str(folder / "model"))
    metrics = fine_tune(QuestionAnswering, options)
    return options, metrics, serving.load(options.output)


def load(options, name):
    return json.loads((pathlib.Path(options.output) / name).read_text())


def test_fine_tuned_model_learns(finished):
    options, metrics, _ = finished
    dev = squad.read(options.dev_file)
    predictions = load(options, "predictions_dev.json")
    scores = squad.scores(dev, predictions)
    assert scores.items() <= metrics["dev"].items()
    assert scores["f1"] > 85
    assert scores["HasAns_exact"] > 70
    threshold = metrics["dev"]["threshold"]
    assert metrics["decision"] == {"threshold": threshold}
    null_odds = load(options, "null_odds_dev.json")
    for name, candidates in load(options, "nbest_dev.json").items():
        assert sum(c["probability"] for c in candidates) == pytest.approx(1, abs=1e-4)
        best = next(c for c in candidates if c["text"])
        assert predictions[name] == (
            "" if null_odds[name] > threshold else best["text"]
        )
    assert load(options, "predictions_test.json").keys() == {"1"}


def test_served_answers_equal_predictions(finished):
    options, metrics, served = finished
    dev = squad.read(options.dev_file)
    answers = served.predict(*map(list, zip(*(q[2:4] for q in dev))))
    predictions = load(options, "predictions_dev.json")
    assert answers["answer"].tolist() == list(predictions.values())
    odds = list(load(options, "null_odds_dev.json").values())
    expected = np.array(odds) - metrics["dev"]["threshold"]
    np.testing.assert_allclose(answers["no_answer_score"], expected, atol=1e-3)
    for row, candidates in enumerate(load(options, "nbest_dev.json").values()):
        best = candidates[:5]
        texts = [candidate["text"] for candidate in best]
        assert answers["answers"][row].tolist()[: len(best)] == texts
        np.testing.assert_allclose(
            answers["scores"][row][: len(best)],
            [candidate["probability"] for candidate in best],
            atol=1e-4,
        )


@pytest.mark.slow
def test_squad_1_model_always_answers(tmp_path, toy, tiny_config, tokenizer):
    rows = [row for row in toy_rows(20, 2) if row[2]]
    path = write_squad(tmp_path / "data.json", rows, version_2=False)
    options = {**toy, "train_file": path, "dev_file": path, "test_file": ""}
    task = QuestionAnswering(
        QuestionAnswering.Config(output="unused", **options), tokenizer
    )
    model = task.model(BertBackbone(tiny_config))
    dev = task.dataset("dev")
    outputs = predict(model, dev, 8, max_length=16)
    found = task.evaluate(dev, outputs)
    assert found.metrics.keys() == {"exact", "f1"}
    task.write_predictions(dev, found, tmp_path)
    predictions = json.loads((tmp_path / "predictions_dev.json").read_text())
    assert all(predictions.values())
    assert not (tmp_path / "null_odds_dev.json").exists()
    contexts, questions = zip(*(row[:2] for row in rows))
    answers = toy_tasks.serve(task, model)["serving_default"](
        tf.constant([*questions, "a"]), tf.constant([*contexts, ""])
    )
    *found, nothing = (answer.decode() for answer in answers["answer"].numpy())
    assert found == list(predictions.values())
    assert "no_answer_score" not in answers
    assert (nothing, answers["score"][-1]) == ("", 0)


def test_predicting_a_file_matches_the_evaluation(finished, tmp_path):
    options, _, served = finished
    rows = toy_tasks.predict_file(
        QuestionAnswering, served, options.dev_file, tmp_path / "answers.jsonl"
    )
    found = {row["id"]: row["prediction"] for row in rows}
    assert found == load(options, "predictions_dev.json")
    assert all(row.keys() >= {"question", "confidence", "gold"} for row in rows)
