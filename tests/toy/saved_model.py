# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""A small SavedModel with several dtypes and signatures."""

import pathlib

import tensorflow as tf


def _strings(*names: str):
    """Returns a decorator like `tf.function`, for functions of strings [N]."""
    inputs = [tf.TensorSpec([None], tf.string, name=name) for name in names]
    return tf.function(input_signature=inputs)


class Toy(tf.Module):
    """Labels a text with "toy:" + text and scores it by its length in bytes."""

    def __init__(self):
        super().__init__()
        self.prefix = tf.Variable("toy:")

    @_strings("text")
    def label(self, text):
        length = tf.cast(tf.strings.length(text), tf.float32)
        return {
            "label": self.prefix + text,
            "probabilities": tf.stack([length, length / 10], axis=1),
        }

    @_strings("text_a", "text_b")
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

    @_strings()
    def nothing(self):
        return {"constant": tf.constant([1])}

    @_strings("files")
    def wait(self, files):
        """Keeps a thread busy until one of the files exists."""
        (turns,) = tf.while_loop(
            lambda turns: tf.size(tf.io.matching_files(files)) == 0,
            lambda turns: [turns + 1],
            [tf.zeros([1], tf.int64)],
        )
        return {"turns": turns}


def write_toy_model(base_path: pathlib.Path, version: int) -> pathlib.Path:
    """Writes `<base_path>/<version>/` and renames it into place, as an export does."""
    toy = Toy()
    unfinished = base_path / f"{version}.partial"
    names = ("join", "add", "wait", "nothing")
    signatures = {"serving_default": toy.label} | {n: getattr(toy, n) for n in names}
    tf.saved_model.save(toy, str(unfinished), signatures=signatures)
    return unfinished.rename(base_path / str(version))
