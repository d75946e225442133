# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Signatures of models with the head of a task: strings to answers.

Letters: N examples, S tokens, C classes or choices, W words, E entities. The signature
`ids` of each task maps token_ids, segment_ids, padding_mask [N, S] int32 to the logits.

Classification or regression:

    serving_default  text [N], or text_a, text_b [N] -> label [N] string and
                     probabilities [N, C] float32 in the order of the labels; or, if
                     several labels can be right, labels [N, L] string, those with a
                     probability above their threshold padded with "", and their
                     independent probabilities; or score [N] float32
    classify         or regress: the same answers for tf.Examples

Multiple choice:

    serving_default  prompt [N], choices [N, C] -> choice [N] int32, the index of the
                     best one, and probabilities [N, C] float32. Any C > 0. A blank
                     string is a missing choice; its probability is 0. The choice is -1
                     if all are missing. Inputs of `ids` are [N, C, S].

Question answering:

    serving_default  question, context [N] ->
                     answer [N] string: a substring of the context, "" for none
                     start, end [N] int32: its offsets in characters, end exclusive
                     start_byte, end_byte [N] int32: its offsets in bytes
                     score [N] float32: its probability among the candidates
                     answers, starts, ends, start_bytes, end_bytes, scores [N, 5]: the
                     same of the five best candidates, most probable first; missing
                     ones are "" with probability 0
                     no_answer_score [N] float32: above 0 if `answer` is "". Only if
                     questions can be unanswerable

Tagging:

    serving_default  text [N] ->
                     words, tags [N, W] string: the W words of each text, or its word
                     pieces
                     scores [N, W] float32: the probabilities of the tags
                     entities, entity_types [N, E] string: the E entities
                     entity_scores [N, E] float32: the mean of the scores of their words
                     entity_starts, entity_ends [N, E] int32: their offsets in
                     characters, end exclusive
                     entity_start_bytes, entity_end_bytes [N, E] int32: their offsets in
                     bytes
                     Shorter rows are padded with "" and 0.
    words            words [N, W], padded with "" -> tags [N, W] string, scores [N, W]
                     float32
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from bert_tf import modeling
from bert_tf.modeling import BertBackbone
from bert_tf.serving.answers import answers_from_model, cut_passages
from bert_tf.serving.entities import tag_text, tag_words
from bert_tf.serving.signatures import (
    Signature,
    class_probabilities,
    classify_signature,
    ids_signature,
    regress_signature,
    signature,
    string_input,
)
from bert_tf.text import Tokenizer, Windows, cut_windows

# Candidates in the outputs of question answering.
_SERVED_CANDIDATES = 5

# What `str.strip` removes from a choice.
_BLANK = r"[\s\v\x1c-\x1f\x{85}\pZ]*"


class Head(NamedTuple):
    """How to build and serve the models of one kind of task.

    Attributes:
        build: Maps a `BertBackbone`, `head` and `options` to a functional Keras model
            from the encoder's inputs to logits. `head` and `options` are those of the
            model directory.
        signatures: The same, for a model with weights; see `task_signatures`, which
            adds the signature `ids`.
    """

    build: Callable[[BertBackbone, Mapping, Mapping], keras.Model]
    signatures: Callable[
        [keras.Model, Tokenizer, Mapping, Mapping], Mapping[str, Signature]
    ]


def find_head(kind: str) -> Head:
    """Returns the entry of `HEADS`; imports `tasks.<kind>` if there is none.

    Raises:
        ValueError: There is no such kind.
    """
    module = f"tasks.{kind}"
    if kind not in HEADS and kind.isidentifier():
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name not in ("tasks", module):
                raise
    if kind not in HEADS:
        raise ValueError(
            f"There is no head of the kind {kind!r}, only {', '.join(HEADS)}. Import "
            f"the module that adds it to bert_tf.serving.HEADS, or name it {module}."
        )
    return HEADS[kind]


def task_signatures(
    model: keras.Model,
    tokenizer: Tokenizer,
    head: Mapping[str, Any],
    options: Mapping[str, Any],
) -> dict[str, Signature]:
    """Returns the signatures of a model for one of the tasks above.

    Args:
        model: Maps the encoder's inputs to logits.
        tokenizer: The tokenizer of the encoder.
        head: The `head` of a `Checkpoint`, and the task's `decision`: of
            classifiers `thresholds` of the labels (0.5 by default) and `temperature`,
            the divisor of the logits (1 by default); of question answering with
            unanswerable questions `threshold` of `Answers.best` (0 by default); of
            taggers `join_weights` of `find_words`.
        options: The options of the task, such as `max_sequence_length`.
    """
    signatures = find_head(head["kind"]).signatures(model, tokenizer, head, options)
    return {**signatures, "ids": ids_signature(model)}


