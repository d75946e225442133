# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Question answering: spans of passages.

Signature, for N questions about N passages:

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

Evaluation uses the same graph functions. A span may start only at a piece that its
window owns (see `text.Windows`), so that no span counts twice. google-research/bert
combines only the 20 best starts and the 20 best ends; here all valid spans compete.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from bert_tf import text
from bert_tf.heads.head import Head
from bert_tf.heads.signatures import string_input, with_equal_rows
from bert_tf.lazy import lazy_import
from bert_tf.modeling import MASKED_SCORE, BertBackbone, BertModel, dense_layer

tf = lazy_import("tensorflow")

_CANDIDATES = 20  # K. Their probabilities sum to one.
_SERVED_CANDIDATES = 5  # In the outputs of the signature.

# Options of `tasks.question_answering`, for checkpoints of other projects: the defaults
# of google-research/bert.
_DEFAULTS = {"stride": 128, "max_answer_length": 30}
_MAX_WINDOW, _MAX_QUESTION = 384, 64  # Tokens.


@keras.saving.register_keras_serializable(package="bert_tf")
class SpanPredictor(BertModel):
    """`BertBackbone` with a start vector and an end vector (paper, section 4.2).

    Args:
        backbone: The encoder. Its pooler is not used and not trained.

    Inputs: those of the backbone. Outputs: `start_logits` and `end_logits` [B, S]
    float32, the scores of each token as the first and the last one of the answer;
    `MASKED_SCORE` for padding. The loss is the mean of both cross-entropies.

    Example:

    ```python
    model = SpanPredictor(BertBackbone(config))
    model.compile(AdamW(learning_rate=5e-5))
    ```
    """

    def __init__(self, backbone: BertBackbone, **kwargs):
        hidden = backbone(backbone.input)["sequence_output"]  # [B, S, H]
        scores = dense_layer(backbone.config, 2, "logits", "float32")(hidden)
        is_token = ops.expand_dims(backbone.input["padding_mask"], -1) != 0
        scores = ops.where(is_token, scores, MASKED_SCORE)
        super().__init__(
            inputs=backbone.input,
            outputs={"start_logits": scores[:, :, 0], "end_logits": scores[:, :, 1]},
            **kwargs,
        )
        self.backbone = backbone

    def _losses_and_metrics(self):
        return {
            "loss": super()._losses_and_metrics()["loss"],
            "loss_weights": dict.fromkeys(self.output, 0.5),
        }


