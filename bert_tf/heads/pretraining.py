# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Pre-trained models.

Beside the signatures of their encoder, pre-trained models have, for N texts with up to
M masks,

    serving_default  text [N] -> tokens [N, M, 5] string, scores [N, M, 5] float32: the
                     five most probable tokens of each [MASK] and their probabilities;
                     "" and 0 for texts with fewer than M masks
    next_sentence    text_a, text_b [N] -> label [N] string, `next` or `random`, and
                     probabilities, logits [N, 2] float32

Without a masked-LM head, `next_sentence` is their `serving_default`.

Letters: S sequence, H hidden, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from bert_tf.heads.encoder import EncoderHead
from bert_tf.heads.signatures import (
    Signature,
    class_probabilities,
    signature,
    string_input,
)
from bert_tf.lazy import lazy_import
from bert_tf.modeling import BertPretrainer

tf = lazy_import("tensorflow")

_TOP_K = 5  # Predicted tokens for each [MASK].


class PretrainerHead(EncoderHead):
    """Settings: `newly_initialized`, the heads that are not trained, `mlm` or `nsp`."""

    kind = "pretrainer"
    model_class = BertPretrainer
    layers = ("pooler", "mlm", "nsp")

    def signatures(self, model, trained=None):
        signatures = super().signatures(model, trained)
        untrained = self.settings.get("newly_initialized", ())

        @signature(string_input("text_a"), string_input("text_b"))
        def next_sentence(text_a, text_b):
            inputs = self.encode(text_a, text_b).inputs()
            pooled = model(inputs, training=False)["pooled_output"]
            return class_probabilities(trained.nsp_head(pooled), ("next", "random"))

        if "nsp" not in untrained:
            signatures["serving_default"] = next_sentence
            signatures["next_sentence"] = next_sentence
        if "mlm" not in untrained:
            signatures["serving_default"] = self._fill_mask(model, trained.mlm_head)
        return signatures

    def _fill_mask(
        self, encoder: Callable[..., Any], mlm_head: keras.layers.Layer
    ) -> Signature:
        vocabulary = self.tokenizer.vocabulary

        @signature(string_input("text"))
        def fill_mask(text):
            inputs = self.encode(text, allow_mask=True).inputs()
            hidden = encoder(inputs, training=False)["sequence_output"]  # [N, S, H]
            # The head runs on the K masks of all rows as one row, without padding.
            masks = tf.where(inputs["token_ids"] == vocabulary.mask_id)  # [K, 2]
            rows, positions = tf.unstack(tf.cast(masks, tf.int32), axis=1)
            num_rows, length = tf.unstack(tf.shape(inputs["token_ids"]))
            logits = mlm_head(
                tf.reshape(hidden, [1, num_rows * length, hidden.shape[-1]]),
                (rows * length + positions)[tf.newaxis],
            )[0]  # [K, V]
            scores, token_ids = tf.math.top_k(
                tf.nn.softmax(logits), min(_TOP_K, vocabulary.size)
            )
            tokens = tf.gather(tf.constant(vocabulary.tokens), token_ids)

            def group_by_row(values):  # [K, 5] -> [N, M, 5]
                return tf.RaggedTensor.from_value_rowids(
                    values, rows, nrows=num_rows, validate=False
                ).to_tensor()

            return {"tokens": group_by_row(tokens), "scores": group_by_row(scores)}

        return fill_mask
