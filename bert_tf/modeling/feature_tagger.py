# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The feature-based approach to tagging (paper, section 5.3), as Keras models.

Inputs: `token_ids`, `segment_ids`, `padding_mask` [B, S] int32. Outputs: logits
[B, S, C]. The encoder is frozen; a BiLSTM is trained on its activations.

Letters: B batch, S sequence, H hidden, C tags; K layers that make the features.
"""

from __future__ import annotations

import keras
from keras import ops

from bert_tf.modeling import fused
from bert_tf.modeling.bert import BertBackbone
from bert_tf.modeling.config import FEATURES
from bert_tf.modeling.keras_model import cross_entropies


class FrozenEncoder(keras.Model):
    """Activations of some layers of a frozen encoder.

    Args:
        backbone: The encoder. Sets its `trainable` to False.
        feature_set: One of `FEATURES`.

    Inputs: those of the backbone. Outputs: `features` [B, S, K, H] float32, K layers,
    and `pooled_output`, so that all weights of the encoder belong to the model.

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

        # === Functional model ===
        chosen = range(num_layers + 1)[FEATURES[feature_set]]
        states = ops.stack([backbone.hidden_states[layer] for layer in chosen], axis=2)
        outputs = {
            "features": ops.cast(states, "float32"),
            "pooled_output": backbone.output["pooled_output"],
        }
        super().__init__(inputs=backbone.input, outputs=outputs, **kwargs)

        # === Attributes ===
        self.feature_set = feature_set
        self.chosen = chosen
        backbone.trainable = False


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


class BiLstmTagger(keras.Model):
    """Two bidirectional LSTM layers and a dense layer on features of tokens.

    Args:
        shape: (K, H), number of layers and hidden size.
        num_tags: C.
        feature_set: One of `FEATURES`, see `CombineLayers`.
        units: Size of each direction of each LSTM layer.
        dropout: Dropout rate before each LSTM layer and the dense layer.

    Inputs: `features` [B, S, K, H] float32, `padding_mask` [B, S] int32.
    Outputs: logits [B, S, C] float32.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        num_tags: int,
        feature_set: str,
        units: int,
        dropout: float,
        **kwargs,
    ):
        inputs = {
            "features": keras.Input((None, *shape), name="features"),
            "padding_mask": keras.Input((None,), dtype="int32", name="padding_mask"),
        }
        mask = ops.cast(inputs["padding_mask"], "bool")
        x = CombineLayers(feature_set, dtype="float32")(inputs["features"])
        for _ in range(2):
            lstm = keras.layers.LSTM(units, return_sequences=True, dtype="float32")
            x = fused.Dropout(dropout, dtype="float32")(x)
            x = keras.layers.Bidirectional(lstm, dtype="float32")(x, mask=mask)
        x = fused.Dropout(dropout, dtype="float32")(x)
        logits = keras.layers.Dense(num_tags, dtype="float32", name="tag_logits")(x)
        super().__init__(inputs=inputs, outputs=logits, **kwargs)

    def compile(self, optimizer, **kwargs):
        """Like `BertModel.compile`."""
        super().compile(optimizer, **(cross_entropies(self.output) | kwargs))


class FeatureTagger(keras.Model):
    """A frozen encoder and a `BiLstmTagger` on its activations (paper, section 5.3).

    Args:
        backbone: The encoder.
        num_tags: C.
        feature_set: One of `FEATURES`, the rows of table 7.
        units: Size of each direction of each LSTM layer.

    Inputs: those of the backbone. Outputs: logits [B, S, C] float32. To train the
    model, fit `tagger` on the outputs of `encoder`, computed once.
    """

    def __init__(
        self, backbone: BertBackbone, num_tags: int, feature_set: str, units: int = 768
    ):
        # === Layers ===
        encoder = FrozenEncoder(backbone, feature_set, name="encoder")
        shape = encoder.output["features"].shape[2:]
        rate = backbone.config.dropout
        tagger = BiLstmTagger(shape, num_tags, feature_set, units, rate, name="tagger")

        # === Functional model ===
        encoded = encoder(backbone.input)["features"]
        logits = tagger(
            {"features": encoded, "padding_mask": backbone.input["padding_mask"]}
        )
        super().__init__(inputs=backbone.input, outputs=logits)

        # === Attributes ===
        self.backbone = backbone
        self.encoder = encoder
        self.tagger = tagger
