# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The feature-based way to use BERT (paper, section 5.3): frozen activations, cached.

In: an encoder, and the token ids of N examples. Out: the activations of chosen layers
for each token, in a file that is mapped into memory; what is trained on them runs the
encoder once and not in every epoch.

    encoder = FrozenEncoder(backbone, "concat_last_four")
    inputs = task.encode(tokenizer, texts, max_sequence_length=128)
    column = cached(encoder, inputs, "features", max_length=128)  # A task.MappedColumn.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
from collections.abc import Mapping

import keras
import numpy as np
import tensorflow as tf
from keras import ops
from tqdm import tqdm

from bert_tf import batching, checkpoint
from bert_tf.model import BertBackbone
from bert_tf.task import MappedColumn, Split

# The rows of table 7: which of the embeddings (0) and the L layers (1 to L).
FEATURES: Mapping[str, slice] = {
    "embeddings": slice(0, 1),
    "second_to_last": slice(-2, -1),
    "last": slice(-1, None),
    "weighted_sum_last_four": slice(-4, None),
    "concat_last_four": slice(-4, None),
    "weighted_sum_all": slice(1, None),
}

_BATCH_SIZE = 32
# Examples that are computed before they are written; what is held in memory.
_CHUNK = 8 * _BATCH_SIZE


@keras.saving.register_keras_serializable(package="bert_tf")
class FrozenEncoder(keras.Model):
    """The activations of chosen layers of an encoder that is not trained.

    Args:
        backbone: The encoder; it becomes not trainable.
        features: One of `FEATURES`.

    Inputs: those of the backbone. Outputs: `features` [B, S, K, H] float32, K layers,
    and `pooled_output`, so that all weights of the encoder belong to the model.

    Raises:
        ValueError: `features` is unknown, or needs more layers than there are.
    """

    def __init__(self, backbone: BertBackbone, features: str, **kwargs):
        if features not in FEATURES:
            raise ValueError(
                f"`features` must be one of {', '.join(FEATURES)}. "
                f"Received: features={features!r}"
            )
        num_layers = backbone.config.num_layers
        if features.endswith("last_four") and num_layers < 4:
            raise ValueError(
                f"`features` {features!r} needs an encoder of four layers. Received: "
                f"num_layers={num_layers}"
            )
        # === Functional model ===
        chosen = backbone.hidden_states[FEATURES[features]]
        outputs = {
            "features": ops.cast(ops.stack(chosen, axis=2), "float32"),
            "pooled_output": backbone.output["pooled_output"],
        }
        super().__init__(inputs=backbone.input, outputs=outputs, **kwargs)

        # === Attributes ===
        self.features = features
        backbone.trainable = False


@keras.saving.register_keras_serializable(package="bert_tf")
class CombineLayers(keras.layers.Layer):
    """Makes one vector of the K layers' for each token: [B, S, K, H] -> [B, S, F].

    Args:
        features: One of `FEATURES`: `concat...` puts the layers side by side, F is
            K * H; `weighted_sum...` adds them with learned weights, F is H.
    """

    def __init__(self, features: str, **kwargs):
        super().__init__(**kwargs)
        self.features = features
        self._is_sum = features.startswith("weighted_sum")

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
        return super().get_config() | {"features": self.features}


def cached(
    encoder: FrozenEncoder,
    inputs: Mapping[str, tf.RaggedTensor],
    folder: str | os.PathLike,
    *,
    max_length: int,
    static_shape: bool = False,
) -> MappedColumn:
    """Returns the features of N examples, from `folder` if they are there.

    The file is named by a hash of the encoder's weights and of the inputs, and appears
    when it is complete.

    Args:
        encoder: Computes the features.
        inputs: `token_ids`, `segment_ids`, `padding_mask`, each ragged [N, (S)].
        folder: Where to keep the file.
        max_length: As in `batching.predict`.
        static_shape: As in `batching.predict`.
    """
    token_ids = inputs["token_ids"]
    path = pathlib.Path(folder) / f"{_fingerprint(encoder, inputs)}.npy"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        shape = (int(token_ids.row_splits[-1]), *encoder.output["features"].shape[2:])
        with checkpoint.beside(path) as unfinished:
            file = np.lib.format.open_memmap(unfinished, "w+", np.float32, shape)
            split = Split("features", None, inputs)
            _compute(encoder, split, file, max_length, static_shape)
            file.flush()
    return MappedColumn(np.load(path, mmap_mode="r"), token_ids.row_splits.numpy())


def _compute(
    encoder: FrozenEncoder,
    split: Split,
    file: np.ndarray,
    max_length: int,
    static_shape: bool,
) -> None:
    """Fills `file` [tokens, K, H]."""
    starts = split.inputs["token_ids"].row_splits.numpy()
    order = np.argsort(split.lengths, kind="stable")
    with tqdm(total=len(split), desc="features", disable=None) as progress:
        for first in range(0, len(split), _CHUNK):
            rows = order[first : first + _CHUNK]
            chunk = {name: tf.gather(c, rows) for name, c in split.inputs.items()}
            outputs = batching.predict(
                encoder,
                Split(split.name, None, chunk),
                _BATCH_SIZE,
                max_length=max_length,
                static_shape=static_shape,
            )
            for row, output in zip(rows, outputs, strict=True):
                length = split.lengths[row]
                file[starts[row] : starts[row + 1]] = output["features"][:length]
            progress.update(len(rows))


def _fingerprint(encoder: FrozenEncoder, inputs: Mapping[str, tf.RaggedTensor]) -> str:
    digest = hashlib.sha256(encoder.features.encode())
    digest.update(encoder.layers[-1].compute_dtype.encode())
    arrays = [weight.numpy() for weight in encoder.weights]
    for name in sorted(inputs):
        arrays += [inputs[name].values.numpy(), inputs[name].row_splits.numpy()]
    for array in arrays:
        digest.update(np.ascontiguousarray(array))
    return digest.hexdigest()[:32]
