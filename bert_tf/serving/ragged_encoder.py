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
- Small batches without padding, such as single texts, skip sorting and chunking.
- Query, key and value are one matmul, with the scale of the scores in its weights.
- Each layer is the sum of two halves of its heads and units, which run on two cores.
- Weights are stored in the compute dtype.

TensorFlow optimizes a graph before its first request, which takes longer than the
request. So the layers are a loop over stacked weights, and a graph has the same size
for any number of layers. TensorFlow takes a layer out of a stack without copying it.

Letters: B batch, S sequence, T tokens without padding, R rows of a chunk, H hidden, N
heads, D = H / N, I intermediate, L layers, P parts of a layer, K requested hidden
states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert_tf.modeling import BertBackbone, EncoderLayer, attend, attention_bias

# Maximum number of tokens per chunk, rounded up to whole rows: enough to run matmuls at
# full speed, few enough for the CPU caches.
_CHUNK_SIZE = 512

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
            a layer. Others keep all of their layers.
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


def _dense(x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    return tf.nn.bias_add(tf.matmul(x, kernel), bias)


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
    """LayerNorm in float32, with as few passes over memory as possible."""
    y = tf.cast(x, tf.float32)
    y -= tf.reduce_mean(y, axis=-1, keepdims=True)
    variance = tf.reduce_mean(tf.square(y), axis=-1, keepdims=True)
    y *= tf.math.rsqrt(variance + epsilon)
    return tf.cast(y * gamma + beta, x.dtype)


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
    """The L layers of an encoder with stacked weights.

    A layer has P parts, each with a share of the heads and intermediate units. The
    attention output and the feed-forward output of the layer are sums over parts.
    """

    def __init__(self, layers: Sequence[EncoderLayer], dtype: str):
        self._layer = layers[0]
        config = self._layer.config
        # TensorFlow runs two parts on two cores: one text takes little more than half
        # of the time. More threads within ops do not achieve that for short texts.
        is_odd = config.num_heads % 2 or config.intermediate_dim % 2
        self._parts = parts = 1 if is_odd else 2

        # Of each weight: L arrays.
        *dense, norms = zip(*(_layer_weights(layer, parts) for layer in layers))
        self._bias_sizes = [kernels[0].shape[-1] for kernels in dense[:-1]]
        self._weights = [*(_variable(w, dtype) for w in dense), _variable(norms)]

    def weights(self) -> list[tf.Tensor]:
        """Returns the argument `weights` of `run`; call it outside of loops."""
        return [tf.identity(x) for x in self._weights]

    def run(
        self,
        weights: Sequence[tf.Tensor],
        start: int,
        end: int,
        x: tf.Tensor,
        padding: _Padding,
    ) -> tf.Tensor:
        """Runs the layers from `start` to `end` on the tokens of R rows, [T, H]."""
        config, parts = self._layer.config, self._parts
        epsilon = self._layer.attention_layer_norm.epsilon
        heads, size = config.num_heads // parts, config.hidden_dim // config.num_heads
        rows, length = tf.unstack(padding.shape)
        split_heads = _transpose(
            x.dtype, [rows, length, 3, heads, size], [2, 0, 3, 1, 4]
        )
        merge_heads = _transpose(x.dtype, [rows, heads, length, size], [0, 2, 1, 3])

        def attention(x, query_key_value, output):
            x = padding.add(_dense(x, *query_key_value))  # [R*S, 3H / P]
            query, key, value = tf.unstack(split_heads(x))  # [R, N / P, S, D]
            y = merge_heads(attend(query, key, value, padding.bias))
            y = tf.reshape(y, [-1, heads * size])
            return _dense(padding.remove(y), *output)

        def feed_forward(x, intermediate, output):
            return _dense(self._layer.activation(_dense(x, *intermediate)), *output)

        def run_layer(number, x):
            end = number + 1
            *kernels, biases, norms = (
                tf.unstack(tf.strided_slice(w, number, end, [1], shrink_axis_mask=1))
                for w in weights
            )
            biases = [tf.split(part, self._bias_sizes) for part in biases]
            # Of each part: kernel and bias of four dense layers.
            parts = [[*zip(k, b)] for *k, b in zip(*kernels, biases)]
            gamma, beta, output_gamma, output_beta = norms
            y = tf.add_n([attention(x, *part[:2]) for part in parts])
            x = _layer_norm(x + y, gamma, beta, epsilon)
            y = tf.add_n([feed_forward(x, *part[2:]) for part in parts])
            return end, _layer_norm(x + y, output_gamma, output_beta, epsilon)

        shape = tf.TensorShape([None, config.hidden_dim])
        return tf.while_loop(
            lambda number, _: number[0] < end,
            run_layer,
            (tf.constant([start]), x),
            (tf.TensorShape([1]), shape),
        )[1]


def _layer_weights(layer: EncoderLayer, parts: int) -> list[np.ndarray]:
    """Returns four kernels [P, inputs, outputs], all biases [P, ...], and LayerNorms.

    The biases are one array, as are gamma and beta of both LayerNorms [4, H], to have
    fewer ops.
    """

    def outputs(dense: keras.layers.Dense) -> list[np.ndarray]:
        arrays = map(_array, (dense.kernel, dense.bias))
        split = (x.reshape(*x.shape[:-1], parts, -1) for x in arrays)
        return [np.moveaxis(x, -2, 0) for x in split]

    def inputs(dense: keras.layers.Dense) -> list[np.ndarray]:
        kernel, bias = map(_array, (dense.kernel, dense.bias))
        return [kernel.reshape(parts, -1, len(bias)), np.tile(bias / parts, (parts, 1))]

    query = [w * np.float32(layer.attention_scale) for w in outputs(layer.query)]
    projections = zip(query, outputs(layer.key), outputs(layer.value))
    kernels, biases = zip(
        [np.concatenate(weights, axis=-1) for weights in projections],
        inputs(layer.attention_output),
        outputs(layer.intermediate),
        inputs(layer.output_dense),
    )
    norms = layer.attention_layer_norm, layer.output_layer_norm
    norms = [_array(w) for norm in norms for w in (norm.gamma, norm.beta)]
    return [*kernels, np.concatenate(biases, axis=-1), norms]


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
        self._layer_norm = _variable(norm.gamma), _variable(norm.beta), norm.epsilon
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
        pooled = self._pooler_activation(_dense(states[0][:, 0], *self._pooler))
        return {**outputs, "pooled_output": pooled}

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

        def run_unpadded() -> tf.Tensor:
            tokens = token_ids, segment_ids, positions
            return self._run(weights, tokens, _Padding(tf.shape(is_token)))

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

        is_small = tf.size(is_token) <= _CHUNK_SIZE
        states = tf.cond(tf.reduce_all(is_token) & is_small, run_unpadded, run_sorted)
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
        total = tf.maximum(ends[-1], 1)
        per_loop = (total - 1) // (2 * _CHUNK_SIZE) + 1
        chunk_size = (total - 1) // (2 * per_loop) + 1
        # The chunk of each row, non-decreasing; numbers may be skipped.
        chunk = tf.maximum(ends - 1, 0) // chunk_size
        is_first = tf.concat([[True], tf.not_equal(chunk[1:], chunk[:-1])], axis=0)
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
        padding: _Padding,
    ) -> tf.Tensor:
        """Returns hidden states [T, K*H] of token ids, segment ids and positions."""
        token_ids, segment_ids, positions = tokens
        x = tf.gather(self._token_table, token_ids)
        if self.config.num_segments == 1:  # Both texts of a pair are segment 0.
            segment_ids = tf.zeros_like(segment_ids)
        if self.config.num_segments:
            x += tf.gather(self._segment_table, segment_ids)
        x = _layer_norm(x + positions, *self._layer_norm)
        x = tf.reshape(x, [-1, self.config.embedding_dim])
        x = _dense(x, *self._projection) if self._projection else x
        states, last = {0: x}, 0
        for number in sorted({*self._layer_numbers} - {0}):
            x = self._encoder_layers.run(weights, last, number, x, padding)
            states[number], last = x, number
        return tf.concat([states[n] for n in self._layer_numbers], axis=1)
