# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tags words: named-entity recognition (paper, section 5.3).

Input: CoNLL column files, one word per line with its tag (IOB1 or IOB2) last::

    EU NNP B-NP B-ORG
    rejects VBZ B-VP O

    python -m tasks.tagging --train_file=eng.train --dev_file=eng.testa \\
        --test_file=eng.testb --context=document --max_sequence_length=512 \\
        --init_from=models/base --output=models/conll

Output: a fine-tuned model directory with precision, recall and F1 in metrics.json, and
predictions_<split>.conll: the input columns and the predicted tag, for conlleval. A
--test_file with fewer columns than --train_file has no tags.
Expected F1 on CoNLL-2003 with BERT base, cased: 96.4 on dev, 92.4 on test (table 7).

The first piece of a word is trained to predict the word's tag. A text longer than
--max_sequence_length is cut into overlapping windows, so no word is lost. With
--context=document, as in the paper, sentences of a document share a window.

The exported model takes raw text and splits it into words as BERT's basic tokenizer
does: each punctuation mark is a word. The signature `words` takes texts that are split
already.

The feature-based approach (table 7) freezes the encoder and trains two BiLSTM layers on
its activations. It needs a higher learning rate:

    python -m tasks.tagging ... --features=concat_last_four --learning_rate=1e-3
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator

import numpy as np

from bert_tf import cli, finetuning, heads
from bert_tf.lazy import lazy_import

tf = lazy_import("tensorflow")


def _types(tags: Iterable[str]) -> Iterator[str]:
    """Yields the types of IOB tags."""
    return (tag[2:] for tag in tags if tag != "O")


# --- The task --------------------------------------------------------------------


