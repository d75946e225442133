# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""A `BertBackbone` for inference that spends little time on padding.

`optimize_for_inference` returns a model with the same inputs, outputs and weights. It
is several times faster for batches of texts that differ in length:

- Rows are sorted by length and processed in chunks of a few hundred tokens. That bounds
  memory for any batch size, and gives attention rows of similar length. Two loops over
  the chunks run in parallel, which uses two cores better than threads within ops.
- Dense layers and LayerNorm skip padding. Only attention pads rows.
- Small batches without padding, such as single texts, skip sorting and chunking.
- Query, key and value are one matmul, with the scale of the scores in its weights.
- Each layer is the sum of two halves of its heads and units, which run on two cores.
- Weights are stored in the compute dtype. With `int8`, the matmuls of the layers use
  int8, and everything else is float32.

Letters: B batch, S sequence, T tokens without padding, R rows of a chunk, H hidden, N
heads, D = H / N, K requested hidden states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert_tf.modeling import BertBackbone, EncoderLayer, attend, attention_bias

# Maximum number of tokens per chunk, rounded up to whole rows: enough to run matmuls at
# full speed, few enough for the CPU caches.
_CHUNK_SIZE = 512

_TensorFunction = Callable[[tf.Tensor], tf.Tensor]


def optimize_for_inference(
    model: keras.Model, layers: Sequence[int] = (), *, int8: bool = False
) -> keras.Model:
    """Returns `model` with its encoder replaced by one that is fast at inference.

    Other layers are shared. The encoder copies the current weights. Its outputs
    [B, S, ...] are 0 at padding. Subclasses of `BertBackbone` are not replaced.

    Args:
        model: A functional model: a `BertBackbone`, or a model with a `BertBackbone` as
            a layer. Others are returned as they are.
        layers: Only for a `BertBackbone`: hidden states to return as additional outputs
            `layer_<n>` [B, S, H]. 0: embeddings, 1: first layer, -1: last layer.
        int8: Whether to quantize the encoder, which must have the dtype float32.

    Raises:
        ValueError: int8 models do not run on this machine, or the encoder of `model`
            cannot be replaced.
    """
    if int8:
        if BertBackbone not in map(type, (model, *model.layers)):
            raise ValueError(
                f"{type(model).__name__} has no encoder that int8 is possible for. "
                "Export it with another --precision."
            )
        _require_int8()
    if type(model) is BertBackbone:
        outputs = _Encoder(model, layers, int8=int8)(model.input)
        return keras.Model(model.input, outputs, name=model.name)

    def replace(layer: keras.layers.Layer) -> keras.layers.Layer:
        is_encoder = type(layer) is BertBackbone
        return _Encoder(layer, (), int8=int8) if is_encoder else layer

    return keras.models.clone_model(model, clone_function=replace)


def _variable(value: np.ndarray | keras.Variable, dtype="float32") -> tf.Variable:
    value = keras.ops.convert_to_numpy(value)
    return tf.Variable(tf.cast(value, dtype), trainable=False)


def _weights(layer: keras.layers.Dense) -> list[np.ndarray]:
    """Returns kernel and bias. `get_weights` returns those of LoRA separately."""
    return [keras.ops.convert_to_numpy(x) for x in (layer.kernel, layer.bias)]


def _dense(kernel: np.ndarray, bias: np.ndarray, dtype: str) -> _TensorFunction:
    """Returns a dense layer with weights of the compute dtype."""
    kernel, bias = _variable(kernel, dtype), _variable(bias, dtype)
    return lambda x: tf.nn.bias_add(tf.matmul(x, kernel), bias)


