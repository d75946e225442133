# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Entity F1 of a tagger on words and, through its export, on natural text.

    python -m benchmarks.tagging_text --models=models/conll,models/wnut

Input: model directories of `tasks.tagging` whose options name a test file. Output: F1
of the task, which gets the words of the file, and F1 of the exported graph, which gets
text. An entity of the export is right if its type and its characters equal those of the
gold entity. The texts are those of --texts, one sentence per line, or else the words
joined by sacremoses as in ordinary text: Australia 's -> Australia's. Sentences whose
words are not in their text are joined by spaces and counted. Needs sacremoses unless
--texts is given.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bert_tf import checkpoints, cli, finetuning, modeling, serving, text
from bert_tf.lazy import lazy_import
from tasks.tagging import Tagging

tf = lazy_import("tensorflow")

if TYPE_CHECKING:
    import keras

Spans = Sequence[tuple[int, int]]
Entities = set[tuple[int, str, int, int]]  # Sentence, type, start, end.

_BATCH = 32


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextConfig(cli.Options):
    """Options of `python -m benchmarks.tagging_text`."""

    models: str = cli.option(help="Model directories, separated by commas.")
    texts: str = cli.option("", help="Text of each sentence of the test file.")


def main(options: TextConfig) -> None:
    """Prints the table."""
    print("| model | sentences | joined by spaces | F1 on words | F1 on text |")
    print("|---|---|---|---|---|")
    for path in options.models.split(","):
        task, model = _load(path)
        split = task.dataset("test")
        limits = {"max_length": task.options.max_sequence_length}
        outputs = finetuning.predict(model, split, _BATCH, **limits)
        tags = task.decode(split, outputs)
        sentences = [sentence.words for sentence in task.files["test"].sentences]
        texts = _texts(sentences, options.texts)
        spans = [align(*pair) for pair in zip(texts, sentences, strict=True)]
        num_joined = spans.count(None)
        for i, words in enumerate(sentences):
            if spans[i] is None:
                texts[i] = " ".join(words)
                spans[i] = align(texts[i], words)
        f1 = f1_score(
            gold_entities(task.gold["test"], spans), _served(task, model, texts)
        )
        print(
            f"| {path} | {len(texts):,} | {num_joined} | "
            f"{100 * task.evaluate(split, tags)['f1']:.2f} | {100 * f1:.2f} |",
            flush=True,
        )


def align(sentence: str, words: Sequence[str]) -> Spans | None:
    """Returns the offsets of the words; None if other text is between them."""
    spans, position = [], 0
    for word in words:
        start = sentence.find(word, position)
        if start < 0 or sentence[position:start].strip():
            return None
        position = start + len(word)
        spans.append((start, position))
    return spans


def gold_entities(tags: Sequence[Sequence[str]], spans: Sequence[Spans]) -> Entities:
    """Returns the entities of IOB2 tags."""
    from seqeval.metrics.sequence_labeling import get_entities

    return {
        (row, kind, spans[row][first][0], spans[row][last][1])
        for row, sentence in enumerate(tags)
        for kind, first, last in get_entities(list(sentence))
    }


def f1_score(gold: Entities, predicted: Entities) -> float:
    return 2 * len(gold & predicted) / max(len(gold) + len(predicted), 1)


def _load(path: str) -> tuple[Tagging, keras.Model]:
    directory = checkpoints.ModelDirectory.open(path)
    task = Tagging(
        Tagging.Config(**{**directory.options, "output": path}),
        text.Tokenizer(directory.vocabulary, lowercase=directory.lowercase),
    )
    model = task.model(modeling.BertBackbone(directory.architecture))
    directory.load_weights(model)
    return task, serving.optimize_for_inference(model)


def _texts(sentences: Sequence[Sequence[str]], path: str) -> list[str]:
    if path:
        return pathlib.Path(path).read_text(encoding="utf-8").splitlines()
    import sacremoses

    join = sacremoses.MosesDetokenizer(lang="en").detokenize
    return [join(words, unescape=False) for words in sentences]


def _served(task: Tagging, model: keras.Model, texts: Sequence[str]) -> Entities:
    """Returns the entities that the exported graph finds."""
    serve = task.serve(model)["serving_default"]
    names = ("entity_types", "entity_starts", "entity_ends")
    found = set()
    for begin in range(0, len(texts), _BATCH):
        answer = serve(tf.constant(texts[begin : begin + _BATCH]))
        columns = (answer[name].numpy().tolist() for name in names)
        for row, entities in enumerate(zip(*columns, strict=True), start=begin):
            for kind, start, end in zip(*entities, strict=True):
                if kind:  # Not padding.
                    found.add((row, kind.decode(), start, end))
    return found


if __name__ == "__main__":
    cli.run(main, TextConfig)
