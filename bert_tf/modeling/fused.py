# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Training kernels: custom gradients, XLA fusion, dropout, recomputation.

In training, the encoder calls these functions instead of the plain Keras ones. The
values are the same; memory and time are not:

- Memory: autodiff keeps all intermediate tensors from the forward to the backward
  pass. Functions with a `custom_gradient` keep one or two and recompute the others.
- Time on CPUs: TensorFlow makes one pass over memory per elementwise op.
  `xla_fused` compiles a group of such ops with XLA into one pass. Matmuls stay
  outside, because oneDNN's are faster than XLA's.

All code of `bert_tf.modeling` that is specific to a backend of Keras is in this file.
Backends other than TensorFlow run the same formulas without XLA fusion.

Letters: B batch, S sequence, T = B * S, N heads, D size of a head, H hidden,
V vocabulary. Elementwise arithmetic is in float32, whatever the type of the inputs.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
from keras import ops

from bert_tf.lazy import lazy_import
from bert_tf.modeling.config import MASKED_SCORE

jax = lazy_import("jax")
tf = lazy_import("tensorflow")

# --- Custom gradients and fusion -------------------------------------------------


def custom_gradient(
    function: Callable[..., tuple[Any, Callable[[Any], Any]]],
) -> Callable[..., Any]:
    """Decorates a function that returns its output and its gradient function.

    Unlike `keras.ops.custom_gradient`, the result also accepts Keras variables, and
    the gradient function has the same signature on every backend.

    Args:
        function: Takes tensors. Returns the output tensor and a function that maps the
            gradient w.r.t. the output to the gradients w.r.t. the inputs.
    """

    @ops.custom_gradient
    def with_gradient(*inputs):
        output, gradient_of = function(*inputs)

        def gradient(*arguments, upstream=None):
            # TensorFlow and JAX pass it by position, torch by keyword.
            return gradient_of(arguments[0] if upstream is None else upstream)

        return output, gradient

    @functools.wraps(function)
    def wrapper(*inputs):
        inputs = [_to_tensor(value) for value in inputs]
        return function(*inputs)[0] if _autodiff else with_gradient(*inputs)

    return wrapper


_autodiff = False


@contextlib.contextmanager
def _jax_autodiff() -> Iterator[None]:
    """Disables custom gradients on JAX.

    They refer to masks of the traced function, which `jax.checkpoint` does not allow.
    """
    global _autodiff
    _autodiff = keras.backend.backend() == "jax"
    try:
        yield
    finally:
        _autodiff = False


def _to_tensor(value):
    tensor = ops.convert_to_tensor(value)
    if _is_tensorflow():
        # In eager mode, Keras returns the `tf.Variable` of a Keras variable.
        tensor = tf.convert_to_tensor(tensor)
    return tensor


def delay_until(upstream, tensor):
    """Returns `tensor`, in a TensorFlow graph not before `upstream` is computed.

    Keeps TensorFlow from hoisting recomputation into the forward pass: ops that depend
    on forward tensors only would run early, and their results would stay in memory.
    """
    if not _is_tensorflow():
        return tensor
    with tf.control_dependencies([upstream]):
        return tf.identity(tensor)


