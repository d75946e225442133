# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Everything in `bert_tf.modeling` that is specific to TensorFlow or JAX.

- Custom gradients, XLA compilation of groups of ops, recomputation.
- Checks of values in eager mode and in graphs.
- `Dropout` with reproducible masks that differ among replicas.
"""

from __future__ import annotations

import contextvars
import functools
import importlib.metadata
from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from bert_tf import keras_private
from bert_tf.lazy import lazy_import, require_backend

# Other backends would fail later, with unclear errors.
require_backend("BERT", "tensorflow", "jax")
jax = lazy_import("jax")
tf = lazy_import("tensorflow")

# --- Custom gradients and fusion -------------------------------------------------


def custom_gradient(
    function: Callable[..., tuple[Any, Callable[[Any], Any]]],
) -> Callable[..., Any]:
    """Decorates a function that returns its output and its gradient function.

    Unlike `keras.ops.custom_gradient`, the result also accepts Keras variables.

    Args:
        function: Takes tensors. Returns the output tensor and a function that maps the
            gradient w.r.t. the output to the gradients w.r.t. the inputs.
    """

    with_gradient = ops.custom_gradient(function)

    @functools.wraps(function)
    def wrapper(*inputs):
        inputs = [ops.convert_to_tensor(value) for value in inputs]
        if keras_private.is_tensorflow():
            # In eager mode, Keras returns the `tf.Variable` of a Keras variable.
            inputs = [tf.convert_to_tensor(value) for value in inputs]
        if _use_autodiff.get():
            return function(*inputs)[0]
        output = with_gradient(*inputs)
        if keras_private.is_tensorflow() and tf.is_symbolic_tensor(output):
            keras_private.free_with_graph(output)
        return output

    return wrapper


# Disables custom gradients.
_use_autodiff = contextvars.ContextVar("use_autodiff", default=False)


def recompute(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps `function(x, mask, seeds)`, so that its gradient keeps the arguments only.

    The backward pass computes `function` again. `keras.remat` is for JAX only: on
    TensorFlow, each trace would stay in memory forever.
    """

    def run_with_autodiff(*arguments):
        token = _use_autodiff.set(True)
        try:
            return function(*arguments)
        finally:
            _use_autodiff.reset(token)

    def wrapper(x, mask, seeds):
        if not keras_private.is_tensorflow():
            # Custom gradients refer to dropout masks of the traced function, which
            # `jax.checkpoint` does not allow.
            return keras.remat(lambda x: run_with_autodiff(x, mask, seeds))(x)

        @custom_gradient
        def run(x):
            def gradient(dy, variables=()):
                # XLA ignores control dependencies, so `x` depends on a value, too.
                zero = tf.cast(0 * tf.reshape(dy, [-1])[0], x.dtype)
                with tf.GradientTape() as tape:
                    again = delay_until(dy, x + zero)
                    tape.watch(again)
                    delayed = [s if s is None else delay_until(again, s) for s in seeds]
                    y = function(again, mask, delayed)
                dx, *others = tape.gradient(y, [again, *variables], dy)
                return (dx, others) if variables else dx

            return run_with_autodiff(x, mask, seeds), gradient

        return run(x)

    return wrapper


def delay_until(upstream, tensor):
    """Returns `tensor`, in a TensorFlow graph not before `upstream` is computed.

    Keeps TensorFlow from hoisting recomputation into the forward pass: ops that depend
    on forward tensors only would run early, and their results would stay in memory.
    """
    if not keras_private.is_tensorflow():
        return tensor
    with tf.control_dependencies([upstream]):
        return tf.identity(tensor)


