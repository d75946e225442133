# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""A `BertBackbone` for inference that spends little time on padding.

`optimize_for_inference` returns a model with the same inputs, outputs and weights. It
is several times faster for batches of texts that differ in length:

- Rows are sorted by length and processed in chunks of a few hundred tokens. That bounds
  memory for any batch size, and gives attention rows of similar length. Two loops over
  the chunks run in parallel, which uses two cores better than threads within ops.
- Dense layers and LayerNorm skip padding. Only attention pads rows.
- Sizes of chunks are multiples of 16, so that servers keep few compiled kernels.
- Single texts skip sorting, chunking, and the transposes of attention. Short ones run
  on one thread: waking another one takes longer than it saves. Of long ones, two cores
  compute half of the tokens each.
- States are columns [H, T] and kernels [outputs, inputs]: a matmul copies its right
  factor into another layout, and that of a short text is smaller than the kernel.
- Query, key and value are one matmul, with the scale of the scores in its weights.
- Weights are stored in the compute dtype.

TensorFlow optimizes a graph before its first request, which takes longer than the
request. So the layers are a loop over stacked weights, and a graph has the same size
for any number of layers. TensorFlow takes a layer out of a stack without copying it.

Letters: B batch, S sequence, T tokens without padding, R rows of a chunk, H hidden, N
heads, D = H / N, I intermediate, L layers, K requested hidden states.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert_tf.modeling import BertBackbone, EncoderLayer, attend, attention_bias

# Maximum number of tokens per chunk, rounded up to whole rows: enough to run matmuls at
# full speed, few enough for the CPU caches.
_CHUNK_SIZE = 512

# Maximum number of tokens of a single text that one thread computes.
_SHORT = 32

# The tokens of a chunk and the lengths of its padded rows are multiples of this number.
# oneDNN compiles and keeps kernels for each size of a matrix that it has seen.
_MULTIPLE = 16


def optimize_for_inference(
    model: keras.Model, layers: Sequence[int] = ()
) -> keras.Model:
    """Returns `model` with its encoder replaced by one that is fast at inference.

    Other layers are shared. The encoder copies the current weights. Its outputs
    [B, S, ...] are 0 at padding. Subclasses of `BertBackbone` are not replaced.

    Args:
        model: A functional model: a `BertBackbone`, or a model with a `BertBackbone` as
            a layer. Others are returned as they are.
        layers: Only for a `BertBackbone`: hidden states to return as additional outputs
            `layer_<n>` [B, S, H]. 0: embeddings, 1: first layer, -1: last layer.
    """
    if type(model) is BertBackbone:
        outputs = _Encoder(model, layers)(model.input)
        return keras.Model(model.input, outputs, name=model.name)

    def replace(layer: keras.layers.Layer) -> keras.layers.Layer:
        return _Encoder(layer, ()) if type(layer) is BertBackbone else layer

    return keras.models.clone_model(model, clone_function=replace)


_array = keras.ops.convert_to_numpy


def _variable(value: Any, dtype: str = "float32") -> tf.Variable:
    """Returns a copy of an array, a Keras variable, or nested lists of arrays."""
    return tf.Variable(tf.cast(_array(value), dtype), trainable=False)


def _column(weight: Any) -> np.ndarray:
    return _array(weight)[:, np.newaxis]


# Activation -> a function f and a factor s such that s f(s x) is the activation of x.
# The weights contain s.
_ACTIVATIONS: dict[str, tuple[Callable[[tf.Tensor], tf.Tensor], float]] = {
    "relu": (tf.nn.relu, 1.0),
    "gelu_erf": (lambda x: x * tf.math.erf(x) + x, 0.5**0.5),
    "gelu_tanh": (functools.partial(tf.nn.gelu, approximate=True), 1.0),
}


