# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import json
import os
import pathlib
import re

import numpy as np
import pytest

from bert_tf.finetuning import squad
from bert_tf.finetuning.squad import Predictions, Question

CONTEXT = "Die Größe 🙂 of Köln, the biggest."


def data(*entries, context=CONTEXT):
    return {
        "data": [{"title": "", "paragraphs": [{"context": context, "qas": entries}]}]
    }


def entry(name="1", text="Köln", start=15, **more):
    answers = [{"text": text, "answer_start": start}]
    return {"id": name, "question": "What?", "answers": answers} | more


@pytest.fixture
def write(tmp_path):
    def write(content, name="data.json"):
        path = tmp_path / name
        text = content if isinstance(content, str) else json.dumps(content)
        path.write_text(text, encoding="utf-8")
        return path

    return write


def question(name, *texts, may_be_impossible=True):
    answers = tuple((text, 0) for text in texts)
    return Question(pathlib.Path(), name, "?", "", answers, may_be_impossible)


# --- Files -----------------------------------------------------------------------


def test_reads_both_versions_and_files_without_answers(write):
    path = write(
        data(
            entry(),
            {"id": "2", "question": "Why?", "answers": [], "is_impossible": True},
            {"id": "3", "question": ""},
        )
    )
    answered, impossible, unknown = squad.read(path)
    assert answered == Question(
        path, "1", "What?", CONTEXT, (("Köln", 15),), may_be_impossible=False
    )
    assert (impossible.answers, impossible.may_be_impossible) == ((), True)
    assert (unknown.answers, unknown.question) == (None, "")


@pytest.mark.parametrize(
    ("name", "content", "ids"),
    [
        ("x.csv", 'id,context,question\na,"x, y",z\n', ["a"]),
        ("x.tsv", "context\tquestion\nx, y\tz\n", ["2"]),
        ("x.jsonl", '{"question": "z", "context": "x, y"}\n', ["1"]),
    ],
)
def test_reads_tables_of_questions(write, name, content, ids):
    questions = squad.read(write(content, name))
    assert [q.id for q in questions] == ids
    assert [(q.context, q.question, q.answers) for q in questions] == [
        ("x, y", "z", None)
    ]


COLUMNS = squad.Columns("q", "p", "a", "at")


def test_reads_tables_with_answers(write):
    rows = "p,q,a,at\naß cat a,?,a,7\na,?,,\n"
    given, none = squad.read(write(rows, "x.csv"), COLUMNS, needs_answers=True)
    assert (given.answers, given.may_be_impossible) == ((("a", 7),), False)
    assert (none.answers, none.may_be_impossible) == ((), True)


