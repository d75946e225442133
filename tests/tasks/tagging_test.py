# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import json
import random

import numpy as np
import pytest

from bert_tf.finetuning import ColumnFile
from tasks.tagging import Tagging
from tests.toy import tables
from tests.toy.tables import token_rows

GOOD = "the O\ncats B-P\n\nmats I-L\nsat I-P\n"

DOCUMENTS = """\
-DOCSTART- -X- O

the X O
cat X B-P

a X O
mats X B-L

-DOCSTART- -X- O

b X O
"""


@pytest.fixture
def read(tmp_path, vocabulary):
    """Creates the task for a file with the given content."""

    def read(content=GOOD, **options):
        options = {"max_sequence_length": 32, **options}
        return tables.read(Tagging, tmp_path, vocabulary, content, "x.conll", **options)

    return read


def pieces(task, split):
    """The tokens of each window as text."""
    tokens = np.array(task.tokenizer.vocabulary.tokens)
    return [" ".join(tokens[row]) for row in token_rows(split)]


def test_balanced_class_weights_of_words(read):
    """Two words of three have the tag O; the second piece of a word has no weight."""
    task = read("the O\ncats B-P\nmat O\n", class_weight="balanced")
    assert pieces(task, task.dataset("train")) == ["[CLS] the cat ##s mat [SEP]"]
    weights = task.dataset("train").weights.to_list()[0]
    assert weights == pytest.approx([0, 0.75, 1.5, 0, 0.75, 0])
    assert task.dataset("dev").weights.to_list() == [[0, 1, 1, 0, 1, 0]]


def as_outputs(split, num_tags):
    """Logits that are right for all tokens with a weight, and random for others."""
    rng = np.random.default_rng(0)
    for targets, weights in zip(
        split.targets.to_list(), split.weights.to_list(), strict=True
    ):
        guess = rng.integers(0, num_tags, len(targets) + 3)  # With some padding.
        guess[: len(targets)] = np.where(weights, targets, guess[: len(targets)])
        yield np.eye(num_tags)[guess]


# --- Data ------------------------------------------------------------------------


def test_training_keeps_a_sentence_of_each_type(tmp_path, read):
    content = "".join(f"the B-P\nc{i} O\n\n" for i in range(20)) + "cat B-RARE\n"
    (tmp_path / "x.conll").write_text(content)
    for seed in range(10):
        options = {"train_file": "x.conll", "dev_share": 0.5, "split_seed": seed}
        assert "B-RARE" in read("", **options).labels


def test_only_first_pieces_have_weights(read):
    task = read()
    assert task.labels == ("O", "B-L", "I-L", "B-P", "I-P")
    assert task.settings == {"labels": ["O", "B-L", "I-L", "B-P", "I-P"]}
    split = task.dataset("train")
    assert pieces(task, split) == ["[CLS] the cat ##s [SEP]", "[CLS] mat ##s sat [SEP]"]
    assert split.weights.to_list() == [[0, 1, 1, 0, 0], [0, 1, 0, 1, 0]]
    b_l, b_p = 1, 3
    targets = [
        [t for t, w in zip(*row, strict=True) if w]
        for row in zip(split.targets.to_list(), split.weights.to_list(), strict=True)
    ]
    assert targets == [[0, b_p], [b_l, b_p]]  # From IOB1.


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (7, ["[CLS] the cat a mat ##s [SEP]", "[CLS] b [SEP]"]),
        (6, ["[CLS] the cat [SEP]", "[CLS] a mat ##s [SEP]", "[CLS] b [SEP]"]),
    ],
)
def test_sentences_of_a_document_share_a_window(read, length, expected):
    task = read(DOCUMENTS, context="document", max_sequence_length=length)
    assert pieces(task, task.dataset("train")) == expected
    alone = read(DOCUMENTS, max_sequence_length=length)
    assert pieces(alone, alone.dataset("train"))[0] == "[CLS] the cat [SEP]"


