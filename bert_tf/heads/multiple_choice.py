# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Multiple choice.

Signature, for N prompts and C choices:

    serving_default  prompt [N], choices [N, C] -> choice [N] int32, the index of the
                     best one, and probabilities [N, C] float32. Any C > 0. A blank
                     string is a missing choice; its probability is 0. The choice is -1
                     if all are missing. Inputs of `ids` are [N, C, S].
"""

from __future__ import annotations

import keras
from keras import ops

from bert_tf.heads.classification import output_layer
from bert_tf.heads.head import Head
from bert_tf.heads.signatures import string_input, with_equal_rows
from bert_tf.lazy import lazy_import
from bert_tf.modeling import MASKED_SCORE, BertBackbone, BertModel
from bert_tf.text import Rows

tf = lazy_import("tensorflow")

# What `str.strip` removes from a choice.
_BLANK = r"[\s\v\x1c-\x1f\x{85}\pZ]*"


@keras.saving.register_keras_serializable(package="bert_tf")
class FlattenChoices(keras.layers.Layer):
    """[B, C, S] -> [B * C, S]."""

    def call(self, x):
        return ops.reshape(x, (-1, ops.shape(x)[2]))


@keras.saving.register_keras_serializable(package="bert_tf")
class UnflattenChoices(keras.layers.Layer):
    """Scores [B * C, 1] and padding_mask [B, C, S] -> logits [B, C].

    Logits of choices without any token, which pad the batch, are `MASKED_SCORE`.
    """

    def call(self, scores, padding_mask):
        exists = padding_mask[:, :, 0] != 0
        return ops.where(exists, ops.reshape(scores, ops.shape(exists)), MASKED_SCORE)


@keras.saving.register_keras_serializable(package="bert_tf")
class ChoiceScorer(BertModel):
    """`BertBackbone` with dropout and one vector that scores every choice.

    Args:
        backbone: The encoder.

    Inputs: those of the backbone, but [B, C, S], C sequences of prompt and choice.
    A sequence without tokens is a missing choice. Outputs: logits [B, C] float32.

    Example:

    ```python
    model = ChoiceScorer(BertBackbone(config))
    model.compile(AdamW(learning_rate=2e-5))
    ```
    """

    def __init__(self, backbone: BertBackbone, **kwargs):
        inputs = {
            name: keras.Input((None, None), dtype="int32", name=name)
            for name in backbone.input
        }
        flatten = FlattenChoices(name="flatten")
        sequences = {name: flatten(x) for name, x in inputs.items()}  # [B * C, S]
        pooled = backbone(sequences)["pooled_output"]  # [B * C, H]
        # The bias does not change the softmax over choices, but the heads of other
        # libraries, whose weights we load, have one.
        scores = output_layer(backbone, pooled, 1)
        unflatten = UnflattenChoices(dtype="float32", name="unflatten")
        logits = unflatten(scores, inputs["padding_mask"])
        super().__init__(inputs=inputs, outputs=logits, **kwargs)
        self.backbone = backbone


class MultipleChoiceHead(Head):
    """Has no settings of its own."""

    kind = "multiple_choice"
    model_class = ChoiceScorer
    num_outputs = 1

    @property
    def inputs(self):
        choices = tf.TensorSpec([None, None], tf.string, "choices")
        return [string_input("prompt"), choices]

    def encode(self, prompt: tf.Tensor, choices: tf.Tensor) -> Rows:
        """Encodes `prompt` [N] with each of `choices` [N, C], as N examples of C rows.

        The row of a blank choice is missing: it has no tokens.
        """
        message = "`choices` must have shape [N, C], C > 0, for `prompt` of shape [N]."
        choices = with_equal_rows(prompt, choices, message)
        is_choice = tf.debugging.assert_positive(tf.shape(choices)[1], message)
        with tf.control_dependencies([is_choice]):
            shape = tf.shape(choices)
        rows = super().encode(tf.repeat(prompt, shape[1]), tf.reshape(choices, [-1]))
        exists = ~tf.strings.regex_full_match(choices, _BLANK)
        return rows.map_columns(lambda x: tf.where(exists, tf.reshape(x, shape), 0))

    def answers(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the outputs of `serving_default` for logits [N, C]."""
        exists = logits > MASKED_SCORE / 2
        best = tf.argmax(logits, axis=1, output_type=tf.int32)
        return {
            "choice": tf.where(tf.reduce_any(exists, axis=1), best, -1),
            "probabilities": tf.where(exists, tf.nn.softmax(logits), 0.0),
        }