class QuestionAnsweringHead(Head):
    """Settings: `no_answer`, whether questions can be unanswerable. Decision: their
    `threshold` of `Candidates.best` (0 by default).

    Options: those of `tasks.question_answering`.
    """

    kind = "question_answering"
    model_class = SpanPredictor
    num_outputs = 2
    google_scope = "cls/squad/"
    unused_layers = ("pooler",)

    def __init__(self, settings, options, tokenizer):
        if "stride" not in options:
            limit = min(_MAX_WINDOW, options["max_sequence_length"])
            limits = {"max_sequence_length": limit}
            limits["max_question_length"] = min(_MAX_QUESTION, limit // 2)
            options = {**options, **_DEFAULTS, **limits}
        super().__init__(settings, options, tokenizer)
        self._no_answer = self.settings.get("no_answer", False)

    @property
    def inputs(self):
        return [string_input("question"), string_input("context")]

    def passages(self, question: tf.Tensor, context: tf.Tensor) -> Passages:
        """Tokenizes N questions and passages, and cuts the passages into windows."""
        message = "`context` must have a text per question."
        texts = tf.concat([question, with_equal_rows(question, context, message)], 0)
        pieces = self.tokenizer.tokenize_with_offsets(texts)
        names = ("max_sequence_length", "max_question_length", "stride")
        limits = {name: self.options[name] for name in names}
        windows = text.cut_windows(self.tokenizer, pieces.ids, **limits)
        return Passages(tf.convert_to_tensor(context), pieces, windows)

    def run(self, model, question, context):
        def logits(windows):
            return model(windows.inputs(), training=False)

        passages = self.passages(question, context)
        return self.outputs(self.candidates(passages, logits))

    def outputs(self, candidates: Candidates) -> dict[str, tf.Tensor]:
        """Returns the outputs of `serving_default`."""
        threshold = self.settings.get("threshold", 0.0) if self._no_answer else None
        outputs = candidates.best(threshold)
        for name, values in candidates.columns.items():
            outputs[f"{name}s"] = values[:, :_SERVED_CANDIDATES]
        if self._no_answer:
            outputs["no_answer_score"] = candidates.null_odds - threshold
        return outputs

    def candidates(
        self,
        passages: Passages,
        logits: Callable[[text.Windows], Mapping[str, tf.Tensor]],
    ) -> Candidates:
        """Returns the candidate answers.

        Args:
            passages: The result of `passages`.
            logits: Returns the model's outputs for a few windows. It is called for all
                windows, in order.
        """
        limit = self.options["max_answer_length"]
        specs = Spans(
            pieces=tf.TensorSpec([None, _CANDIDATES, 2], tf.int32),
            scores=tf.TensorSpec([None, _CANDIDATES]),
            null_scores=tf.TensorSpec([None]),
        )
        spans = passages.windows.map(
            lambda windows: best_spans(windows, limit, **logits(windows)), specs
        )
        return extract(passages, merge(passages, spans), self._no_answer)


class Passages(NamedTuple):
    """N questions about N passages, tokenized.

    Attributes:
        context: The passages, strings [N].
        pieces: Pieces of the questions, followed by those of the passages
            [2N, (pieces)].
        windows: W windows over the passages.
    """

    context: tf.Tensor
    pieces: text.Pieces
    windows: text.Windows


class Spans(NamedTuple):
    """The K best spans of each of R windows or questions, best first.

    Attributes:
        pieces: First and last piece, inclusive, counted in the passage [R, K, 2] int32.
        scores: Sums of start and end logit [R, K] float32. With fewer than K spans,
            those of the missing ones are at most `MASKED_SCORE`.
        null_scores: The score of "no answer", the span of [CLS] alone [R] float32.
    """

    pieces: tf.Tensor
    scores: tf.Tensor
    null_scores: tf.Tensor


class Candidates(NamedTuple):
    """Candidate answers to N questions, the most probable first.

    There are K candidates, plus one with an empty text if "no answer" is allowed.
    Missing candidates have an empty text and probability 0.

    Attributes:
        columns: Columns [N, K]: `answer`, a substring of the passage, string; its
            offsets `start` and `end` in characters (code points), and `start_byte` and
            `end_byte` in bytes of UTF-8, int32, ends exclusive; `score`, the
            probability, a softmax over the sums of start and end logit, float32.
        null_odds: Score of "no answer" minus that of the best answer [N] float32.
    """

    columns: dict[str, tf.Tensor]
    null_odds: tf.Tensor

    def best(self, threshold: float | None) -> dict[str, tf.Tensor]:
        """Returns the columns of the answers to the questions, each [N].

        Args:
            threshold: Questions with higher `null_odds` get the answer ""; None answers
                all.
        """
        is_wanted = self.columns["answer"] != ""
        if threshold is not None:
            is_wanted ^= (self.null_odds > threshold)[:, tf.newaxis]
        column = tf.argmax(tf.cast(is_wanted, tf.int32), axis=1)
        return {
            name: tf.gather(values, column, batch_dims=1)
            for name, values in self.columns.items()
        }


# --- Spans -----------------------------------------------------------------------


def best_spans(
    windows: text.Windows,
    max_answer_length: int,
    start_logits: tf.Tensor,
    end_logits: tf.Tensor,
) -> Spans:
    """Returns the K = 20 best spans of each of W windows, from logits [W, S].

    A span has at most L = `max_answer_length` pieces.
    """
    length = tf.shape(start_logits)[1]
    first_token = windows.first_token[:, tf.newaxis]
    piece = tf.range(length) - first_token  # Counted in the window [W, S].
    in_passage = (piece >= 0) & (piece < windows.size[:, tf.newaxis])
    is_owned = windows.owned_pieces(length) >= 0
    start = tf.where(is_owned, start_logits, MASKED_SCORE)
    end = tf.where(in_passage, end_logits, MASKED_SCORE)
    padding = [[0, 0], [0, max_answer_length - 1]]
    end = tf.pad(end, padding, constant_values=MASKED_SCORE)
    band = tf.range(length)[:, tf.newaxis] + tf.range(max_answer_length)  # [S, L]
    scores = start[:, :, tf.newaxis] + tf.gather(end, band, axis=1)  # [W, S, L]
    scores = tf.reshape(scores, [tf.shape(start)[0], length * max_answer_length])
    scores, indices = _top_candidates(scores)
    first = indices // max_answer_length + windows.start[:, tf.newaxis] - first_token
    last = first + indices % max_answer_length
    return Spans(
        pieces=tf.stack([first, last], axis=2),
        scores=scores,
        null_scores=start_logits[:, 0] + end_logits[:, 0],
    )


def merge(passages: Passages, spans: Spans) -> Spans:
    """Returns the best spans of each question, from those of its windows.

    The score of "no answer" is the lowest one of the windows, as in
    google-research/bert: a passage has no answer if none of its windows has one.
    """
    row = passages.windows.row
    rows = tf.RaggedTensor.from_value_rowids(
        tf.reshape(spans.scores, [-1]),
        tf.repeat(row, _CANDIDATES),
        tf.size(passages.context),
        validate=False,
    )
    scores, indices = _top_candidates(rows.to_tensor(-math.inf))
    indices += rows.row_starts()[:, tf.newaxis]
    return Spans(
        pieces=tf.gather(tf.reshape(spans.pieces, [-1, 2]), indices),
        scores=scores,
        null_scores=tf.math.segment_min(spans.null_scores, row),
    )


def _top_candidates(scores: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the best scores of each row and their columns, both [rows, K].

    With fewer than K columns, missing scores are -inf.
    """
    padding = [[0, 0], [0, _CANDIDATES]]
    scores = tf.pad(scores, padding, constant_values=-math.inf)
    return tf.math.top_k(scores, _CANDIDATES)


# --- Answers ---------------------------------------------------------------------


def extract(passages: Passages, spans: Spans, no_answer: bool) -> Candidates:
    """Extracts the texts of the spans from `merge`; of equal texts, keeps the best.

    With `no_answer`, "no answer" is one more candidate.
    """
    columns = _substrings(passages, spans)
    texts = columns["answer"]
    is_equal = texts[:, :, tf.newaxis] == texts[:, tf.newaxis]  # [N, K, K]
    is_earlier = np.tri(texts.shape[1], k=-1, dtype=bool)
    is_duplicate = tf.reduce_any(is_equal & is_earlier, axis=2)
    # Only a missing span has an empty text: every piece has at least one byte.
    is_answer = (texts != "") & ~is_duplicate
    scores = tf.where(is_answer, spans.scores, MASKED_SCORE)
    columns = {
        name: tf.where(is_answer, values, tf.zeros([], values.dtype))
        for name, values in columns.items()
    }

    null_odds = spans.null_scores - scores[:, 0]
    if no_answer:
        scores = tf.concat([scores, spans.null_scores[:, tf.newaxis]], axis=1)
        columns = {
            name: tf.concat([values, tf.zeros_like(values[:, :1])], axis=1)
            for name, values in columns.items()
        }
    columns["score"] = tf.where(scores > MASKED_SCORE / 2, tf.nn.softmax(scores), 0.0)
    order = tf.math.top_k(scores, scores.shape[1]).indices
    return Candidates(
        {name: tf.gather(x, order, batch_dims=1) for name, x in columns.items()},
        null_odds,
    )


def _substrings(passages: Passages, spans: Spans) -> dict[str, tf.Tensor]:
    """Texts and offsets of spans, each [N, K]; "" and 0 for missing spans."""
    is_span = spans.scores > MASKED_SCORE / 2  # [N, K]
    pieces = passages.pieces
    starts = tf.split(tf.cast(pieces.ids.row_starts(), tf.int32), 2)[1]  # [N]
    index = starts[:, tf.newaxis, tf.newaxis] + spans.pieces  # In all pieces.
    # Missing spans select a zero after the last offset.
    index = tf.where(is_span[:, :, tf.newaxis], index, tf.size(pieces.ids.values))
    first, last = tf.unstack(tf.reshape(index, [-1, 2]), axis=1)  # [N * K]
    start = tf.gather(tf.concat([pieces.starts.values, [0]], axis=0), first)
    end = tf.gather(tf.concat([pieces.ends.values, [0]], axis=0), last)
    shape = tf.shape(is_span)
    row = tf.repeat(tf.range(shape[0]), shape[1])
    columns = {
        "answer": text.substrings(passages.context, row, start, end),
        "start": text.character_offsets(passages.context, row, start),
        "end": text.character_offsets(passages.context, row, end),
        "start_byte": start,
        "end_byte": end,
    }
    return {name: tf.reshape(x, shape) for name, x in columns.items()}
