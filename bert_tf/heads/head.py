# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The kinds of heads, and what their signatures share.

A kind has one class, which joins `HEADS`. Training, checkpoints, `bert_tf.load`,
`--predict` and exports find it there by the `kind` in config.json.

A folder of another project may not tell which kind of head it has. Its encoder can be
used, but `check_declared` refuses to serve or convert it until the user chooses a kind.

Signatures are `tf.function`s by signature name. The names of signatures and of their
inputs and outputs are public API. Texts are UTF-8 strings, truncated to the model's
maximum sequence length and padded to the longest text of the request. The modules of
the heads describe theirs; this one has what heads share. Letters: N texts, S tokens,
C classes.

    ids              token_ids, segment_ids, padding_mask [N, S] int32 -> the outputs of
                     the model
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from bert_tf.lazy import lazy_import

if TYPE_CHECKING:
    from bert_tf.modeling import BertBackbone
    from bert_tf.text import Tokenizer

keras = lazy_import("keras")
tf = lazy_import("tensorflow")

# A name only, because TensorFlow is imported at its first use.
Signature = "tf.types.experimental.PolymorphicFunction"

# Modules with the heads of tasks, and their kinds.
_TASKS = ("classification", "tagging", "question_answering", "multiple_choice")

# The kinds that a user can choose for a folder of another project.
HEAD_KINDS = ("encoder", "pretrainer", "discriminator", *_TASKS)


# Feature sets (rows of table 7) -> slice of the embeddings (0) and the layers (1 to L).
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

    A subclass with a `kind` joins `HEADS`.

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
    """

    kind: ClassVar[str]
    model_class: ClassVar[type | tuple] = ()
    num_outputs: ClassVar[int | None] = None
    layers: ClassVar[Sequence[str]] = ("pooler", "logits")
    unused_layers: ClassVar[Sequence[str]] = ()

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if "kind" in vars(cls):
            HEADS[cls.kind] = cls

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

    def encode(self, *texts: Any, **options: Any) -> Any:
        """Converts a batch of texts to inputs of the model; a graph function.

        Training and signatures share it.

        Args:
            *texts: Strings [N] each.
            **options: Options of `Tokenizer.encode`.

        Returns:
            The padded inputs by name; `bert_tf.text.Windows` if long texts are cut.
        """
        limit = {"max_sequence_length": self.options["max_sequence_length"]}
        return self.tokenizer.encode(*texts, **limit | options)

    def signatures(self, model: keras.Model) -> Mapping[str, Signature]:
        """Returns `serving_default`, and others, for a model with weights.

        Exports add the signature `ids`, from token ids to the outputs of the model.
        """
        raise NotImplementedError

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


HEADS: dict[str, type[Head]] = {}
"""The classes by kind, as far as they are imported; see `find_head`."""


def find_head(kind: str) -> type[Head]:
    """Returns the class of a kind; imports `tasks.<kind>` if there is none.

    Raises:
        ValueError: There is no such kind.
    """
    module = f"tasks.{kind}"
    if known_head(kind) is Head and kind.isidentifier():
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name not in ("tasks", module):
                raise
    if kind not in HEADS:
        raise ValueError(
            f"There is no head of the kind {kind!r}, only {', '.join(sorted(HEADS))}. "
            "Import the module that defines its `bert_tf.heads.Head`, or name it "
            f"{module}."
        )
    return HEADS[kind]


def known_head(kind: str) -> type[Head]:
    """As `find_head`, but returns `Head` itself for a kind that is not imported."""
    for name in ("encoder", *_TASKS):
        importlib.import_module(f"bert_tf.heads.{name}")
    return HEADS.get(kind, Head)


def check_declared(settings: Mapping[str, Any], path: Any) -> None:
    """Raises ValueError if the user must choose a kind first."""
    if settings.get("undeclared"):
        raise ValueError(
            f"{path}: {settings['undeclared']} Choose how to read the folder: "
            "--head=encoder for the encoder only, or one of "
            f"{', '.join(HEAD_KINDS[1:])} (options of bert_tf.export and "
            "bert_tf.convert; `head=` in Python)."
        )


# --- Signatures ------------------------------------------------------------------


def with_equal_rows(first: tf.Tensor, second: tf.Tensor, message: str) -> tf.Tensor:
    """Returns `second` if it has as many rows as `first`, or raises an error.

    Without it, another op may fail first, with an unclear message.
    """
    rows = tf.shape(first)[0], tf.shape(second)[0]
    with tf.control_dependencies([tf.debugging.assert_equal(*rows, message)]):
        return tf.identity(second)


def string_input(name: str) -> tf.TensorSpec:
    """Returns the spec of an input with one string per row."""
    return tf.TensorSpec([None], tf.string, name)


def signature(*inputs: tf.TensorSpec) -> Callable[[Callable], Signature]:
    """Decorates a function of `inputs` that returns a dictionary of tensors.

    Raises InvalidArgumentError for tensors of another rank than the inputs'.

    Example:

    ```python
    @signature(string_input("text"))
    def serving_default(text):
        return {"length": tf.strings.length(text)}
    ```
    """

    def decorate(function: Callable) -> Signature:
        @functools.wraps(function)
        def checked(*tensors):
            # TensorFlow Serving checks only names and dtypes, and tf_text's ops read
            # out of bounds if they get a scalar.
            shapes = [spec.shape for spec in inputs]
            outputs = function(*map(tf.ensure_shape, tensors, shapes))
            if not isinstance(outputs, Mapping):
                raise ValueError(
                    f"The signature {function.__name__} must return a dict of tensors "
                    f"by their names. Received: {outputs!r}"
                )
            return to_float32(outputs)

        if keras.config.backend() == "jax":  # Models of JAX are not part of a graph.
            checked.input_signature = inputs
            return checked
        # AutoGraph conversion would take most of the time of an export, and no
        # signature needs it.
        return tf.function(checked, input_signature=inputs, autograph=False)

    return decorate


def class_probabilities(
    logits: tf.Tensor, labels: Sequence[str]
) -> dict[str, tf.Tensor]:
    """Returns `label` [N] string and `probabilities` [N, C] for logits [N, C]."""
    return {
        "label": tf.gather(tf.constant(labels), tf.argmax(logits, axis=1)),
        "probabilities": tf.nn.softmax(logits),
    }


def ids_signature(model: keras.Model) -> Signature:
    """Returns a signature that runs the model on token ids.

    Args:
        model: A functional model with named inputs. A single unnamed output is called
            `logits`.
    """
    specs = [tf.TensorSpec(x.shape, x.dtype, name) for name, x in model.input.items()]

    @signature(*specs)
    def ids(*tensors):
        # Fails if shapes differ. The encoder would read segments by a flat index.
        tensors = tf.unstack(tf.stack(tensors))
        inputs = dict(zip(model.input, tensors, strict=True))
        outputs = model(inputs, training=False)
        return outputs if isinstance(outputs, dict) else {"logits": outputs}

    return ids


def to_float32(outputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Casts bfloat16 and float16, which many clients and the REST API cannot read."""
    half = {tf.bfloat16: tf.float32, tf.float16: tf.float32}
    values = {name: tf.convert_to_tensor(value) for name, value in outputs.items()}
    return {name: tf.cast(x, half.get(x.dtype, x.dtype)) for name, x in values.items()}
