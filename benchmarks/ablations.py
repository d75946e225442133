# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The encoders of the paper's ablation study (section 5.1).

The left-to-right language model is BERT with a causal attention mask, pre-trained to
predict each token at the position before it. The BiLSTM is added on top of it in
fine-tuning. Both load the weights of a `BertBackbone` and are passed to
`bert_tf.training.pretrain` and `fine_tune` as `backbone_class`.

Letters: B batch, S sequence, H hidden.
"""

from __future__ import annotations

import keras
from keras import ops

from bert_tf.modeling import BertBackbone, BertConfig


class CausalMask(keras.layers.Layer):
    """Attention mask [B, S] or [B, S, S] -> the same without later tokens [B, S, S]."""

    def call(self, mask):
        length = ops.shape(mask)[1]
        position = ops.arange(length)
        is_left = ops.expand_dims(position, 0) <= ops.expand_dims(position, 1)  # [S, S]
        if len(mask.shape) == 2:
            mask = ops.expand_dims(mask, 1)
        return ops.logical_and(mask, ops.expand_dims(is_left, 0))

    def compute_output_spec(self, mask):
        batch, length = mask.shape[:2]
        return keras.KerasTensor((batch, length, length), dtype="bool")


class LeftToRightBackbone(BertBackbone):
    """`BertBackbone` in which a token attends to itself and to earlier tokens only.

    `pooled_output` is that of the last token, [SEP], which attends to all others.
    """

    def encode(self, token_ids, segment_ids, attention_mask, position_ids=None):
        mask = CausalMask(name="causal_mask")(attention_mask)
        return super().encode(token_ids, segment_ids, mask, position_ids)

    def pooled_token(self, x, padding_mask):
        is_token = ops.cast(padding_mask != 0, "int32")
        last = ops.maximum(ops.sum(is_token, axis=1, keepdims=True) - 1, 0)  # [B, 1]
        return ops.take_along_axis(x, ops.expand_dims(last, 2), axis=1)[:, 0]


# Weight files have groups named by class. A pre-trained model is read as a BERT.
LeftToRightBackbone.__name__ = "BertBackbone"


class LeftToRightBiLstmBackbone(LeftToRightBackbone):
    """`LeftToRightBackbone` with a bidirectional LSTM on the last layer.

    It takes one sequence per row. Each direction has half of the hidden size.
    """

    def __init__(self, config, *, dtype=None, **kwargs):
        units = BertConfig.from_dict(config).hidden_dim // 2
        lstm = keras.layers.LSTM(units, return_sequences=True, dtype=dtype, name="lstm")
        self.bilstm = keras.layers.Bidirectional(lstm, dtype=dtype, name="bilstm")
        super().__init__(config, dtype=dtype, **kwargs)

    def encode(self, token_ids, segment_ids, attention_mask, position_ids=None):
        *states, x = super().encode(
            token_ids, segment_ids, attention_mask, position_ids
        )
        is_token = attention_mask != 0
        x = self.bilstm(x, mask=is_token)
        # The product also drops the mask that Keras would pass on to the loss.
        x = x * ops.cast(ops.expand_dims(is_token, 2), x.dtype)
        return [*states, x]


# The encoder of fine-tuning, by the names of `paper.Row.encoder`.
ENCODERS: dict[str, type[BertBackbone]] = {
    "bert": BertBackbone,
    "left_to_right": LeftToRightBackbone,
    "left_to_right_bilstm": LeftToRightBiLstmBackbone,
}


def predict_next_token(x, y, sample_weight):
    """Moves each prediction of a batch of `pretrain_dataset` to the position before.

    The first token of a sequence, [CLS], is never predicted.
    """
    positions = ops.maximum(x["mask_positions"] - 1, 0)
    return x | {"mask_positions": positions}, y, sample_weight
