# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""A tag for each word: named entities (paper, section 5.3).

In: CoNLL column files, the word first and its tag last (IOB1 or IOB2)::

    EU NNP B-NP B-ORG
    rejects VBZ B-VP O

    python -m tasks.tagging --train_file=eng.train --dev_file=eng.testa \\
        --test_file=eng.testb --context=document --max_sequence_length=512 \\
        --init_from=models/base --output=models/conll

Out: the fine-tuned model directory, its scores in metrics.json, and for each evaluated
split predictions_<split>.conll, the original columns and the predicted tag, as
conlleval reads them. BERT base reaches an F1 of 96.4 on CoNLL-2003's dev set and 92.4
on its test set (table 7; cased).

A word's tag is read off its first piece, and only this piece is trained. What is longer
than --max_sequence_length is cut into windows that overlap; no word is left out. With
--context=document, as in the paper, sentences of one document share a window.

The exported model takes raw text and finds its words itself: what white space
separates, without the punctuation at both ends, which is a word each, as in the corpora
that it is trained on (`bert_tf.words`).

The feature-based way (table 7) trains two layers of LSTMs on activations of the
encoder that are computed once; it wants a larger learning rate:

    python -m tasks.tagging ... --features=concat_last_four --learning_rate=1e-3
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_tf import cli, finetuning, serving
from bert_tf.finetuning.conll import ColumnFile, iob2
from bert_tf.finetuning.task import FinetuneConfig, Task
from bert_tf.lazy import lazy_import
from bert_tf.modeling.config import FEATURES

features = lazy_import("bert_tf.finetuning.features")
finetune = lazy_import("bert_tf.finetuning.run")
heads = lazy_import("bert_tf.modeling.heads")
spans = lazy_import("bert_tf.text.spans")
taggers = lazy_import("bert_tf.modeling.feature_tagger")
tf = lazy_import("tensorflow")
windows = lazy_import("bert_tf.text.windows")
words = lazy_import("bert_tf.text.words")

if TYPE_CHECKING:
    import keras

    from bert_tf.finetuning import Split
    from bert_tf.modeling.bert import BertBackbone
    from bert_tf.text.tokenizer import Tokenizer

# --- The task --------------------------------------------------------------------


