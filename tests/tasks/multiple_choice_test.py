# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import functools
import re

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import serving
from bert_tf.finetuning import batches
from tasks.multiple_choice import MultipleChoice
from tests.toy import tables
from tests.toy.tables import write
from tests.toy.tasks import write_model

OWN = {"prompt": "start", "choices": "x,y,z", "label": "right"}
GOOD = "start\tx\ty\tz\tright\na\tb\tc\td\tz\ne\tf\tg\t\ty\n"


@pytest.fixture
def read(tmp_path, vocabulary):
    """Reads a data set from files in `tmp_path`; the arguments are options."""
    return functools.partial(tables.read, MultipleChoice, tmp_path, vocabulary)


def rows_of(task, split):
    """Returns the prompt, the choices and the label of each example of a split."""
    examples = task.data[split]
    labels = task.labels.get(split, [None] * len(examples))
    return [(*e.inputs, label) for e, label in zip(examples, labels, strict=True)]


# --- Files -----------------------------------------------------------------------

SWAG = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source"
SWAG += ",ending0,ending1,ending2,ending3"


def test_swag(tmp_path, read):
    row = (
        '0,anet_x,1,"A man, old. He",A man is old.,He,gold,"sits, up.",eats.,"""x"".",z'
    )
    write(
        tmp_path,
        train__csv=f"{SWAG},label\n{row},2\n",
        val__csv=f"{SWAG},label\n{row},0\n",
        test__csv=f"{SWAG}\n{row}\n",
    )
    task = read(task="swag", data_dir=str(tmp_path))
    choices = ("He sits, up.", "He eats.", 'He "x".', "He z")
    assert rows_of(task, "train") == [("A man is old.", choices, 2)]
    assert rows_of(task, "test") == [("A man is old.", choices, None)]
    assert task.evaluation_splits == ["dev", "test"]
    assert task.dataset("test").targets is None


@pytest.mark.parametrize(
    ("columns", "labels", "options", "named"),
    [
        ("xyz", "012", {}, "012"),
        ("xyz", "211", {}, "012"),  # From 0, because none is 3.
        ("xyz", "132", {}, "123"),
        ("xyz", "CAB", {}, "ABC"),
        ("xyz", "zxy", {}, "xyz"),
        ("123", "012", {}, "012"),  # Not by names, of which there is no 0.
        ("123", "121", {"choice_labels": "from_1"}, "123"),
    ],
)
def test_labels_have_one_meaning(read, caplog, columns, labels, options, named):
    """Predictions are named as the labels."""
    rows = "".join(f"q,a,b,c,{label}\n" for label in labels)
    choices = " ,".join(columns)  # Blanks around names.
    options = {"prompt": "q", "choices": choices, "label": "label", **options}
    task = read(f"q,{','.join(columns)},label\n{rows}", "x.csv", **options)
    expected = [named.index(label) for label in labels]
    assert task.labels["train"] == expected
    assert ("although none is 0" in caplog.text) == (labels == "211")
    found = task.evaluate(task.dataset("dev"), np.eye(3)[expected])
    assert found.metrics["accuracy"] == 1
    rows = task.rows("dev", found.answers)
    assert [row["prediction"] for row in rows] == [*labels]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (['["b", "c", "d"], "right": 2', '["e", " f"], "right": 0'],
         [("a", ("b", "c", "d"), 2), ("a", ("e", "f"), 0)]),
        # From 1.
        (['["b", "c", "d"], "right": "2"', '["e", "f"], "right": "2"'],
         [("a", ("b", "c", "d"), 1), ("a", ("e", "f"), 1)]),
        (  # ARC and CommonsenseQA.
            ['{"text": ["b", "c"], "label": ["B", "A"]}, "right": "A"',
             '{"text": ["e", "f"], "label": ["1", "2"]}, "right": "2"',
             '{"text": [3, 4], "label": [1, 2]}, "right": 2'],
            [("a", x, 1) for x in (("b", "c"), ("e", "f"), ("3", "4"))],
        ),
    ],
)  # fmt: skip
def test_choices_in_one_column(read, rows, expected):
    lines = (f'{{"start": "a", "options": {row}}}\n' for row in rows)
    task = read("".join(lines), "x.jsonl", **OWN | {"choices": "options"})
    assert [(p, tuple(c), label) for p, c, label in rows_of(task, "dev")] == expected
    sizes = [len(choices) for _, choices, _ in expected]
    found = tables.token_rows(task.dataset("dev"))
    assert [sum(map(bool, row)) for row in found] == sizes
    assert {len(row) for row in found} == {max(sizes)}


