# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Modules that take seconds to import, imported when they are first used.

    from bert_tf.lazy import keras, tf

gives stand-ins: `tf.constant` imports TensorFlow, once, and is its `constant`. So the
file of a command is laid out like any other, and `--help` or a wrong flag is answered
before TensorFlow is there. To type checkers and editors they are the modules.
"""

from __future__ import annotations

import importlib
import types
from typing import TYPE_CHECKING, Any


class _Module(types.ModuleType):
    def __getattr__(self, name: str) -> Any:  # Where a module has no such attribute.
        return getattr(importlib.import_module(self.__name__), name)


if TYPE_CHECKING:
    import keras
    import scipy
    import sklearn
    import tensorflow as tf

    from bert_tf import (
        batching,
        checkpoint,
        convert,
        distribution,
        features,
        finetune,
        heads,
        inference,
        input_pipeline,
        memory,
        model,
        monitoring,
        optimization,
        passages,
        saved_model,
        signatures,
        spans,
        taggers,
        train_step,
        windows,
        words,
    )
else:
    keras = _Module("keras")
    scipy = _Module("scipy")
    sklearn = _Module("sklearn")
    tf = _Module("tensorflow")

    batching = _Module("bert_tf.batching")
    checkpoint = _Module("bert_tf.checkpoint")
    convert = _Module("bert_tf.convert")
    distribution = _Module("bert_tf.distribution")
    features = _Module("bert_tf.features")
    finetune = _Module("bert_tf.finetune")
    heads = _Module("bert_tf.heads")
    inference = _Module("bert_tf.inference")
    input_pipeline = _Module("bert_tf.input_pipeline")
    memory = _Module("bert_tf.memory")
    model = _Module("bert_tf.model")
    monitoring = _Module("bert_tf.monitoring")
    optimization = _Module("bert_tf.optimization")
    passages = _Module("bert_tf.passages")
    saved_model = _Module("bert_tf.saved_model")
    signatures = _Module("bert_tf.signatures")
    spans = _Module("bert_tf.spans")
    taggers = _Module("bert_tf.taggers")
    train_step = _Module("bert_tf.train_step")
    windows = _Module("bert_tf.windows")
    words = _Module("bert_tf.words")
