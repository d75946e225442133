# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Every kind of task learns a rule, and the loaded model answers by it."""

import random

import pytest

from bert_tf import finetuning, serving
from bert_tf.data import write_table
from tasks.classification import Classification
from tasks.embedding import Embedding
from tasks.multiple_choice import MultipleChoice
from tasks.question_answering import QuestionAnswering
from tasks.tagging import Tagging
from tests.toy import tasks as toy_tasks

LETTERS = "abcdefgh"


def pair(rng):
    """Pairs with the word "cat" are positive."""
    words = rng.choices(LETTERS, k=rng.randint(1, 5))  # One shape.
    label = rng.choice(["yes", "no"])
    words[rng.randrange(len(words))] = "cat" if label == "yes" else "mat"
    at = rng.randint(0, len(words))
    return {"x": " ".join(words[:at]), "y": " ".join(words[at:]), "label": label}


def choice(rng):
    """The choice with "cat" is right."""
    texts = [" ".join(rng.choices(LETTERS, k=rng.randint(1, 3))) for _ in "xyz"]
    label = rng.randrange(rng.choice([2, 3]))
    texts[label] += " cat"
    row = dict(zip("xyz", texts)) | ({"z": ""} if label < 2 else {})
    return {"start": rng.choice(LETTERS), **row, "right": label}


def question(rng):
    """The answer is the word after "cat", if there is one."""
    words = rng.choices(LETTERS, k=rng.randint(4, 8))
    at, answer = rng.randrange(len(words) - 1), ""
    if rng.random() < 0.7:
        words[at], answer = "cat", words[at + 1]
    context = " ".join(words)
    start = context.find("cat") + 4 if answer else ""
    return {"question": "the", "context": context, "answer": answer, "start": start}


def sentence(rng):
    """ "cat the" is a P and "mats" is an L."""
    words = rng.choices([*"abcdef", "cat the", "mats"], k=rng.randint(1, 10))
    words = " ".join(words).split()
    entities = {"cat": "B-P", "the": "I-P", "mats": "B-L"}
    return {"tokens": words, "ner_tags": [entities.get(word, "O") for word in words]}


def similar(rng):
    """Texts are similar if they have the same subject."""
    subjects = rng.sample(("cat", "mat", "sat", "on"), k=2)
    score = rng.choice([1, 4])
    subjects[1] = subjects[0] if score == 4 else subjects[1]
    texts = []
    for subject in subjects:
        words = rng.choices(LETTERS, k=rng.randint(1, 5))  # One shape.
        words.insert(rng.randint(0, len(words)), subject)
        texts.append(" ".join(words))
    return {"a": texts[0], "b": texts[1], "score": score}


# The task, rows of its data, options, the metric and its least value.
TASKS = {
    "classes": (
        Classification,
        pair,
        {"text_a": "x", "text_b": "y", "label": "label", "learning_rate": 2e-2},
        ("accuracy", 0.95),
    ),
    "choices": (
        MultipleChoice,
        choice,
        {"prompt": "start", "choices": "x,y,z", "label": "right"},
        ("accuracy", 0.95),
    ),
    "answers": (
        QuestionAnswering,
        question,
        {
            "answer_start": "start",
            "epochs": 4,
            "learning_rate": 1e-2,
            "max_sequence_length": 8,  # Windows of four words, all of one shape.
            "max_question_length": 1,
            "stride": 2,
        },
        ("f1", 85),
    ),
    "tags": (Tagging, sentence, {"max_sequence_length": 8}, ("f1", 0.95)),
    "vectors": (
        Embedding,
        similar,
        {"texts": "a,b", "label": "score", "pooling": "max"},
        ("spearman", 0.7),  # At most 0.87: there are two scores.
    ),
}


@pytest.mark.parametrize("name", TASKS)
def test_learns_a_rule(name, tmp_path, random_encoder):
    kind, row, options, (metric, least) = TASKS[name]
    rng = random.Random(0)
    for split, count in (("train", 250), ("dev", 60)):
        write_table(tmp_path / f"{split}.jsonl", [row(rng) for _ in range(count)])
        options = {f"{split}_file": str(tmp_path / f"{split}.jsonl"), **options}
    encoder = random_encoder(tmp_path, num_layers=1, initializer_range=0.1)
    defaults = {"batch_size": 16, "learning_rate": 2e-2, "max_sequence_length": 32}
    options = defaults | encoder | {"output": str(tmp_path / "model")} | options
    metrics = finetuning.fine_tune(kind, kind.Config(**options))["dev"]
    assert metrics[metric] > least
    if metric == "accuracy":
        served, file = serving.load(tmp_path / "model"), options["dev_file"]
        rows = toy_tasks.predict_file(kind, served, file, tmp_path / "again.csv")
        right = [row["prediction"] == row["gold"] for row in rows]
        assert sum(right) / len(right) == metrics[metric]