def _transpose(
    x: tf.Tensor, shape: Sequence[tf.Tensor | int], permutation: Sequence[int]
) -> tf.Tensor:
    """Reshapes and transposes; the last axis stays.

    oneDNN transposes float32 and bfloat16. It starts threads, which takes longer than
    the transpose of a short text, so this function moves 8 bytes at a time as float64.
    """
    count = tf.float64.size // x.dtype.size
    if shape[-1] % count:
        return tf.transpose(tf.reshape(x, shape), permutation)
    y = tf.reshape(x, [*shape[:-1], shape[-1] // count, count])
    y = tf.transpose(tf.bitcast(y, tf.float64), permutation)
    return tf.reshape(tf.bitcast(y, x.dtype), [shape[axis] for axis in permutation])


def _layer_norm(layer: keras.layers.LayerNormalization) -> _TensorFunction:
    """Returns LayerNorm in float32, with as few passes over memory as possible."""
    gamma, beta = _variable(layer.gamma), _variable(layer.beta)

    def normalize(x: tf.Tensor) -> tf.Tensor:
        y = tf.cast(x, tf.float32)
        y -= tf.reduce_mean(y, axis=-1, keepdims=True)
        variance = tf.reduce_mean(tf.square(y), axis=-1, keepdims=True)
        y *= tf.math.rsqrt(variance + layer.epsilon)
        return tf.cast(y * gamma + beta, x.dtype)

    return normalize


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
        is_token = tf.sequence_mask(lengths)  # [R, S]
        flat = tf.reshape(is_token, [-1])
        token = tf.cumsum(tf.cast(flat, tf.int32)) - 1
        return cls(
            tf.shape(is_token),
            attention_bias(is_token),
            tf.maximum(token, 0),
            tf.cast(tf.where(flat)[:, 0], tf.int32),
        )

    def add(self, x: tf.Tensor) -> tf.Tensor:
        """[T, ...] -> [R*S, ...]"""
        return x if self.to_padded is None else tf.gather(x, self.to_padded)

    def remove(self, x: tf.Tensor) -> tf.Tensor:
        """[R*S, ...] -> [T, ...]"""
        return x if self.to_tokens is None else tf.gather(x, self.to_tokens)


class _LayerPart:
    """Some heads and intermediate units of an `EncoderLayer`.

    The attention output and the feed-forward output of the layer are sums over parts.

    Args:
        layer: The layer.
        part: Number of the part, from 0.
        parts: How many parts the layer has. Divides its heads and intermediate units.
        int8: Whether to quantize the weights.
    """

    def __init__(self, layer: EncoderLayer, part: int, parts: int, *, int8: bool):
        config = layer.config
        self._heads = config.num_heads // parts
        self._size = config.hidden_dim // config.num_heads

        def take(weights: np.ndarray, axis: int):
            return np.split(weights, parts, axis)[part]

        def outputs(layer: keras.layers.Dense, scale: float = 1.0):
            return [take(w * np.float32(scale), axis=-1) for w in _weights(layer)]

        def inputs(layer: keras.layers.Dense, scale: float = 1.0):
            kernel, bias = _weights(layer)
            return take(kernel * np.float32(scale), axis=0), bias / np.float32(parts)

        def dense(*weights: tuple[np.ndarray, np.ndarray]):
            kernel, bias = (np.concatenate(w, axis=-1) for w in zip(*weights))
            if int8:
                return _int8_dense(kernel, bias)
            return _dense(kernel, bias, layer.compute_dtype)

        self._query_key_value = dense(
            outputs(layer.query, layer.attention_scale),
            outputs(layer.key),
            outputs(layer.value),
        )
        self._attention_output = dense(inputs(layer.attention_output))
        self._activation, scale = layer.activation, 1.0
        if int8 and config.activation != "relu":
            # GELU, also for its tanh approximation, with half of the ops: the matmuls
            # contain its factors.
            self._activation, scale = lambda x: x * (tf.math.erf(x) + 1.0), 0.5**0.5
        self._intermediate = dense(outputs(layer.intermediate, scale))
        self._output = dense(inputs(layer.output_dense, scale))

    def attention(self, x: tf.Tensor, padding: _Padding) -> tf.Tensor:
        rows, length = tf.unstack(padding.shape)
        x = padding.add(self._query_key_value(x))  # [R*S, 3H / parts]
        shape = [rows, length, 3, self._heads, self._size]
        query, key, value = tf.unstack(_transpose(x, shape, [2, 0, 3, 1, 4]))
        y = attend(query, key, value, padding.bias)  # [R, N / parts, S, D]
        shape = [rows, self._heads, length, self._size]
        y = _transpose(y, shape, [0, 2, 1, 3])
        y = tf.reshape(y, [rows * length, self._heads * self._size])
        return self._attention_output(padding.remove(y))

    def feed_forward(self, x: tf.Tensor) -> tf.Tensor:
        return self._output(self._activation(self._intermediate(x)))


def _layer(layer: EncoderLayer, int8: bool) -> Callable[..., tf.Tensor]:
    """Returns `layer` on the tokens of R rows, [T, H] -> [T, H]."""
    # TensorFlow runs two parts on two cores: one text takes little more than half of
    # the time. More threads within ops do not achieve that for short texts.
    is_odd = layer.config.num_heads % 2 or layer.config.intermediate_dim % 2
    count = 1 if is_odd else 2
    parts = [_LayerPart(layer, i, count, int8=int8) for i in range(count)]
    attention_layer_norm = _layer_norm(layer.attention_layer_norm)
    output_layer_norm = _layer_norm(layer.output_layer_norm)

    def run(x: tf.Tensor, padding: _Padding) -> tf.Tensor:
        x += tf.add_n([part.attention(x, padding) for part in parts])
        x = attention_layer_norm(x)
        return output_layer_norm(x + tf.add_n([p.feed_forward(x) for p in parts]))

    return run


class _Encoder(keras.layers.Layer):
    """Returns the outputs of a `BertBackbone`, 0 at padding, for inference only.

    Args:
        backbone: The encoder.
        layers: Layers whose hidden states are additional outputs `layer_<n>`.
        int8: Whether to quantize the weights of the layers and the token embeddings.
    """

    def __init__(self, backbone: BertBackbone, layers: Sequence[int], *, int8: bool):
        super().__init__(dtype=backbone.embeddings.dtype_policy, name=backbone.name)
        self.config = backbone.config
        self._int8 = int8
        embeddings = backbone.embeddings
        if int8:
            table = keras.ops.convert_to_numpy(embeddings.token_embedding.embeddings)
            table, scales = _quantize(table, axis=1)
            self._token_table = _variable(table, "int8")
            self._token_scales = _variable(scales)
        else:
            self._token_table = self._table(embeddings.token_embedding)
        self._segment_table = self._table(embeddings.segment_embedding)
        self._position_table = self._table(embeddings.position_embedding)
        self._layer_norm = _layer_norm(embeddings.layer_norm)
        self._names = ["sequence_output", *(f"layer_{layer}" for layer in layers)]
        self._layer_numbers = (-1, *layers)
        self._width = len(self._names) * self.config.hidden_dim  # K * H
        self._encoder_layers = [_layer(x, int8) for x in backbone.encoder_layers]
        self._pooler = _dense(*_weights(backbone.pooler), self.compute_dtype)
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
        pooled = tf.tanh(self._pooler(states[0][:, 0]))
        return {**outputs, "pooled_output": pooled}

    def _encode(
        self, token_ids: tf.Tensor, segment_ids: tf.Tensor, padding_mask: tf.Tensor
    ) -> tf.Tensor:
        """Returns hidden states [B, S, K*H], 0 at padding."""
        is_token = tf.not_equal(padding_mask, 0)  # [B, S]
        rows, length = tf.unstack(tf.shape(is_token))
        if self._int8:
            rows = _check_int8(rows)
        # All S positions, not only those of tokens, so that too long rows fail.
        positions = tf.gather(self._position_table, tf.range(length))  # [S, H]

        def run_unpadded() -> tf.Tensor:
            tokens = token_ids, segment_ids, positions
            return self._run(tokens, _Padding(tf.shape(is_token)))

        def run_sorted() -> tf.Tensor:
            sizes = tf.math.count_nonzero(is_token, axis=1, dtype=tf.int32)  # [B]
            order = tf.argsort(sizes)
            # Indices into [B*S] of all tokens, in sorted order, [T].
            index = tf.reshape(tf.range(rows * length), [rows, length])
            index = tf.boolean_mask(tf.gather(index, order), tf.gather(is_token, order))
            tokens = (
                tf.gather(tf.reshape(token_ids, [-1]), index),
                tf.gather(tf.reshape(segment_ids, [-1]), index),
                tf.gather(positions, index % length),
            )
            states = self._run_in_chunks(tokens, tf.gather(sizes, order))
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
        self, tokens: tuple[tf.Tensor, ...], sizes: tf.Tensor
    ) -> tf.Tensor:
        """Returns hidden states [T, K*H] of rows sorted by length.

        Args:
            tokens: Token ids and segment ids [T] int32, position embeddings [T, H].
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

        def run(start: tf.Tensor, end: tf.Tensor) -> tf.Tensor:
            """Returns the hidden states of the chunks from `start` to `end`."""
            shape = [None, self._width]
            chunks = tf.TensorArray(
                self.compute_dtype, end - start, infer_shape=False, element_shape=shape
            )

            def step(i: tf.Tensor, chunks: tf.TensorArray):
                in_chunk = slice(token_bounds[i], token_bounds[i + 1])
                inputs = tuple(values[in_chunk] for values in tokens)
                padding = _Padding.from_lengths(sizes[bounds[i] : bounds[i + 1]])
                return i + 1, chunks.write(i - start, self._run(inputs, padding))

            _, chunks = tf.while_loop(lambda i, _: i < end, step, (start, chunks))
            return chunks.concat()

        # One loop would wait for each chunk, whatever its `parallel_iterations`.
        count = tf.size(first_rows)
        in_first_loop = tf.gather(chunk, first_rows) < per_loop
        half = tf.math.count_nonzero(in_first_loop, dtype=tf.int32)
        return tf.concat([run(tf.constant(0), half), run(half, count)], axis=0)

    def _run(self, tokens: tuple[tf.Tensor, ...], padding: _Padding) -> tf.Tensor:
        """Returns hidden states [T, K*H] of token ids, segment ids and positions."""
        token_ids, segment_ids, positions = tokens
        x = tf.gather(self._token_table, token_ids)
        if self._int8:
            x = tf.cast(x, tf.float32) * tf.gather(self._token_scales, token_ids)
        if self.config.num_segments == 1:  # Both texts of a pair are segment 0.
            segment_ids = tf.zeros_like(segment_ids)
        x += tf.gather(self._segment_table, segment_ids)
        x = tf.reshape(self._layer_norm(x + positions), [-1, self.config.hidden_dim])
        states = [x]
        for layer in self._encoder_layers:
            states.append(layer(states[-1], padding))
        return tf.concat([states[n] for n in self._layer_numbers], axis=1)


# --- int8 ------------------------------------------------------------------------

# Weights have one scale per column, activations one per row, computed for each
# request. So the answer for a text does not depend on the other texts of its batch. The
# op exists only in TensorFlow builds with oneDNN, and is exact only on CPUs with VNNI.
# Elsewhere each request fails, also those of the warm-up, so that servers do not load
# the model.


def _require_int8() -> None:
    """Raises ValueError if int8 models do not run on this machine."""
    try:
        tf.function(_check_int8, autograph=False)(1)
    except tf.errors.OpError as error:
        raise ValueError(
            "int8 models need an x86 CPU with VNNI, and TensorFlow with oneDNN: do "
            "not set TF_ENABLE_ONEDNN_OPTS=0. Export on another machine, or with "
            "another --precision."
        ) from error


def _check_int8(rows: tf.Tensor) -> tf.Tensor:
    """Returns `rows` if a matmul of the largest integers is exact.

    It overflows on CPUs without VNNI. As `rows` is a part of it, TensorFlow does not
    try to fold it.
    """
    kernel = np.full([64, 16], 127, np.int8)
    x = tf.cast(tf.fill([rows, 64], 255), tf.uint8)
    products = _int8_matmul(x, kernel, np.zeros(16, np.int32))
    is_exact = tf.reduce_all(tf.equal(products, 64 * 255 * 127))
    message = "int8 models need a CPU with VNNI. Export with another precision."
    with tf.control_dependencies([tf.debugging.Assert(is_exact, [message])]):
        return tf.identity(rows)


def _quantize(values: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns int8 values and float32 scales: `values` is about their product."""
    scales = np.abs(values).max(axis=axis, keepdims=True) / np.float32(127)
    scales = np.maximum(scales, np.float32(1e-30))  # Zeros stay zeros.
    return np.rint(values / scales).astype(np.int8), scales


def _int8_dense(kernel: np.ndarray, bias: np.ndarray) -> _TensorFunction:
    """Returns a dense layer in int8."""
    kernel, column_scales = _quantize(kernel, axis=0)
    # The op takes unsigned inputs, so 128 is added to them.
    offset = -128 * kernel.sum(axis=0, dtype=np.int32)

    # A `tf.function`, so that all its calls share one copy of the kernel.
    @tf.function(
        input_signature=[tf.TensorSpec([None, len(kernel)], tf.float32)],
        autograph=False,
    )
    def dense(x: tf.Tensor) -> tf.Tensor:
        largest = tf.reduce_max(tf.abs(x), axis=1, keepdims=True)
        x *= tf.math.divide_no_nan(np.float32(127), largest)
        x = tf.cast(x + np.float32(128.5), tf.uint8)  # Rounds half up.
        y = _int8_matmul(x, kernel, offset) * largest
        return y * (column_scales / np.float32(127)) + bias

    return dense


def _int8_matmul(x: tf.Tensor, kernel: np.ndarray, bias: np.ndarray) -> tf.Tensor:
    """Returns `x @ kernel + bias` for uint8 and int8, exact, as float32.

    TensorFlow replaces the op by one of oneDNN. Without it, the op has no outputs,
    which is an error.
    """
    return tf.raw_ops.QuantizedMatMulWithBiasAndDequantize(
        a=tf.bitcast(x, tf.quint8),
        b=tf.constant(kernel, tf.qint8),  # oneDNN caches the layout of constants.
        bias=tf.constant(bias, tf.qint32),
        # These ranges are those of the integers, so that all scales are 1.
        min_a=0.0,
        max_a=255.0,
        min_b=-127.0,
        max_b=127.0,
        min_freezed_output=0.0,  # Not used.
        max_freezed_output=1.0,
        Toutput=tf.float32,
        input_quant_mode="SCALED",
    )
