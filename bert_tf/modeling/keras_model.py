# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The base class of all models on an encoder: training, saving, error messages."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, ClassVar

import keras

from bert_tf.modeling import fused


class BertModel(keras.Model):
    """Base of functional models on a `BertBackbone`, with default losses and saving.

    Attributes:
        backbone: The encoder.
    """

    _arguments: ClassVar[tuple[str, ...]] = ()
    """Attributes that are constructor arguments, besides `backbone`."""

    def fit(self, x=None, y=None, *args, **kwargs):
        """`keras.Model.fit`, with the received and expected shapes in error notes."""
        try:
            return super().fit(x, y, *args, **kwargs)
        except Exception as error:
            # Python 3.10 has no notes, and `_shapes` may fail on unusual data.
            with contextlib.suppress(Exception):
                given = getattr(x, "element_spec", (x, y))
                error.add_note(f"Received (x, y): {_shapes(given)}")
                error.add_note(
                    f"Inputs of {self.name}: {_shapes(self.input)}. Outputs, to be "
                    f"labeled by y: {_shapes(self.output)}"
                )
            raise

    def compile(self, optimizer, **kwargs):
        """`keras.Model.compile` with the model's losses and metrics as defaults.

        `jit_compile` is False by default on TensorFlow without an accelerator, where
        XLA makes a step slower (docs/results.md), and else Keras' default.

        The loss is the weighted mean over the batch; for `BertPretrainer`, whose data
        have weights that sum to one, the weighted sum. For other models on several
        replicas with different weights, use `sum_losses`.
        """
        defaults = self._losses_and_metrics()
        defaults["jit_compile"] = False if fused.cpu_only() else "auto"
        super().compile(optimizer, **(defaults | kwargs))

    def compile_from_config(self, config):
        """Compiles a model loaded from a `.keras` file that was saved compiled.

        Keras does not do so for models that override `compile`. Builds the optimizer,
        so that Keras can load its variables and training can continue.
        """
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

    def _losses_and_metrics(self) -> dict[str, Any]:
        return cross_entropies(self.output)

    def get_config(self):
        backbone = keras.saving.serialize_keras_object(self.backbone)
        arguments = {name: getattr(self, name) for name in self._arguments}
        quantized = quantized_layers(self)
        for path in quantized_layers(self.backbone):  # In the backbone's own config.
            del quantized[path]
        config = {"backbone": backbone, **arguments, "name": self.name}
        return config | {"quantized": quantized}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        backbone = keras.saving.deserialize_keras_object(config.pop("backbone"))
        quantized = config.pop("quantized", {})
        return quantize(cls(backbone, **config), quantized)


def quantized_layers(model: keras.Model) -> dict[str, str]:
    """Returns the quantization modes of layers, e.g. "int8", by their paths.

    Keras saves a mode as part of a layer's dtype policy. Layers pass their policy on to
    the layers inside them, some of which cannot be quantized.
    """
    policies = {layer.path: layer.dtype_policy for layer in model._flatten_layers()}
    return {k: p.quantization_mode for k, p in policies.items() if p.quantization_mode}


def quantize(model: keras.Model, modes: Mapping[str, str]) -> keras.Model:
    """Quantizes the layers that `quantized_layers` returned for an equal model."""
    for mode in sorted(set(modes.values())):
        model.quantize(mode, filters=lambda layer, m=mode: modes.get(layer.path) == m)
    return model


def cross_entropies(outputs: Any) -> dict[str, Any]:
    """Returns the `compile` arguments for outputs that are logits of classes.

    That is cross-entropy and accuracy of each output. The losses are weighted means.
    """

    def loss(_):
        return keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction="mean_with_sample_weight"
        )

    def metrics(_):
        return [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]

    return {
        "loss": keras.tree.map_structure(loss, outputs),
        "weighted_metrics": keras.tree.map_structure(metrics, outputs),
    }


def sum_losses(model: keras.Model) -> None:
    """Makes all losses of a compiled model weighted sums instead of weighted means.

    `pretrain_dataset` and `batching.batches` make weights that sum to one over the
    global batch. Sums are then its mean on any number of replicas, which a mean of the
    replicas' means is not.
    """
    for loss in keras.tree.flatten(model.loss):
        if isinstance(loss, keras.losses.Loss):  # None if the model has its own step.
            loss.reduction = "sum"


def _shapes(data: Any) -> str:
    """Describes arrays, tensors or tensor specs in nested dicts and tuples."""

    def describe(leaf):
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
            return type(leaf).__name__
        sizes = ", ".join("?" if size is None else str(size) for size in leaf.shape)
        return f"{getattr(leaf.dtype, 'name', leaf.dtype)} [{sizes}]"

    return str(keras.tree.map_structure(describe, data)).replace("'", "")
