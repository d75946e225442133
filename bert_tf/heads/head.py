# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The interface of a head.

A kind of head has one class, which is in the table `HEADS` (`kinds.py`). Training,
checkpoints, `bert_tf.load`, `--predict` and exports find it there by the `kind` in
config.json.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from bert_tf.heads.signatures import Signature, signature, string_input

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from bert_tf.modeling import BertBackbone
    from bert_tf.text import Rows, Tokenizer

# Feature sets (rows of table 7) -> slice of the embeddings (0) and the layers (1 to L).
# Here, because `--help` of `tasks.tagging` lists them without importing Keras.
FEATURES: Mapping[str, slice] = {
    "embeddings": slice(0, 1),
    "second_to_last": slice(-2, -1),
    "last": slice(-1, None),
    "weighted_sum_last_four": slice(-4, None),
    "concat_last_four": slice(-4, None),
    "weighted_sum_all": slice(1, None),
}


class Head:
    """A head of one kind: its Keras model, its inputs, and its answers to strings.

    All heads have `build`, `inputs`, `run` and `signatures`, which training,
    `bert_tf.load`, ensembles and exports call. The default of `run` calls `encode` and
    `answers`; heads with more than one row of the model per text override it.

    Args:
        settings: The `head` of a `Checkpoint`, e.g. labels. The settings in its
            `"decision"`, which were fitted on a dev set, override others.
        options: The options of the training, such as `max_sequence_length`.
        tokenizer: The tokenizer of the encoder.

    Attributes of the class:
        kind: Key in `HEADS` and in config.json.
        model_class: The Keras model that `build` returns.
        num_outputs: Units of the layer `logits`; None for the number of labels, or 1.
        layers: Layers that a checkpoint may lack. They are then newly initialized.
        unused_layers: Those of them that the model does not use.
        google_scope: Prefix of the output layer in checkpoints of google-research/bert;
            None if its scripts have no such head.
        runs_encoder: Whether the signatures run the encoder only, and layers of the
            model on its outputs, which may be untrained.
    """

    kind: ClassVar[str]
    model_class: ClassVar[type | tuple] = ()
    num_outputs: ClassVar[int | None] = None
    layers: ClassVar[Sequence[str]] = ("pooler", "logits")
    unused_layers: ClassVar[Sequence[str]] = ()
    google_scope: ClassVar[str | None] = None
    runs_encoder: ClassVar[bool] = False

    def __init__(
        self,
        settings: Mapping[str, Any],
        options: Mapping[str, Any],
        tokenizer: Tokenizer,
    ):
        self.settings = {**settings, **settings.get("decision", {})}
        self.options = options
        self.tokenizer = tokenizer

    # --- The Keras model ---------------------------------------------------------

    @classmethod
    def arguments(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the arguments of `model_class`, besides the encoder."""
        return {}

    def build(self, backbone: BertBackbone) -> keras.Model:
        """Returns a functional model from the encoder's inputs to logits.

        `model.compile(optimizer)` must set the losses, as `keras.losses.Loss` objects.
        """
        return self.model_class(backbone, **self.arguments(self.settings))

    # --- Strings to answers ------------------------------------------------------

    @property
    def inputs(self) -> Sequence[tf.TensorSpec]:
        """The inputs of `serving_default`; by default `text`, strings [N]."""
        return [string_input("text")]

    def encode(self, *texts: Any, **options: Any) -> Rows:
        """Tokenizes texts to rows of the model without padding; a graph function.

        Training and signatures share it.

        Args:
            *texts: The `inputs`.
            **options: Options of `Tokenizer.rows`.

        Returns:
            A row per text; `bert_tf.text.Windows` if long texts are cut.
        """
        limit = {"max_sequence_length": self.options["max_sequence_length"]}
        return self.tokenizer.rows(*texts, **limit | options)

    def answers(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the outputs of `serving_default` for the outputs of the model.

        Evaluation and signatures share it.
        """
        raise NotImplementedError

    def run(self, model: Callable[..., Any], *texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the outputs of `serving_default` for its inputs.

        Args:
            model: A function of the inputs of the Keras model.
            *texts: The `inputs`.
        """
        return self.answers(model(self.encode(*texts).inputs(), training=False))

    def signatures(
        self, model: Callable[..., Any], trained: keras.Model | None = None
    ) -> dict[str, Signature]:
        """Returns `serving_default`, and others.

        Exports add the signature `ids`, from token ids to the outputs of `model`.

        Args:
            model: A function of the inputs of the Keras model; with `runs_encoder`, of
                those of its encoder.
            trained: The Keras model, if signatures need more of its layers.
        """

        @signature(*self.inputs)
        def serving_default(*texts):
            return self.run(model, *texts)

        return {"serving_default": serving_default}

    # --- Checkpoints -------------------------------------------------------------

    @classmethod
    def declare(
        cls,
        outputs: int | None,
        *,
        labels: Sequence[str] | None = None,
        problem: str | None = None,
        activation: str | None = None,
    ) -> dict[str, Any]:
        """Returns the settings of a head of another project.

        Args:
            outputs: The units of the layer `logits`; None if it has no weights.
            labels: The declared names of the outputs; by default LABEL_0, LABEL_1, ...
            problem: The `problem` of a classifier, if declared.
            activation: The activation that the other project applies to the logits, a
                name in `keras.activations`; None if it declares none.

        Raises:
            ValueError: The declarations contradict each other.
        """
        if cls.num_outputs:
            return {"kind": cls.kind}
        if labels is None:
            labels = [f"LABEL_{number}" for number in range(outputs or 2)]
        return {"kind": cls.kind, "labels": list(labels)}

    @classmethod
    def check_outputs(cls, settings: Mapping[str, Any], outputs: int | None) -> None:
        """Raises ValueError if the layer `logits` has another size than `settings`."""
        declared = cls.num_outputs or len(settings.get("labels", ())) or 1
        if outputs not in (None, declared):
            raise ValueError(
                f"the config declares {declared} labels or scores, but the output "
                f"layer has {outputs}."
            )
