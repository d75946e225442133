# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import gzip
import json
import os
import pathlib
import re

import pytest

from bert_tf.finetuning import squad
from bert_tf.finetuning.squad import Question

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
def test_read_tables_of_questions(write, name, content, ids):
    questions = squad.read(write(content, name))
    assert [q.id for q in questions] == ids
    assert [(q.context, q.question, q.answers) for q in questions] == [
        ("x, y", "z", None)
    ]


COLUMNS = ("q", "p", "a", "at")


def test_read_tables_with_answers(write):
    rows = "p,q,a,at\naß cat a,?,a,7\na,?,,\n"
    given, none = squad.read(write(rows, "x.csv"), COLUMNS, needs_answers=True)
    assert (given.answers, given.may_be_impossible) == ((("a", 7),), False)
    assert (none.answers, none.may_be_impossible) == ((), True)


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ('{"text": ["Köln", "aß"], "answer_start": [3, 0]}', (("Köln", 3), ("aß", 0))),
        ('[{"text": "Köln", "answer_start": 3}]', (("Köln", 3),)),
        ('{"text": [], "answer_start": []}', ()),
        ('{"text": "Köln", "answer_start": 3}', (("Köln", 3),)),
        ('{"text": ["Köln"]}', (("Köln", -1),)),
        ('[{"text": "", "answer_start": null}, {"text": null}, {"text": " "}]', ()),
        ('[{"text": "Köln", "answer_start": "3.0"}]', (("Köln", 3),)),
        ("[]", ()),
        ("null", ()),
    ],
)
def test_read_answers_of_hugging_face(write, answers, expected):
    row = '{"id": "x", "question": "?", "context": "aß Köln", "answers": '
    (question,) = squad.read(
        write(f"{row}{answers}}}\n", "x.jsonl"), needs_answers=True
    )
    assert (question.answers, question.may_be_impossible) == (expected, not expected)
    entry = {"id": "1", "question": "?", "answers": json.loads(answers)}
    path = write(data(entry, context="aß Köln"))
    (question,) = squad.read(path, needs_answers=True)
    assert question.answers == expected


def test_null_answer(write):
    row = '{"question": "?", "context": "a cat", "answer": null}\n'
    (question,) = squad.read(write(row, "x.jsonl"), needs_answers=True)
    assert (question.answers, question.may_be_impossible) == ((), True)


@pytest.mark.parametrize(
    "answers", ['{"texts": ["a"]}', '{"text": ["a"], "answer_start": []}', '["a"]']
)
def test_malformed_answers_of_hugging_face(write, answers):
    row = f'{{"question": "?", "context": "a", "answers": {answers}}}\n'
    message = "x.jsonl, question '1': a question must have id, question, and answers[]"
    with pytest.raises(ValueError, match=re.escape(message)):
        squad.read(write(row, "x.jsonl"), needs_answers=True)


@pytest.mark.parametrize(
    ("context", "answer", "start"),
    [
        ("1910: 10 of 10 men", "10", 6),  # The first occurrence as a whole word, ...
        ("1910 men", "10", 2),  # or else the first occurrence.
        ("a+b (c) c", "(c)", 4),
    ],
)
def test_answer_without_offset_is_the_first_occurrence(
    write, caplog, context, answer, start
):
    path = write(f"context\tquestion\tanswer\n{context}\t?\t{answer}\n", "x.tsv")
    (question,) = squad.read(path, needs_answers=True)
    assert question.answers == ((answer, start),)
    warned = "1 answers occur several times" in caplog.text
    assert warned == (context.count(answer) > 1)


@pytest.mark.parametrize("start", ["", "NaN", '"two"', "1", "-1", "400"])
@pytest.mark.parametrize("name", ["x.jsonl", "x.json"])
def test_training_skips_answers_that_are_not_at_their_offset(
    write, caplog, name, start
):
    bad = {"id": 7, "question": "?", "context": "a cat and a dog", "answer": "dog"}
    good = bad | {"id": "8", "answer": "cat", "at": 2}
    lines = json.dumps(bad)[:-1] + (f', "at": {start}}}' if start else ', "at": ""}')
    path = write(f"{lines}\n{json.dumps(good)}\n", name)
    columns = "question", "context", "answer", "at"
    assert [q.id for q in squad.read(path, columns)] == ["7", "8"]
    assert not caplog.text
    questions = squad.read(path, columns, needs_answers=True, training=True)
    assert [(q.id, q.answers) for q in questions] == [("8", (("cat", 2),))]
    assert f"{name}: 1 of 2 questions have no answer at its offset" in caplog.text
    assert "The first is '7': the answer is 'dog', but" in caplog.text
    with pytest.raises(ValueError, match=r"1 of 1 questions have no answer at its"):
        squad.read(write(lines, name), columns, training=True)