# --- Classification and regression -----------------------------------------------


def read_texts(
    tokenizer: Tokenizer, texts: Sequence[tf.Tensor], limit: int, long_text: str
) -> dict[str, tf.Tensor] | Windows:
    """Returns the encoder's inputs [N, S] for N texts or pairs, or their windows.

    Args:
        tokenizer: The tokenizer of the encoder.
        texts: One or two columns of strings [N].
        limit: Maximum S.
        long_text: `--long_text` of `tasks.classification`.
    """
    if long_text.startswith("window"):
        return cut_windows(tokenizer, tokenizer.tokenize(*texts), limit)
    keep = "head_tail" if long_text == "head_tail" else "head"
    return tokenizer.encode(*texts, max_sequence_length=limit, keep=keep)


def pool_windows(logits: tf.Tensor, source: tf.Tensor, long_text: str) -> tf.Tensor:
    """Pools logits of windows [W, C] over each text [N, C]; a graph function.

    Args:
        logits: Logits of the windows, in the order of the texts.
        source: Index of the text of each window [W].
        long_text: `window_max` for the maximum, else the mean.
    """
    if long_text == "window_max":
        return tf.math.segment_max(logits, source)
    return tf.math.segment_mean(logits, source)


def _classification(model, tokenizer, head, options) -> dict[str, Signature]:
    labels = head.get("labels", ())
    names = ("text_a", "text_b") if head.get("pairs") else ("text",)
    limit, long_text = options["max_sequence_length"], options["long_text"]

    def run(texts):
        inputs = read_texts(tokenizer, texts, limit, long_text)
        if not isinstance(inputs, Windows):
            return model(inputs, training=False)
        logits = inputs.map(
            lambda part: model(part.inputs(), training=False),
            tf.TensorSpec([None, len(labels) or 1]),
        )
        return pool_windows(logits, inputs.row, long_text)

    @signature(*map(string_input, names))
    def serving_default(*texts):
        logits = run(texts)  # [N, C]
        if not labels:
            activation = keras.activations.get(head.get("activation"))
            return {"score": activation(logits[:, 0])}
        if head.get("problem") != "multi_label":
            temperature = head.get("temperature", 1.0)
            return class_probabilities(logits / temperature, labels)
        probabilities = tf.sigmoid(logits)
        names = tf.broadcast_to(tf.constant(labels), tf.shape(logits))
        is_right = probabilities > tf.constant(head.get("thresholds", 0.5))
        return {
            "labels": tf.ragged.boolean_mask(names, is_right).to_tensor(),
            "probabilities": probabilities,
        }

    if labels:
        other = {"classify": classify_signature(serving_default, labels)}
    else:
        other = {"regress": regress_signature(serving_default)}
    return {"serving_default": serving_default, **other}


# --- Multiple choice -------------------------------------------------------------


def read_choices(
    tokenizer: Tokenizer, prompt: tf.Tensor, choices: tf.Tensor, limit: int
) -> dict[str, tf.Tensor]:
    """Encodes `prompt` [N] with each of `choices` [N, C]; inputs are [N, C, S].

    The `padding_mask` of a blank choice is 0. `limit` is the maximum S.
    """
    shape = tf.shape(choices)
    inputs = tokenizer.encode(
        tf.repeat(prompt, shape[1]),
        tf.reshape(choices, [-1]),
        max_sequence_length=limit,
    )
    inputs = {
        name: tf.reshape(x, [shape[0], shape[1], tf.shape(x)[1]])
        for name, x in inputs.items()
    }
    exists = ~tf.strings.regex_full_match(choices, _BLANK)
    inputs["padding_mask"] *= tf.cast(exists, tf.int32)[:, :, tf.newaxis]
    return inputs