def xla_fused(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiles a function of tensors and constants with XLA where that is faster.

    That is in TensorFlow graphs on CPUs, if all shapes are static: XLA compiles anew
    for each shape. Use it inside of `custom_gradient` functions only: the gradient of a
    compiled function would keep all of its intermediate tensors.
    """
    if not _is_tensorflow():
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
    if not _is_tensorflow():
        return False
    return not any(keras.distribution.list_devices(kind) for kind in ("gpu", "tpu"))


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


def check_mask(padding_mask) -> None:
    """Refuses the additive form of padding masks that other libraries use.

    Does nothing in graphs on accelerators, which would wait for the value.
    """
    if cpu_only() or not (_is_tensorflow() and not tf.executing_eagerly()):
        smallest = ops.min(_float32(padding_mask), initial=0)
        check(
            smallest >= 0,
            "`padding_mask` must be 1 for tokens and 0 for padding, not a bias of "
            "attention scores. Received: a mask with the value",
            smallest,
        )


def _is_tensorflow() -> bool:
    return keras.backend.backend() == "tensorflow"


def _float32(tensor):
    return ops.cast(tensor, "float32")


# --- Dropout ---------------------------------------------------------------------


class SeedGenerator(keras.random.SeedGenerator):
    """`keras.random.SeedGenerator` with one sequence of seeds per replica, and replay.

    Keras mirrors the state of a generator, so that all replicas would draw the same
    dropout masks (keras-team/keras#20611).
    """

    _replayed_seed = None

    def next(self, ordered=True):
        if self._replayed_seed is not None:
            return self._replayed_seed
        seed = super().next(ordered)
        if not _is_tensorflow():
            return seed
        context = tf.distribute.get_replica_context()
        replica = context.replica_id_in_sync_group if context else 0
        # The second element of a seed counts the draws; the first keeps replicas apart.
        return seed + tf.cast(tf.stack([replica * 1_000_003, 0]), seed.dtype)

    @contextlib.contextmanager
    def replay(self, seed: Any) -> Iterator[None]:
        """Makes `next` return `seed` in this context; the state does not change."""
        self._replayed_seed = seed
        try:
            yield
        finally:
            self._replayed_seed = None


@keras.saving.register_keras_serializable(package="bert_tf")
class Dropout(keras.layers.Layer):
    """`keras.layers.Dropout` with a `SeedGenerator` of this module.

    Args:
        rate: Probability that an element is set to 0.
        seed: Initial seed of `seed_generator`; random when None.
    """

    def __init__(self, rate: float, seed: int | None = None, **kwargs):
        super().__init__(**kwargs)
        self.rate = rate
        self.seed = seed
        self.seed_generator = SeedGenerator(seed) if rate else None
        self.supports_masking = True
        self.built = True

    def call(self, x, training=None):
        if training and self.rate:
            return keras.random.dropout(x, self.rate, seed=self.seed_generator)
        return x

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return super().get_config() | {"rate": self.rate, "seed": self.seed}


def dropout_mask(shape: Sequence[int], dropout: Dropout):
    """Draws the mask of a dropout layer.

    Args:
        shape: Shape of the mask; sizes may be scalar tensors.
        dropout: Its rate is rounded to a multiple of 2**-16 on CPUs and on JAX, where
            random numbers are expensive: two elements share 32 random bits.

    Returns:
        A bool tensor, True for elements to keep, or None if the rate is 0.
    """
    if not dropout.rate:
        return None
    threshold = min(round(dropout.rate * 2**16), 2**16 - 1)
    if keras.backend.backend() == "jax":
        # The first axis may be sharded.
        words_shape = (shape[0], (shape[1] + 1) // 2, *shape[2:])
        words = jax.random.bits(dropout.seed_generator.next(), words_shape, "uint32")
        halves = [words & 0xFFFF, words >> 16]
        mask = jax.numpy.concatenate(halves, axis=1)[:, : shape[1]] >= threshold
        # Keeps XLA:TPU from fusing the random numbers with the softmax. In rows of 512
        # tokens, the fusion exceeds the on-chip memory and does not compile.
        return jax.lax.optimization_barrier(mask)
    if not cpu_only():
        return keras.random.uniform(shape, seed=dropout.seed_generator) >= dropout.rate
    size = tf.reduce_prod(shape)
    words = tf.random.stateless_uniform(
        [(size + 1) // 2],
        tf.cast(dropout.seed_generator.next() % tf.int32.max, tf.int32),
        minval=None,
        maxval=None,
        dtype=tf.uint32,
    )
    halves = tf.reshape(tf.bitcast(words, tf.uint16), [-1])[:size]
    return tf.reshape(halves, shape) >= tf.constant(threshold, tf.uint16)


def recompute(
    function: Callable[[Any], Any], dropouts: Sequence[Dropout]
) -> Callable[[Any], Any]:
    """Wraps `function` of a tensor, so that only the tensor is kept for its gradient.

    The backward pass computes `function` again, with the dropout masks of the first
    time: `keras.remat` and `keras.RematScope` alone would draw other masks (3.15).
    """
    generators = [dropout.seed_generator for dropout in dropouts if dropout.rate]

    def wrapper(x):
        seeds = [generator.next() for generator in generators]

        @keras.remat
        def run(x):
            with _jax_autodiff(), contextlib.ExitStack() as stack:
                for generator, seed in zip(generators, seeds, strict=True):
                    stack.enter_context(generator.replay(delay_until(x, seed)))
                return function(x)

        return run(x)

    return wrapper


# --- Dense layers ----------------------------------------------------------------


def project(x, layer: keras.layers.Dense):
    """Returns x kernel, [T, units], without the bias of the layer.

    TensorFlow fuses a matmul and its bias into one op. That op is up to four times
    slower than a matmul on CPUs with AMX if the weights change. So the next operation
    adds the bias: `add_bias`, `add_and_norm` or one of `ACTIVATIONS`.
    """
    if layer.quantization_mode:  # The kernel is scaled integers.
        return layer(x) - ops.cast(layer.bias, layer.compute_dtype)
    return ops.matmul(x, ops.cast(layer.kernel, layer.compute_dtype))


@custom_gradient
def add_bias(x, bias):
    """Returns x + bias, [T, H], of the dtype of `x`."""
    return _add_bias(x, bias), lambda dy: (dy, _d_bias(dy, bias))


@xla_fused
def _add_bias(x, bias):
    return ops.cast(_float32(x) + _float32(bias), x.dtype)


def _d_bias(dy, bias):
    """Returns the sum of dy [T, H] over the first axis, [H] of the dtype of `bias`.

    The sum is in float32. TensorFlow's own gradient of a bias adds up bfloat16 numbers
    on CPUs: with 4,096 rows, errors of biases were 5 to 60% (TensorFlow 2.21).
    """
    if cpu_only():  # Faster there. A bfloat16 matmul of Eigen's would be 0.7% off.
        total = ops.matmul(ops.ones((1, ops.shape(dy)[0])), _float32(dy))[0]
    else:
        total = ops.sum(_float32(dy), axis=0)
    # With recomputation, `bias` may be of float32 and `dy` of float16.
    return ops.cast(total, bias.dtype)


# --- Attention -------------------------------------------------------------------


def attention_bias(mask):
    """Returns what to add to attention scores, [B, 1, 1 or S, S] float32.

    Args:
        mask: [B, S] or [B, 1 or S, S] (query attends to key), any dtype; nonzero for
            tokens to attend to.
    """
    if len(mask.shape) == 2:
        mask = ops.expand_dims(mask, 1)
    return ops.where(ops.cast(ops.expand_dims(mask, 1), "bool"), 0.0, MASKED_SCORE)


def attend(query, key, value, bias=None):
    """Returns softmax(query keyᵀ + bias) value, [B, N, S, D]; for inference.

    Args:
        query, key, value: [B, N, S, D]; the query is scaled, which takes fewer
            multiplications than scaling the scores.
        bias: See `attention_bias`; None for no mask.
    """
    return ops.matmul(_attention_probabilities(query, key, bias), value)


def attend_in_training(query, key, value, bias, dropout: Dropout):
    """Returns `attend` with dropout of the probabilities.

    Tensors of size [B, N, S, S] are the largest in long rows. Autodiff keeps three of
    them: the probabilities before and after dropout, and the mask. This function keeps
    one: the probabilities, negated where dropout sets them to 0. The gradient follows
    FlashAttention (arXiv 2205.14135, appendix B).

    Args:
        query, key, value, bias: As for `attend`; the bias gets no gradient.
        dropout: The layer that draws the mask.
    """
    mask = dropout_mask((*ops.shape(query)[:3], ops.shape(key)[2]), dropout)
    scale = 1 / (1 - dropout.rate)

    def kept(signed):
        return signed if mask is None else _relu(signed)

    @custom_gradient
    def attend_with_dropout(query, key, value):
        signed = _attention_probabilities(query, key, bias)
        if mask is not None:
            signed = _negate_dropped(signed, mask)
        y = ops.matmul(kept(signed), value) * scale

        def gradient(dy):
            d_scaled = dy * scale
            delayed = delay_until(dy, signed)
            d_value = ops.matmul(_transpose(kept(delayed)), d_scaled)
            d_dropped = ops.matmul(d_scaled, _transpose(value))
            d_scores = _d_scores(delayed, d_dropped)
            d_query = ops.matmul(d_scores, key)
            d_key = ops.matmul(_transpose(d_scores), query)
            return d_query, d_key, d_value

        return y, gradient

    return attend_with_dropout(query, key, value)


def _attention_probabilities(query, key, bias):
    """Returns [B, N, S, S] of the dtype of `query`."""
    # In float32: bfloat16 would round small probabilities to 0.
    scores = _float32(ops.matmul(query, _transpose(key)))
    scores = scores if bias is None else scores + bias
    return ops.cast(ops.softmax(scores), query.dtype)


@xla_fused
def _negate_dropped(probabilities, mask):
    return ops.where(mask, probabilities, -probabilities)


@xla_fused  # TensorFlow's own is slow in bfloat16.
def _relu(x):
    return ops.relu(x)


@xla_fused
def _d_scores(signed, d_dropped):
    """Returns the gradient w.r.t. the scores, of the dtype of `d_dropped`."""
    signed = _float32(signed)
    weighted = ops.relu(signed) * _float32(d_dropped)
    # FlashAttention has sum(dy * y), over D instead of S. That is cheaper, but the
    # rounding errors of a bfloat16 y do not cancel where a probability is close to 1.
    mean = ops.sum(weighted, axis=-1, keepdims=True)
    return ops.cast(weighted - ops.abs(signed) * mean, d_dropped.dtype)


def _transpose(matrices):
    return ops.transpose(matrices, (0, 1, 3, 2))


# --- Residual connection ---------------------------------------------------------


def add_and_norm(
    x, y, bias, layer_norm: keras.layers.LayerNormalization, dropout: Dropout
):
    """Returns LayerNorm(x + dropout(y + bias)), [T, H], of the dtype of `x`.

    Autodiff would keep several tensors of size [T, H]; this keeps the normalized sum
    and the dropout mask.

    Args:
        x, y: [T, H].
        bias: [H], that of the dense layer that `project` applied.
        layer_norm: A built layer; its weights get gradients.
        dropout: The layer that draws the mask.
    """
    mask = dropout_mask(ops.shape(y), dropout)
    scale = 1 / (1 - dropout.rate)

    @custom_gradient
    def add_and_norm(x, y, bias, gamma, beta):
        output, normalized, inverse_deviation = _add_and_norm(
            x, y, bias, mask, gamma, beta, scale, layer_norm.epsilon
        )

        def gradient(d_output):
            delayed = delay_until(d_output, normalized)
            return _add_and_norm_gradient(
                delayed, inverse_deviation, mask, gamma, d_output, scale
            )

        return output, gradient

    return add_and_norm(x, y, bias, layer_norm.gamma, layer_norm.beta)


@xla_fused
def _add_and_norm(x, y, bias, mask, gamma, beta, scale, epsilon):
    """Returns the output, the normalized sum, and 1 / standard deviation [T, 1]."""
    total = _float32(x) + _drop(_float32(y) + _float32(bias), mask, scale)
    centered = total - ops.mean(total, axis=-1, keepdims=True)
    variance = ops.mean(ops.square(centered), axis=-1, keepdims=True)
    inverse_deviation = ops.rsqrt(variance + epsilon)
    normalized = centered * inverse_deviation
    output = normalized * _float32(gamma) + _float32(beta)
    return ops.cast(output, x.dtype), ops.cast(normalized, x.dtype), inverse_deviation


@xla_fused
def _add_and_norm_gradient(normalized, inverse_deviation, mask, gamma, d_output, scale):
    """Returns the gradients w.r.t. x, y, bias, gamma and beta."""
    dtype = normalized.dtype
    normalized, d_output = _float32(normalized), _float32(d_output)
    d_gamma = ops.sum(d_output * normalized, axis=0)
    d_beta = ops.sum(d_output, axis=0)
    d_normalized = d_output * _float32(gamma)
    projection = ops.mean(d_normalized * normalized, axis=-1, keepdims=True)
    mean = ops.mean(d_normalized, axis=-1, keepdims=True)
    dx = inverse_deviation * (d_normalized - mean - projection * normalized)
    dy = _drop(dx, mask, scale)
    d_bias = ops.sum(dy, axis=0)
    return (
        *(ops.cast(tensor, dtype) for tensor in (dx, dy)),
        *(ops.cast(tensor, gamma.dtype) for tensor in (d_bias, d_gamma, d_beta)),
    )


def _drop(tensor, mask, scale):
    return tensor if mask is None else ops.where(mask, tensor * scale, 0.0)


# --- Activations -----------------------------------------------------------------


def _activation(value: Callable, derivative: Callable) -> Callable[[Any, Any], Any]:
    """Returns an activation of x + bias that keeps only x and bias for the gradient."""

    @xla_fused
    def forward(x, bias):
        return ops.cast(value(_float32(x) + _float32(bias)), x.dtype)

    @xla_fused
    def backward(x, bias, dy):
        x = _float32(x) + _float32(bias)
        return ops.cast(_float32(dy) * derivative(x), dy.dtype)

    @custom_gradient
    def activation(x, bias):
        def gradient(dy):
            dx = backward(delay_until(dy, x), bias, dy)
            return dx, _d_bias(dx, bias)

        return forward(x, bias), gradient

    return activation


_GELU_A = 2 * math.sqrt(2 / math.pi)
_GELU_B = _GELU_A * 0.044715


def _gelu_gate(x):
    # (1 + tanh(u)) / 2 = sigmoid(2 u); fewer passes over x than the usual form.
    return ops.sigmoid(x * (_GELU_A + _GELU_B * (x * x)))


def _gelu_tanh(x):
    return x * _gelu_gate(x)


def _gelu_tanh_derivative(x):
    gate = _gelu_gate(x)
    return gate + x * gate * (1.0 - gate) * (_GELU_A + 3 * _GELU_B * (x * x))


def _gelu_erf(x):
    return 0.5 * x * (1.0 + ops.erf(x * math.sqrt(0.5)))


def _gelu_erf_derivative(x):
    density = ops.exp(-0.5 * x * x) * (1 / math.sqrt(2 * math.pi))
    return 0.5 + 0.5 * ops.erf(x * math.sqrt(0.5)) + x * density


# By the names of `BertConfig.activation`: functions of x [T, I] and bias [I].
ACTIVATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "gelu_tanh": _activation(_gelu_tanh, _gelu_tanh_derivative),
    "gelu_erf": _activation(_gelu_erf, _gelu_erf_derivative),
    "relu": _activation(ops.relu, lambda x: ops.cast(x > 0, x.dtype)),
}

# --- Masked language model -------------------------------------------------------


@custom_gradient
def tied_logits(x, embeddings):
    """Returns x embeddingsᵀ, [T, V], from x [T, H] and token embeddings [V, H].

    Autodiff would return the gradient of the embeddings transposed.
    """

    def gradient(d_logits):
        return ops.matmul(d_logits, embeddings), ops.matmul(ops.transpose(d_logits), x)

    return ops.matmul(x, ops.transpose(embeddings)), gradient


@keras.saving.register_keras_serializable(package="bert_tf")
class MaskedLMLoss(keras.losses.Loss):
    """Cross-entropy of logits [..., V] with token ids [...], summed by default.

    Equals `keras.losses.SparseCategoricalCrossentropy(from_logits=True)`, which makes
    several passes over the logits, the largest tensor of a small model, and keeps
    another tensor of their size.
    """

    def __init__(self, name="masked_lm_loss", reduction="sum", dtype=None):
        super().__init__(name=name, reduction=reduction, dtype=dtype)

    def call(self, y_true, y_pred):
        token_ids = ops.cast(y_true, "int32")  # Keras casts labels to float.

        @custom_gradient
        def cross_entropy(logits):
            losses, normalizers = _cross_entropy(logits, token_ids)

            def gradient(d_losses):
                return _d_logits(logits, token_ids, normalizers, d_losses)

            return losses, gradient

        return cross_entropy(y_pred)


@keras.saving.register_keras_serializable(package="bert_tf")
def masked_lm_accuracy(token_ids, logits):
    """Returns 1 where the largest of the logits [..., V] is that of the token id [...].

    Equals `keras.metrics.sparse_categorical_accuracy`, for which XLA:TPU copies the
    logits to another layout.
    """
    rows = ops.reshape(logits, (-1, logits.shape[-1]))
    predicted = ops.reshape(ops.argmax(rows, axis=-1), ops.shape(token_ids))
    return ops.cast(predicted == ops.cast(token_ids, predicted.dtype), "float32")


@xla_fused
def _cross_entropy(logits, token_ids):
    """Returns the losses and the log-sum-exp of the logits, both [...]."""
    label_logits = ops.sum(
        ops.where(_is_label(logits, token_ids), logits, 0.0), axis=-1
    )
    largest = ops.max(logits, axis=-1)
    exponentials = ops.exp(logits - ops.expand_dims(largest, -1))
    normalizers = largest + ops.log(ops.sum(exponentials, axis=-1))
    return normalizers - label_logits, normalizers


@xla_fused
def _d_logits(logits, token_ids, normalizers, d_losses):
    normalizers, d_losses = (
        ops.expand_dims(tensor, -1) for tensor in (normalizers, d_losses)
    )
    labels = ops.cast(_is_label(logits, token_ids), logits.dtype)
    return (ops.exp(logits - normalizers) - labels) * d_losses


def _is_label(logits, token_ids):
    """Returns the one-hot labels, [..., V] bool."""
    return ops.expand_dims(token_ids, -1) == ops.arange(logits.shape[-1], dtype="int32")
