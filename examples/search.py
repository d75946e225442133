# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Prints the texts of a file that are most similar to a query.

    python -m examples.search --model=minilm --corpus=corpus.txt "a query" "another"
    python -m examples.search --model=minilm --corpus=faq.csv --text=question \\
        --id=key --vectors=faq.npz "a query"

The corpus is a text file, one text a line, or a table (TSV, CSV, JSONL) with its
columns --text and --id. The model is an export with the signature `sentence_embedding`,
served at --address. Its prompts for queries and documents are added, and its similarity
is used. --vectors names a file for the embeddings of the corpus, which later calls
read. With --rerank, a served cross-encoder (inputs text_a and text_b, output score)
sorts the best candidates. Output: score, line number or id, and text. Search is exact:
one matmul, which is fast enough for a million texts.
"""

import argparse
import json
import pathlib
import sys
import zlib
from collections.abc import Callable, Sequence

import numpy as np

from bert_tf import client, data, heads

BATCH_SIZE = 32
CANDIDATES = 10  # For re-ranking, per result.
TABLES = {".csv", ".tsv", ".jsonl", ".ndjson", ".json"}


def read_corpus(path: pathlib.Path, text: str, key: str) -> list[tuple[str, str]]:
    """Returns the id, by default the line number, and the text of each line or row."""
    if text:
        rows = data.Table(path).rows([text, key or text], flags="--text, --id")
        found = [(values[1] if key else n, values[0]) for n, values in rows]
    elif TABLES.intersection(path.suffixes):
        raise ValueError(f"{path} is a table. Select the column of its texts: --text.")
    else:
        content = path.read_text(encoding="utf-8-sig", errors="replace")
        found = list(enumerate(content.split("\n"), start=1))
    found = [(str(number), " ".join(line.split())) for number, line in found]
    found = [(number, line) for number, line in found if line]
    if not found:
        raise ValueError(f"{path} has no text.")
    return found


def checksum(texts: Sequence[str]) -> int:
    return zlib.crc32("\n".join(texts).encode())


def embed(predict: Callable, texts: Sequence[str], vectors: str = "") -> np.ndarray:
    """Returns the vectors of texts [N, E].

    Args:
        predict: Returns the vectors of a batch of texts.
        texts: The texts.
        vectors: A file with the vectors of the first texts, which gets those of all.
    """
    known = np.zeros([0, 0], np.float32)
    if vectors and pathlib.Path(vectors).exists():
        saved = np.load(vectors)
        known = saved["vectors"]
        same = saved["checksum"] == checksum(texts[: len(known)])
        # Those of another model differ.
        if not same or not np.allclose(known[:1], predict(texts[:1]), atol=1e-3):
            raise ValueError(f"--vectors={vectors} has other texts or another model.")
    starts = range(len(known), len(texts), BATCH_SIZE)
    parts = [predict(texts[i : i + BATCH_SIZE]) for i in starts]
    found = np.concatenate([known, *parts] if len(known) else parts).astype(np.float32)
    if vectors and parts:
        with open(vectors, "wb") as file:
            np.savez(file, vectors=found, checksum=checksum(texts))
    return found


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Searches the texts of a file.")
    parser.add_argument("queries", nargs="+", metavar="QUERY")
    parser.add_argument("--model", required=True)
    parser.add_argument("--corpus", required=True, type=pathlib.Path)
    parser.add_argument("--text", default="", help="Column of the texts of a table.")
    parser.add_argument("--id", default="", help="Column of the ids of a table.")
    parser.add_argument("--vectors", default="", help="File for the vectors: .npz.")
    parser.add_argument("--rerank", metavar="MODEL", help="A served cross-encoder.")
    parser.add_argument("--top_k", type=int, default=5)
    parser.add_argument("--address", default="127.0.0.1:8500")
    parser.add_argument("--timeout", type=float, default=60, help="Seconds.")
    options = parser.parse_args(argv)
    lines = read_corpus(options.corpus, options.text, options.id)
    with client.Client(options.address) as connection:
        to_model = {"model": options.model, "timeout": options.timeout}
        about = connection.predict({"text": [""]}, signature="metadata", **to_model)
        head = json.loads(about["json"][0])["head"]

        def predict(texts, signature):
            answer = connection.predict(
                {"text": texts}, signature=signature, **to_model
            )
            return answer["sentence_embedding"]

        to_query, to_document = (
            lambda texts, name=name: predict(texts, name)
            for name in heads.search_signatures(head)
        )
        queries = embed(to_query, options.queries)
        vectors = embed(to_document, [line for _, line in lines], options.vectors)
        similarity = head.get("similarity_fn_name", "cosine")
        found = heads.similarities(similarity, queries, vectors)
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
    except (OSError, ValueError, client.PredictError) as error:
        sys.exit(f"error: {error}")
