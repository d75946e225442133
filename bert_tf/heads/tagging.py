# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tagging: named-entity recognition, by fine-tuning or from features (section 5.3).

Signatures, for N texts of W words and E entities:

    serving_default  text [N] ->
                     words, tags [N, W] string: the words of each text, or its word
                     pieces
                     scores [N, W] float32: the probabilities of the tags
                     entities, entity_types [N, E] string: the entities
                     entity_scores [N, E] float32: the mean of the scores of their words
                     entity_starts, entity_ends [N, E] int32: their offsets in
                     characters, end exclusive
                     entity_start_bytes, entity_end_bytes [N, E] int32: their offsets in
                     bytes
                     Shorter rows are padded with "" and 0.
    words            words [N, W], padded with "" -> tags [N, W] string, scores [N, W]
                     float32

Letters: B batch, S sequence, H hidden, C tags; K layers that make features.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

import keras
from keras import ops

from bert_tf import text
from bert_tf.heads.classification import output_layer
from bert_tf.heads.head import FEATURES, Head
from bert_tf.heads.signatures import signature
from bert_tf.lazy import lazy_import
from bert_tf.modeling import BertBackbone, BertModel, Dropout

tf = lazy_import("tensorflow")

# Of labels that have a type.
_PREFIX = r"^[BIELMSUW]-(?=.)"

# --- Keras models ----------------------------------------------------------------


@keras.saving.register_keras_serializable(package="bert_tf")
class TokenClassifier(BertModel):
    """`BertBackbone` with dropout and a dense layer over every token.

    Args:
        backbone: The encoder. Its pooler is not used and not trained.
        num_tags: C.

    Inputs: those of the backbone. Outputs: logits [B, S, C] float32. Pass the padding
    mask as `sample_weight` to `fit`: padding would have a loss, too.

    Example:

    ```python
    model = TokenClassifier(BertBackbone(config), num_tags=9)
    model.compile(AdamW(learning_rate=5e-5))
    ```
    """

    _arguments = ("num_tags",)

    def __init__(self, backbone: BertBackbone, num_tags: int, **kwargs):
        hidden = backbone(backbone.input)["sequence_output"]  # [B, S, H]
        logits = output_layer(backbone, hidden, num_tags)
        super().__init__(inputs=backbone.input, outputs=logits, **kwargs)
        self.backbone = backbone
        self.num_tags = num_tags


class FrozenEncoder(keras.layers.Layer):
    """Activations of some layers of an encoder that is not trained, without dropout.

    Args:
        backbone: The encoder.
        feature_set: One of `FEATURES`.

    Inputs: those of the backbone. Outputs: [B, S, K, H] float32.

    Raises:
        ValueError: `feature_set` needs more layers than the encoder has.
    """

    def __init__(self, backbone: BertBackbone, feature_set: str, **kwargs):
        super().__init__(**kwargs)
        num_layers = backbone.config.num_layers
        if feature_set.endswith("last_four") and num_layers < 4:
            raise ValueError(
                f"The feature set {feature_set} needs an encoder with at least four "
                f"layers. Received: num_layers={num_layers}"
            )
        layers = backbone.hidden_states[FEATURES[feature_set]]
        states = ops.cast(ops.stack(layers, axis=2), "float32")
        states = ops.stop_gradient(states)
        self.features = keras.Model(backbone.input, states, name="features")
        self.backbone = backbone  # With the pooler, which `features` lacks.
        # Changes no values; see `call`.
        self.end_inference = Dropout(0.0, dtype="float32", name="end_inference")

    def call(self, inputs, training=None):
        # Keras 3.16 passes the last explicit `training` on to all later layers, so the
        # last one here must be that of the whole model.
        states = self.features(inputs, training=False)
        return self.end_inference(states, training=training)

    def compute_output_spec(self, inputs, training=None):
        # JAX cannot infer it from `call`: it compares the unknown number of tokens.
        return self.features.compute_output_spec(inputs)


class WeightedSum(keras.layers.Layer):
    """Adds K layers with learned weights: [B, S, K, H] -> [B, S, H]."""

    def build(self, input_shape):
        self.layer_logits = self.add_weight(
            name="layer_logits", shape=(input_shape[2],), initializer="zeros"
        )

    def call(self, layers):
        return ops.einsum("bskh,k->bsh", layers, ops.softmax(self.layer_logits))


