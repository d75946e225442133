# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import functools
import re
import types

import numpy as np
import pytest

from bert_tf import serving
from bert_tf.data import write_table
from bert_tf.finetuning import batches
from tasks.embedding import Embedding, ranks, retrieval_metrics
from tests.toy import tables
from tests.toy.tables import write
from tests.toy.tasks import predict_file, write_model

OWN = {"texts": "a,b", "train_file": "train.tsv", "dev_file": "dev.tsv"}
SCORED = "a\tb\tscore\nthe cat\tcat\t5\nmat\tcat\t1\n"
UNSCORED = "a\tb\nthe cat\tcat\nthe mat\tmat\n"


@pytest.fixture
def read(tmp_path, vocabulary):
    """Reads a data set from files in `tmp_path`; the arguments are options."""
    return functools.partial(tables.read, Embedding, tmp_path, vocabulary)


def texts_of(task, split="train"):
    return [example.inputs for example in task.data[split]]


# --- Files -----------------------------------------------------------------------


def test_stsb(tmp_path, read):
    header = "index\tsentence1\tsentence2"
    rows = f"{header}\tscore\n0\ta b\tb\t0.000\n1\tc\tc\t5.000\n"
    test = f"{header}\n0\tg\th\n"
    write(tmp_path, train__tsv=rows, dev__tsv=rows, test__tsv=test)
    task = read(task="stsb", data_dir=str(tmp_path))
    assert (task.loss, task.metric) == ("cosent", "spearman")
    assert texts_of(task) == [("a b", "b"), ("c", "c")]
    np.testing.assert_array_equal(task.dataset("train").targets, [0, 1])  # Ranks.
    found = task.evaluate(task.dataset("dev"), np.eye(3))
    np.testing.assert_allclose(found.answers["score"], [0, 1], atol=1e-6)
    assert found.metrics == pytest.approx({"spearman": 1, "pearson": 1})
    assert not task.evaluate(task.dataset("test"), np.eye(2)).metrics


def test_triplets_with_pairs_to_search_as_dev_set(tmp_path, read):
    write(tmp_path, train__tsv="a\tb\tc\nd\te\tf\nd\tg\th\n", dev__tsv=UNSCORED)
    task = read(**OWN | {"texts": "a,b,c"})
    assert texts_of(task) == [("d", "e", "f"), ("d", "g", "h")]
    assert (task.loss, task.metric) == ("in_batch_negatives", "mrr")
    batch, ids, _ = next(iter(batches(task.dataset("train"), 4, max_length=32)))
    assert batch["token_ids"].shape == (4, 3, 8)
    assert ids.shape == (4, 3)
    found = task.evaluate(task.dataset("dev"), np.eye(4))
    assert found.metrics["mrr"] == found.metrics["recall_at_1"] + 0.5 == 0.5
    rows = task.rows("dev", found.answers)
    assert [(row["prediction"], row["rank"]) for row in rows] == [(0, 2), (0, 2)]


def test_index_of_pandas_is_no_score(tmp_path, read):
    task = read(",a,b\n0,the cat,cat\n1,the mat,mat\n", "x.csv", texts="a,b")
    assert (task.scores["train"], task.loss) == (None, "in_batch_negatives")
    (example, _) = Embedding.read_input(task.options, tmp_path / "x.csv")
    assert example.gold is None


def test_simcse_pairs_each_text_with_itself(tmp_path, read):
    write(tmp_path, train__tsv="a\nc d\ne\nc d\n", dev__tsv=SCORED)
    task = read(**OWN, label="score", loss="simcse")
    assert texts_of(task) == [("c d", "c d"), ("e", "e")]
    assert task.loss == "in_batch_negatives"
    write(tmp_path, train__tsv=SCORED)  # Both texts, without scores.
    task = read(**OWN, label="score", loss="simcse")
    assert [a for a, _ in texts_of(task)] == ["the cat", "cat", "mat"]
    write(tmp_path, train__tsv="a\n" + "".join(f"cat {x}\n" for x in range(9)))
    files = {"texts": "a,b", "train_file": "train.tsv", "dev_share": 0.3}
    with pytest.raises(ValueError, match="dev set must have at least two columns of"):
        read(**files, loss="simcse")