def _multiple_choice(model, tokenizer, head, options) -> dict[str, Signature]:
    limit = options["max_sequence_length"]

    @signature(
        string_input("prompt"), tf.TensorSpec([None, None], tf.string, "choices")
    )
    def serving_default(prompt, choices):
        same_size = tf.debugging.assert_equal(
            tf.size(prompt),
            tf.shape(choices)[0],
            "`choices` must have shape [N, C] for `prompt` of shape [N].",
        )
        not_empty = tf.debugging.assert_positive(
            tf.shape(choices)[1], "`choices` must have at least one choice."
        )
        # Otherwise another op may fail first, with an unclear message.
        with tf.control_dependencies([same_size, not_empty]):
            inputs = read_choices(tokenizer, prompt, tf.identity(choices), limit)
        logits = model(inputs, training=False)  # [N, C]
        exists = inputs["padding_mask"][:, :, 0] > 0
        best = tf.argmax(logits, axis=1, output_type=tf.int32)
        return {
            "choice": tf.where(tf.reduce_any(exists, axis=1), best, -1),
            "probabilities": tf.where(exists, tf.nn.softmax(logits), 0.0),
        }

    return {"serving_default": serving_default}


# --- Question answering ----------------------------------------------------------


def _question_answering(model, tokenizer, head, options) -> dict[str, Signature]:
    limits = ("max_sequence_length", "max_question_length", "stride")
    reading = {name: options[name] for name in limits}
    decoding = {name: options[name] for name in ("max_answer_length", "n_best")}
    decoding["no_answer"] = head.get("no_answer", False)
    threshold = head.get("threshold", 0.0) if decoding["no_answer"] else None

    @signature(string_input("question"), string_input("context"))
    def serving_default(question, context):
        passages = cut_passages(tokenizer, question, context, **reading)
        answers = answers_from_model(model, passages, **decoding)
        best = answers.best(threshold)
        outputs = {}
        for name in ("answer", "start", "end", "start_byte", "end_byte", "score"):
            outputs[name] = best[name]
            candidates = answers.candidates[name]
            outputs[f"{name}s"] = candidates[:, :_SERVED_CANDIDATES]
        if threshold is not None:
            outputs["no_answer_score"] = answers.null_odds - threshold
        return outputs

    return {"serving_default": serving_default}


# --- Tagging ---------------------------------------------------------------------


def _tagging(model, tokenizer, head, options) -> dict[str, Signature]:
    labels = head["labels"]

    def run(windows: Windows) -> tf.Tensor:
        inputs = windows.inputs()
        pieces = windows.owned_pieces(tf.shape(inputs["token_ids"])[1])
        return tf.boolean_mask(model(inputs, training=False), pieces >= 0)

    def logits(ids: tf.RaggedTensor) -> tf.Tensor:
        """Returns the logits of all pieces [pieces, C]."""
        windows = cut_windows(tokenizer, ids, options["max_sequence_length"])
        return windows.map(run, tf.TensorSpec([None, len(labels)]))

    @signature(string_input("text"))
    def serving_default(text):
        pieces = tokenizer.tokenize_with_offsets(text)
        return tag_text(
            text,
            pieces,
            logits(pieces.ids),
            vocabulary=tokenizer.vocabulary,
            labels=labels,
            by_word=head.get("aggregation") != "simple",
            join_weights=head.get("join_weights", ""),
        )

    @signature(tf.TensorSpec([None, None], tf.string, "words"))
    def words(words):
        is_word = tf.not_equal(words, "")
        pieces = tokenizer.tokenize_words(tf.boolean_mask(words, is_word))
        counts = tf.math.count_nonzero(is_word, axis=1)
        texts = tf.RaggedTensor.from_row_lengths(pieces, counts)
        first = tf.gather(logits(texts.merge_dims(1, 2)), pieces.row_starts())
        return tag_words(is_word, first, labels)

    return {"serving_default": serving_default, "words": words}


# --- Kinds of heads --------------------------------------------------------------


def _num_outputs(head: Mapping[str, Any]) -> int:
    return len(head.get("labels", ())) or 1


def _build_tagger(backbone, head, options) -> keras.Model:
    if options.get("features"):
        features = options["features"], options["lstm_units"]
        return modeling.FeatureTagger(backbone, _num_outputs(head), *features)
    return modeling.TokenClassifier(backbone, _num_outputs(head))


HEADS: dict[str, Head] = {
    "classification": Head(
        lambda backbone, head, _: modeling.SequenceClassifier(
            backbone, _num_outputs(head)
        ),
        _classification,
    ),
    "multiple_choice": Head(
        lambda backbone, *_: modeling.ChoiceScorer(backbone), _multiple_choice
    ),
    "question_answering": Head(
        lambda backbone, *_: modeling.SpanPredictor(backbone), _question_answering
    ),
    "tagging": Head(_build_tagger, _tagging),
}
"""The kinds of heads that can be trained, exported and loaded, by their names."""
