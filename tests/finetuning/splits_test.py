# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import collections
import functools
import json

import pytest

from bert_tf.finetuning import ColumnFile, Example
from bert_tf.finetuning.splits import copies, hold_out
from tasks.classification import Classification
from tasks.question_answering import QuestionAnswering
from tasks.tagging import Tagging
from tests.toy import tables

HELD_OUT = ["8", "9", "10", "11"]


def example(number, gold="", group="", text=""):
    return Example(str(number), {}, (text or f"text {number}",), gold, group=group)


def ids(rows):
    return [row.id for row in rows]


def test_rows_do_not_depend_on_the_machine():
    rows = [example(i) for i in range(20)]
    train, held_out = hold_out(rows, 0.2, 0, lambda row: ())
    assert ids(held_out) == HELD_OUT
    assert ids(train) == [row.id for row in rows if row not in held_out]
    # More rows do not move a row to the other side, but where the share ends.
    more = ids(hold_out([example(i) for i in range(40)], 0.2, 0, lambda row: ())[1])
    assert len(more) == 8
    assert ids(hold_out(rows, 0.2, 1, lambda row: ())[1]) != HELD_OUT


def test_classes_have_equal_shares_and_stay_in_the_training_set():
    sizes = {"often": 200, "seldom": 20, "once": 1}
    rows = [example(f"{k}{i}", k) for k, n in sizes.items() for i in range(n)]
    train, held_out = hold_out(rows, 0.1, 0, lambda row: [row.gold])
    counts = collections.Counter(row.gold for row in held_out)
    assert counts == {"often": 20, "seldom": 2}
    assert "once" in {row.gold for row in train}


def test_groups_and_copies_stay_together():
    rows = [example(i, "ab"[i % 3 == 0], f"customer {i // 4}") for i in range(200)]
    train, held_out = hold_out(rows, 0.2, 0, lambda row: [row.gold])
    assert not {x.group for x in train} & {x.group for x in held_out}
    assert abs(len(held_out) - 40) <= 2
    assert abs(sum(x.gold == "b" for x in held_out) - 40 / 3) <= 3
    rows = [example(i, text=f"text {i % 50}") for i in range(200)]
    train, held_out = hold_out(rows, 0.2, 0, lambda row: ())
    assert not {x.inputs for x in train} & {x.inputs for x in held_out}
    assert copies({"train": train, "dev": held_out}) == {"train": 0, "dev": 0}
    both = {"train": rows[:50], "dev": [*rows[50:52], example(999)]}
    assert copies(both) == {"train": 2, "dev": 2}


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_few_rows_are_kept_for_training(rows):
    train, held_out = hold_out([example(i) for i in range(rows)], 0.1, 0, lambda x: ())
    assert len(train) == rows
    assert not held_out


# --- Tasks -----------------------------------------------------------------------


def csv(rows=40):
    lines = (
        f'R-{i},C{i % 9},"the\ncat {i}",{["yes", "no"][i % 2]}' for i in range(rows)
    )
    return "\n".join(["key,customer,text,label", *lines, 'R-x,C1,"",', "R-y,C2,a,N/A"])


def test_tables_hold_out_labeled_rows(tmp_path, vocabulary, caplog):
    tables.write_file(tmp_path / "x.csv", csv())
    read = functools.partial(tables.read, Classification, tmp_path, vocabulary)
    own = {"train_file": "x.csv", "text_a": "text", "label": "label"}
    shares = {"dev_share": 0.1, "test_share": 0.2}
    task = read(**own, **shares, id="key", keep="customer", group="customer")
    assert task.evaluation_splits == ["dev", "test"]
    customers = [{row.group for row in rows} for rows in task.data.values()]
    assert sum(map(len, customers)) == len(set.union(*customers)) == 9
    assert sum(map(len, task.data.values())) == 40
    row = task.data["dev"][0]
    assert row.id.startswith("R-")
    assert row.kept == {"customer": row.group}
    assert {"split": "dev", "line": row.line, "id": row.id} in task.held_out
    assert "1 of 42 rows have an empty or missing text" in caplog.text
    assert "also in another split" not in caplog.text
    for changes, message in (
        ({**own}, "Missing flags: --dev_file. Pass .* --dev_share=0.1 instead of"),
        ({**own, **shares, "dev_file": "x.csv"}, "--dev_file or --dev_share, not both"),
        ({**own, **shares, "group": "shop"}, "no column 'shop'.*or with --task"),
        ({**own, **shares, "keep": "text,gold"}, "must not name columns .* Got gold"),
        ({**own, "dev_share": 0.001}, "--dev_share=0.001 of 40 rows holds out none"),
    ):
        with pytest.raises(ValueError, match=message):
            read(**changes)
    read(**own, dev_file="x.csv")
    assert "in another split, so scored too well: 40 of 40 dev" in caplog.text


def test_documents_of_column_files_stay_together(tmp_path, vocabulary):
    sentences = "the O\ncat B-P\n\nsat B-L\n\n"
    text = "".join(f"-DOCSTART- O\n\nw{i} O\n\n{sentences}" for i in range(10))
    tables.write_file(tmp_path / "x.conll", text)
    files = {"train_file": "x.conll", "dev_share": 0.2}
    task = tables.read(Tagging, tmp_path, vocabulary, **files)
    sizes = {name: len(file.sentences) for name, file in task.data.items()}
    assert sizes == {"train": 24, "dev": 6}
    dev = task.data["dev"]
    assert [s.begins_document for s in dev.sentences] == [True, False, False] * 2
    dev.write(tmp_path / "dev.conll", [["O"] * len(s.rows) for s in dev.sentences])
    again = ColumnFile.read(tmp_path / "dev.conll")
    assert [s.words for s in again.sentences] == [s.words for s in dev.sentences]
    found = [*Tagging.read_input(task.options, tmp_path / "x.conll")]
    assert {row["id"] for row in task.held_out} <= {row.id for row in found}


def test_passages_or_articles_stay_together(tmp_path, vocabulary):
    def question(n):
        return {"id": n, "question": "a", "answers": [], "is_impossible": True}

    def paragraph(a, p):
        questions = [question(f"{a}-{p}-{q}") for q in "ab"]
        return {"context": f"text {a} {p}", "qas": questions}

    data = [
        {"title": f"title {a}", "paragraphs": [paragraph(a, p) for p in range(3)]}
        for a in range(5)
    ]
    tables.write_file(tmp_path / "x.json", json.dumps({"data": data}))
    files = {"train_file": "x.json", "dev_share": 0.2}
    for group, column in (("", 1), ("title", 0)):
        options = {"group": group, "keep": "title", "max_question_length": 8}
        task = tables.read(QuestionAnswering, tmp_path, vocabulary, **files, **options)
        parts = [
            {x.inputs[1].rsplit(" ", 1 - column)[0] for x in rows}
            for rows in task.data.values()
        ]
        assert len(task.data["dev"]) == 6
        assert not parts[0] & parts[1]
        assert task.data["dev"][0].kept["title"].startswith("title")
