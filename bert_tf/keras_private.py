# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""All uses of private names of Keras 3.15 and TensorFlow 2.21.

A release of either may change them. `tests/keras_private_test.py` has a test of each,
which names the function below that then needs an update:

- `nested_layers`: Keras lists the layers of a model, not those inside a layer.
- `build_metrics`: Keras creates the variables of metrics in the first step only.
- `OptimizerHooks`: Keras clips gradients before it sums them over the replicas, as in
  tensorflow/tensorflow#33929, and `update_step` sees one variable at a time.
- `free_with_graph`: TensorFlow never removes the gradients that `tf.custom_gradient`
  registers in a graph (tensorflow/tensorflow#97697).
- `allow_strings`: Keras averages strings over the replicas.
- `check_not_forked`: TensorFlow waits for ever for threads that a fork did not copy
  (tensorflow/tensorflow#2448).

`lazy.py` changes only public parts: it imports TensorFlow without its log lines.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import keras
import wrapt

from bert_tf.lazy import lazy_import

tf = lazy_import("tensorflow")
tf_registry = lazy_import("tensorflow.python.framework.ops")


def nested_layers(
    layer: keras.layers.Layer, *, recursive: bool = True
) -> Iterator[keras.layers.Layer]:
    """Yields the layers inside of a layer or model, at all levels or at the first."""
    return layer._flatten_layers(include_self=False, recursive=recursive)


def is_tensorflow() -> bool:
    """Returns whether Keras uses TensorFlow."""
    return keras.backend.backend() == "tensorflow"


def build_metrics(model: keras.Model) -> None:
    """Creates the variables of the losses and metrics of a compiled model.

    A `tf.function` that creates variables is traced twice; `jax.jit` does not allow it.
    """
    # The loss has one metric per output. None if the model overrides `compute_loss`.
    for compiled in (model._compile_loss, model._compile_metrics):
        if compiled and not compiled.built:
            compiled.build(model.output, model.output)


class OptimizerHooks(keras.optimizers.AdamW):
    """`keras.optimizers.AdamW` whose subclasses prepare each step as a whole.

    Gradients are summed over the replicas first. Subclasses implement `prepare_step`,
    and `update_step` for one variable, which also applies weight decay.

    Attributes:
        step: What `prepare_step` returned; None outside of a step.
    """

    step: Any = None

    def prepare_step(
        self, gradients: list, variables: list, learning_rate: Any
    ) -> tuple[list, Any]:
        """Returns the gradients for `update_step`, and an object with their `rate`.

        Args:
            gradients: Those of the global batch, accumulated if Keras does so.
            variables: Their variables.
            learning_rate: That of the schedule.
        """
        raise NotImplementedError

    def moments(self, variable) -> tuple:
        """Returns the first and the second moment of a variable."""
        index = self._get_variable_index(variable)
        return self._momentums[index], self._velocities[index]

    def has_weight_decay(self, variable) -> bool:
        """Whether `exclude_from_weight_decay` does not name the variable."""
        return self._use_weight_decay(variable)

    def apply(self, grads, trainable_variables=None):
        if not self.built and trainable_variables is not None:
            # Also for variables without a gradient in this step.
            self.build(list(trainable_variables))
        if trainable_variables is None and self.built:
            trainable_variables = self._trainable_variables
        # Without the pooler, which some heads lack: Keras would warn.
        pairs = zip(grads, trainable_variables or ())
        if pairs := [pair for pair in pairs if pair[0] is not None]:
            grads, trainable_variables = zip(*pairs)
        if pairs and is_tensorflow():
            # Sums the rows of IndexedSlices that belong to the same token.
            grads = [tf.convert_to_tensor(gradient) for gradient in grads]
            context = tf.distribute.get_replica_context()
            if context.num_replicas_in_sync > 1:  # TensorFlow never frees its graph.
                if steps := self.gradient_accumulation_steps:
                    raise ValueError(
                        "Gradients cannot be accumulated on several replicas. Use a "
                        f"larger batch. Received: gradient_accumulation_steps={steps}"
                    )
                grads = context.all_reduce(tf.distribute.ReduceOp.SUM, grads)
        super().apply(grads, trainable_variables)

    def _get_current_learning_rate(self):
        rate = self._learning_rate  # Keras' schedules count micro-batches.
        if isinstance(rate, keras.optimizers.schedules.LearningRateSchedule):
            return rate(self.iterations)
        return super()._get_current_learning_rate()

    def _all_reduce_sum_gradients(self, grads_and_vars):
        return grads_and_vars

    def _clip_gradients(self, grads):
        return grads

    def _apply_weight_decay(self, variables):
        pass

    def _backend_update_step(self, grads, trainable_variables, learning_rate):
        grads, self.step = self.prepare_step(grads, trainable_variables, learning_rate)
        super()._backend_update_step(grads, trainable_variables, self.step.rate)
        self.step = None


def free_with_graph(output: Any) -> None:
    """Makes TensorFlow free a custom gradient with the graph of its output.

    `tf.custom_gradient` registers a function per call in a graph, which holds the
    graph. The registry keeps it forever, so each `compile` and `fit` would leak the
    graphs of a model.
    """
    gradients, graph = tf_registry.gradient_registry._registry, output.graph
    name = output.op.get_attr("_gradient_op_type").decode()
    gradient = gradients[name]["type"]
    setattr(graph, name, gradient)
    gradients[name]["type"] = weakref.proxy(gradient)
    weakref.finalize(graph, gradients.pop, name, None)


def allow_strings() -> None:
    """Lets models with string inputs train on several replicas.

    Keras averages the first batch over the replicas to see its shapes.
    """

    def build(wrapped, trainer, args, kwargs):
        strategy, batches = trainer.distribute_strategy, kwargs.get("iterator")
        if strategy.num_replicas_in_sync > 1 and batches:
            *_, batch = next(iter(batches))
            local = strategy.experimental_local_results
            batch = keras.tree.map_structure(lambda x: local(x)[0], next(batch))
            args, kwargs = (), {"data_batch": batch}
        wrapped(*args, **kwargs)

    name = "_maybe_symbolic_build"
    if is_tensorflow() and hasattr(keras.Model, name):
        wrapt.wrap_function_wrapper(keras.Model, name, build)


_has_lost_threads = False


def _after_fork() -> None:
    global _has_lost_threads
    eager = sys.modules.get("tensorflow.python.eager.context")
    context = eager and eager.context_safe()
    _has_lost_threads |= bool(context and context._initialized)


os.register_at_fork(after_in_child=_after_fork)


def check_not_forked() -> None:
    """Raises RuntimeError if the process was forked after TensorFlow had started."""
    if _has_lost_threads:
        raise RuntimeError(
            "This process is a fork of one that had started TensorFlow. TensorFlow's "
            "threads are missing here, so it would wait for ever. Load models only "
            "after the fork: with gunicorn, without --preload; with Celery, in "
            "worker_process_init. With multiprocessing, use the start method spawn."
        )
