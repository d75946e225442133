# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""What stands on the encoder for a task (paper, figure 4), as Keras models.

In: `token_ids`, `segment_ids`, `padding_mask` [B, S] int32. Out: logits, for the whole
sequence, each of several choices, or each token as an end of a span. Models that tag
the tokens are in `bert_tf.taggers`.

Letters: B batch, S sequence, H hidden, C classes or choices.
"""

from __future__ import annotations

import keras
from keras import ops

from bert_tf.model import BertBackbone
from bert_tf.passages import NO_SCORE

# The logit of a choice that there is not. Finite, so that nothing becomes NaN.
_NO_CHOICE = -1e9

# --- The whole sequence ----------------------------------------------------------


@keras.saving.register_keras_serializable(package="bert_tf")
class SequenceClassifier(keras.Model):
    """`BertBackbone` with dropout and a dense layer over the pooled output.

    Args:
        backbone: The encoder.
        num_classes: C; 1 makes a regression, whose logit is the score.

    Inputs: those of the backbone. Outputs: logits [B, C] float32.

    Example:

    ```python
    model = SequenceClassifier(BertBackbone(config), num_classes=2)
    model.compile(AdamW(learning_rate=5e-5))
    ```
    """

    def __init__(self, backbone: BertBackbone, num_classes: int, **kwargs):
        # === Layers ===
        dropout = keras.layers.Dropout(
            backbone.config.dropout, dtype=backbone.pooler.dtype_policy, name="dropout"
        )
        logits = keras.layers.Dense(
            num_classes,
            kernel_initializer=keras.initializers.TruncatedNormal(
                stddev=backbone.config.initializer_range
            ),
            dtype="float32",
            name="logits",
        )

        # === Functional model ===
        pooled = backbone(backbone.input)["pooled_output"]  # [B, H]
        super().__init__(
            inputs=backbone.input, outputs=logits(dropout(pooled)), **kwargs
        )

        # === Attributes ===
        self.backbone = backbone
        self.num_classes = num_classes

    def compile(self, optimizer, **kwargs):
        """`keras.Model.compile` with the loss and metric of the problem as defaults.

        The loss is a weighted *sum*; weights that sum to one make it a mean, on any
        number of replicas.
        """
        if self.num_classes == 1:
            loss = keras.losses.MeanSquaredError(reduction="sum")
            metrics = []
        else:
            loss = keras.losses.SparseCategoricalCrossentropy(
                from_logits=True, reduction="sum"
            )
            metrics = [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]
        defaults = {"loss": loss, "weighted_metrics": metrics}
        super().compile(optimizer, **(defaults | kwargs))

    def get_config(self):
        backbone = keras.saving.serialize_keras_object(self.backbone)
        return {
            "backbone": backbone,
            "num_classes": self.num_classes,
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        backbone = keras.saving.deserialize_keras_object(config.pop("backbone"))
        return cls(backbone, **config)


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

    A choice without tokens, not even [CLS], is none.
    """

    def call(self, scores, padding_mask):
        exists = padding_mask[:, :, 0] != 0
        return ops.where(exists, ops.reshape(scores, ops.shape(exists)), _NO_CHOICE)

    def compute_output_shape(self, scores_shape, padding_mask_shape):
        return padding_mask_shape[:2]