def test_a_table_without_a_cell(write):
    with pytest.raises(ValueError, match=r"x\.csv, line 2: expected 4 columns"):
        squad.read(write("p,q,a,at\na cat,?,cat\n", "x.csv"), COLUMNS)


@pytest.mark.parametrize(
    ("header", "missing"), [("q,p,at", "'a'"), ("q,p,a", "'at'"), ("p,a,at", "'q'")]
)
def test_table_without_a_column(write, header, missing):
    path = write(f"{header}\n", "x.csv")
    message = (
        f"no column {missing}. .* with --question, --context, --answer and --answer"
    )
    with pytest.raises(ValueError, match=message):
        squad.read(path, COLUMNS, needs_answers=True)


def test_answer_bytes_are_offsets_in_utf8(write):
    (question,) = squad.read(write(data(entry())))
    begin, end = squad.answer_bytes(question)
    assert CONTEXT.encode()[begin:end].decode() == "Köln"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "data.json: not JSON: Expecting property name"),
        ("[]", "data.json, line 1: not a JSON object: []"),
        ({"data": 1}, "data.json: the format must be that of SQuAD"),
        ({"data": [{"paragraphs": [{"qas": [1]}]}]}, "KeyError('context')"),
        (data(), "data.json contains no questions"),
        (data({"id": "q7"}), "data.json, question 'q7': a question must have id"),
        (data(entry("q7") | {"answers": [{"txt": "x"}]}), "KeyError('text')"),
        (
            data(entry("q7") | {"answers": ["Köln"]}),
            "data.json, question 'q7': a question must",
        ),
        (data("Why?"), "data.json, question 'Why?': a question must"),
        (
            data(entry("q7"), entry("q7")),
            "data.json: ids must be unique. Got 2 questions with the id 'q7'",
        ),
        (
            data(entry("q7", is_impossible=True)),
            "'q7': a question with is_impossible=true must not",
        ),
    ],
)
def test_json_in_another_format(write, content, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        squad.read(write(content))


def test_json_with_invalid_utf8(tmp_path):
    path = tmp_path / "data.json"
    path.write_bytes(b'{"data": "K\xf6ln"}')
    message = r"data\.json, line 1: not UTF-8 text .* 0xf6 at byte 11"
    with pytest.raises(ValueError, match=message):
        squad.read(path)


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


def test_the_first_answer_that_is_at_its_offset(write):
    answers = [{"text": "Köln", "answer_start": 3}, {"text": "the", "answer_start": 20}]
    (question,) = squad.read(write(data(entry() | {"answers": answers})), training=True)
    begin = CONTEXT.encode().index(b"the")
    assert squad.answer_bytes(question) == (begin, begin + 3)


@pytest.mark.parametrize(
    ("value", "impossible"),
    [("false", False), ("False", False), (0, False), (None, False), ("true", True),
     ("TRUE", True), (1, True), ("maybe", None), (2, None)],
)  # fmt: skip
def test_is_impossible_as_text(write, value, impossible):
    path = write(data(entry("q7", is_impossible=value)))
    if impossible is False:
        (question,) = squad.read(path)
        assert (len(question.answers), question.may_be_impossible) == (1, True)
        return
    message = "is_impossible=true must not have" if impossible else "must be true or"
    with pytest.raises(ValueError, match=message):
        squad.read(path)


@pytest.mark.parametrize("ids", [(7, "7"), ("7", 7), (7, 7)])
def test_integer_ids_are_text(write, ids):
    assert [q.id for q in squad.read(write(data(entry(7), entry("8"))))] == ["7", "8"]
    with pytest.raises(ValueError, match=r"Got 2 questions with the id '7'"):
        squad.read(write(data(*map(entry, ids))))


@pytest.mark.parametrize("name", ["x.json", "x.JSON", "x.json.gz", "x.jsonl"])
@pytest.mark.parametrize("indent", [None, 1])
def test_squad_by_its_content(tmp_path, name, indent):
    text = "\ufeff" + json.dumps(data(entry()), indent=indent).replace("\n", "\r\n")
    raw = text.encode()
    (tmp_path / name).write_bytes(gzip.compress(raw) if "gz" in name else raw)
    (question,) = squad.read(tmp_path / name)
    assert (question.answers, question.context) == ((("Köln", 15),), CONTEXT)


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([5], [1]),
        ([0] * 2_500, [999, 1_000, 501]),  # Each counts for 2,000 characters.
        ([900_000] * 5, [2, 2, 1]),
        ([5_000_000, 10, 1_999_999, 10], [2, 2]),
    ],
)
def test_chunks_add_less_than_two_million_characters_to_their_first_passage(
    lengths, expected
):
    questions = [
        Question(pathlib.Path(), str(row), "?", "a" * length, None, False)
        for row, length in enumerate(lengths)
    ]
    chunks = squad.chunk_questions(questions)
    assert [question for chunk in chunks for question in chunk] == questions
    assert [len(chunk) for chunk in chunks] == expected


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
