# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Losses and metrics of models that return logits."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

import keras

# Names of losses and metrics that take probabilities without saying so by an argument.
_OF_PROBABILITIES = "kldivergence|poisson|dice|tversky|categoricalgeneralized"


def cross_entropies(outputs: Any) -> dict[str, Any]:
    """Returns the `compile` arguments for outputs that are logits of classes.

    That is cross-entropy and accuracy of each output.
    """
    loss = keras.losses.SparseCategoricalCrossentropy
    # `SparseCategoricalAccuracy` makes several passes over the logits.
    accuracy = keras.metrics.SparseTopKCategoricalAccuracy
    each = keras.tree.map_structure
    return {
        "loss": each(lambda _: loss(from_logits=True), outputs),
        "weighted_metrics": each(lambda _: [accuracy(k=1, name="accuracy")], outputs),
    }


def check_logits(model: keras.Model, losses: Any, metrics: Any) -> None:
    """Raises ValueError if a loss or a metric of Keras takes probabilities.

    Args:
        model: A model that returns logits, or scores if its losses are those of scores.
        losses: As `keras.Model.compile` takes them.
        metrics: Those and the weighted ones.
    """
    losses = _resolve(losses, keras.losses)
    wrong = [given for given, loss in losses if _takes_probabilities(loss)]
    names = [_name(loss) for _, loss in losses]
    if not all(re.match("mean|huber|logcosh", name) for name in names):
        # Keras compares a single logit, or independent ones, with the threshold 0.5.
        is_single = any(x.shape[-1] == 1 for x in keras.tree.flatten(model.output))
        is_binary = is_single or any("binary" in name for name in names)
        accuracy = "binary_accuracy" if is_binary else "categorical_accuracy"
        aliases = {"accuracy": accuracy, "acc": accuracy}
        metrics = _resolve(metrics, keras.metrics, aliases)
        wrong += [given for given, metric in metrics if _takes_probabilities(metric)]
    if wrong:
        raise ValueError(
            f"{model.name} returns logits, but a loss or metric takes probabilities. "
            f"Received: {wrong[0]!r}. Pass an object with from_logits=True, such as "
            "keras.losses.BinaryCrossentropy or keras.metrics.AUC, or with a threshold "
            "of 0, such as keras.metrics.BinaryAccuracy(threshold=0.0). Or compile "
            "keras.Model(model.input, keras.layers.Activation('sigmoid')(model.output))"
        )


def check_class_weight(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps `keras.Model.fit` or `train_on_batch`: Keras weighs one class per example.

    The wrapper raises ValueError for `class_weight` if examples have several labels or
    tags, of which Keras would take the position of the largest as the class.
    """
    parameters = inspect.signature(method)

    @functools.wraps(method)
    def wrapper(model, *args, **kwargs):
        arguments = parameters.bind(model, *args, **kwargs).arguments
        if arguments.get("class_weight") is not None:
            losses = model.loss, model._losses_and_metrics().get("loss")
            is_binary = any("binary" in _name(loss) for _, loss in _resolve(losses))
            shape = getattr(model.output, "shape", ())
            if len(shape) != 2 or (is_binary and shape[-1] != 1):
                raise ValueError(
                    "`class_weight` requires one class per example, which labels of "
                    f"{model.name} are not. Pass a weight for each label as "
                    "`sample_weight`, e.g. np.array([1.0, 5.0])[labels]"
                )
        return method(model, *args, **kwargs)

    return wrapper


def _resolve(
    given: Any, module: Any = keras.losses, aliases: Mapping[str, str] | None = None
) -> list[tuple[Any, Any]]:
    """Returns the losses or metrics as passed, and as objects or functions."""
    aliases = aliases or {"ce": "bce", "crossentropy": "bce"}
    return [
        (x, module.get(aliases.get(x.lower(), x) if isinstance(x, str) else x))
        for x in keras.tree.flatten(given)
        if x is not None
    ]


def _name(item: Any) -> str:
    item = getattr(item, "func", item)  # Of `functools.partial`.
    return getattr(item, "__name__", type(item).__name__).lower().replace("_", "")


def _takes_probabilities(item: Any) -> bool:
    code = getattr(item, "call", getattr(item, "update_state", None))
    if not (code or getattr(item, "func", item)).__module__.startswith("keras."):
        return False  # The author of other code knows the model.
    if code:
        options = item.get_config() | {"thresholds": getattr(item, "thresholds", None)}
    else:
        parameters = inspect.signature(item).parameters
        options = {name: x.default for name, x in parameters.items()}
    if "from_logits" in options:
        return not options["from_logits"]
    thresholds = [options.get("threshold"), options.get("thresholds")]
    return bool(re.match(_OF_PROBABILITIES, _name(item))) or any(
        x is not None and 0 < x <= 1 for x in keras.tree.flatten(thresholds)
    )
