# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""What the functional models have in common: packed rows, training, saving."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping
from typing import Any, ClassVar

import keras

from bert_tf.modeling import fusion


class PackableModel(keras.Model):
    """A functional model, whose `call` may take packed rows as well.

    Keras fixes the inputs of a functional model; those of packed rows have one more,
    `first_positions`, and the same layers make other outputs of them.
    """

    def _call_packed(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the outputs for packed rows, see `BertBackbone`."""
        raise ValueError(f"{self.name} takes no packed rows (`first_positions`).")

    def call(self, inputs, training=None, mask=None):
        if is_packed(inputs):
            return self._call_packed(inputs)
        return super().call(inputs, training=training, mask=mask)

    def compute_output_spec(self, inputs, training=None, mask=None):
        if is_packed(inputs):  # Those of `call`, and not of the functional graph.
            return keras.Operation.compute_output_spec(self, inputs, training=training)
        return super().compute_output_spec(inputs, training=training, mask=mask)


def is_packed(inputs: Any) -> bool:
    """Says whether rows may hold several sequences, see `BertBackbone`."""
    return isinstance(inputs, Mapping) and "first_positions" in inputs


class BertModel(PackableModel):
    """A functional model on a `BertBackbone` that knows how it is trained and saved.

    Attributes:
        backbone: The encoder.
    """

    _arguments: ClassVar[tuple[str, ...]] = ()
    """Attributes that are arguments of the constructor, after `backbone`."""

    def fit(self, x=None, y=None, *args, **kwargs):
        """`keras.Model.fit`; an error also says what was given and what is taken."""
        try:
            return super().fit(x, y, *args, **kwargs)
        except Exception as error:
            # Python 3.10 has no notes, and not all that is given can be described.
            with contextlib.suppress(Exception):
                given = getattr(x, "element_spec", (x, y))
                error.add_note(f"Received, in the order x, y: {_shapes(given)}")
                error.add_note(
                    f"{self.name} takes: {_shapes(self.input)}; its outputs, for which "
                    f"y has the labels: {_shapes(self.output)}"
                )
            raise

    def compile(self, optimizer, **kwargs):
        """`keras.Model.compile` with the model's losses and metrics as defaults.

        `jit_compile` is by default what Keras takes, but False on TensorFlow without
        an accelerator, where XLA makes a step slower (docs/results.md).

        A loss is a weighted *sum*: weights that sum to one over the global batch, as
        `pretrain_dataset` and `batching.batches` make them, turn it into the mean, on
        any number of replicas.
        """
        xla = False if fusion.on_cpu() else "auto"
        defaults = self._losses_and_metrics() | {"jit_compile": xla}
        super().compile(optimizer, **(defaults | kwargs))

    def compile_from_config(self, config):
        """Compiles a model that was saved compiled; Keras leaves out custom `compile`s.

        The optimizer's variables are there when it returns, so that what was saved of
        them can be loaded, and training goes on.
        """
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

    def _losses_and_metrics(self) -> dict[str, Any]:
        return cross_entropies(self.output)

    def get_config(self):
        backbone = keras.saving.serialize_keras_object(self.backbone)
        arguments = {name: getattr(self, name) for name in self._arguments}
        return {"backbone": backbone, **arguments, "name": self.name}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        backbone = keras.saving.deserialize_keras_object(config.pop("backbone"))
        return cls(backbone, **config)


def cross_entropies(outputs: Any) -> dict[str, Any]:
    """Returns what `compile` takes: loss and accuracy of outputs that are logits.

    The losses are weighted sums, see `BertModel.compile`.
    """
    loss = functools.partial(
        keras.losses.SparseCategoricalCrossentropy, from_logits=True, reduction="sum"
    )
    accuracy = functools.partial(
        keras.metrics.SparseCategoricalAccuracy, name="accuracy"
    )
    return {
        "loss": keras.tree.map_structure(lambda _: loss(), outputs),
        "weighted_metrics": keras.tree.map_structure(lambda _: [accuracy()], outputs),
    }


def _shapes(data: Any) -> str:
    """Describes arrays, tensors or their specifications, in dicts and tuples."""

    def describe(leaf):
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
            return type(leaf).__name__
        sizes = ", ".join("?" if size is None else str(size) for size in leaf.shape)
        return f"{getattr(leaf.dtype, 'name', leaf.dtype)} [{sizes}]"

    return str(keras.tree.map_structure(describe, data)).replace("'", "")
