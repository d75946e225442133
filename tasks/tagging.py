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

import contextlib
import dataclasses

import numpy as np

from bert_tf import cli, finetuning, heads
from bert_tf.lazy import lazy_import

tf = lazy_import("tensorflow")

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
        files = options.files().items()
        self.data = {k: finetuning.ColumnFile.read(path) for k, path in files}
        train = self.data["train"]
        self.gold = {"train": train.tags()}
        types = sorted({t[2:] for tags in self.gold["train"] for t in tags if t != "O"})
        if not types:
            raise ValueError(f"{train.path}: every tag is O. Training needs entities.")
        self.labels = ("O", *(f"{b}-{type_}" for type_ in types for b in "BI"))
        self.head = {"labels": list(self.labels)}
        for name in self.evaluation_splits:
            file = self.data[name]
            is_unlabeled = name == "test" and file.num_columns < train.num_columns
            self.gold[name] = None if is_unlabeled else file.tags(types)

    @classmethod
    def read_input(cls, options, path):
        file = finetuning.ColumnFile.read(path)
        gold = [None] * len(file.sentences)
        with contextlib.suppress(ValueError):  # The last column has no tags.
            gold = [" ".join(tags) for tags in file.tags()]
        for sentence, tags in zip(file.sentences, gold, strict=True):
            id_, texts = str(sentence.lines[0]), {"text": " ".join(sentence.words)}
            yield finetuning.Example(id_, texts, (sentence.words,), tags)

    @classmethod
    def answer(cls, model, columns, batch_size):
        return model.predict(*columns, signature="words", batch_size=batch_size)

    def dataset(self, name: str) -> finetuning.Split:
        texts = self._tokenize(self.data[name])
        windows = self.served_head().encode(texts.merge_dims(1, 2))
        inputs = windows.ragged_inputs()
        lengths = inputs["token_ids"].row_lengths()
        # Index of each token's piece; -1 for tokens without one selects the last value.
        piece = tf.RaggedTensor.from_tensor(
            windows.owned_pieces(int(tf.reduce_max(lengths))), lengths
        )
        word = texts.values.value_rowids().numpy()  # Of each piece.
        is_first_piece = np.append(np.diff(word, prepend=-1) > 0, False)
        is_first = piece.with_values(tf.constant(is_first_piece[piece.values]))
        gold = self.gold[name]
        if gold is None:
            return finetuning.Split(name, is_first, inputs)
        indices = {label: index for index, label in enumerate(self.labels)}
        tags = np.array([indices[tag] for sentence in gold for tag in sentence])
        tags = np.append(tags[word], 0).astype(np.int32)
        targets = piece.with_values(tf.constant(tags[piece.values]))
        weights = tf.cast(is_first, tf.float32)
        return finetuning.Split(name, is_first, inputs, targets, weights)

    def evaluate(self, split, outputs, decision=None):
        best = [
            logits[: len(is_first)][is_first].argmax(axis=-1)
            for logits, is_first in zip(outputs, split.source.numpy(), strict=True)
        ]
        tags = np.array(self.labels)[np.concatenate(best)].tolist()
        ends = np.cumsum([len(s.rows) for s in self.data[split.name].sentences])
        tags = [finetuning.to_iob2(tags[a:b]) for a, b in zip([0, *ends], ends)]
        gold, metrics, report = self.gold[split.name], {}, ""
        if gold is not None:
            # Imports scikit-learn.
            from seqeval.metrics import sequence_labeling

            scores = sequence_labeling.precision_recall_fscore_support(
                gold, tags, average="micro", zero_division=0
            )
            metrics = dict(zip(("precision", "recall", "f1"), map(float, scores[:3])))
            if {tag for sentence in (*gold, *tags) for tag in sentence} != {"O"}:
                report = sequence_labeling.classification_report(
                    gold, tags, digits=4, zero_division=0
                )
        return finetuning.Evaluation(metrics, tags, report=report)

    def write_predictions(self, split, evaluation, folder):
        path = folder / f"predictions_{split.name}.conll"
        self.data[split.name].write(path, evaluation.predictions, self.gold[split.name])

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
