# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Classification and regression of texts or pairs.

Signatures, for N texts and C classes:

    serving_default  text [N], or text_a, text_b [N] -> label [N] string, probabilities
                     and logits [N, C] float32 in the order of the labels; or, if
                     several labels can be right, labels [N, L] string, those with a
                     probability above their threshold padded with "", their independent
                     probabilities and logits; or score [N] float32
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras

from bert_tf import text
from bert_tf.heads.head import Head
from bert_tf.heads.signatures import class_probabilities, string_input
from bert_tf.lazy import lazy_import
from bert_tf.modeling import BertBackbone, BertModel, Dropout, dense_layer

tf = lazy_import("tensorflow")


def output_layer(
    backbone: BertBackbone, x: keras.KerasTensor, units: int
) -> keras.KerasTensor:
    """Applies dropout and the dense layer `logits` to an output of the backbone."""
    config, dtype = backbone.config, backbone.embeddings.dtype_policy
    x = Dropout(config.head_dropout, dtype=dtype, name="dropout")(x)
    return dense_layer(config, units, "logits", "float32")(x)


@keras.saving.register_keras_serializable(package="bert_tf")
class WeightedBinaryCrossentropy(keras.losses.BinaryCrossentropy):
    """Binary cross-entropy of C labels, whose sample weights may be [B] or [B, C]."""

    def __call__(self, y_true, y_pred, sample_weight=None):
        if sample_weight is not None and len(sample_weight.shape) > 1:
            y_true, y_pred = y_true[..., None], y_pred[..., None]
        return super().__call__(y_true, y_pred, sample_weight)


@keras.saving.register_keras_serializable(package="bert_tf")
class SequenceClassifier(BertModel):
    """`BertBackbone` with dropout and a dense layer over the pooled output.

    Args:
        backbone: The encoder.
        num_classes: C. With 1, the model is a regression: its logit is the score, its
            loss the squared error.
        multi_label: Whether the classes are C independent labels: targets are 0 or 1
            for each [B, C], and the loss is binary cross-entropy.

    Inputs: those of the backbone. Outputs: logits [B, C] float32.

    Example:

    ```python
    model = SequenceClassifier(BertBackbone(config), num_classes=2)
    model.compile(AdamW(learning_rate=5e-5))
    ```
    """

    _arguments = ("num_classes", "multi_label")

    def __init__(
        self,
        backbone: BertBackbone,
        num_classes: int,
        multi_label: bool = False,
        **kwargs,
    ):
        pooled = backbone(backbone.input)["pooled_output"]  # [B, H]
        logits = output_layer(backbone, pooled, num_classes)
        super().__init__(inputs=backbone.input, outputs=logits, **kwargs)
        self.backbone = backbone
        self.num_classes, self.multi_label = num_classes, multi_label

    def _losses_and_metrics(self):
        if self.multi_label:
            return {"loss": WeightedBinaryCrossentropy(from_logits=True)}
        if self.num_classes == 1:
            return {"loss": keras.losses.MeanSquaredError()}
        return super()._losses_and_metrics()


class ClassificationHead(Head):
    """Settings: `labels` and `problem`, `"classification"` or `"multi_label"`; or the
    problem `"regression"`. `activation`: that of the score; with labels, the one that a
    cross-encoder of sentence-transformers applies. `pairs`: whether a text is a pair.
    Decision: `thresholds` of the labels (0.5 by default).

    Option: `long_text` of `tasks.classification`.
    """

    kind = "classification"
    model_class = SequenceClassifier
    google_scope = ""

    @classmethod
    def arguments(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        arguments = {"num_classes": len(settings.get("labels", ())) or 1}
        if settings.get("problem") == "multi_label":
            arguments["multi_label"] = True
        return arguments

    @classmethod
    def declare(cls, outputs, *, problem=None, activation=None, **labels):
        head = super().declare(outputs, **labels)
        if problem == "multi_label":
            return {**head, "problem": problem}
        if problem == "regression" or len(head["labels"]) == 1:
            if (outputs or 1) > 1:
                raise ValueError(
                    "a regression must have one score; several scores are not "
                    f"supported. Received: problem={problem}, {outputs} outputs. "
                    "bert_tf.convert --head=encoder keeps its encoder."
                )
            if problem == "classification" or activation == "softmax":
                raise ValueError(
                    "a single output must be a score, because the probability of a "
                    "single class is always 1. Received: "
                    f"problem={problem}, activation={activation}"
                )
            head = {"kind": cls.kind, "problem": "regression"}
            is_linear = activation in (None, "linear")
            return head if is_linear else {**head, "activation": activation}
        if activation == "sigmoid":
            return {**head, "problem": "multi_label"}
        if activation not in (None, "linear", "softmax"):
            raise ValueError(
                "the activation of several labels must be linear, softmax or sigmoid. "
                f"Received: {activation}"
            )
        return head

    @property
    def inputs(self):
        names = ("text_a", "text_b") if self.settings.get("pairs") else ("text",)
        return [*map(string_input, names)]

    def encode(self, *texts: Any) -> text.Rows:
        """Returns the rows of texts or pairs, or the windows of texts."""
        if not self.options.get("long_text", "").startswith("window"):
            return super().encode(*texts)
        pieces = self.tokenizer.tokenize(*texts)
        limit = self.options["max_sequence_length"]
        return text.cut_windows(self.tokenizer, pieces, limit)

    def pool(self, logits: tf.Tensor, source: tf.Tensor) -> tf.Tensor:
        """Pools logits of windows [W, C] over each text [N, C].

        Args:
            logits: Logits of the windows, in the order of the texts.
            source: Index of the text of each window [W].
        """
        if self.options.get("long_text") == "window_max":
            return tf.math.segment_max(logits, source)
        return tf.math.segment_mean(logits, source)

    def predictions(self, logits: tf.Tensor) -> tf.Tensor:
        """Returns scores or class indices [N], or which labels are right [N, L]."""
        if not self.settings.get("labels"):
            activation = keras.activations.get(self.settings.get("activation"))
            return activation(logits[:, 0])
        if self.settings.get("problem") != "multi_label":
            return tf.argmax(logits, axis=1)
        thresholds = self.settings.get("thresholds", 0.5)
        return tf.sigmoid(logits) > tf.constant(thresholds, logits.dtype)

    def answers(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the outputs of `serving_default` for logits [N, C]."""
        if not (labels := self.settings.get("labels")):
            return {"score": self.predictions(logits)}
        if self.settings.get("problem") != "multi_label":
            return class_probabilities(logits, labels)
        row, label = tf.unstack(tf.where(self.predictions(logits)), axis=1)
        count = tf.shape(logits, out_type=tf.int64)[0]
        chosen = tf.RaggedTensor.from_value_rowids(
            tf.gather(tf.constant(labels), label), row, count, validate=False
        )
        answers = {"labels": chosen.to_tensor(), "probabilities": tf.sigmoid(logits)}
        return {**answers, "logits": logits}

    def run(self, model, *texts):
        rows = self.encode(*texts)
        if not isinstance(rows, text.Windows):
            return self.answers(model(rows.inputs(), training=False))
        size = len(self.settings.get("labels", ())) or 1
        logits = rows.map(
            lambda part: model(part.inputs(), training=False),
            tf.TensorSpec([None, size]),
        )
        return self.answers(self.pool(logits, rows.row))