@keras.saving.register_keras_serializable(package="bert_tf")
class ChoiceScorer(keras.Model):
    """`BertBackbone` with dropout and one vector that scores every choice.

    Args:
        backbone: The encoder.

    Inputs: those of the backbone, but [B, C, S], C sequences of prompt and choice. One
    of padding alone is no choice. Outputs: logits [B, C] float32.

    Example:

    ```python
    model = ChoiceScorer(BertBackbone(config))
    model.compile(AdamW(learning_rate=2e-5))
    ```
    """

    def __init__(self, backbone: BertBackbone, **kwargs):
        # === Layers ===
        dropout = keras.layers.Dropout(
            backbone.config.dropout, dtype=backbone.pooler.dtype_policy, name="dropout"
        )
        logits = keras.layers.Dense(
            1,  # Its bias changes all choices alike; other people's heads have one.
            kernel_initializer=keras.initializers.TruncatedNormal(
                stddev=backbone.config.initializer_range
            ),
            dtype="float32",
            name="logits",
        )

        # === Functional model ===
        inputs = {
            name: keras.Input((None, None), dtype="int32", name=name)
            for name in backbone.input
        }
        flatten = FlattenChoices(name="flatten")
        sequences = {name: flatten(x) for name, x in inputs.items()}  # [B * C, S]
        pooled = backbone(sequences)["pooled_output"]  # [B * C, H]
        unflatten = UnflattenChoices(dtype="float32", name="unflatten")
        outputs = unflatten(logits(dropout(pooled)), inputs["padding_mask"])
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)

        # === Attributes ===
        self.backbone = backbone

    def compile(self, optimizer, **kwargs):
        """`keras.Model.compile` with cross-entropy and accuracy as defaults.

        The loss is a weighted *sum*; weights that sum to one make it a mean, on any
        number of replicas.
        """
        loss = keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction="sum"
        )
        metrics = [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]
        defaults = {"loss": loss, "weighted_metrics": metrics}
        super().compile(optimizer, **(defaults | kwargs))

    def get_config(self):
        backbone = keras.saving.serialize_keras_object(self.backbone)
        return {"backbone": backbone, "name": self.name}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        backbone = keras.saving.deserialize_keras_object(config.pop("backbone"))
        return cls(backbone, **config)


# --- Spans -----------------------------------------------------------------------


@keras.saving.register_keras_serializable(package="bert_tf")
class SpanPredictor(keras.Model):
    """`BertBackbone` with a start vector and an end vector (paper, section 4.2).

    Args:
        backbone: The encoder.

    Inputs: those of the backbone. Outputs: `start_logits` and `end_logits` [B, S]
    float32, the scores of each token as the first and the last one of the answer;
    -1e9 for padding.

    Example:

    ```python
    model = SpanPredictor(BertBackbone(config))
    model.compile(AdamW(learning_rate=5e-5))
    ```
    """

    def __init__(self, backbone: BertBackbone, **kwargs):
        # === Layers ===
        logits = keras.layers.Dense(
            2,
            kernel_initializer=keras.initializers.TruncatedNormal(
                stddev=backbone.config.initializer_range
            ),
            dtype="float32",
            name="logits",
        )

        # === Functional model ===
        hidden = backbone(backbone.input)["sequence_output"]  # [B, S, H]
        is_token = ops.expand_dims(backbone.input["padding_mask"], -1) != 0
        scores = ops.where(is_token, logits(hidden), NO_SCORE)  # [B, S, 2]
        super().__init__(
            inputs=backbone.input,
            outputs={"start_logits": scores[:, :, 0], "end_logits": scores[:, :, 1]},
            **kwargs,
        )

        # === Attributes ===
        self.backbone = backbone
        backbone.pooler.trainable = False  # It is not used.

    def compile(self, optimizer, **kwargs):
        """`keras.Model.compile` with the mean of both cross-entropies as the loss.

        The loss is a weighted *sum*; weights that sum to one make it a mean, on any
        number of replicas.
        """

        def loss() -> keras.losses.Loss:
            return keras.losses.SparseCategoricalCrossentropy(
                from_logits=True, reduction="sum"
            )

        defaults = {
            "loss": {"start_logits": loss(), "end_logits": loss()},
            "loss_weights": {"start_logits": 0.5, "end_logits": 0.5},
        }
        super().compile(optimizer, **(defaults | kwargs))

    def get_config(self):
        backbone = keras.saving.serialize_keras_object(self.backbone)
        return {"backbone": backbone, "name": self.name}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        backbone = keras.saving.deserialize_keras_object(config.pop("backbone"))
        return cls(backbone, **config)
