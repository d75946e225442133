# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import gzip
import json
import os
import pathlib
import re

import numpy as np
import pytest

from bert_tf.finetuning import Example, squad

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


# --- Files -----------------------------------------------------------------------


def test_read_json_of_both_versions(write):
    path = write(
        data(
            entry(),
            {"id": "2", "question": "Why?", "answers": [], "is_impossible": True},
            {"id": "3", "question": ""},
        )
    )
    answered, impossible, unknown = squad.read(path)
    assert answered[2:7] == (("What?", CONTEXT), "Köln", path, 0, (("Köln", 15),))
    assert (impossible.answers, impossible.gold) == ((), "")
    assert (unknown.answers, unknown.gold, unknown.inputs[0]) == (None, None, "")
    with pytest.raises(ValueError, match=r"question '3': answers\[\] is missing"):
        squad.read(path, split="dev")


@pytest.mark.parametrize(
    ("name", "content", "id_"),
    [
        ("x.csv", 'id,context,question\na,"x, y",z\n', "a"),
        ("x.tsv", "context\tquestion\nx, y\tz\n", "2"),
        ("x.jsonl", '{"question": "z", "context": "x, y"}\n', "1"),
    ],
)
def test_read_tables_of_questions(write, name, content, id_):
    (question,) = squad.read(write(content, name))
    assert question[:4] == (id_, {"question": "z"}, ("z", "x, y"), None)


def test_answers_of_each_object(write):
    """An object may have a list of texts, a missing value, or no offset."""
    rows = [
        {"answers": ["France", "Italy"]},
        {"answers": "None", "answer_start": 3},
        {"answers": "NaN", "id": "i7"},
        {"answers": "N/A", "context": "It is N/A."},
    ]
    row = {"question": "?", "context": "In Italy or France."}
    lines = "\n".join(json.dumps(row | other) for other in rows)
    columns = "question", "context", "answers", "answer_start"
    found = squad.read(write(lines, "x.jsonl"), columns, split="dev")
    assert [q.answers for q in found] == [
        (("France", 12), ("Italy", 3)),
        (),
        (),
        (("N/A", 6),),
    ]
    assert [q.id for q in found] == ["1", "2", "i7", "4"]
    with pytest.raises(ValueError, match="Question, passage and answer must differ"):
        squad.read(write(lines, "x.jsonl"), ("question", "context", "context", ""))


COLUMNS = ("q", "p", "a", "at")


def test_read_tables_with_answers(write):
    rows = "p,q,a,at\naß cat a,?,a,7\na,?,,\n"
    given, none = squad.read(write(rows, "x.csv"), COLUMNS, split="dev")
    assert (given.answers, none.answers) == ((("a", 7),), ())


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ('{"text": ["Köln", "aß"], "answer_start": [3, 0]}', (("Köln", 3), ("aß", 0))),
        ('[{"text": "Köln", "answer_start": 3}]', (("Köln", 3),)),
        ('{"text": [], "answer_start": []}', ()),
        ('{"text": "Köln", "answer_start": 3}', (("Köln", 3),)),
        ('{"text": ["Köln"]}', (("Köln", -1),)),
        ('{"text": ["Köln"], "answer_start": null}', (("Köln", -1),)),
        ('[{"text": "", "answer_start": null}, {"text": null}, {"text": " "}]', ()),
        ('[{"text": "Köln", "answer_start": "3.0"}]', (("Köln", 3),)),
        ("[]", ()),
        ("null", ()),
    ],
)
def test_read_answers_of_hugging_face(write, answers, expected):
    row = '{"id": "x", "question": "?", "context": "aß Köln", "answers": '
    (question,) = squad.read(write(f"{row}{answers}}}\n", "x.jsonl"), split="dev")
    assert question.answers == expected
    entry = {"id": "1", "question": "?", "answers": json.loads(answers)}
    path = write(data(entry, context="aß Köln"))
    (question,) = squad.read(path, split="dev")
    assert question.answers == expected
    if answers == "null":
        row = row.replace("answers", "answer") + "null}\n"
        (question,) = squad.read(write(row, "x.jsonl"), split="dev")
        assert question.answers == ()