def xla_fused(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiles a function of tensors and constants with XLA where that is faster.

    That is in TensorFlow graphs on CPUs, if all shapes are static: XLA compiles anew
    for each shape. Use it inside of `custom_gradient` functions only: the gradient of a
    compiled function would keep all of its intermediate tensors.
    """
    if not keras_private.is_tensorflow() or _is_tensorflow_tpu():
        return function
    compiled = tf.function(function, jit_compile=True, autograph=False)

    @functools.wraps(function)
    def wrapper(*inputs):
        shapes = [value.shape for value in inputs if tf.is_tensor(value)]
        use_xla = (
            cpu_only()
            and not tf.executing_eagerly()
            and all(shape.is_fully_defined() for shape in shapes)
        )
        return (compiled if use_xla else function)(*inputs)

    return wrapper


@functools.cache
def cpu_only() -> bool:
    """Whether the backend is TensorFlow on a machine without GPU and TPU.

    A TPU compiles the whole step anyway. On GPUs, XLA needs parts of CUDA that may not
    be installed.
    """
    if not keras_private.is_tensorflow():
        return False
    return not any(keras.distribution.list_devices(kind) for kind in ("gpu", "tpu"))


@functools.cache
def _is_tensorflow_tpu() -> bool:
    """Whether TensorFlow is of the package tensorflow-tpu, without XLA for CPUs."""
    try:
        return bool(importlib.metadata.version("tensorflow-tpu"))
    except importlib.metadata.PackageNotFoundError:
        return False


def jit_compile() -> str | bool:
    """Returns the default of `compile`: whether XLA compiles the steps of a model.

    On TensorFlow, only on GPUs: on CPUs, XLA makes steps slower (docs/results.md), and
    a TPU compiles them anyway. Everywhere else, Keras' default.
    """
    is_slower = keras_private.is_tensorflow() and not keras.distribution.list_devices(
        "gpu"
    )
    return False if is_slower else "auto"


def check(condition, message: str, value):
    """Returns `value`. Raises ValueError with both unless the condition is true.

    In TensorFlow graphs, the error is tf.errors.InvalidArgumentError. XLA and JAX do
    not check conditions that depend on tensors.
    """
    backend = keras.backend.backend()
    if backend == "tensorflow" and tf.is_symbolic_tensor(condition):
        check = tf.debugging.Assert(condition, [f"{message}:", value])
        with tf.control_dependencies([check]):
            return tf.identity(value)
    is_traced = backend == "jax" and isinstance(condition, jax.core.Tracer)
    if not is_traced and not condition:
        raise ValueError(f"{message}: {value}")
    return value


def check_not_negative(values, message: str) -> None:
    """Raises an error as `check` if one of the values is negative.

    Does nothing in graphs on accelerators, which would wait for the value.
    """
    if cpu_only() or not (keras_private.is_tensorflow() and not tf.executing_eagerly()):
        smallest = ops.min(ops.cast(values, "float32"), initial=0)
        check(smallest >= 0, f"{message} Received the value", smallest)


# --- Dropout ---------------------------------------------------------------------


class SeedGenerator(keras.random.SeedGenerator):
    """`keras.random.SeedGenerator` with one sequence of seeds per replica.

    Keras mirrors the state of a generator, so that all replicas would draw the same
    dropout masks (keras-team/keras#20611).
    """

    def next(self, ordered=True):
        seed = super().next(ordered)
        if not keras_private.is_tensorflow():
            return seed
        context = tf.distribute.get_replica_context()
        replica = context.replica_id_in_sync_group if context else 0
        # The second element of a seed counts the draws; the first keeps replicas apart.
        return seed + tf.cast(tf.stack([replica * 1_000_003, 0]), seed.dtype)


@keras.saving.register_keras_serializable(package="bert_tf")
class Dropout(keras.layers.Layer):
    """`keras.layers.Dropout` with a `SeedGenerator` of this module.

    Args:
        rate: Probability that an element is set to 0.
        seed: Initial seed of `seed_generator`; random when None.
    """

    def __init__(self, rate: float, seed: int | None = None, **kwargs):
        super().__init__(**kwargs)
        self.rate, self.seed, self.supports_masking = rate, seed, True
        if rate:
            self.seed_generator = SeedGenerator(seed)
        self.built = True

    def call(self, x, training=False):
        if training and self.rate:
            return keras.random.dropout(x, self.rate, seed=self.seed_generator)
        return x

    def compute_output_shape(self, x_shape):
        return x_shape

    def get_config(self):
        return super().get_config() | {"rate": self.rate, "seed": self.seed}

    def next_seed(self):
        """Returns a seed for `dropout_mask`, [2]; None if the rate is 0."""
        return self.seed_generator.next() if self.rate else None


def dropout_mask(shape: Sequence[int], rate: float, seed):
    """Draws a dropout mask.

    Args:
        shape: Shape of the mask; sizes may be scalar tensors.
        rate: Share of the elements to drop. It is rounded to a multiple of 2**-16 on
            CPUs and on JAX, where random numbers are expensive: two elements share 32
            random bits.
        seed: See `Dropout.next_seed`.

    Returns:
        A bool tensor, True for elements to keep, or None if the rate is 0.
    """
    if not rate:
        return None
    threshold = min(round(rate * 2**16), 2**16 - 1)
    if keras.backend.backend() == "jax":
        # The first axis may be sharded.
        words_shape = (shape[0], (shape[1] + 1) // 2, *shape[2:])
        words = jax.random.bits(seed, words_shape, "uint32")
        halves = [words & 0xFFFF, words >> 16]
        mask = jax.numpy.concatenate(halves, axis=1)[:, : shape[1]] >= threshold
        # Keeps XLA:TPU from fusing the random numbers with the softmax. In rows of 512
        # tokens, the fusion exceeds the on-chip memory and does not compile.
        return jax.lax.optimization_barrier(mask)
    seed = tf.cast(seed % tf.int32.max, tf.int32)
    if not cpu_only():
        return tf.random.stateless_uniform(shape, seed) >= rate
    size = tf.reduce_prod(shape)
    words = tf.random.stateless_uniform(
        [(size + 1) // 2], seed, minval=None, maxval=None, dtype=tf.uint32
    )
    halves = tf.reshape(tf.bitcast(words, tf.uint16), [-1])[:size]
    return tf.reshape(halves, shape) >= tf.constant(threshold, tf.uint16)
