# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Pre-training: masked LM and next sentence prediction (paper, section 3.1).

Letters: B batch, S sequence, P masked positions, Q sequences packed into a row,
H hidden, V vocabulary.
"""

from __future__ import annotations

import keras
from keras import ops

from bert_tf.modeling import fused
from bert_tf.modeling.backbone import BertBackbone, BertModel
from bert_tf.modeling.backend import check_not_negative, custom_gradient, xla_fused
from bert_tf.modeling.bert import ConfiguredLayer, dense_layer, take_positions

# --- Inputs ----------------------------------------------------------------------


@keras.saving.register_keras_serializable(package="bert_tf")
class UnpackRows(keras.layers.Layer):
    """Keeps the Q sequences of a packed row apart.

    Inputs: padding_mask [B, S] int32, 1 for tokens and 0 for padding; first_positions
    [B, Q] int32, the column where each sequence begins, 0 for sequences that a row
    lacks.
    Outputs: attention_mask [B, S, S] bool, from tokens to those of the same sequence;
    position_ids [B, S] int32, from 0 in each sequence. If Q = 1, the outputs are the
    padding mask itself, which is cheaper, and the columns [1, S].
    """

    def call(self, padding_mask, first_positions):
        columns = ops.arange(ops.shape(padding_mask)[1], dtype="int32")[None]
        if first_positions.shape[1] == 1:
            return padding_mask, columns
        firsts = first_positions[:, None]  # [B, 1, Q]
        firsts = ops.where(firsts <= columns[:, :, None], firsts, 0)  # [B, S, Q]
        # The column where the sequence of each token begins, [B, S]; -1 for padding.
        starts = ops.where(padding_mask > 0, ops.max(firsts, axis=2), -1)
        # No token attends to padding, padding neither.
        keys = ops.where(padding_mask > 0, starts, -2)
        mask = ops.equal(starts[:, :, None], keys[:, None])
        return mask, columns - ops.maximum(starts, 0)


# --- Loss of masked LM -----------------------------------------------------------


@keras.saving.register_keras_serializable(package="bert_tf")
class MaskedLMLoss(keras.losses.Loss):
    """Cross-entropy of logits [..., V] with token ids [...].

    Equals `keras.losses.SparseCategoricalCrossentropy(from_logits=True)`, which makes
    several passes over the logits, the largest tensor of a small model, and keeps
    another tensor of their size.
    """

    def call(self, y_true, y_pred):
        token_ids = ops.cast(y_true, "int32")  # Keras casts labels to float.
        message = "Labels must be token ids. Ignore some by the sample weight 0."
        check_not_negative(token_ids, message)

        @custom_gradient
        def cross_entropy(logits):
            losses, normalizers = _cross_entropy(logits, token_ids)

            def gradient(d_losses):
                return _d_logits(logits, token_ids, normalizers, d_losses)

            return losses, gradient

        return cross_entropy(y_pred)


@xla_fused
def _cross_entropy(logits, token_ids):
    """Returns the losses and the log-sum-exp of the logits, both [...]."""
    label_logits = ops.where(_is_label(logits, token_ids), logits, 0.0)
    label_logits = ops.sum(label_logits, axis=-1)
    largest = ops.max(logits, axis=-1)
    exponentials = ops.exp(logits - largest[..., None])
    normalizers = largest + ops.log(ops.sum(exponentials, axis=-1))
    return normalizers - label_logits, normalizers


@xla_fused
def _d_logits(logits, token_ids, normalizers, d_losses):
    labels = ops.cast(_is_label(logits, token_ids), logits.dtype)
    probabilities = ops.exp(logits - normalizers[..., None])
    return (probabilities - labels) * d_losses[..., None]


def _is_label(logits, token_ids):
    """Returns the one-hot labels, [..., V] bool."""
    return token_ids[..., None] == ops.arange(logits.shape[-1], dtype="int32")


# --- Model -----------------------------------------------------------------------


class MaskedLMHead(ConfiguredLayer):
    """Predicts the masked tokens (paper, section 3.1, task 1).

    Inputs: sequence_output [B, S, H], mask_positions [B, P] int32. Output: logits
    [B, P, V] float32: dense, activation, LayerNorm, then the transposed token
    embedding plus a bias, as in google-research/bert. `offset` is the
    `prediction_offset` of the encoder.
    """

    def __init__(self, config, token_embedding, offset=0, **kwargs):
        super().__init__(config, **kwargs)
        self.offset = offset
        self.dense = self._dense(self.config.embedding_dim, "dense")
        self.layer_norm = self._layer_norm("layer_norm")
        self.token_embedding = token_embedding

    def build(self, sequence_output_shape, mask_positions_shape):
        self.dense.build((None, self.config.hidden_dim))
        self.layer_norm.build((None, self.config.embedding_dim))
        self.bias = self.add_weight(
            name="bias", shape=(self.config.vocabulary_size,), initializer="zeros"
        )

    def compute_mask(self, inputs, mask=None):
        return None

    def call(self, sequence_output, mask_positions, training=None):
        if self.offset:  # Unused predictions are at 0.
            mask_positions = ops.maximum(mask_positions + self.offset, 0)
        x = take_positions(sequence_output, mask_positions)
        batch, positions, hidden_dim = ops.shape(x)
        x = ops.reshape(x, (-1, hidden_dim))  # One matrix, as in `EncoderLayer`.
        name = self.config.family.masked_lm_activation or self.config.activation
        x = fused.dense_and_activation(x, self.dense, name, training)
        embeddings = ops.transpose(self.token_embedding.embeddings)
        logits = ops.matmul(self.layer_norm(x), embeddings)
        logits = ops.cast(logits, "float32") + ops.cast(self.bias, "float32")
        return ops.reshape(logits, (batch, positions, self.config.vocabulary_size))

    def get_config(self):
        raise NotImplementedError(
            "The masked-LM head shares weights with the encoder, so it can only be "
            "saved as a layer of `BertPretrainer`. Call the pre-trainer in the new "
            "model, not its layers: `keras.Model(m.input, new_layer(m(m.input)))`. "
            "To copy it, use `BertPretrainer.from_config(m.get_config())`."
        )


@keras.saving.register_keras_serializable(package="bert_tf")
class BertPretrainer(BertModel):
    """`BertBackbone` with masked-LM and next-sentence heads (paper, section 3.1).

    A row may hold up to Q sequences, so that little of it is padding. Tokens attend to
    their own sequence only, and positions count from its beginning.

    Inputs, int32: `token_ids`, `segment_ids`, `padding_mask` [B, S], `mask_positions`
    [B, P], `first_positions` [B, Q]. `padding_mask` is 1 for tokens, 0 for padding;
    `first_positions` are the columns where the sequences of a row begin, and 0 for
    sequences that it lacks: zeros [B, 1] for rows of one sequence.
    Outputs, float32 logits: `{"mlm": [B, P, V], "nsp": [B, Q, 2]}`. Class 1 of `nsp`
    means that the second segment is a random one.

    Example:

    ```python
    model = BertPretrainer(BertBackbone(config))
    model.compile(AdamW(learning_rate=1e-4))
    model.fit(Records("records").dataset(batch_size=32), steps_per_epoch=100)
    ```
    """

    def __init__(self, backbone: BertBackbone, **kwargs):
        # === Layers ===
        config, dtype = backbone.config, backbone.embeddings.dtype_policy
        self.backbone = backbone
        arguments = backbone.embeddings.token_embedding, backbone.prediction_offset
        self.mlm_head = MaskedLMHead(config, *arguments, dtype=dtype, name="mlm")
        self.nsp_head = dense_layer(config, 2, "nsp", "float32")

        # === Functional model ===
        inputs = {
            name: keras.Input((None,), dtype="int32", name=name)
            for name in (*backbone.input, "mask_positions", "first_positions")
        }
        firsts = inputs["first_positions"]
        mask, position_ids = UnpackRows(name="unpack")(inputs["padding_mask"], firsts)
        x = backbone.encode(
            inputs["token_ids"], inputs["segment_ids"], mask, position_ids
        )[-1]
        pooled = backbone.pooler(backbone.pool(x, mask, firsts))
        outputs = {
            "mlm": self.mlm_head(x, inputs["mask_positions"]),
            "nsp": self.nsp_head(pooled),
        }
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)

    @property
    def layers(self):
        # The graph calls the layers of the backbone one by one. Weight files and
        # summaries have the backbone as one layer, as in all models.
        return [self.backbone, self.mlm_head, self.nsp_head]

    def _losses_and_metrics(self):
        defaults = super()._losses_and_metrics()
        defaults["loss"]["mlm"] = MaskedLMLoss(reduction="sum")
        # The weights of `Records.dataset` sum to one over the batch of all replicas.
        defaults["loss"]["nsp"].reduction = "sum"
        return defaults