@pytest.mark.parametrize(
    ("context", "answer", "start"),
    [
        ("1910: 10 of 10 men", "10", 6),  # The first occurrence as a whole word, ...
        ("1910 men", "10", 2),  # or else the first occurrence.
        ("a+b (c) c", "(c)", 4),
        ("a b  c", " b c ", 2),  # White space may differ.
    ],
)
def test_answer_without_offset_is_the_first_occurrence(
    write, caplog, context, answer, start
):
    path = write(f"context\tquestion\tanswer\n{context}\t?\t{answer}\n", "x.tsv")
    (question,) = squad.read(path, split="dev")
    assert question.answers == ((answer, start),)
    assert len(squad.read(path, split="train")) == 1
    warned = "1 answers occur several times" in caplog.text
    assert warned == (context.count(answer) > 1)


@pytest.mark.parametrize("start", ["", "NaN", '"two"', "1", "-1", "400"])
def test_training_skips_answers_that_are_not_at_their_offset(write, caplog, start):
    name = "x.jsonl"
    bad = {"id": 7, "question": "?", "context": "a cat and a dog", "answer": "dog"}
    good = bad | {"id": "8", "answer": "cat", "at": 2}
    lines = json.dumps(bad)[:-1] + (f', "at": {start}}}' if start else ', "at": ""}')
    path = write(f"{lines}\n{json.dumps(good)}\n", name)
    columns = "question", "context", "answer", "at"
    assert [q.id for q in squad.read(path, columns)] == ["7", "8"]
    assert not caplog.text
    questions = squad.read(path, columns, split="train")
    assert [(q.id, q.answers) for q in questions] == [("8", (("cat", 2),))]
    assert f"{name}: 1 of 2 questions have no answer at its offset" in caplog.text
    assert "The first is '7': the answer 'dog' is not " in caplog.text
    with pytest.raises(ValueError, match=r"1 of 1 questions have no answer at its"):
        squad.read(write(lines, name), columns, split="train")