@pytest.mark.parametrize(
    ("context", "answer", "start"),
    [
        ("1910: 10 of 10 men", "10", 6),  # The first as a whole word, ...
        ("1910 men", "10", 2),  # or else the first at all.
        ("a+b (c) c", "(c)", 4),
    ],
)
def test_the_place_of_an_answer_that_the_table_does_not_say(
    write, caplog, context, answer, start
):
    path = write(f"context\tquestion\tanswer\n{context}\t?\t{answer}\n", "x.tsv")
    (question,) = squad.read(path, needs_answers=True)
    assert question.answers == ((answer, start),)
    warned = "1 answers stand at several places" in caplog.text
    assert warned == (context.count(answer) > 1)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            "a cat,?,dog,2",
            "line 2: the answer 'dog' should begin at character 2",
        ),
        ("a cat,?,cat,1", "of the passage; there is ' ca'."),
        ("a cat,?,cat,400", "there is ''."),
        (
            "a cat,?,cat,two",
            "line 2: where the answer begins must be the number of a",
        ),
        ("a cat,?,cat,-1", "from 0. Received: '-1'"),
        ("a cat,?,cat", "x.csv, line 2: expected 4 columns"),
    ],
)
def test_rows_whose_answer_is_elsewhere(write, row, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        squad.read(write(f"p,q,a,at\n{row}\n", "x.csv"), COLUMNS)


def test_a_row_whose_answer_is_nowhere(write):
    path = write('{"question": "?", "context": "a cat", "answer": "Cat"}\n', "x.jsonl")
    message = r"x\.jsonl, line 1: the answer must be an exact part .* Received: 'Cat'"
    with pytest.raises(ValueError, match=message):
        squad.read(path)


@pytest.mark.parametrize(
    ("header", "missing"), [("q,p,at", "'a'"), ("q,p,a", "'at'"), ("p,a,at", "'q'")]
)
def test_tables_without_a_column(write, header, missing):
    path = write(f"{header}\n", "x.csv")
    message = (
        f"no column {missing}. .* with --question, --context, --answer and --answer"
    )
    with pytest.raises(ValueError, match=message):
        squad.read(path, COLUMNS, needs_answers=True)


def test_answers_in_bytes(write):
    (question,) = squad.read(write(data(entry())))
    begin, end = squad.answer_bytes(question)
    assert CONTEXT.encode()[begin:end].decode() == "Köln"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "data.json, line 1: not JSON"),
        ("[]", "data.json: not in SQuAD's layout"),
        ({"data": [{"paragraphs": [{"qas": [1]}]}]}, "KeyError('context')"),
        (data(), "data.json has no questions"),
        (data({"id": "q7"}), "data.json, question 'q7': needs id, question"),
        (data(entry("q7") | {"answers": [{"text": "x"}]}), "KeyError('answer_start')"),
        (data(entry("q7") | {"answers": ["Köln"]}), "data.json, question 'q7': needs"),
        (data("Why?"), "data.json, question 'Why?': needs"),
        (data(entry("q7"), entry("q7")), "data.json: 2 questions have the id 'q7'"),
        (data(entry("q7", is_impossible=True)), "'q7': is_impossible, but has answers"),
    ],
)
def test_files_of_another_layout(write, content, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        squad.read(write(content))


@pytest.mark.parametrize(
    ("text", "start", "found"),
    [("Köln", 16, "'öln,'"), ("Köln", -4, "''"), ("x", 400, "''"), ("", 3, "''")],
)
def test_answers_that_are_not_where_they_should_be(write, text, start, found):
    (question,) = squad.read(write(data(entry("q7", text, start))))
    message = rf"data.json, question 'q7': answer_start={start} .* there is {found}\.$"
    with pytest.raises(ValueError, match=message):
        squad.answer_bytes(question)


# --- Scores ----------------------------------------------------------------------
# Expected values: worked out by hand, and checked with the data set's own scripts.


@pytest.mark.parametrize(
    ("prediction", "reference", "exact", "f1"),
    [
        ("The  U.S. Army", "us army", 1, 1),
        ("a cat, the cat", "cat", 0, 2 / 3),
        ("in the late 1990s", "late 1990s", 0, 4 / 5),
        ("an apple", "Anapple", 0, 0),
        ("well-known", "well known", 0, 0),
        ("„Köln“", "Köln", 0, 0),
        ("ΣΑΣ", "σας", 1, 1),
        ("the", "a", 1, 0),
    ],
)
def test_exact_match_and_f1(prediction, reference, exact, f1):
    assert squad.exact(prediction, reference) == exact
    assert squad.f1(prediction, reference) == pytest.approx(f1)


def test_scores_of_version_1():
    questions = [
        question("1", "late 1990s", "1990s", may_be_impossible=False),
        question("2", "The", may_be_impossible=False),
    ]
    scores = squad.scores(questions, {"1": "the 1990s", "2": "a"})
    assert scores == {"exact": 100.0, "f1": 50.0}


def test_scores_of_version_2():
    questions = [
        question("1", "late 1990s"),
        question("2"),
        question("3"),
        question("4", "The"),
    ]
    predictions = {"1": "1990s", "2": "", "3": "x", "4": "a"}
    assert squad.scores(questions, predictions) == pytest.approx(
        {
            "exact": 50.0,
            "f1": (200 / 3 + 100 + 0 + 100) / 4,
            "HasAns_exact": 50.0,
            "HasAns_f1": (200 / 3 + 100) / 2,
            "NoAns_exact": 50.0,
            "NoAns_f1": 50.0,
        }
    )


def test_the_best_threshold():
    questions = [question("a", "x"), question("b"), question("c", "x"), question("d")]
    best = dict.fromkeys("abcd", "x")
    odds = {"a": -3.0, "b": -1.0, "c": 0.5, "d": 2.0}
    # Answering a; a and c, at the price of b; both give 3 of 4 right: the first does.
    assert squad.best_threshold(questions, best, odds) == -2.0
    odds["b"] = 1.0
    assert squad.best_threshold(questions, best, odds) == 0.75
    # No threshold parts a from b.
    odds = {"a": 1.0, "b": 1.0, "c": 0.5, "d": 2.0}
    assert squad.best_threshold(questions, best, odds) == 0.75
    # All is right.
    assert squad.best_threshold(questions[::2], best, {"a": 1.0, "c": 2.0}) == 2.0
    # Nothing is right, so nothing is answered.
    assert squad.best_threshold(questions, dict.fromkeys("abcd", "y"), odds) < 0.5


# --- Predictions -----------------------------------------------------------------


def candidates(**probabilities):
    """Entries of an n-best list; `none` is "no answer"."""
    return [
        {"text": "" if text == "none" else text, "probability": probability}
        for text, probability in probabilities.items()
    ]


def test_the_files_of_predictions(tmp_path):
    n_best = {"1": candidates(ä=0.5, b=0.3), "2": candidates(none=1.0)}
    predictions = Predictions(n_best, {"1": -0.5, "2": 9.0})
    assert predictions.best() == {"1": "ä", "2": ""}
    assert predictions.best(-0.5) == {"1": "ä", "2": ""}
    assert predictions.best(-0.6) == {"1": "", "2": ""}
    path = predictions.write(tmp_path, "dev", -0.6)
    assert path == tmp_path / "predictions_dev.json"
    assert json.loads(path.read_text()) == {"1": "", "2": ""}
    assert json.loads((tmp_path / "nbest_dev.json").read_text()) == n_best
    assert json.loads((tmp_path / "null_odds_dev.json").read_text()) == {
        "1": -0.5,
        "2": 9.0,
    }
    Predictions(n_best, {}).write(tmp_path / ".", "test")
    assert not (tmp_path / "null_odds_test.json").exists()


def test_an_ensemble_averages_probabilities(tmp_path):
    runs = [
        {"1": candidates(x=0.6, y=0.4), "2": candidates(none=0.8, x=0.2)},
        {"1": candidates(y=0.9, z=0.1), "2": candidates(none=0.6, x=0.4)},
    ]
    for number, n_best in enumerate(runs):
        (tmp_path / str(number)).mkdir()
        odds = {"1": -1.0, "2": 1.0}
        Predictions(n_best, odds).write(tmp_path / str(number), "dev")
    found = squad.average([tmp_path / "0", tmp_path / "1"], "dev")
    assert [c["text"] for c in found.n_best["1"]] == ["y", "x", "z"]
    np.testing.assert_allclose(
        [c["probability"] for c in found.n_best["1"]], [0.65, 0.3, 0.05]
    )
    assert found.null_odds["2"] == pytest.approx(np.log(0.7 / 0.3))
    assert found.null_odds["1"] == pytest.approx(np.log(1e-12 / 0.65))
    assert found.best(0.0) == {"1": "y", "2": ""}


def test_runs_that_do_not_belong_together(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    Predictions({"1": candidates(x=1.0)}, {}).write(tmp_path / "a", "dev")
    with pytest.raises(ValueError, match=r"b/nbest_dev\.json is missing"):
        squad.average([tmp_path / "a", tmp_path / "b"], "dev")
    Predictions({"2": candidates(x=1.0)}, {}).write(tmp_path / "b", "dev")
    with pytest.raises(ValueError, match="is about other questions than"):
        squad.average([tmp_path / "a", tmp_path / "b"], "dev")


def test_real_squad():
    if "BERT_TF_DATA" not in os.environ:
        pytest.skip("BERT_TF_DATA, the folder of the real data sets, is not set.")
    folder = pathlib.Path(os.environ["BERT_TF_DATA"], "squad")
    for name, count, impossible in (
        ("train-v2.0-10-articles.json", 4_719, 348),
        ("dev-v2.0-16-articles.json", 6_078, 3_168),
    ):
        questions = squad.read(folder / name)
        spans = [squad.answer_bytes(question) for question in questions]
        assert (len(spans), spans.count(None)) == (count, impossible)
        for question, span in zip(questions, spans):
            if span:
                text = question.context.encode()[slice(*span)].decode()
                assert text == question.answers[0][0]