@keras.saving.register_keras_serializable(package="bert_tf")
class FeatureTagger(BertModel):
    """Two bidirectional LSTM layers and a dense layer on features of a frozen encoder.

    Args:
        backbone: The encoder.
        num_tags: C.
        feature_set: One of `FEATURES`, the rows of table 7.
        units: Size of each direction of each LSTM layer.

    Inputs: those of the backbone. Outputs: logits [B, S, C] float32.
    """

    _arguments = ("num_tags", "feature_set", "units")

    def __init__(
        self,
        backbone: BertBackbone,
        num_tags: int,
        feature_set: str,
        units: int = 768,
        **kwargs,
    ):
        x = FrozenEncoder(backbone, feature_set, name="encoder")(backbone.input)
        if feature_set.startswith("weighted_sum"):
            x = WeightedSum(dtype="float32", name="combine_layers")(x)
        else:  # Concatenated.
            flat = (-1, x.shape[2] * x.shape[3])
            x = keras.layers.Reshape(flat, dtype="float32", name="concatenate")(x)
        mask = ops.cast(backbone.input["padding_mask"], "bool")
        rate = backbone.config.dropout
        # Both layers are alive until the end, and have backward layers that Keras does
        # not copy: in `load_model`, it confuses layers with the `id` of a freed one.
        new = functools.partial(
            keras.layers.LSTM, units, return_sequences=True, dtype="float32"
        )
        pairs = [
            (new(name="lstm"), new(name="backward_lstm", go_backwards=True))
            for _ in range(2)
        ]
        for number, (layer, backward) in enumerate(pairs):
            lstm = keras.layers.Bidirectional(
                layer, backward_layer=backward, dtype="float32", name=f"lstm_{number}"
            )
            x = lstm(Dropout(rate, dtype="float32")(x), mask=mask)
        x = Dropout(rate, dtype="float32")(x)
        logits = keras.layers.Dense(num_tags, dtype="float32", name="tag_logits")(x)
        super().__init__(inputs=backbone.input, outputs=logits, **kwargs)
        self.backbone = backbone
        self.num_tags, self.feature_set, self.units = num_tags, feature_set, units


# --- The head --------------------------------------------------------------------