class Tagging(Task):
    """See the module docstring."""

    kind = "tagging"
    metric = "f1"

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Config(FinetuneConfig):
        """Options of `python -m tasks.tagging`."""

        train_file: str = cli.option(help="Training data, a CoNLL column file.")
        dev_file: str = cli.option(
            help="Data like --train_file's, to choose the best epoch by."
        )
        test_file: str = cli.option(
            "",
            help="Data to predict; without tags where it has fewer columns.",
            common=True,
            resumable=True,
        )
        context: str = cli.option(
            "sentence",
            help="What shares a window: the words of a sentence, or as many sentences "
            "of a document (-DOCSTART-) as fit in.",
            choices=("sentence", "document"),
            common=True,
        )
        features: str = cli.option(
            "",
            help="Instead of fine-tuning: which activations of the encoder a BiLSTM is "
            "trained on.",
            choices=("", *FEATURES),
        )
        lstm_units: int = cli.option(
            768, help="Size of each direction of the two LSTM layers.", minimum=1
        )

    def __init__(self, options: Config, tokenizer: Tokenizer):
        super().__init__(options, tokenizer)
        paths = {
            "train": options.train_file,
            "dev": options.dev_file,
            "test": options.test_file,
        }
        self.files = {name: ColumnFile.read(p) for name, p in paths.items() if p}
        self.gold = {name: self._read_tags(name) for name in self.files}
        types = _types(tag for tags in self.gold["train"] for tag in tags)
        if not types:
            raise ValueError(f"{options.train_file}: every tag is O.")
        self.labels = ("O", *(f"{b}-{type_}" for type_ in types for b in "BI"))
        for name in self.evaluation_splits:
            self._check_types(name, types)

    @property
    def head(self) -> Mapping[str, Any]:
        return {"labels": list(self.labels)}

    @property
    def evaluation_splits(self) -> Sequence[str]:
        return [name for name in self.files if name != "train"]

    def model(self, backbone: BertBackbone) -> keras.Model:
        num_tags = len(self.labels)
        if not self.options.features:
            return heads.TokenClassifier(backbone, num_tags)
        self._encoder_and_tagger = taggers.FeatureTagger(
            backbone, num_tags, self.options.features, self.options.lstm_units
        )
        return self._encoder_and_tagger

    def trainable_model(self, model: keras.Model) -> keras.Model:
        return model.tagger if self.options.features else model

    def preprocess(self, pieces: tf.RaggedTensor) -> windows.Windows:
        """Cuts the word pieces of N texts into windows."""
        limit = self.options.max_sequence_length
        return windows.cut(pieces, self.tokenizer.vocabulary, limit)

    def dataset(self, name: str) -> Split:
        of_words, of_texts = self._tokenize(self.files[name])
        options = self.options
        cut = self.preprocess(of_texts)
        # The piece of each token; -1, where it has no say: the place behind the last.
        piece = cut.piece.values.numpy()
        begins_word = np.zeros(len(of_words.values) + 1, bool)
        begins_word[of_words.row_starts()] = True
        answers = cut.piece.with_values(tf.constant(begins_word[piece]))
        inputs = self._features(cut.inputs) if options.features else cut.inputs
        gold = self.gold[name]
        if gold is None:
            return finetuning.Split(name, answers, inputs)
        numbers = {label: number for number, label in enumerate(self.labels)}
        tags = np.array([numbers[tag] for sentence in gold for tag in sentence])
        of_pieces = np.append(tags[of_words.value_rowids()], 0).astype(np.int32)
        targets = answers.with_values(tf.constant(of_pieces[piece]))
        weights = tf.cast(answers, tf.float32)
        return finetuning.Split(name, answers, inputs, targets, weights)

    def evaluate(self, split: Split, outputs: Sequence[np.ndarray]) -> dict[str, float]:
        import seqeval.metrics  # Here, as it imports scikit-learn.

        gold = self.gold[split.name]
        predicted = self._predicted_tags(split, outputs)
        scores = {
            "f1": seqeval.metrics.f1_score,
            "precision": seqeval.metrics.precision_score,
            "recall": seqeval.metrics.recall_score,
        }
        return {
            name: float(score(gold, predicted, zero_division=0))
            for name, score in scores.items()
        }

    def gold_and_predicted(
        self, split: Split, outputs: Sequence[np.ndarray]
    ) -> tuple[Sequence[str], Sequence[str]]:
        """The entity types of all words, O for none."""
        tags = self.gold[split.name], self._predicted_tags(split, outputs)
        return tuple(
            [tag[2:] or tag for s in sentences for tag in s] for sentences in tags
        )

    def write_predictions(
        self, split: Split, outputs: Sequence[np.ndarray], folder: pathlib.Path
    ) -> pathlib.Path:
        path = folder / f"predictions_{split.name}.conll"
        self.files[split.name].write(path, self._predicted_tags(split, outputs))
        return path

    def serve(self, model: keras.Model) -> dict[str, serving.Signature]:
        """The signatures of the exported model, for N texts.

        serving_default  text [N] -> for its W words: words, tags [N, W] string, scores
                         [N, W] float32, the probabilities of the tags; for its E
                         entities: entities, entity_types [N, E] string, and where they
                         stand, in characters and in bytes of the text:
                         entity_starts, entity_ends, entity_start_bytes,
                         entity_end_bytes [N, E] int32, ends exclusive; "" and 0 where a
                         text has fewer than another
        ids              token_ids, segment_ids, padding_mask [N, S] -> logits [N, S, C]
        """

        @serving.signature(serving.string_input("text"))
        def serving_default(text):
            return self._answer(model, text)

        return {"serving_default": serving_default, "ids": serving.ids_signature(model)}

    # --- Reading -----------------------------------------------------------------

    def _read_tags(self, name: str) -> list[list[str]] | None:
        """The tags of a split; None for a test set without any."""
        file, train = self.files[name], self.files["train"]
        if name == "test" and file.num_columns < train.num_columns:
            return None
        if file.num_columns != train.num_columns:
            raise ValueError(
                f"{file.path} and {train.path} must have the same number of columns. "
                f"Received: {file.num_columns} and {train.num_columns}"
            )
        return file.tags()

    def _check_types(self, name: str, types: Sequence[str]) -> None:
        known, file = {"", *types}, self.files[name]
        for sentence, tags in zip(file.sentences, self.gold[name] or (), strict=False):
            for line, tag in enumerate(tags, start=sentence.line):
                if tag[2:] not in known:
                    raise ValueError(
                        f"{file.path}, line {line}: entities of type {tag[2:]!r} do "
                        "not occur in the training data, which have: "
                        f"{', '.join(types)}."
                    )

    def _tokenize(self, file: ColumnFile) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
        """Returns the pieces of each word, and those of all that shares a window.

        Both have the same values, [words, (pieces)] and [texts, (pieces)] int32.
        """
        strings = [word for sentence in file.sentences for word in sentence.words]
        pieces = self.tokenizer.tokenize(tf.constant(strings))
        # Nothing is left of a word of control characters, but it has a tag.
        is_empty = (pieces.row_lengths() == 0)[:, tf.newaxis]
        unknown = tf.RaggedTensor.from_tensor(
            tf.fill([len(strings), 1], self.tokenizer.vocabulary.unk_id)
        )
        pieces = tf.concat([pieces, tf.ragged.boolean_mask(unknown, is_empty)], axis=1)
        splits = np.cumsum([0, *(len(s.rows) for s in file.sentences)])  # In words.
        if self.options.context == "document":
            sizes = np.diff(pieces.row_splits.numpy()[splits])
            limit = self.options.max_sequence_length - 2
            splits = splits[_pack(file.documents, sizes, limit)]
        texts = tf.RaggedTensor.from_row_splits(pieces, splits)
        return pieces, texts.merge_dims(1, 2)

    def _features(self, inputs: Mapping[str, tf.RaggedTensor]) -> dict[str, Any]:
        options = self.options
        column = features.cached(
            self._encoder_and_tagger.encoder,
            inputs,
            # Beside the model, so that several models of the same data share it.
            pathlib.Path(options.output).parent / "features",
            max_length=options.max_sequence_length,
            static_shape=options.strategy == "tpu",
        )
        return {"features": column, "padding_mask": inputs["padding_mask"]}

    # --- Answers -----------------------------------------------------------------

    def _predicted_tags(
        self, split: Split, outputs: Sequence[np.ndarray]
    ) -> list[list[str]]:
        """Returns the tags of each sentence, IOB2."""
        answers = split.source
        best = [
            logits[: len(answer)][answer].argmax(axis=-1)
            for logits, answer in zip(outputs, answers.numpy(), strict=True)
        ]
        tags = np.array(self.labels)[np.concatenate(best)].tolist()
        ends = np.cumsum([len(s.rows) for s in self.files[split.name].sentences])
        return [iob2(tags[a:b]) for a, b in zip([0, *ends], ends, strict=False)]

    def _answer(self, model: keras.Model, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """The graph of `serving_default`; T words in all texts, E entities."""
        pieces = self.tokenizer.tokenize_with_offsets(text)
        logits = windows.run(  # Of each piece, all texts one after the other.
            lambda inputs, piece: tf.boolean_mask(
                model(inputs, training=False), piece >= 0
            ),
            self.preprocess(pieces.ids),
            width=len(self.labels),
        )
        row, start, end, begins = words.words(pieces, self.tokenizer.vocabulary)
        probabilities = tf.nn.softmax(tf.boolean_mask(logits, begins))  # [T, C]
        tag = tf.argmax(probabilities, axis=1, output_type=tf.int32)
        tag, first, last = _entities(tag, row)
        entity_row = tf.gather(row, first)  # [E]
        entity_start, entity_end = tf.gather(start, first), tf.gather(end, last)
        types = tf.constant([label[2:] for label in self.labels])

        def by_text(values: tf.Tensor, row: tf.Tensor) -> tf.Tensor:
            return tf.RaggedTensor.from_value_rowids(
                values, row, nrows=tf.size(text), validate=False
            ).to_tensor()

        of_words = {
            "words": spans.substrings(text, row, start, end),
            "tags": tf.gather(tf.constant(self.labels), tag),
            "scores": tf.reduce_max(probabilities, axis=1),
        }
        of_entities = {
            "entities": spans.substrings(text, entity_row, entity_start, entity_end),
            "entity_types": tf.gather(types, tf.gather(tag, first)),
            "entity_starts": spans.characters(text, entity_row, entity_start),
            "entity_ends": spans.characters(text, entity_row, entity_end),
            "entity_start_bytes": entity_start,
            "entity_end_bytes": entity_end,
        }
        return {
            **{name: by_text(x, row) for name, x in of_words.items()},
            **{name: by_text(x, entity_row) for name, x in of_entities.items()},
        }


def _entities(tag: tf.Tensor, row: tf.Tensor) -> tuple[tf.Tensor, ...]:
    """Finds the entities as conlleval does: an I that continues nothing begins one.

    Args:
        tag: Numbers of labels: O is 0, B of a type is odd and I follows it [T] int32.
        row: The text of each word [T] int32.

    Returns:
        The tags as IOB2 [T] int32; the first and last word of each entity [E] int64.
    """
    kind = (tag + 1) // 2  # O is 0, B and I of a type are one number.
    is_same = (tf.roll(kind, 1, 0) == kind) & (tf.roll(row, 1, 0) == row)
    is_same &= tf.range(tf.size(kind)) > 0
    continues = (kind > 0) & (tag % 2 == 0) & is_same
    begins = (kind > 0) & ~continues
    ends = (kind > 0) & ~tf.concat([continues[1:], [False]], 0)[: tf.size(kind)]
    tag = tf.where(begins, 2 * kind - 1, tag)
    return tag, tf.where(begins)[:, 0], tf.where(ends)[:, 0]


def _types(tags: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({tag[2:] for tag in tags} - {""}))


def _pack(
    documents: Iterable[Sequence[int]], sizes: Sequence[int], limit: int
) -> list[int]:
    """Puts sentences of a document together as long as they have `limit` pieces.

    Args:
        documents: The numbers of the sentences of each document.
        sizes: Pieces of each sentence.
        limit: Most pieces; a sentence that has more is alone.

    Returns:
        The first sentence of each group, and the number of all.
    """
    firsts = []
    for document in documents:
        total = limit
        for number in document:
            total += sizes[number]
            if total > limit:
                firsts.append(number)
                total = sizes[number]
    return [*firsts, len(sizes)]


def main(*grid: Tagging.Config) -> None:
    """Fine-tunes once for each of the options, see `finetune.main`."""
    finetune.main(Tagging, *grid)


if __name__ == "__main__":
    cli.run(main, Tagging.Config)
