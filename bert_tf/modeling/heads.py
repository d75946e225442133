# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Task heads (paper, figure 4): Keras models on an encoder.

Inputs: `token_ids`, `segment_ids`, `padding_mask` [B, S] int32. Outputs: logits for the
whole sequence, for each of several choices, for each token as the start or end of a
span, or for the tag of each token. The feature-based tagger is in `feature_tagger`.

Letters: B batch, S sequence, H hidden, C classes, choices or tags.
"""

from __future__ import annotations

import keras
from keras import ops

from bert_tf.modeling.backbone import BertBackbone
from bert_tf.modeling.backend import Dropout
from bert_tf.modeling.config import MASKED_SCORE
from bert_tf.modeling.keras_model import BertModel


def _logits(
    backbone: BertBackbone, x: keras.KerasTensor, units: int, *, dropout: bool = True
) -> keras.KerasTensor:
    """Applies dropout and a dense layer to an output of the backbone."""
    config = backbone.config
    if dropout:
        dtype = backbone.embeddings.dtype_policy
        x = Dropout(config.dropout, dtype=dtype, name="dropout")(x)
    return keras.layers.Dense(
        units,
        kernel_initializer=keras.initializers.TruncatedNormal(
            stddev=config.initializer_range
        ),
        dtype="float32",
        name="logits",
    )(x)


# --- The whole sequence ----------------------------------------------------------


@keras.saving.register_keras_serializable(package="bert_tf")
class SequenceClassifier(BertModel):
    """`BertBackbone` with dropout and a dense layer over the pooled output.

    Args:
        backbone: The encoder.
        num_classes: C. With 1, the model is a regression: its logit is the score, its
            loss the squared error.

    Inputs: those of the backbone. Outputs: logits [B, C] float32.

    Example:

    ```python
    model = SequenceClassifier(BertBackbone(config), num_classes=2)
    model.compile(AdamW(learning_rate=5e-5))
    ```
    """

    kind = "classification"
    _arguments = ("num_classes",)

    def __init__(self, backbone: BertBackbone, num_classes: int, **kwargs):
        pooled = backbone(backbone.input)["pooled_output"]  # [B, H]
        logits = _logits(backbone, pooled, num_classes)
        super().__init__(inputs=backbone.input, outputs=logits, **kwargs)
        self.backbone = backbone
        self.num_classes = num_classes

    def _losses_and_metrics(self):
        if self.num_classes == 1:
            return {"loss": keras.losses.MeanSquaredError()}
        return super()._losses_and_metrics()


# --- Choices ---------------------------------------------------------------------


@keras.saving.register_keras_serializable(package="bert_tf")
class FlattenChoices(keras.layers.Layer):
    """[B, C, S] -> [B * C, S]."""

    def call(self, x):
        return ops.reshape(x, (-1, ops.shape(x)[2]))

    def compute_output_shape(self, x_shape):
        return (None, x_shape[2])


@keras.saving.register_keras_serializable(package="bert_tf")
class UnflattenChoices(keras.layers.Layer):
    """Scores [B * C, 1] and padding_mask [B, C, S] -> logits [B, C].

    Logits of choices without any token, which pad the batch, are `MASKED_SCORE`.
    """

    def call(self, scores, padding_mask):
        exists = padding_mask[:, :, 0] != 0
        return ops.where(exists, ops.reshape(scores, ops.shape(exists)), MASKED_SCORE)

    def compute_output_shape(self, scores_shape, padding_mask_shape):
        return padding_mask_shape[:2]


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

    kind = "multiple_choice"

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
        scores = _logits(backbone, pooled, 1)
        unflatten = UnflattenChoices(dtype="float32", name="unflatten")
        logits = unflatten(scores, inputs["padding_mask"])
        super().__init__(inputs=inputs, outputs=logits, **kwargs)
        self.backbone = backbone


# --- Tokens ----------------------------------------------------------------------


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

    kind = "question_answering"

    def __init__(self, backbone: BertBackbone, **kwargs):
        hidden = backbone(backbone.input)["sequence_output"]  # [B, S, H]
        scores = _logits(backbone, hidden, 2, dropout=False)  # [B, S, 2]
        is_token = ops.expand_dims(backbone.input["padding_mask"], -1) != 0
        scores = ops.where(is_token, scores, MASKED_SCORE)
        super().__init__(
            inputs=backbone.input,
            outputs={"start_logits": scores[:, :, 0], "end_logits": scores[:, :, 1]},
            **kwargs,
        )
        self.backbone = backbone

    def _unused_layers(self):
        return (self.backbone.pooler,)

    def _losses_and_metrics(self):
        return {
            "loss": super()._losses_and_metrics()["loss"],
            "loss_weights": dict.fromkeys(self.output, 0.5),
        }


@keras.saving.register_keras_serializable(package="bert_tf")
class TokenClassifier(BertModel):
    """`BertBackbone` with dropout and a dense layer over every token.

    Args:
        backbone: The encoder. Its pooler is not used and not trained.
        num_tags: C.

    Inputs: those of the backbone. Outputs: logits [B, S, C] float32.

    Example:

    ```python
    model = TokenClassifier(BertBackbone(config), num_tags=9)
    model.compile(AdamW(learning_rate=5e-5))
    ```
    """

    kind = "tagging"
    _arguments = ("num_tags",)

    def __init__(self, backbone: BertBackbone, num_tags: int, **kwargs):
        hidden = backbone(backbone.input)["sequence_output"]  # [B, S, H]
        logits = _logits(backbone, hidden, num_tags)
        super().__init__(inputs=backbone.input, outputs=logits, **kwargs)
        self.backbone = backbone
        self.num_tags = num_tags

    def _unused_layers(self):
        return (self.backbone.pooler,)
