# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The encoder as a Keras model, and the base class of models on it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import keras

from bert_tf.modeling import backend
from bert_tf.modeling.bert import (
    Embeddings,
    EncoderLayer,
    PaddingMask,
    dense_layer,
    freeze,
    frozen_layers,
    take_positions,
)
from bert_tf.modeling.config import BertConfig
from bert_tf.modeling.losses import check_class_weight, check_logits, cross_entropies


class EncoderModel(keras.Model):
    """Base of functional models that take the named inputs of an encoder."""

    def call(self, inputs, training=None, mask=None):
        # Keras would match lists and dictionaries with more keys by position.
        if not isinstance(inputs, Mapping) or inputs.keys() != self.input.keys():
            received = [*inputs] if isinstance(inputs, Mapping) else [type(inputs)]
            raise ValueError(
                f"{self.name} takes a dictionary with the keys "
                f"{', '.join(self.input)}. Received: {', '.join(map(str, received))}. "
                "Pass {name: inputs[name] for name in model.input}."
            )
        message = "`padding_mask` must be 1 for tokens and 0 for padding, not additive."
        backend.check_not_negative(inputs["padding_mask"], message)
        return super().call(inputs, training=training, mask=mask)

    def save(self, filepath, *args, **kwargs):
        """`keras.Model.save`; raises ValueError for Keras' old format, HDF5."""
        if str(filepath).endswith((".h5", ".hdf5")):
            raise ValueError(
                "HDF5 files lack the packages of classes, so that Keras could not load "
                f"the model. Received: {filepath}. Pass a name that ends in .keras, or "
                "in .weights.h5 with `save_weights` or `save_weights_only=True`."
            )
        super().save(filepath, *args, **kwargs)

    def compile(self, *args, **kwargs):
        # Keras scales the loss if the policy of the model is "mixed_float16".
        backbone = getattr(self, "backbone", self)
        self.dtype_policy = backbone.embeddings.dtype_policy
        super().compile(*args, **kwargs)

    def get_config(self):
        return {"name": self.name, "frozen_layers": frozen_layers(self)}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        config, deserialize = dict(config), keras.saving.deserialize_keras_object
        frozen = config.pop("frozen_layers", ())
        if "backbone" in config:
            config["backbone"] = deserialize(config["backbone"])
        return freeze(cls(**config), frozen)