@pytest.mark.parametrize(
    ("train", "options", "message"),
    [
        (SCORED, {"texts": "a"}, "--texts must be at least two columns"),
        (UNSCORED, {"loss": "cosent"}, "--loss=cosent requires scores."),
        # shibing624/text2vec#146: the loss is always 0.
        ("a\tb\tscore\nx\ty\t1\nz\tx\t1.0\n", {}, "pairs with different scores."),
        (SCORED, {"batch_size": 1}, "--batch_size must be at least 2."),
        (SCORED, {"texts": "a,b,a"}, "hard negatives or similar pairs only, pass"),
    ],
)  # fmt: skip
def test_invalid_data_or_options(tmp_path, read, train, options, message):
    write(tmp_path, train__tsv=train, dev__tsv=SCORED)
    with pytest.raises(ValueError, match=re.escape(message)):
        read(**{**OWN, "label": "score", **options})


# --- Metrics ---------------------------------------------------------------------


def test_ranks_and_retrieval_metrics_equal_a_full_search():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(40, 4))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    # Queries 0 to 9 with one or two texts each, of which some are queries too.
    pairs = np.array([(q, q + 25) for q in range(10)] + [(q, q + 3) for q in range(6)])
    texts = sorted({text for _, text in pairs})
    expected = []
    for query, own in pairs:
        others = [t for t in texts if t not in (query, own)]
        better = [t for t in others if vectors[t] @ vectors[query]
                  >= vectors[own] @ vectors[query]]  # fmt: skip
        expected.append(1 + len(better))
    found = ranks(vectors, pairs)
    np.testing.assert_array_equal(found, expected)

    by_query = [[r for r, p in zip(expected, pairs) if p[0] == q] for q in range(10)]
    metrics = retrieval_metrics(pairs[:, 0], found)
    assert metrics["mrr"] == pytest.approx(np.mean([1 / min(r) for r in by_query]))
    for k in (1, 5, 10):
        recall = np.mean([np.mean(np.array(r) <= k) for r in by_query])
        assert metrics[f"recall_at_{k}"] == pytest.approx(recall)


def test_pairs_are_scored_with_prompts_and_similarity():
    prompts = {"query": "a", "document": "bb"}

    def predict(column, signature, batch_size):
        text = prompts.get(signature, "")
        lengths = [len(text + x) for x in column]
        return {"sentence_embedding": np.array([[1.0, n] for n in lengths])}

    head = {"prompts": prompts, "similarity_fn_name": "dot"}
    checkpoint = types.SimpleNamespace(head=head)
    model = types.SimpleNamespace(checkpoint=checkpoint, predict=predict)
    columns = ["x", "yyy"] * 40, ["x", ""] * 40
    scores = Embedding.answer(model, columns, 32)["score"]
    assert scores.tolist() == [1 + 2 * 3, 1 + 4 * 2] * 40
    (vectors,) = Embedding.answer(model, columns[:1], 32).values()
    assert vectors[:2].tolist() == [[1, 1], [1, 3]]


def test_training_continues_with_the_pooling_of_the_encoder(read, caplog):
    prompts = {"prompts": {"query": "Find: "}, "default_prompt_name": "query"}
    head = {"kind": "embedding", "max_sequence_length": 32, "pooling": "max", **prompts}
    head["similarity_fn_name"] = "manhattan"
    options = {"texts": "a,b", "label": "score", "max_sequence_length": 8}
    task = read(SCORED, head=head, **options)
    expected = {"pooling": "max", "max_sequence_length": 8}
    expected["similarity_fn_name"] = "manhattan"
    assert expected.items() <= task.settings.items()
    assert "prompts" not in task.settings
    assert "training adds no prompts to texts" in caplog.text


@pytest.mark.usefixtures("eagerly", "plain_encoder")
def test_vectors_of_single_texts(tmp_path, one_layer, vocabulary):
    directory = write_model("search", tmp_path, one_layer, vocabulary)
    served, texts = serving.load(directory.path), ["the cat", "a", "mat"]
    write_table(tmp_path / "texts.tsv", [{"x": text} for text in texts])
    paths = str(tmp_path / "texts.tsv"), tmp_path / "vectors.csv"
    rows = predict_file(Embedding, served, *paths)
    vectors = np.array([row["prediction"].split() for row in rows], float)
    expected = served.predict(texts)["sentence_embedding"]
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
