# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import gzip
import json
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
def read(tmp_path):
    """Returns a function that reads the questions in a file with some content."""

    def read(content, *columns, name="x.json", **options):
        path = tmp_path / name
        text = content if isinstance(content, str) else json.dumps(content)
        path.write_text(text, encoding="utf-8")
        return squad.read(path, *columns, **options)

    return read


# --- Files -----------------------------------------------------------------------


def test_read_json_of_both_versions(read, tmp_path):
    content = data(
        entry(),
        {"id": "2", "question": "Why?", "answers": [], "is_impossible": True},
        {"id": "3", "question": ""},
    )
    answered, impossible, unknown = read(content)
    path = tmp_path / "x.json"
    assert answered[2:7] == (("What?", CONTEXT), "Köln", path, 1, (("Köln", 15),))
    assert (impossible.answers, impossible.gold) == ((), "")
    assert (unknown.answers, unknown.gold, unknown.inputs[0]) == (None, None, "")
    with pytest.raises(ValueError, match=r"question '3': answers\[\] is missing"):
        read(content, split="dev")


@pytest.mark.parametrize(
    ("name", "content", "id_"),
    [
        ("x.csv", 'id,context,question\na,"x, y",z\n', "a"),
        ("x.tsv", "context\tquestion\nx, y\tz\n", "2"),
        ("x.jsonl", '{"question": "z", "context": "x, y"}\n', "1"),
    ],
)
def test_read_tables_of_questions(read, name, content, id_):
    (question,) = read(content, name=name)
    assert question[:4] == (id_, {"question": "z"}, ("z", "x, y"), None)


def test_answers_of_each_object(read):
    """An object may have a list of texts, a missing value, or no offset."""
    rows = [
        {"answers": ["France", "Italy"]},
        {"answers": "None", "answer_start": 3},
        {"answers": "NaN", "id": "i7"},
        {"answers": None},
        {"answers": "N/A", "context": "It is N/A."},
    ]
    row = {"question": "?", "context": "In Italy or France."}
    lines = "\n".join(json.dumps(row | other) for other in rows)
    columns = "question", "context", "answers", "answer_start"
    found = read(lines, columns, name="x.jsonl", split="dev")
    answers = [(("France", 12), ("Italy", 3)), (), (), (), (("N/A", 6),)]
    assert [q.answers for q in found] == answers
    assert [q.id for q in found] == ["1", "2", "i7", "4", "5"]
    with pytest.raises(ValueError, match="Question, passage and answer must differ"):
        read(lines, ("question", "context", "context", ""), name="x.jsonl")
    with pytest.raises(ValueError, match="has no 'at', the name in --answer_start"):
        read(lines, (*columns[:3], "at"), name="x.jsonl", split="dev")


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ('{"text": ["Köln", "aß"], "answer_start": [3, 0]}', (("Köln", 3), ("aß", 0))),
        ('[{"text": "Köln", "answer_start": 3}]', (("Köln", 3),)),
        ('{"text": [], "answer_start": []}', ()),
        ('{"text": "Köln", "answer_start": 3}', (("Köln", 3),)),
        ('{"text": ["Köln"]}', (("Köln", -1),)),
        ('{"text": ["Köln"], "answer_start": null}', (("Köln", -1),)),
        ('[{"text": "Köln", "answer_start": "3.0"}]', (("Köln", 3),)),
        ("null", ()),
    ],
)
def test_read_answers_of_hugging_face(read, answers, expected):
    row = '{"id": "x", "question": "?", "context": "aß Köln", "answers": '
    (question,) = read(f"{row}{answers}}}\n", name="x.jsonl", split="dev")
    assert question.answers == expected
    entry = {"id": "1", "question": "?", "answers": json.loads(answers)}
    (question,) = read(data(entry, context="aß Köln"), split="dev")
    assert question.answers == expected


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
    read, caplog, context, answer, start
):
    table = f"context\tquestion\tanswer\n{context}\t?\t{answer}\n"
    for split in ("train", "dev"):
        (question,) = read(table, name="x.tsv", split=split)
        assert question.answers == ((answer, start),)
    warned = "1 answers occur several times" in caplog.text
    assert warned == (context.count(answer) > 1)


def test_only_answers_with_several_places_are_counted(read, caplog):
    rows = 'context,question,answer\n"a cat category",?,cat\n"a mat",?,\n'
    first, second = read(rows, name="x.csv", split="train")
    assert (first.answers, second.answers) == ((("cat", 2),), ())
    assert not caplog.text


def test_rows_without_an_id_or_an_answer(read):
    rows = '{"context": "a", "question": "?", "answer": "a"}\n'
    rows += '{"context": "b", "question": "?", "id": "x"}\n'
    columns = "question", "context", "answer", ""
    found = read(rows, columns, others=("", ""), name="x.jsonl", split="dev")
    assert [(q.id, q.line, q.answers) for q in found] == [
        ("1", 1, (("a", 0),)),
        ("2", 2, ()),
    ]
    with pytest.raises(ValueError, match="no column 'reply'"):
        read(rows, ("question", "context", "reply", ""), name="x.jsonl", split="dev")