@keras.saving.register_keras_serializable(package="bert_tf")
class BertBackbone(EncoderModel):
    """The encoder of BERT (paper, section 3) as a Keras functional model.

    Args:
        config: The architecture, a `BertConfig` or its dictionary.
        recompute: Save memory in training, see `EncoderLayer`.
        dtype: Keras dtype policy of all layers, e.g. `"mixed_bfloat16"`; the global
            policy when None. With `"mixed_float16"`, `compile` of models of this
            package scales the loss. For a `keras.Model` of your own, set the global
            policy: Keras looks at the policy of the model.

    Inputs: `{"token_ids", "segment_ids", "padding_mask"}`, each [B, S] int32.
    Outputs: `{"sequence_output": [B, S, H], "pooled_output": [B, H]}`; the pooled
    output is dense + tanh over the final hidden state of [CLS], the first token. Other
    families than BERT have other activations, see `bert_tf.families`.

    Attributes:
        hidden_states: Symbolic outputs of the embeddings and of each layer, for other
            functional models: `keras.Model(backbone.input, backbone.hidden_states[-2])`
        prediction_offset: The masked-LM head predicts a token from the hidden state at
            its position plus this offset. -1 in a subclass predicts the next token.

    Example:

    ```python
    config = BertConfig.from_size("tiny", vocabulary_size=1000)
    backbone = BertBackbone(config)
    ids = np.array([[2, 17, 29, 3, 0]])
    outputs = backbone(
        {"token_ids": ids, "segment_ids": 0 * ids, "padding_mask": ids != 0}
    )
    outputs["pooled_output"].shape  # (1, 128)
    ```
    """

    prediction_offset: ClassVar[int] = 0

    def __init__(
        self,
        config: BertConfig | Mapping[str, Any],
        *,
        recompute: bool = False,
        dtype=None,
        **kwargs,
    ):
        # === Layers ===
        self.config = config = BertConfig.from_dict(config)
        self.embeddings = Embeddings(config, dtype=dtype, name="embeddings")
        self.encoder_layers = [
            EncoderLayer(config, recompute, dtype=dtype, name=f"encoder_layer_{i}")
            for i in range(config.num_layers)
        ]
        self.pooler = dense_layer(
            config,
            config.hidden_dim,
            "pooler",
            dtype,
            activation=config.family.pooler_activation,
        )

        # === Functional model ===
        inputs = {
            name: keras.Input((None,), dtype="int32", name=name)
            for name in ("token_ids", "segment_ids", "padding_mask")
        }
        self.hidden_states = self.encode(*inputs.values())
        x = self.hidden_states[-1]
        pooled = self.pooler(self.pool(x, inputs["padding_mask"]))
        outputs = {"sequence_output": x, "pooled_output": pooled}
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)
        self.recompute = recompute

    def encode(self, token_ids, segment_ids, attention_mask, position_ids=None):
        """Applies the embeddings and all layers.

        Args:
            token_ids: [B, S] int32.
            segment_ids: [B, S] int32.
            attention_mask: [B, S] (nonzero = attend to) or [B, S, S] (query attends to
                key).
            position_ids: [B or 1, S] int32; by default 0 to S - 1.

        Returns:
            The hidden states of the embeddings and of each layer, a list of [B, S, H],
            with a Keras mask of padding.
        """
        x = self.embeddings(token_ids, segment_ids, position_ids)
        states = [PaddingMask(name="masking")([x, attention_mask])]
        for layer in self.encoder_layers:
            states.append(layer(states[-1], attention_mask=attention_mask))
        return states

    def pool(self, x, attention_mask, first_positions=None):
        """Returns the inputs of the pooler: the states of the first tokens.

        Args:
            x: The last hidden states, [B, S, H].
            attention_mask: As in `encode`.
            first_positions: [B, Q] int32, where the sequences of a row begin; None for
                one sequence per row.

        Returns:
            [B, Q, H]; [B, H] without `first_positions`.
        """
        if first_positions is None:
            return x[:, 0, :]
        return take_positions(x, first_positions)

    @classmethod
    def from_checkpoint(
        cls, path: str, *, dtype=None, name: str | None = None
    ) -> BertBackbone:
        """Returns the encoder of a checkpoint of any format.

        Args:
            path: A model directory, a folder of Google's, Hugging Face's or KerasHub's
                (see `bert_tf.convert`), or a handle such as `"hf://..."`.
            dtype: As for the constructor.
            name: Name of the model. Two encoders in one model need different names.

        Raises:
            ValueError: The checkpoint is damaged or not a BERT.

        Example, two encoders in one model:

        ```python
        def encode(name):
            encoder = BertBackbone.from_checkpoint("models/mini", name=name)
            inputs = {
                key: keras.Input((None,), dtype="int32", name=f"{name}_{key}")
                for key in encoder.input
            }
            return inputs, encoder(inputs)["pooled_output"]

        (query, x), (document, y) = encode("query"), encode("document")
        scores = keras.layers.Dot(axes=1, normalize=True)([x, y])
        model = keras.Model({"query": query, "document": document}, scores)
        ```
        """
        from bert_tf.checkpoints import open_checkpoint

        return open_checkpoint(path).load_backbone(dtype, name)

    def get_config(self):
        return super().get_config() | {
            "config": dataclasses.asdict(self.config),
            "recompute": self.recompute,
            "dtype": keras.saving.serialize_keras_object(self.embeddings.dtype_policy),
        }


def encoder_name(encoder_class: type[BertBackbone] | None) -> str:
    """Returns the name under which Keras finds a class; "" for None and `BertBackbone`.

    Raises:
        ValueError: The class is not registered, so that it could not be loaded again.
    """
    if encoder_class in (None, BertBackbone):
        return ""
    name = keras.saving.get_registered_name(encoder_class)
    if keras.saving.get_registered_object(name) is encoder_class:
        return name
    rule = (
        "with `keras.saving.register_keras_serializable`, so that checkpoints find it"
    )
    raise ValueError(f"Decorate {encoder_class.__name__} {rule}.")