def _transpose(
    dtype: tf.DType, shape: Sequence[tf.Tensor | int], permutation: Sequence[int]
) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns a function that reshapes to `shape` and transposes; the last axis stays.

    The ops for the shapes run once, also if a loop calls the function.

    oneDNN transposes float32 and bfloat16. It starts threads, which takes longer than
    the transpose of a short text, so this function moves 8 bytes at a time as float64.
    """
    result_shape = tf.stack([shape[axis] for axis in permutation])
    count = tf.float64.size // dtype.size
    if shape[-1] % count:
        input_shape = tf.stack(shape)
        return lambda x: tf.transpose(tf.reshape(x, input_shape), permutation)
    input_shape = tf.stack([*shape[:-1], shape[-1] // count, count])

    def transpose(x: tf.Tensor) -> tf.Tensor:
        y = tf.bitcast(tf.reshape(x, input_shape), tf.float64)
        y = tf.bitcast(tf.transpose(y, permutation), dtype)
        return tf.reshape(y, result_shape)

    return transpose


def _layer_norm(
    x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float
) -> tf.Tensor:
    """LayerNorm of float32 [H, T], with as few passes over memory as possible."""
    average = tf.fill([1, x.shape[0]], 1 / x.shape[0])  # Faster than `reduce_mean`.
    x -= tf.matmul(average, x)
    variance = tf.matmul(average, tf.square(x))
    return x * tf.math.rsqrt(variance + epsilon) * gamma + beta


class _Padding(NamedTuple):
    """Converts between R padded rows [R, S] and their T tokens."""

    shape: tf.Tensor  # [2] int32: R, S
    bias: tf.Tensor | None = None  # [R, 1, 1, S] float32
    # Indices for `tf.gather`. None: no row has padding.
    to_padded: tf.Tensor | None = None  # [R*S] int32, any token at padding
    to_tokens: tf.Tensor | None = None  # [T] int32

    @classmethod
    def from_lengths(cls, lengths: tf.Tensor) -> _Padding:
        """`lengths` [R] int32: the number of tokens in each row."""
        longest = tf.reduce_max(lengths)
        is_token = tf.sequence_mask(lengths, longest + -longest % _MULTIPLE)  # [R, S]
        flat = tf.reshape(is_token, [-1])
        token = tf.cumsum(tf.cast(flat, tf.int32)) - 1
        index = tf.cast(tf.where(flat)[:, 0], tf.int32)
        return cls(
            tf.shape(is_token),
            attention_bias(is_token),
            tf.maximum(token, 0),
            tf.pad(index, [[0, -tf.size(index) % _MULTIPLE]]),
        )

    def add(self, x: tf.Tensor) -> tf.Tensor:
        """[T, ...] -> [R*S, ...]"""
        return x if self.to_padded is None else tf.gather(x, self.to_padded)

    def remove(self, x: tf.Tensor) -> tf.Tensor:
        """[R*S, ...] -> [T, ...]"""
        return x if self.to_tokens is None else tf.gather(x, self.to_tokens)


class _EncoderLayers:
    """The L layers of an encoder with stacked weights."""

    def __init__(self, layers: Sequence[EncoderLayer], dtype: str):
        self._layer = layers[0]
        # Of each weight: L arrays.
        *kernels, norms = zip(*map(_layer_weights, layers))
        self._weights = [*(_variable(w, dtype) for w in kernels), _variable(norms)]

    def weights(self) -> list[tf.Tensor]:
        """Returns the argument `weights` of `run`; call it outside of loops."""
        return [tf.identity(x) for x in self._weights]

    def run(
        self,
        weights: Sequence[tf.Tensor],
        start: int,
        end: int,
        states: Sequence[tf.Tensor],
        padding: _Padding | None,
    ) -> list[tf.Tensor]:
        """Runs the layers from `start` to `end`.

        Args:
            weights: See above.
            start, end: Numbers of layers.
            states: States [H, T] of tokens. Those of one row may be divided among
                several tensors.
            padding: Of the rows, which must be in one tensor; None for one row.
        """
        config, dtype = self._layer.config, states[0].dtype
        activation, _ = _ACTIVATIONS[config.activation]
        epsilon = self._layer.attention_layer_norm.epsilon
        hidden, heads = config.hidden_dim, config.num_heads
        size = hidden // heads
        ones = [tf.ones_like(x[:1]) for x in states]

        def attend_in_row(kernel, output_kernel, *states):
            projections = (
                tf.unstack(tf.reshape(tf.matmul(kernel, x), [3, heads, size, -1]))
                for x in states
            )
            queries, *keys_values = zip(*projections)  # [N, D, T]
            key, value = (tf.concat(x, axis=2) for x in keys_values)
            for query in queries:
                scores = tf.cast(tf.matmul(query, key, transpose_a=True), tf.float32)
                y = tf.cast(tf.nn.softmax(scores), dtype)
                y = tf.reshape(tf.matmul(value, y, transpose_b=True), [hidden, -1])
                yield tf.matmul(output_kernel, y)

        def attend_in_rows(kernel, output_kernel, x):
            x = tf.matmul(x, kernel, transpose_a=True, transpose_b=True)  # [T, 3H]
            query, key, value = tf.unstack(split_heads(padding.add(x)))  # [R, N, S, D]
            y = merge_heads(attend(query, key, value, padding.bias))
            y = padding.remove(tf.reshape(y, [-1, hidden]))
            yield tf.matmul(output_kernel, y, transpose_b=True)

        if padding is not None:
            rows, length = tf.unstack(padding.shape)
            shape = [rows, length, 3, heads, size]
            split_heads = _transpose(dtype, shape, [2, 0, 3, 1, 4])
            merge_heads = _transpose(dtype, [rows, heads, length, size], [0, 2, 1, 3])

        def add_and_norm(x, y, bias, gamma, beta):
            x = tf.cast(x + y, tf.float32) + bias
            return tf.cast(_layer_norm(x, gamma, beta, epsilon), dtype)

        def run_layer(number, *states):
            end = number + 1
            *kernels, norms = (
                tf.strided_slice(w, number, end, [1], shrink_axis_mask=1)
                for w in weights
            )
            norms = tf.unstack(norms)
            attention = attend_in_row if padding is None else attend_in_rows
            inputs = [tf.concat(pair, axis=0) for pair in zip(states, ones)]
            outputs = attention(*kernels[:2], *inputs)
            for x, y, one in zip(states, outputs, ones):
                x = add_and_norm(x, y, *norms[:3])
                y = tf.matmul(kernels[2], tf.concat([x, one], axis=0))
                y = tf.cast(activation(tf.cast(y, tf.float32)), dtype)
                y = tf.matmul(kernels[3], y)
                yield add_and_norm(x, y, *norms[3:])

        shapes = (tf.TensorShape([1]), *[tf.TensorShape([hidden, None])] * len(states))
        return tf.while_loop(
            lambda number, *_: number[0] < end,
            lambda number, *states: (number + 1, *run_layer(number, *states)),
            (tf.constant([start]), *states),
            shapes,
        )[1:]


def _layer_weights(layer: EncoderLayer) -> list[np.ndarray]:
    """Returns four kernels, and biases and LayerNorms [6, H, 1].

    Kernels are [outputs, inputs]. Those of query, key and value, and of the
    intermediate layer, have their biases as another column.
    """
    _, scale = _ACTIVATIONS[layer.config.activation]

    def with_bias(dense: keras.layers.Dense, scale: float = 1.0) -> np.ndarray:
        kernel, bias = _array(dense.kernel), _array(dense.bias)
        return np.float32(scale) * np.vstack([kernel, bias]).T

    def norm(dense: keras.layers.Dense, layer: keras.layers.Layer) -> list[np.ndarray]:
        return [_column(w) for w in (dense.bias, layer.gamma, layer.beta)]

    output, output_dense = layer.attention_output, layer.output_dense
    query = with_bias(layer.query, layer.attention_scale)
    return [
        np.concatenate([query, with_bias(layer.key), with_bias(layer.value)]),
        _array(output.kernel).T,
        with_bias(layer.intermediate, scale),
        np.float32(scale) * _array(output_dense.kernel).T,
        norm(output, layer.attention_layer_norm)
        + norm(output_dense, layer.output_layer_norm),
    ]


class _Encoder(keras.layers.Layer):
    """Returns the outputs of a `BertBackbone`, 0 at padding, for inference only.

    Args:
        backbone: The encoder.
        layers: Layers whose hidden states are additional outputs `layer_<n>`.
    """

    def __init__(self, backbone: BertBackbone, layers: Sequence[int]):
        super().__init__(dtype=backbone.embeddings.dtype_policy, name=backbone.name)
        self.config = config = backbone.config
        embeddings, pooler = backbone.embeddings, backbone.pooler

        def dense(layer: keras.layers.Dense) -> list[tf.Variable]:
            weights = layer.kernel, layer.bias
            return [_variable(w, self.compute_dtype) for w in weights]

        self._token_table = self._table(embeddings.token_embedding)
        if config.num_segments:
            self._segment_table = self._table(embeddings.segment_embedding)
        self._projection = embeddings.projection and dense(embeddings.projection)
        self._position_table = self._table(embeddings.position_embedding)
        norm = embeddings.layer_norm
        gamma, beta = (_variable(_column(w)) for w in (norm.gamma, norm.beta))
        self._layer_norm = gamma, beta, norm.epsilon
        self._names = ["sequence_output", *(f"layer_{layer}" for layer in layers)]
        # Of the outputs, from 0 for the embeddings.
        self._layer_numbers = [n % (config.num_layers + 1) for n in (-1, *layers)]
        self._width = len(self._names) * config.hidden_dim  # K * H
        self._encoder_layers = _EncoderLayers(
            backbone.encoder_layers, self.compute_dtype
        )
        self._pooler, self._pooler_activation = dense(pooler), pooler.activation
        # A `tf.function`, so that all signatures of an export share one graph.
        self._encode = tf.function(
            self._encode,
            input_signature=[tf.TensorSpec([None, None], tf.int32)] * 3,
            autograph=False,
        )
        self.built = True

    def _table(self, layer: keras.layers.Embedding) -> tf.Variable:
        if self.compute_dtype == layer.embeddings.dtype:
            return layer.embeddings.value  # Shared with the masked-LM head.
        return _variable(layer.embeddings, self.compute_dtype)

    def call(self, inputs, training=None, mask=None):
        # Keras passes `training` and `mask` to any model. Both are ignored.
        names = ("token_ids", "segment_ids", "padding_mask")
        states = self._encode(*(tf.cast(inputs[name], tf.int32) for name in names))
        states = tf.split(states, len(self._names), axis=2)
        outputs = dict(zip(self._names, states, strict=True))
        kernel, bias = self._pooler
        pooled = tf.nn.bias_add(tf.matmul(states[0][:, 0], kernel), bias)
        return {**outputs, "pooled_output": self._pooler_activation(pooled)}

    def compute_mask(self, inputs, mask=None):
        is_token = keras.ops.cast(inputs["padding_mask"], "bool")
        return {**dict.fromkeys(self._names, is_token), "pooled_output": None}

    def _encode(
        self, token_ids: tf.Tensor, segment_ids: tf.Tensor, padding_mask: tf.Tensor
    ) -> tf.Tensor:
        """Returns hidden states [B, S, K*H], 0 at padding."""
        is_token = tf.not_equal(padding_mask, 0)  # [B, S]
        rows, length = tf.unstack(tf.shape(is_token))
        weights = self._encoder_layers.weights()
        # All S positions, not only those of tokens, so that too long rows fail.
        positions = tf.gather(self._position_table, tf.range(length))  # [S, H]

        def run_row(num_parts: int) -> tf.Tensor:
            ids, segments = (tf.reshape(x, [-1]) for x in (token_ids, segment_ids))
            tokens = ids, segments, positions[: tf.size(ids)]
            return self._run(weights, tokens, None, num_parts)

        def run_sorted() -> tf.Tensor:
            sizes = tf.math.count_nonzero(is_token, axis=1, dtype=tf.int32)  # [B]
            order = tf.argsort(sizes)
            # Indices into [B*S] of all tokens, in sorted order, [T].
            index = tf.reshape(tf.range(rows * length), [rows, length])
            index = tf.boolean_mask(tf.gather(index, order), tf.gather(is_token, order))
            padded = tf.pad(index, [[0, _MULTIPLE]])  # The last chunk may read beyond.
            tokens = (
                tf.gather(tf.reshape(token_ids, [-1]), padded),
                tf.gather(tf.reshape(segment_ids, [-1]), padded),
                tf.gather(positions, padded % length),
            )
            states = self._run_in_chunks(weights, tokens, tf.gather(sizes, order))
            # The inverse: 1 + the index into `states`; 0 selects zeros for padding.
            inverse = tf.scatter_nd(
                index[:, tf.newaxis], tf.range(tf.size(index)) + 1, [rows * length]
            )
            zeros = tf.zeros([1, self._width], states.dtype)
            return tf.gather(tf.concat([zeros, states], axis=0), inverse)

        run_one, run_two = (functools.partial(run_row, n) for n in (1, 2))
        is_row = tf.reduce_all(is_token) & (tf.size(is_token) <= length)  # Or no token.
        states = tf.cond(
            is_row, lambda: tf.cond(length <= _SHORT, run_one, run_two), run_sorted
        )
        return tf.reshape(states, [rows, length, self._width])

    def _run_in_chunks(
        self,
        weights: Sequence[tf.Tensor],
        tokens: tuple[tf.Tensor, ...],
        sizes: tf.Tensor,
    ) -> tf.Tensor:
        """Returns hidden states [T, K*H] of rows sorted by length.

        Args:
            tokens: Token ids and segment ids int32 [T], position embeddings [T, H], all
                with `_MULTIPLE` more tokens, whose values do not matter.
            sizes: The number of tokens in each row, [B] int32.
        """
        ends = tf.cumsum(sizes)
        total = tf.maximum(tf.reduce_sum(sizes), 1)
        per_loop = (total - 1) // (2 * _CHUNK_SIZE) + 1
        chunk_size = (total - 1) // (2 * per_loop) + 1
        # The chunk of each row, non-decreasing; numbers may be skipped.
        chunk = tf.maximum(ends - 1, 0) // chunk_size
        is_first = tf.not_equal(chunk, tf.concat([[-1], chunk[:-1]], axis=0))
        first_rows = tf.cast(tf.where(is_first)[:, 0], tf.int32)
        bounds = tf.concat([first_rows, [tf.size(sizes)]], axis=0)
        token_bounds = tf.gather(tf.concat([[0], ends], axis=0), bounds)

        # Not inlined, so that a server optimizes its graph only once.
        @tf.function(
            input_signature=[tf.TensorSpec([], tf.int32)] * 2,
            autograph=False,
            experimental_attributes={"_noinline": True},
        )
        def run(start: tf.Tensor, end: tf.Tensor) -> tf.Tensor:
            """Returns the hidden states of the chunks from `start` to `end`."""
            shape = [None, self._width]
            chunks = tf.TensorArray(
                self.compute_dtype, end - start, infer_shape=False, element_shape=shape
            )

            def step(i: tf.Tensor, chunks: tf.TensorArray):
                begin, count = token_bounds[i], token_bounds[i + 1] - token_bounds[i]
                end = begin + count + -count % _MULTIPLE
                inputs = tuple(values[begin:end] for values in tokens)
                padding = _Padding.from_lengths(sizes[bounds[i] : bounds[i + 1]])
                states = self._run(weights, inputs, padding)[:count]
                return i + 1, chunks.write(i - start, states)

            _, chunks = tf.while_loop(lambda i, _: i < end, step, (start, chunks))
            return chunks.concat()

        # One loop would wait for each chunk, whatever its `parallel_iterations`.
        count = tf.size(first_rows)
        in_first_loop = tf.gather(chunk, first_rows) < per_loop
        half = tf.math.count_nonzero(in_first_loop, dtype=tf.int32)
        return tf.concat([run(tf.constant(0), half), run(half, count)], axis=0)

    def _run(
        self,
        weights: Sequence[tf.Tensor],
        tokens: tuple[tf.Tensor, ...],
        padding: _Padding | None,
        num_parts: int = 1,
    ) -> tf.Tensor:
        """Returns hidden states [T, K*H] of token ids, segment ids and positions."""
        token_ids, segment_ids, positions = tokens
        x = tf.gather(self._token_table, token_ids)
        if self.config.num_segments == 1:  # Both texts of a pair are segment 0.
            segment_ids = tf.zeros_like(segment_ids)
        if self.config.num_segments:
            x += tf.gather(self._segment_table, segment_ids)
        x = tf.transpose(tf.cast(x + positions, tf.float32))
        x = tf.cast(_layer_norm(x, *self._layer_norm), self.compute_dtype)
        if self._projection:
            kernel, bias = self._projection
            x = tf.matmul(kernel, x, transpose_a=True) + bias[:, tf.newaxis]
        sizes = [tf.size(token_ids) // 2] * (num_parts - 1)
        state, last = tf.split(x, [*sizes, -1], axis=1) if sizes else [x], 0
        states = {0: state}
        for number in sorted({*self._layer_numbers} - {0}):
            state = self._encoder_layers.run(weights, last, number, state, padding)
            states[number], last = state, number
        parts = zip(*(states[n] for n in self._layer_numbers))
        parts = [tf.transpose(tf.concat(part, axis=0)) for part in parts]
        return tf.concat(parts, axis=0)