@pytest.mark.parametrize("start", ['""', "NaN", '"two"', "1", "-1", "400"])
def test_training_skips_answers_that_are_not_at_their_offset(read, caplog, start):
    bad = {"id": 7, "question": "?", "context": "a cat and a dog", "answer": "dog"}
    good = bad | {"id": "8", "answer": "cat", "at": 2}
    line = json.dumps(bad)[:-1] + f', "at": {start}}}\n'
    columns, lines = ("question", "context", "answer", "at"), line + json.dumps(good)
    assert [q.id for q in read(lines, columns, name="x.jsonl")] == ["7", "8"]
    assert not caplog.text
    questions = read(lines, columns, name="x.jsonl", split="train")
    assert [(q.id, q.answers) for q in questions] == [("8", (("cat", 2),))]
    assert "x.jsonl: 1 of 2 questions have no answer at its offset" in caplog.text
    assert "The first is '7': the answer 'dog' is not " in caplog.text
    with pytest.raises(ValueError, match=r"1 of 1 questions have no answer at its"):
        read(line, columns, name="x.jsonl", split="train")


def test_table_without_a_column(read):
    message = "no column 'a'. .* with --question, --context, --answer, --answer"
    with pytest.raises(ValueError, match=message):
        read("q,p,at\n", ("q", "p", "a", "at"), name="x.csv", split="dev")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "x.json is not valid JSON: Expecting property name"),
        ("[]", "x.json, line 1: not a JSON object: []"),
        ({"data": 1}, "x.json: the format must be that of SQuAD"),
        (data(), "x.json contains no questions"),
        (data({"id": "q7"}), "x.json, question 'q7': a question must have id"),
        (data(entry("q7") | {"answers": ["Köln"]}), "question 'q7': a question must"),
        (data(entry("q7") | {"question": None}), "question=None"),
        (data(entry("q7", is_impossible=2)), "is_impossible must be true or false"),
    ],
)
def test_json_in_another_format(read, content, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        read(content)


@pytest.mark.parametrize(
    ("text", "start", "found"),
    [
        ("Köln", 15, "Köln"),
        ("in  Köln", 12, "in\nKöln"),  # White space may differ, ...
        (" Köln ", 14, "Köln"),
        ("Köln", 16, "Köln"),  # ... and the offset within the words that it covers.
        ("in", 11, "in"),
        ("Köln", 20, "Köln"),
        ("köln", 15, None),
        ("Köln", 12, "Köln"),
        ("big", 21, None),
        ("Köln", -4, None),
    ],
)
def test_answers_that_google_bert_finds(read, text, start, found):
    """Expected: `convert_examples` and `char_to_word_offset` of its run_squad.py."""
    context = "Die Größe 🙂 in\nKöln, the biggest."
    (question,) = read(data(entry("q7", text, start), context=context))
    span = squad.answer_bytes(question)
    assert (span and context.encode()[slice(*span)].decode()) == found


def test_wrong_offsets_and_missing_answers_are_told_apart(read):
    for text, place in (("Köln", "at character answer_start=-4"), ("Bonn", "in the p")):
        with pytest.raises(ValueError, match=f"'{text}' is not {place}"):
            read(data(entry("q7", text, -4)), split="train")


@pytest.mark.parametrize(
    ("value", "impossible"),
    [("False", False), (None, False), ("TRUE", True), (1, True)],
)
def test_is_impossible_as_text(read, value, impossible):
    (question,) = read(data(entry("q7", is_impossible=value)))
    assert len(question.answers) == (not impossible)


def test_integer_ids_are_text(read):
    assert [q.id for q in read(data(entry(7), entry("8")))] == ["7", "8"]
    with pytest.raises(ValueError, match=r"'7' occurs 2 times"):
        read(data(entry("7"), entry(7)))


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


def test_real_squad(real_data):
    for name, count, impossible in (
        ("train-v2.0-10-articles.json", 4_719, 348),
        ("dev-v2.0-16-articles.json", 6_078, 3_168),
    ):
        questions = squad.read(real_data / "squad" / name)
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


@pytest.mark.parametrize(
    ("names", "answer", "odds", "threshold"),
    [
        # 3 of 4 are right with a answered, or with a, b and c: the lower one wins.
        ("abcd", "x", [-3.0, -1.0, 0.5, 2.0], -2.0),
        ("abcd", "x", [-3.0, 1.0, 0.5, 2.0], 0.75),
        ("abcd", "x", [1.0, 1.0, 0.5, 2.0], 0.75),  # None separates a from b.
        ("ac", "x", [1.0, 2.0], 2.0),  # All answers are right.
        ("abcd", "y", [1.0, 1.0, 0.5, 2.0], -0.5),  # None is, so all are unanswered.
    ],
)
def test_best_threshold(names, answer, odds, threshold):
    """If `answer` is the best answer to every question."""
    texts = {"a": ["x"], "b": [], "c": ["x"], "d": []}
    questions = [question(name, *texts[name]) for name in names]
    answers = [answer] * len(odds)
    assert squad.best_threshold(questions, answers, np.array(odds)) == threshold