@pytest.mark.parametrize(
    ("header", "missing"), [("q,p,at", "'a'"), ("q,p,a", "'at'"), ("p,a,at", "'q'")]
)
def test_table_without_a_column(write, header, missing):
    path = write(f"{header}\n", "x.csv")
    message = f"no column {missing}. .* with --question, --context, --answer, --answer"
    with pytest.raises(ValueError, match=message):
        squad.read(path, COLUMNS, split="dev")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "data.json is not valid JSON: Expecting property name"),
        ("[]", "data.json, line 1: not a JSON object: []"),
        ({"data": 1}, "data.json: the format must be that of SQuAD"),
        ({"data": [{"paragraphs": [{"qas": [1]}]}]}, "KeyError('context')"),
        (data(), "data.json contains no questions"),
        (data({"id": "q7"}), "data.json, question 'q7': a question must have id"),
        (data(entry("q7") | {"answers": ["Köln"]}), "question 'q7': a question must"),
        (data(entry("q7") | {"answers": {"texts": ["a"]}}), "a question must have id"),
        (data(entry("q7") | {"answers": {"text": ["a"], "answer_start": []}}), "must"),
        (data("Why?"), "data.json, question 'Why?': a question must"),
        (data(entry("q7") | {"question": None}), "question=None"),
        (data(entry("q7"), context=None), "context=None"),
        (data(entry("q7", is_impossible=2)), "is_impossible must be true or false"),
    ],
)
def test_json_in_another_format(write, content, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        squad.read(write(content))


@pytest.mark.parametrize(
    ("text", "start", "found"),
    [
        ("Köln", 15, "Köln"),
        ("in  Köln", 12, "in\nKöln"),  # White space may differ, ...
        (" Köln ", 14, "Köln"),
        ("Köln", 16, "Köln"),  # ... and the offset within the words that it covers.
        ("Köln", 14, "Köln"),
        ("in", 11, "in"),
        ("Köln", 20, "Köln"),
        ("köln", 15, None),
        ("Köln", 12, "Köln"),
        ("in", 15, None),
        ("big", 21, None),
        ("Köln", -4, None),
        ("x", 400, None),
    ],
)
def test_answers_that_google_bert_finds(write, text, start, found):
    """Expected: `convert_examples` and `char_to_word_offset` of its run_squad.py."""
    context = "Die Größe 🙂 in\nKöln, the biggest."
    path = write(data(entry("q7", text, start), context=context))
    (question,) = squad.read(path)
    span = squad.answer_bytes(question)
    assert (span and context.encode()[slice(*span)].decode()) == found


@pytest.mark.parametrize(
    ("value", "impossible"),
    [("False", False), (None, False), ("TRUE", True), (1, True)],
)
def test_is_impossible_as_text(write, value, impossible):
    (question,) = squad.read(write(data(entry("q7", is_impossible=value))))
    assert len(question.answers) == (not impossible)


def test_integer_ids_are_text(write):
    assert [q.id for q in squad.read(write(data(entry(7), entry("8"))))] == ["7", "8"]
    with pytest.raises(ValueError, match=r"'7' occurs 2 times"):
        squad.read(write(data(entry("7"), entry(7))))


@pytest.mark.parametrize(
    ("name", "indent"),
    [("x.json", None), ("x.JSON", 1), ("x.json.gz", 1), ("x.jsonl", 1)],
)
def test_squad_by_its_content(tmp_path, name, indent):
    text = "\ufeff" + json.dumps(data(entry()), indent=indent).replace("\n", "\r\n")
    raw = text.encode()
    (tmp_path / name).write_bytes(gzip.compress(raw) if "gz" in name else raw)
    (question,) = squad.read(tmp_path / name)
    assert (question.answers, question.inputs[1]) == ((("Köln", 15),), CONTEXT)


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
                text = question.inputs[1].encode()[slice(*span)].decode()
                assert text == question.answers[0][0]


# --- Scores: worked out by hand and checked with SQuAD's own scripts -----------------


def question(name, *texts):
    answers = tuple((text, 0) for text in texts)
    return Example(name, {}, ("?", ""), answers=answers)


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
def test_scores_of_squad_1(prediction, reference, exact, f1):
    """The best reference counts."""
    found = squad.scores([question("1", reference, "Berlin")], [prediction])
    assert found == pytest.approx({"exact": 100 * exact, "f1": 100 * f1})


def test_scores_of_squad_2():
    texts = ["late 1990s"], [], [], ["The"]
    questions = [question("1", *answers) for answers in texts]
    assert squad.scores(questions, ["1990s", "", "x", "a"]) == pytest.approx(
        {
            "exact": 50.0,
            "f1": (200 / 3 + 100 + 0 + 100) / 4,
            "HasAns_exact": 50.0,
            "HasAns_f1": (200 / 3 + 100) / 2,
            "NoAns_exact": 50.0,
            "NoAns_f1": 50.0,
        }
    )


def best_threshold(questions, answer, odds):
    """The threshold if `answer` is the best answer to every question."""
    return squad.best_threshold(questions, [answer] * len(odds), np.array(odds))


def test_best_threshold():
    questions = [question("a", "x"), question("b"), question("c", "x"), question("d")]
    odds = [-3.0, -1.0, 0.5, 2.0]
    # 3 of 4 are right with a answered, or with a, b and c: the lower threshold wins.
    assert best_threshold(questions, "x", odds) == -2.0
    odds = [-3.0, 1.0, 0.5, 2.0]
    assert best_threshold(questions, "x", odds) == 0.75
    # No threshold separates a from b.
    odds = [1.0, 1.0, 0.5, 2.0]
    assert best_threshold(questions, "x", odds) == 0.75
    # All answers are right.
    assert best_threshold(questions[::2], "x", [1.0, 2.0]) == 2.0
    # No answer is right, so no question is answered.
    assert best_threshold(questions, "y", odds) == -0.5
