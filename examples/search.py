# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Prints the lines of a text file that are most similar to a query.

    python -m examples.search --model=minilm --corpus=corpus.txt "a query" "another"

The model is an export with the signature `sentence_embedding`, served at --address. Its
prompts for queries and documents are added, and its similarity is used.
With --rerank, a served cross-encoder (inputs text_a and text_b, output score) sorts the
best candidates. Output: score, line number and text. Search is exact: one matmul, which
is fast enough for a million lines.
"""

import argparse
import json
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_tf import client, heads

BATCH_SIZE = 32
CANDIDATES = 10  # For re-ranking, per result.


def embed(
    connection: client.Client, texts: Sequence[str], **options: Any
) -> np.ndarray:
    """Returns the vectors of texts [N, E]."""
    batches = (texts[i : i + BATCH_SIZE] for i in range(0, len(texts), BATCH_SIZE))
    vectors = [
        connection.predict({"text": batch}, **options)["sentence_embedding"]
        for batch in batches
    ]
    return np.concatenate(vectors).astype(np.float32)


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
        to_model = {"model": options.model, "timeout": options.timeout}
        about = connection.predict({"text": [""]}, signature="metadata", **to_model)
        head = json.loads(about["json"][0])["head"]
        texts = options.queries, [line for _, line in lines]
        vectors = [
            embed(connection, part, signature=name, **to_model)
            for part, name in zip(texts, heads.search_signatures(head))
        ]
        similarity = head.get("similarity_fn_name", "cosine")
        found = heads.similarities(similarity, *vectors)
        for query, scores in zip(options.queries, found, strict=True):
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
