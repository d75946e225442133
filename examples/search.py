# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Prints the lines of a text file that are most similar to a query.

    python examples/search.py --model=minilm --corpus=corpus.txt "a query" "another"

The model is an export with the signature `sentence_embedding`, served at --address. If
it has prompts for queries and documents, their signatures are used.
With --rerank, a served cross-encoder (inputs text_a and text_b, output score) sorts the
best candidates. Output: score, line number and text. Search is exact: one matmul, which
is fast enough for a million lines.
"""

import argparse
import pathlib
import sys
from collections.abc import Sequence

import numpy as np

from bert_tf import client

BATCH_SIZE = 32
CANDIDATES = 10  # For re-ranking, per result.


# Signatures of queries and documents, in the order of preference.
QUERY = ("query", "sentence_embedding")
DOCUMENT = ("document", "passage", "corpus", "sentence_embedding")


def embed(
    connection: client.Client,
    model: str,
    texts: Sequence[str],
    signatures: Sequence[str],
    timeout: float,
) -> np.ndarray:
    """Returns the vectors of texts, of length 1 [N, E], by the first signature."""
    name, *others = signatures
    vectors = []
    for start in range(0, len(texts), BATCH_SIZE):
        inputs = {"text": texts[start : start + BATCH_SIZE]}
        try:
            outputs = connection.predict(inputs, model, signature=name, timeout=timeout)
        except client.PredictError as error:
            if error.code != "FAILED_PRECONDITION" or not others:
                raise  # Otherwise, there is no such signature.
            return embed(connection, model, texts, others, timeout)
        vectors.append(outputs["sentence_embedding"])
    vectors = np.concatenate(vectors).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True).clip(min=1e-12)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Searches the lines of a text file.")
    parser.add_argument("queries", nargs="+", metavar="QUERY")
    parser.add_argument("--model", required=True)
    parser.add_argument("--corpus", required=True, type=pathlib.Path)
    parser.add_argument("--rerank", metavar="MODEL", help="A served cross-encoder.")
    parser.add_argument("--top_k", type=int, default=5)
    parser.add_argument("--address", default="127.0.0.1:8500")
    parser.add_argument("--timeout", type=float, default=60, help="Seconds.")
    options = parser.parse_args(argv)
    text = options.corpus.read_text(encoding="utf-8-sig", errors="replace")
    lines = [(n, line.strip()) for n, line in enumerate(text.split("\n"), start=1)]
    lines = [(number, line) for number, line in lines if line]
    if not lines:
        sys.exit(f"{options.corpus} has no text.")
    with client.Client(options.address) as connection:
        queries, corpus = (
            embed(connection, options.model, texts, signatures, options.timeout)
            for texts, signatures in (
                (options.queries, QUERY),
                ([line for _, line in lines], DOCUMENT),
            )
        )
        for query, scores in zip(options.queries, queries @ corpus.T, strict=True):
            count = options.top_k * (CANDIDATES if options.rerank else 1)
            best = np.argsort(-scores, kind="stable")[:count]
            if options.rerank:
                candidates = [lines[i][1] for i in best]
                pairs = {"text_a": [query] * len(best), "text_b": candidates}
                model, timeout = options.rerank, options.timeout
                scores[best] = connection.predict(pairs, model, timeout=timeout)[
                    "score"
                ]
                best = best[np.argsort(-scores[best], kind="stable")]
            if len(options.queries) > 1:
                print(query)
            for i in best[: options.top_k]:
                print(f"{scores[i]:.4f}  {lines[i][0]}  {lines[i][1]}")


if __name__ == "__main__":
    try:
        main()
    except (OSError, client.PredictError) as error:
        sys.exit(f"error: {error}")