def find_encoder(name: str, path: Any) -> type[BertBackbone]:
    """Returns the class of a name that `encoder_name` returned.

    Raises:
        ValueError: No imported module has registered it. The message names `path`.
    """
    if found := keras.saving.get_registered_object(name) if name else BertBackbone:
        return found
    rule = f"Import the module that defines the class {name!r} of its encoder first."
    raise ValueError(f"{path}: {rule}")


class BertModel(EncoderModel):
    """Base of functional models on a `BertBackbone`, with default losses and saving.

    Attributes:
        backbone: The encoder.
    """

    # Attributes that are constructor arguments, besides `backbone`.
    _arguments: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def from_checkpoint(
        cls, path: str, *, dtype=None, name: str | None = None, **arguments
    ):
        """Returns the model with the weights of a checkpoint of any format.

        Logs a warning if the checkpoint lacks a layer, which is newly initialized. The
        head of another task counts as missing.

        Args:
            path: See `BertBackbone.from_checkpoint`.
            dtype: Keras dtype policy of the encoder.
            name: Name of the model.
            **arguments: Other arguments of the constructor, such as `num_classes`. By
                default those of the checkpoint's head.

        Raises:
            ValueError: The checkpoint is damaged or not a BERT, its head has another
                size, or it has no head of this kind and an argument is missing.
        """
        from bert_tf.checkpoints import open_checkpoint

        checkpoint = open_checkpoint(path)
        return checkpoint.load_model(cls, dtype=dtype, name=name, **arguments)

    def compile(
        self,
        optimizer="rmsprop",
        loss=None,
        loss_weights=None,
        metrics=None,
        weighted_metrics=None,
        **kwargs,
    ):
        """`keras.Model.compile` with the model's losses and metrics as defaults.

        The metrics are defaults only if neither `loss` nor metrics are passed, and the
        class does not override `train_step` or `compute_loss`. As in Keras, a loss is
        the sum of the weighted losses divided by their number. `BertPretrainer`, whose
        data have weights that sum to one, has the weighted sum.

        `jit_compile` is `backend.jit_compile()` by default.

        Raises:
            ValueError: A loss or a metric of Keras takes probabilities.
        """
        given = {"loss": loss, "metrics": metrics, "weighted_metrics": weighted_metrics}
        given = {name: value for name, value in given.items() if value is not None}
        defaults = {"jit_compile": backend.jit_compile()}
        if getattr(optimizer, "dynamic_loss_scale", False):
            defaults["auto_scale_loss"] = False  # Keras would scale it, too.
        defaults |= self._losses_and_metrics()
        methods = ("train_step", "compute_loss")
        if given or any(
            getattr(type(self), m) != getattr(BertModel, m) for m in methods
        ):
            defaults.pop("weighted_metrics", None)
        if loss_weights is not None:
            defaults["loss_weights"] = loss_weights
        losses = (defaults | given).get("loss")
        check_logits(self, losses, [metrics, weighted_metrics])
        super().compile(optimizer, **defaults | given | kwargs)

    def compile_from_config(self, config):
        """Compiles a model loaded from a `.keras` file that was saved compiled.

        Keras does not do so for models that override `compile`. Builds the optimizer,
        so that Keras can load its variables and training can continue.
        """
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

    def _losses_and_metrics(self) -> dict[str, Any]:
        return cross_entropies(self.output)

    fit = check_class_weight(keras.Model.fit)
    train_on_batch = check_class_weight(keras.Model.train_on_batch)

    def compute_loss(self, x=None, y=None, y_pred=None, *args, **kwargs):
        if isinstance(y_pred, Mapping) and isinstance(y, list | tuple):
            raise ValueError(
                f"The labels of {self.name} must be a dictionary with the keys "
                f"{', '.join(y_pred)}: Keras would match a sequence to the outputs in "
                f"alphabetical order. Received: {type(y).__name__} of {len(y)}"
            )
        return super().compute_loss(x, y, y_pred, *args, **kwargs)

    def get_config(self):
        backbone = keras.saving.serialize_keras_object(self.backbone)
        arguments = {name: getattr(self, name) for name in self._arguments}
        return super().get_config() | {"backbone": backbone, **arguments}
