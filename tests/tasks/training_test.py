# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Every kind of task learns a rule, predicts files and serves."""

import functools
import random

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import finetuning, serving
from bert_tf.data import read_table, write_table
from bert_tf.finetuning import ColumnFile
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


@pytest.fixture(scope="module")
def trained(tmp_path_factory, random_encoder):
    """Returns a function that returns the folder, metrics and model of a task."""

    @functools.cache
    def train(name):
        kind, row, options, _ = TASKS[name]
        folder, rng = tmp_path_factory.mktemp(name), random.Random(0)
        for split, count in (("train", 250), ("dev", 60)):
            rows = [row(rng) for _ in range(count)]
            write_table(folder / f"{split}.jsonl", rows)
            options = {f"{split}_file": str(folder / f"{split}.jsonl"), **options}
        encoder = random_encoder(folder, num_layers=1, initializer_range=0.1)
        defaults = {"batch_size": 16, "learning_rate": 2e-2, "max_sequence_length": 32}
        options = defaults | encoder | {"output": str(folder / "model")} | options
        metrics = finetuning.fine_tune(kind, kind.Config(**options))
        return folder, metrics["dev"], serving.load(folder / "model")

    return train


@pytest.mark.parametrize("name", TASKS)
def test_training_and_predictions(name, trained):
    kind, _, _, (metric, least) = TASKS[name]
    folder, metrics, served = trained(name)
    assert metrics[metric] > least
    file, output = str(folder / "dev.jsonl"), folder / "again.csv"
    found = toy_tasks.predict_file(kind, served, file, output)
    if kind is Tagging:
        sentences = ColumnFile.read(folder / "model/predictions_dev.conll").sentences
        for row, sentence in zip(found, sentences, strict=True):
            words = zip(
                row["text"].split(), row["gold"].split(), row["prediction"].split()
            )
            assert [*words] == [tuple(word) for word in sentence.rows]
        return
    expected = read_table(folder / "model/predictions_dev.tsv")
    toy_tasks.assert_same_rows(found, expected)
    if metric == "accuracy":
        assert np.mean([x["prediction"] == x["gold"] for x in found]) == metrics[metric]


# --- Served answers --------------------------------------------------------------


def by_text(answer, *names):
    """Rows of the named outputs for each text, without padding."""
    columns = [answer[name].tolist() for name in names]
    return [
        [row for row in zip(*rows, strict=True) if row[0]]
        for rows in zip(*columns, strict=True)
    ]


@pytest.mark.usefixtures("eagerly")
def test_tagger_of_words_and_texts(trained, tmp_path):
    _, _, served = trained("tags")
    # A row for each sentence, also without words.
    write_table(tmp_path / "x.jsonl", [{"tokens": x} for x in ([], ["the", "cat"], [])])
    file, output = str(tmp_path / "x.jsonl"), tmp_path / "tags.csv"
    rows = toy_tasks.predict_file(Tagging, served, file, output)
    assert [row["id"] for row in rows] == ["1", "2", "3"]
    assert [len(row["prediction"].split()) for row in rows] == [0, 2, 0]

    # Texts that are split into words. Padding may be anywhere.
    words = ["", "mats.b.", "", "cat", "the", "\u200b", ""]
    answer = served.predict([words, [""] * len(words)], signature="words")
    assert answer["tags"][0, :5].tolist() == ["", "B-L", "", "B-P", "I-P"]
    np.testing.assert_array_equal(answer["scores"] > 0, answer["tags"] != "")
    assert answer["scores"][0, 5] > 0  # The word without pieces.

    text = "a é cat thé b mats\u00a0cat"
    answer = served.predict(["", text])
    names = ("entities", "entity_types", "entity_starts", "entity_ends")
    entities = [("cat thé", "P", 4, 11), ("mats", "L", 14, 18), ("cat", "P", 19, 22)]
    assert by_text(answer, *names) == [[], entities]
    names = ("entities", "entity_start_bytes", "entity_end_bytes")
    for entity, start, end in by_text(answer, *names)[1]:
        assert text.encode()[start:end].decode() == entity


def test_any_number_of_choices_and_any_string(trained):
    ask = trained("choices")[-1].signatures["serving_default"]
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


def test_vectors_of_single_texts(trained, tmp_path):
    folder, _, served = trained("vectors")
    texts = [row["a"] for row in read_table(folder / "dev.jsonl")]
    write_table(tmp_path / "texts.tsv", [{"a": text} for text in texts])
    paths = str(tmp_path / "texts.tsv"), tmp_path / "vectors.csv"
    rows = toy_tasks.predict_file(Embedding, served, *paths)
    vectors = np.array([row["prediction"].split() for row in rows], float)
    expected = served.predict(texts)["sentence_embedding"]
    np.testing.assert_allclose(vectors, expected, atol=1e-5)


@pytest.mark.slow
def test_lstm_on_features(trained, tmp_path):
    folder, *_ = trained("tags")
    options = Tagging.Config(
        train_file=str(folder / "train.jsonl"),
        dev_file=str(folder / "dev.jsonl"),
        init_from=str(folder / "model"),
        output=str(tmp_path / "model"),
        features="embeddings",
        lstm_units=8,
        epochs=4,
        batch_size=16,
        learning_rate=2e-2,
        max_sequence_length=8,
    )
    assert finetuning.fine_tune(Tagging, options)["dev"]["f1"] > 0.95
    answer = serving.load(options.output).predict(["a cat the b"])
    assert by_text(answer, "entities", "entity_types") == [[("cat the", "P")]]
