# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""A SavedModel that takes a moment to write and load, with the kinds of signature that
exported models have."""

import contextlib
import pathlib
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import tensorflow as tf
from tensorflow_serving.config import model_server_config_pb2

from bert_tf.serving import model_server, rest


class Toy(tf.Module):
    """Labels a text with `prefix` + text; the scores are its length in bytes."""

    def __init__(self, prefix: str):
        super().__init__()
        self.prefix = tf.Variable(prefix)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def label(self, text):
        length = tf.cast(tf.strings.length(text), tf.float32)
        return {
            "label": self.prefix + text,
            "probabilities": tf.stack([length, length / 10], axis=1),
        }

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.string, name="text_a"),
            tf.TensorSpec([None], tf.string, name="text_b"),
        ]
    )
    def join(self, text_a, text_b):
        return {"joined_bytes": text_a + text_b}

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, None], tf.int32, name="ids"),
            tf.TensorSpec([None], tf.bool, name="negate"),
        ]
    )
    def add(self, ids, negate):
        total = tf.reduce_sum(ids, axis=1)
        total = tf.where(negate, -total, total)
        return {
            "total": tf.cast(total, tf.int64),
            "half": tf.cast(total, tf.float64) / 2,
            "positive": total > 0,
            "scalar": tf.constant("a\0"),
        }

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="seconds")])
    def wait(self, seconds):
        end = tf.timestamp() + tf.cast(tf.reduce_max(seconds), tf.float64)
        (turns,) = tf.while_loop(
            lambda turns: tf.timestamp() < end,
            lambda turns: [turns + 1],
            [tf.zeros([1], tf.int64)],
        )
        return {"seconds": seconds, "turns": turns}

    def _texts(self, inputs):
        features = {"text": tf.io.FixedLenFeature([], tf.string)}
        return tf.io.parse_example(inputs, features)["text"]

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="inputs")])
    def classify(self, inputs):
        outputs = self.label(self._texts(inputs))
        classes = tf.stack([outputs["label"], self._texts(inputs)], axis=1)
        return {"classes": classes, "scores": outputs["probabilities"]}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="inputs")])
    def regress(self, inputs):
        return {"outputs": self.label(self._texts(inputs))["probabilities"][:, 1:]}


def write_toy_model(
    base_path: pathlib.Path, version: int, prefix: str = "toy:"
) -> pathlib.Path:
    """Writes `<base_path>/<version>/` in one step, as an export does."""
    toy = Toy(prefix)
    beside = base_path / f"{version}.partial"
    tf.saved_model.save(
        toy,
        str(beside),
        signatures={
            "serving_default": toy.label,
            "join": toy.join,
            "add": toy.add,
            "wait": toy.wait,
            "classify": toy.classify,
            "regress": toy.regress,
        },
    )
    return beside.rename(base_path / str(version))


@contextlib.contextmanager
def serve_toy_model(
    base_path: pathlib.Path,
    poll_seconds: float = 0,
    pages: Mapping[str, rest.Page] = MappingProxyType({}),
) -> Iterator[model_server.Server]:
    """Serves the model "toy" of `base_path` over gRPC and REST on free ports."""
    model_config = model_server_config_pb2.ModelConfig(
        name="toy", base_path=str(base_path)
    )
    models = model_server.Models([model_config], poll_seconds)
    server = model_server.Server(models, "127.0.0.1", 0, 0, pages)
    try:
        yield server
    finally:
        server.stop()
