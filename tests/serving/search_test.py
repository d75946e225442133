# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest

from bert_tf.serving import Corpus

RNG = np.random.default_rng(0)


def embed(texts):
    """Returns vectors that depend on the length and the first letter of a text."""
    return np.array([[len(text), ord(text[0]) - 96, 1] for text in texts], np.float64)


@pytest.fixture
def path(tmp_path):
    texts = [
        "".join(RNG.choice(list("abcxyz"), RNG.integers(1, 30))) for _ in range(99)
    ]
    (tmp_path / "corpus.txt").write_text("\n\n".join(texts))
    return tmp_path / "corpus.txt"


def test_search_equals_cosines_of_all_lines(path):
    texts = path.read_text().split("\n\n")
    vectors, query = embed(texts), embed(["cab"])[0]
    cosines = vectors @ query / np.linalg.norm(vectors, axis=1) / np.linalg.norm(query)
    (matches,) = Corpus(path, embed).search(["cab"], top_k=7)
    best = np.sort(cosines)[::-1][:7]
    np.testing.assert_allclose([match.score for match in matches], best, atol=1e-5)
    for match in matches:
        assert texts[match.line // 2] == match.text
        assert cosines[match.line // 2] == pytest.approx(match.score, abs=1e-5)


def test_embeds_in_batches(path):
    sizes = []

    def count(texts):
        sizes.append(len(texts))
        return embed(texts)

    corpus = Corpus(path, count)
    assert sizes == [32, 32, 32, 3]
    np.testing.assert_allclose(np.linalg.norm(corpus.vectors, axis=1), 1, atol=1e-6)


def test_large_corpora_report_progress(path, monkeypatch, capsys):
    monkeypatch.setattr("bert_tf.serving.search._PROGRESS_DELAY", 0)
    Corpus(path, embed)
    assert "| 4/4 [" in capsys.readouterr().err


def test_more_results_than_lines(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_bytes("\ufeffone\r\n\r\ntwo\u2028still two".encode() + b"\xff\r\n")
    (matches,) = Corpus(path, embed).search(["one"], top_k=9)
    assert [(m.line, m.text) for m in matches] == [
        (1, "one"),
        (3, "two\u2028still two\ufffd"),
    ]