def test_numbers_of_named_choices(read):
    row = (
        '{"start": "a", "x": {"text": ["b", "c"], "label": ["A", "B"]}, "right": %d}\n'
    )
    options = OWN | {"choices": "x"}
    for kind in ("auto", "from_0"):
        task = read(row % 0 + row % 1, "x.jsonl", **options, choice_labels=kind)
        assert [label for *_, label in rows_of(task, "dev")] == [0, 1]


@pytest.mark.parametrize("value", ["null", '{"label": ["a"]}', '["a", null]'])
def test_invalid_choices_in_one_column(read, value):
    row = f'{{"start": "a", "x": {value}, "right": 0}}\n'
    message = "x.jsonl, line 1: column 'x' must be a list of texts, or --choices"
    with pytest.raises(ValueError, match=re.escape(message)):
        read(row, "x.jsonl", **OWN | {"choices": "x"})


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        ("start\tx\ty\tz\tright\na\tb\tc\td\t4\n", {}, "x.tsv, line 2: column "
         "'right' must be one of x, y, z, the name of a choice as in most rows. Got "
         "'4'. See --choice_labels."),
        ("start\tx\ty\tz\tright\na\tb\tc\t\tz\n", {}, "line 2: the right choice, 2,"),
        ("start\tx\ty\tz\tright\na\tb\t\t \t0\n", {}, "line 2: fewer than two choices"),
        (GOOD, {"choices": ""}, "Missing flags: --choices. Pass"),
    ],
)  # fmt: skip
def test_invalid_data_or_options(read, table, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        read(table, **OWN | options)


# --- Sequences, scores and predictions -------------------------------------------


def test_each_choice_is_paired_with_the_prompt(read, vocabulary):
    train = read(GOOD, **OWN).dataset("train")
    assert len(train) == 2
    tokens = [
        [" ".join(vocabulary.tokens[i] for i in choice) for choice in example]
        for example in tables.token_rows(train)
    ]
    assert tokens == [
        [f"[CLS] a [SEP] {choice} [SEP]" for choice in "bcd"],
        [f"[CLS] e [SEP] {choice} [SEP]" for choice in "fg"] + [""],
    ]
    np.testing.assert_array_equal(train.lengths, [5, 5])
    batch = next(iter(batches(train, 4, max_length=32)))
    assert batch[0]["token_ids"].shape == (4, 3, 8)
    np.testing.assert_array_equal(train.targets, [2, 1])


def test_accuracy_and_predictions(tmp_path, read):
    task = read(GOOD, **OWN)
    dev = task.dataset("dev")
    outputs = [np.log([0.2, 0.3, 0.5]), np.array([0.0, -1e9, -1e9])]
    found = task.evaluate(dev, outputs)
    assert found.metrics == {"accuracy": 0.5, "majority_accuracy": 0.5}
    task.write_predictions("dev", found.answers, tmp_path)
    assert (tmp_path / "predictions_dev.tsv").read_text() == (
        "id\tprompt\tprediction\tconfidence\tgold\tprobabilities\n"
        "0\ta\tz\t0.5\tz\t0.200000 0.300000 0.500000\n"
        "1\te\tx\t1.0\ty\t1.000000 0.000000 0.000000\n"
    )


# --- Served answers --------------------------------------------------------------


@pytest.mark.usefixtures("eagerly", "plain_encoder")
def test_any_number_of_choices_and_any_string(tmp_path, one_layer, vocabulary):
    directory = write_model("choices", tmp_path, one_layer, vocabulary)
    ask = serving.load(directory.path).signatures["serving_default"]
    choices = ["a", "the cat", "", "\0", "[SEP] ü 漢字", "b " * 1_000, "c"]
    blanks = ["", " ", "\t\n", "\v\x85", "\xa0", "\u2003\u3000", "\x1c"]
    assert not any(map(str.strip, blanks))  # As in the task.
    answers = ask(tf.constant(["d", ""]), tf.constant([choices, blanks]))
    best = np.argmax(answers["probabilities"][0])
    assert answers["choice"].numpy().tolist() == [best, -1]
    assert answers["probabilities"][0][2] == 0
    totals = tf.reduce_sum(answers["probabilities"], axis=1)
    np.testing.assert_allclose(totals, [1, 0], rtol=1e-5)
    nothing = ask(tf.zeros([0], tf.string), tf.zeros([0, 3], tf.string))
    assert nothing["probabilities"].shape == (0, 3)
    for prompts, choices in ((["a", "b"], [["c", "d"]]), (["a"], [[]]), ([], [["a"]])):
        inputs = (tf.constant(x, tf.string) for x in (prompts, choices))
        message = r"must have shape \[N, C\], C > 0"
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            ask(*inputs)