class TaggingHead(Head):
    """Settings: `labels`; `aggregation`, `"simple"` if every word piece has a tag of
    its own, as in pipelines of transformers, whose models have this setting.

    Options: `features` and `lstm_units` of `tasks.tagging`.
    """

    kind = "tagging"
    model_class = TokenClassifier
    google_scope = ""
    unused_layers = ("pooler",)

    @classmethod
    def arguments(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        return {"num_tags": len(settings["labels"])}

    def build(self, backbone: BertBackbone) -> keras.Model:
        if not self.options.get("features"):
            return super().build(backbone)
        backbone.trainable = False  # The optimizer needs no memory for it.
        features = self.options["features"], self.options["lstm_units"]
        return FeatureTagger(backbone, len(self.settings["labels"]), *features)

    def windows(self, ids: tf.RaggedTensor) -> text.Windows:
        """Cuts the word pieces of N texts into windows."""
        limit = self.options["max_sequence_length"]
        return text.cut_windows(self.tokenizer, ids, limit)

    def logits(self, model: Callable[..., Any], ids: tf.RaggedTensor) -> tf.Tensor:
        """Returns the logits [pieces, C] of the word pieces of N texts."""

        def run(windows: text.Windows) -> tf.Tensor:
            inputs = windows.inputs()
            pieces = windows.owned_pieces(tf.shape(inputs["token_ids"])[1])
            return tf.boolean_mask(model(inputs, training=False), pieces >= 0)

        spec = tf.TensorSpec([None, len(self.settings["labels"])])
        return self.windows(ids).map(run, spec)

    def run(self, model, texts):
        pieces = self.tokenizer.tokenize_with_offsets(texts)
        return self.tag_text(texts, pieces, self.logits(model, pieces.ids))

    def signatures(self, model, trained=None):
        @signature(tf.TensorSpec([None, None], tf.string, "words"))
        def words(words):
            is_word = tf.not_equal(words, "")
            pieces = self.tokenizer.tokenize_words(tf.boolean_mask(words, is_word))
            counts = tf.math.count_nonzero(is_word, axis=1)
            texts = tf.RaggedTensor.from_row_lengths(pieces, counts)
            logits = self.logits(model, texts.merge_dims(1, 2))
            first, index = tf.gather(logits, pieces.row_starts()), tf.where(is_word)
            found = self.tag_words(first, tf.cast(index[:, 0], tf.int32))
            shape = tf.shape(is_word, out_type=tf.int64)
            names = ("tags", "scores")
            return {name: tf.scatter_nd(index, found[name], shape) for name in names}

        return super().signatures(model, trained) | {"words": words}

    # --- Tagged words and entities -----------------------------------------------

    def tag_text(
        self, texts: tf.Tensor, pieces: text.Pieces, logits: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Returns the words of N texts with their tags, and the entities.

        The first piece of a word decides its tag, as in the paper. Words are those of
        BERT's basic tokenizer: separated by whitespace; each punctuation mark and each
        Chinese character is a word. With `aggregation="simple"`, every piece counts as
        a word; these are the entities of transformers' pipeline.

        Labels are O and those of IOB1, IOB2, BIOES, BILOU or BMES. Others count as I:
        adjacent words with the same one are an entity.

        Args:
            texts: Strings [N].
            pieces: Pieces of the texts with offsets, ragged [N, (pieces)].
            logits: Logits of all pieces [pieces, C].

        Returns:
            For the W words of a text: `words`, `tags` [N, W] string, `scores` [N, W]
            float32, the probabilities of the tags. For its E entities: `entities`,
            `entity_types` [N, E] string; `entity_scores` [N, E] float32, the mean of
            the scores of their words; their offsets in characters, `entity_starts`,
            `entity_ends`, and in bytes, `entity_start_bytes`, `entity_end_bytes` [N, E]
            int32, ends exclusive. Rows are padded with "" and 0.
        """
        by_piece = self.settings.get("aggregation") == "simple"
        is_continuation = self.tokenizer.vocabulary.is_continuation
        begins_word = tf.constant(~is_continuation | by_piece)
        begins_word = tf.gather(begins_word, pieces.ids.values)
        ends_word = tf.concat([begins_word[1:], [True]], 0)[: tf.size(begins_word)]
        row = tf.boolean_mask(pieces.ids.value_rowids(), begins_word)
        row = tf.cast(row, tf.int32)
        start = tf.boolean_mask(pieces.starts.values, begins_word)
        end = tf.boolean_mask(pieces.ends.values, ends_word)
        logits = tf.boolean_mask(logits, begins_word)
        words = self.tag_words(logits, row)
        entity_type, is_first = words.pop("entity_types"), words.pop("is_first")
        words = {"words": text.substrings(texts, row, start, end), **words}
        first, in_entity = tf.where(is_first)[:, 0], tf.not_equal(entity_type, "")
        # The entity of each word of an entity.
        entity = tf.boolean_mask(tf.cumsum(tf.cast(is_first, tf.int32)) - 1, in_entity)
        entity_row, entity_start = tf.gather(row, first), tf.gather(start, first)
        entity_end = tf.math.segment_max(end[in_entity], entity)
        entities = {
            "entities": text.substrings(texts, entity_row, entity_start, entity_end),
            "entity_types": tf.gather(entity_type, first),
            "entity_scores": tf.math.segment_mean(words["scores"][in_entity], entity),
            "entity_starts": text.character_offsets(texts, entity_row, entity_start),
            "entity_ends": text.character_offsets(texts, entity_row, entity_end),
            "entity_start_bytes": entity_start,
            "entity_end_bytes": entity_end,
        }

        def padded(columns, row):
            partition = tf.RaggedTensor.from_value_rowids(
                row, row, nrows=tf.size(texts), validate=False
            )
            return {k: partition.with_values(x).to_tensor() for k, x in columns.items()}

        return padded(words, row) | padded(entities, entity_row)

    def tag_words(self, logits: tf.Tensor, row: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the most probable tags of T words.

        Args:
            logits: The logits of their first pieces [T, C].
            row: The text of each word [T] int32, ascending.

        Returns:
            `tags` and `entity_types` ("" for O), string; `scores`, the probabilities of
            the tags; and `is_first`, whether the word is the first of an entity, bool.
            All are [T].
        """
        labels = self.settings["labels"]
        probabilities = tf.nn.softmax(logits)
        tag = tf.argmax(probabilities, axis=1, output_type=tf.int32)
        types = ["" if x == "O" else re.sub(_PREFIX, "", x) for x in labels]
        names = sorted({"", *types})  # The first is that of O.
        entity_type = tf.gather(tf.constant([names.index(x) for x in types]), tag)
        begins = [label.startswith(("B-", "S-", "U-", "W-")) for label in labels]
        # As in conlleval, an I without a predecessor begins an entity.
        is_same = tf.roll(entity_type, 1, 0) == entity_type
        is_same &= (tf.roll(row, 1, 0) == row) & (tf.range(tf.size(row)) > 0)
        is_same &= entity_type > 0
        is_continued = is_same & ~tf.gather(tf.constant(begins), tag)
        is_first = (entity_type > 0) & ~is_continued
        iob2 = [re.sub("^I-", "B-", label) for label in labels]
        tags = tf.where(is_first, tf.gather(iob2, tag), tf.gather(labels, tag))
        return {
            "tags": tags,
            "scores": tf.reduce_max(probabilities, axis=1),
            "entity_types": tf.gather(tf.constant(names), entity_type),
            "is_first": is_first,
        }