class Tagging(finetuning.Task):
    """Tags words; see the module docstring."""

    kind = "tagging"
    metric = "f1"

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Config(finetuning.FilesConfig):
        """Options of `python -m tasks.tagging`."""

        context: str = cli.option(
            "sentence",
            help="Text of a window: one sentence, or all of a document that fit.",
            choices=("sentence", "document"),
            common=True,
        )
        class_weight: str = cli.option(
            "",
            help="balanced: all tags have the same weight in the loss.",
            choices=("", "balanced"),
        )
        features: str = cli.option(
            "",
            help="Train a BiLSTM on these activations of the frozen encoder.",
            choices=("", *heads.FEATURES),
        )
        lstm_units: int = cli.option(768, help="Units of each direction.", minimum=1)

    def __init__(self, options, encoder):
        super().__init__(options, encoder)
        if options.teacher and options.features:
            raise ValueError("--teacher trains the encoder. Omit --features.")
        files = {k: finetuning.ColumnFile.read(x) for k, x in options.files().items()}
        rows = {name: file.examples() for name, file in files.items()}
        rows = self.split(rows, lambda row: {*_types((row.gold or "").split())})
        self.data = dict(files)
        for name in rows if self.held_out else ():
            file = files.get(name, files["train"])
            self.data[name] = file.select({x.line for x in rows[name]})
        train = self.data["train"]
        self.gold = {"train": train.tags()}
        types = sorted({*_types(itertools.chain(*self.gold["train"]))})
        if not types:
            raise ValueError(f"{train.path}: every tag is O. Training needs entities.")
        self.labels = ("O", *(f"{b}-{type_}" for type_ in types for b in "BI"))
        self.settings = {"labels": list(self.labels)}
        for name in self.evaluation_splits:
            file = self.data[name]
            is_unlabeled = name == "test" and file.num_columns < train.num_columns
            self.gold[name] = None if is_unlabeled else file.tags(types)

    @classmethod
    def read_input(cls, options, path):
        file = finetuning.ColumnFile.read(path)
        for row in file.examples():
            yield row._replace(texts={"text": " ".join(row.inputs[0])})

    @classmethod
    def answer(cls, model, columns, batch_size):
        return model.predict(*columns, signature="words", batch_size=batch_size)

    @classmethod
    def prediction(cls, example, answer, settings, options):
        tags = [tag for tag in answer["tags"] if tag]  # Of the padded row.
        return finetuning.Prediction(" ".join(tags), answer["scores"][: len(tags)])

    def dataset(self, name: str) -> finetuning.Split:
        """Returns a split of windows, in which the first piece of a word has weight."""
        texts = self._tokenize(self.data[name])
        windows = self.head.windows(texts.merge_dims(1, 2))
        lengths = windows.lengths
        # Index of each token's piece; -1 for tokens without one selects the last value.
        piece = tf.RaggedTensor.from_tensor(
            windows.owned_pieces(int(tf.reduce_max(lengths))), lengths
        )
        word = texts.values.value_rowids().numpy()  # Of each piece.

        def of_tokens(values: np.ndarray) -> tf.RaggedTensor:
            return piece.with_values(tf.constant(np.append(values, 0)[piece.values]))

        weights = np.float32(np.diff(word, prepend=-1) > 0)
        gold = self.gold[name]
        if gold is None:
            return finetuning.Split(name, windows, weights=of_tokens(weights))
        indices = {label: index for index, label in enumerate(self.labels)}
        tags = np.array([indices[tag] for sentence in gold for tag in sentence])
        if self.options.class_weight and name == "train":
            weights *= finetuning.balanced_weights(tags)[word]
        targets = of_tokens(tags[word].astype(np.int32))
        return finetuning.Split(name, windows, targets, of_tokens(weights))

    def evaluate(self, split, outputs, decision=None):
        logits = [
            rows[: len(weights)][weights > 0]
            for rows, weights in zip(outputs, split.weights.numpy(), strict=True)
        ]
        sizes = [len(sentence.rows) for sentence in self.data[split.name].sentences]
        row = np.repeat(np.arange(len(sizes)), sizes)
        words = self.head.tag_words(tf.constant(np.concatenate(logits)), row)
        answers = {
            name: np.split(values, np.cumsum(sizes)[:-1])
            for name, values in heads.to_numpy(words).items()
        }
        gold, metrics, report = self.gold[split.name], {}, ""
        if gold is not None:
            # Imports scikit-learn.
            from seqeval.metrics import sequence_labeling

            tags = [part.tolist() for part in answers["tags"]]
            scores = sequence_labeling.precision_recall_fscore_support(
                gold, tags, average="micro", zero_division=0
            )
            metrics = dict(zip(("precision", "recall", "f1"), map(float, scores[:3])))
            if {tag for sentence in (*gold, *tags) for tag in sentence} != {"O"}:
                report = sequence_labeling.classification_report(
                    gold, tags, digits=4, zero_division=0
                )
        return finetuning.Evaluation(metrics, answers, report=report)

    def rows(self, name, answers):
        """Yields a row for each word, with its neighbors as text."""
        gold, found = self.gold[name], zip(answers["tags"], answers["scores"])
        for number, (sentence, parts) in enumerate(
            zip(self.data[name].sentences, found, strict=True)
        ):
            words = sentence.words
            for i, (tag, score) in enumerate(zip(*parts)):
                text = (
                    *words[max(0, i - 8) : i],
                    f"**{words[i]}**",
                    *words[i + 1 : i + 9],
                )
                row = {"id": sentence.lines[i], "text": " ".join(text)}
                row |= {"prediction": tag, "confidence": float(score)}
                yield row | ({"gold": gold[number][i]} if gold else {})

    def write_predictions(self, name, answers, folder):
        path = folder / f"predictions_{name}.conll"
        self.data[name].write(path, answers["tags"], self.gold[name])

    # --- Data --------------------------------------------------------------------

    def _tokenize(self, file: finetuning.ColumnFile) -> tf.RaggedTensor:
        """Returns the pieces of the words of each text [texts, (words), (pieces)].

        A text is a sentence, or the sentences of a document that share a window.
        """
        words = [word for sentence in file.sentences for word in sentence.words]
        pieces = self.tokenizer.tokenize_words(tf.constant(words))
        splits = np.cumsum([0, *(len(s.rows) for s in file.sentences)])  # In words.
        if self.options.context == "document":
            sizes = np.diff(pieces.row_splits.numpy()[splits])
            limit = self.options.max_sequence_length - 2
            splits = splits[[*file.pack(sizes, limit), -1]]
        return tf.RaggedTensor.from_row_splits(pieces, splits)


def main(options: Tagging.Config | finetuning.PredictConfig) -> None:
    """Fine-tunes, or predicts a file."""
    finetuning.run_task(Tagging, options)


if __name__ == "__main__":
    cli.run(main, Tagging.Config, predict=finetuning.PredictConfig)
