# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The feature-based approach to tagging (paper, section 5.3), as a Keras model.

Letters: B batch, S sequence, H hidden, C tags; K layers that make the features.
"""

from __future__ import annotations

import keras
from keras import ops

from bert_tf.modeling.backbone import BertBackbone
from bert_tf.modeling.backend import Dropout
from bert_tf.modeling.config import FEATURES
from bert_tf.modeling.keras_model import BertModel, EncoderModel


class FrozenEncoder(EncoderModel):
    """Activations of some layers of an encoder that is not trained, without dropout.

    Args:
        backbone: The encoder.
        feature_set: One of `FEATURES`.

    Inputs: those of the backbone. Outputs: [B, S, K, H] float32.

    Raises:
        ValueError: `feature_set` is unknown, or needs more layers than the encoder has.
    """

    def __init__(self, backbone: BertBackbone, feature_set: str, **kwargs):
        if feature_set not in FEATURES:
            raise ValueError(
                f"`feature_set` must be one of {', '.join(FEATURES)}. "
                f"Received: feature_set={feature_set!r}"
            )
        num_layers = backbone.config.num_layers
        if feature_set.endswith("last_four") and num_layers < 4:
            raise ValueError(
                f"The feature set {feature_set} needs an encoder with at least four "
                f"layers. Received: num_layers={num_layers}"
            )
        layers = backbone.hidden_states[FEATURES[feature_set]]
        states = ops.cast(ops.stack(layers, axis=2), "float32")
        states = ops.stop_gradient(states)
        super().__init__(inputs=backbone.input, outputs=states, **kwargs)
        self.backbone = backbone

    def _unused_layers(self):
        return (self.backbone,)

    def call(self, inputs, training=None, mask=None):
        return super().call(inputs, training=False)


@keras.saving.register_keras_serializable(package="bert_tf")
class CombineLayers(keras.layers.Layer):
    """Combines K layers into one vector per token: [B, S, K, H] -> [B, S, F].

    Args:
        feature_set: One of `FEATURES`. `weighted_sum...` adds the layers with learned
            weights, F = H. The others concatenate them, F = K * H.
    """

    def __init__(self, feature_set: str, **kwargs):
        super().__init__(**kwargs)
        self.feature_set = feature_set
        self._is_sum = feature_set.startswith("weighted_sum")

    def build(self, input_shape):
        if self._is_sum:
            self.layer_logits = self.add_weight(
                name="layer_logits", shape=(input_shape[2],), initializer="zeros"
            )

    def call(self, layers):
        if self._is_sum:
            return ops.einsum("bskh,k->bsh", layers, ops.softmax(self.layer_logits))
        batch, length = ops.shape(layers)[:2]
        return ops.reshape(layers, (batch, length, layers.shape[2] * layers.shape[3]))

    def get_config(self):
        return super().get_config() | {"feature_set": self.feature_set}


@keras.saving.register_keras_serializable(package="bert_tf")
class FeatureTagger(BertModel):
    """Two bidirectional LSTM layers and a dense layer on features of a frozen encoder.

    Args:
        backbone: The encoder.
        num_tags: C.
        feature_set: One of `FEATURES`, the rows of table 7.
        units: Size of each direction of each LSTM layer.

    Inputs: those of the backbone. Outputs: logits [B, S, C] float32.
    """

    kind = "feature tagging"  # Checkpoints have none.
    _arguments = ("num_tags", "feature_set", "units")

    def __init__(
        self,
        backbone: BertBackbone,
        num_tags: int,
        feature_set: str,
        units: int = 768,
        **kwargs,
    ):
        encoder = FrozenEncoder(backbone, feature_set, name="encoder")
        combine = CombineLayers(feature_set, dtype="float32", name="combine_layers")
        x = combine(encoder(backbone.input))
        mask = ops.cast(backbone.input["padding_mask"], "bool")
        rate = backbone.config.dropout
        for name in ("lstm_0", "lstm_1"):
            lstm = keras.layers.LSTM(
                units, return_sequences=True, dtype="float32", name="lstm"
            )
            lstm = keras.layers.Bidirectional(lstm, dtype="float32", name=name)
            x = lstm(Dropout(rate, dtype="float32")(x), mask=mask)
        x = Dropout(rate, dtype="float32")(x)
        logits = keras.layers.Dense(num_tags, dtype="float32", name="tag_logits")(x)
        super().__init__(inputs=backbone.input, outputs=logits, **kwargs)
        self.backbone = backbone
        self.num_tags, self.feature_set, self.units = num_tags, feature_set, units

    def _unused_layers(self):
        return (self.backbone,)
