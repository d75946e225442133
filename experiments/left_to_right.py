# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The left-to-right models of the paper's ablation (section 5.1), as encoder classes.

    training.pretrain(options, encoder_class=LeftToRightBackbone)

In the left-to-right model, a token attends to itself and to the tokens before it, and
predicts the next token. The paper adds a BiLSTM on top of it in fine-tuning only. With
`LEFT_TO_RIGHT`, the options of its pre-training, it predicts all tokens of a row from
rows without [MASK].

Letters: B batch, S sequence, H hidden, Q sequences in a row.
"""

from __future__ import annotations

import types

import keras
from keras import ops

from bert_tf.modeling import BertBackbone, BertConfig

LEFT_TO_RIGHT = types.MappingProxyType(
    {
        "mask_selection_rate": 1.0,
        "mask_token_rate": 0.0,
        "random_token_rate": 0.0,
        "next_sentence_prediction": False,
    }
)


class CausalMask(keras.layers.Layer):
    """Attention mask [B, S] or [B, S, S] -> the same without later tokens [B, S, S]."""

    def call(self, mask):
        positions = ops.arange(ops.shape(mask)[1])
        mask = mask if len(mask.shape) == 3 else mask[:, None]
        return ops.logical_and(mask, positions[:, None] >= positions)


@keras.saving.register_keras_serializable(package="experiments")
class LeftToRightBackbone(BertBackbone):
    """An encoder in which tokens attend to the left; [SEP], the last, is pooled."""

    prediction_offset = -1  # The state before a token predicts it.

    def encode(self, token_ids, segment_ids, attention_mask, position_ids=None):
        mask = CausalMask(name="causal_mask")(attention_mask)
        return super().encode(token_ids, segment_ids, mask, position_ids)

    def pool(self, x, attention_mask, first_positions=None):
        if first_positions is None:
            last = ops.sum(ops.cast(attention_mask != 0, "int32"), axis=1) - 1
            last = ops.maximum(last, 0)[:, None, None]  # [B, 1, 1]
            return ops.take_along_axis(x, last, axis=1)[:, 0]
        return super().pool(x, attention_mask, first_positions)  # Not trained.


@keras.saving.register_keras_serializable(package="experiments")
class LeftToRightBiLstmBackbone(LeftToRightBackbone):
    """`LeftToRightBackbone` with a BiLSTM of H / 2 units per direction on top.

    For fine-tuning, with one sequence per row.
    """

    def __init__(self, config, *, dtype=None, **kwargs):
        units = BertConfig.from_dict(config).hidden_dim // 2
        lstm = keras.layers.LSTM(units, return_sequences=True, dtype="float32")
        self.bilstm = keras.layers.Bidirectional(lstm, dtype="float32", name="bilstm")
        super().__init__(config, dtype=dtype, **kwargs)

    def encode(self, token_ids, segment_ids, attention_mask, position_ids=None):
        inputs = token_ids, segment_ids, attention_mask, position_ids
        *states, x = super().encode(*inputs)
        is_token = ops.cast(attention_mask != 0, "bool")
        return [*states, self.bilstm(x, mask=is_token)]
