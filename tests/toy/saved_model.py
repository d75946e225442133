# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""A small SavedModel with several dtypes and signatures."""

import pathlib

import tensorflow as tf


class Toy(tf.Module):
    """Labels a text with `prefix` + text and scores it by its length in bytes."""

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

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def count_letters(self, text):
        """Returns how many a, b and c each text has."""
        others = ("[^a]", "[^b]", "[^c]")
        only = [tf.strings.regex_replace(text, other, "") for other in others]
        counts = tf.stack([tf.strings.length(letters) for letters in only], axis=1)
        return {"sentence_embedding": tf.cast(counts, tf.float32)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def count_query(self, text):
        """Has the prompt "cc"."""
        return self.count_letters("cc" + text)

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.string, name="text_a"),
            tf.TensorSpec([None], tf.string, name="text_b"),
        ]
    )
    def score(self, text_a, text_b):
        """Returns the length of the second text in bytes."""
        length = tf.strings.length(text_a + text_b) - tf.strings.length(text_a)
        return {"score": tf.cast(length, tf.float32)}

    @tf.function(input_signature=[])
    def nothing(self):
        return {"constant": tf.constant([1])}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="files")])
    def wait(self, files):
        """Keeps a thread busy until one of the files exists."""
        (turns,) = tf.while_loop(
            lambda turns: tf.size(tf.io.matching_files(files)) == 0,
            lambda turns: [turns + 1],
            [tf.zeros([1], tf.int64)],
        )
        return {"turns": turns}


def write_toy_model(
    base_path: pathlib.Path,
    version: int,
    prefix: str = "toy:",
    serving_default: str = "label",
    **signatures: str,
) -> pathlib.Path:
    """Writes `<base_path>/<version>/` and renames it into place, as an export does.

    `signatures` are further ones: methods of `Toy` by name.
    """
    toy = Toy(prefix)
    unfinished = base_path / f"{version}.partial"
    tf.saved_model.save(
        toy,
        str(unfinished),
        signatures={
            "serving_default": getattr(toy, serving_default),
            "join": toy.join,
            "add": toy.add,
            "wait": toy.wait,
            "nothing": toy.nothing,
            "sentence_embedding": toy.count_letters,
            **{name: getattr(toy, method) for name, method in signatures.items()},
        },
    )
    return unfinished.rename(base_path / str(version))