@pytest.mark.parametrize("context", ["sentence", "document"])
@pytest.mark.parametrize("length", [3, 8, 32])
def test_every_word_is_predicted_once(read, tmp_path, context, length):
    rng = random.Random(length)
    lines = []
    for _ in range(20):
        lines += rng.choice([["-DOCSTART- O", ""], []])
        for _ in range(rng.choice([1, 5, 40])):
            word = rng.choice(["the", "cats", "satsing", "\u200b", "mat"])
            lines.append(f"{word} {rng.choice(['O', 'B-P', 'B-L', 'I-P'])}")
        lines.append("")
    task = read("\n".join(lines), context=context, max_sequence_length=length)
    split = task.dataset("dev")
    assert split.lengths.max() <= length
    found = task.evaluate(split, list(as_outputs(split, len(task.labels))))
    assert found.metrics == {"f1": 1, "precision": 1, "recall": 1}
    task.write_predictions("dev", found.answers, tmp_path)
    written = ColumnFile.read(tmp_path / "predictions_dev.conll")
    assert written.tags() == task.gold["dev"]
    words, expected = (
        [sentence.words for sentence in file.sentences]
        for file in (written, task.data["dev"])
    )
    assert words == expected


@pytest.mark.parametrize("context", ["sentence", "document"])
def test_sentences_without_words_have_no_tags(read, context):
    rows = {"the cat": "O B-P", "": "", "mats": "B-L"}
    rows = [{"tokens": x.split(), "tags": tags.split()} for x, tags in rows.items()]
    content = "\n".join(map(json.dumps, [rows[1], *rows, rows[1]]))
    task = read(content, context=context)
    split = task.dataset("dev")
    found = task.evaluate(split, list(as_outputs(split, len(task.labels))))
    assert found.metrics == {"f1": 1, "precision": 1, "recall": 1}
    tags = [part.tolist() for part in found.answers["tags"]]
    assert tags == [[], ["O", "B-P"], [], ["B-L"], []]


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("the\nmats\n", "the B-P\nmats I-P\n"),  # Unlabeled.
        # With labels, both tags are in one scheme.
        ("the I-L\nmats S-P\n", "the B-L B-P\nmats B-P I-P\n"),
    ],
)
def test_predictions_of_test_sets(read, tmp_path, test, expected):
    (tmp_path / "test.conll").write_text(test)
    task = read(test_file="test.conll")
    split = task.dataset("test")
    logits = np.eye(5)[[0, 4, 4, 0, 0]]  # I-P twice.
    found = task.evaluate(split, [logits])
    task.write_predictions("test", found.answers, tmp_path)
    assert (tmp_path / "predictions_test.conll").read_text() == expected


def test_types_that_the_training_set_lacks(read, tmp_path):
    (tmp_path / "dev.conll").write_text("the O\ncat B-X\n")
    message = "line 2: entity type 'X' does not .* L, P."
    with pytest.raises(ValueError, match=message):
        read(dev_file="dev.conll")
    with pytest.raises(ValueError, match=r"x\.conll: every tag is O"):
        read("the O\n")


# --- Scores ----------------------------------------------------------------------

GOLD = [
    ["B-A", "I-A", "O", "B-B", "O"],
    ["B-A", "I-A", "O", "B-B", "I-B"],
    ["B-A", "B-A"],
]
PREDICTED = [
    ["B-A", "I-A", "O", "B-A", "O"],
    ["I-A", "I-A", "I-B", "I-B", "O"],
    ["B-A", "I-A"],
]


def test_metrics_match_conlleval(read, tmp_path):
    content = "\n\n".join("\n".join(f"a {tag}" for tag in tags) for tags in GOLD)
    task = read(content)
    split = task.dataset("dev")
    outputs = [
        np.eye(len(task.labels))[[0, *map(task.labels.index, tags), 0]]
        for tags in PREDICTED
    ]
    # conlleval.pl of CoNLL-2000 says: 6 phrases, 5 found, 2 correct, FB1 36.36.
    assert task.evaluate(split, outputs).metrics == pytest.approx(
        {"f1": 4 / 11, "precision": 2 / 5, "recall": 2 / 6}
    )
    (tmp_path / "dev.conll").write_text("a O\n")  # seqeval's report needs an entity.
    task = read(content, dev_file="dev.conll")
    found = task.evaluate(task.dataset("dev"), [np.eye(len(task.labels))[[0, 0, 0]]])
    assert (found.metrics["f1"], found.report) == (0, "")
