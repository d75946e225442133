# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""BERT (arXiv 1810.04805) in Keras 3 on TensorFlow, from raw text to serving.

Public names for Keras scripts. Each is imported at first use, so that
`import bert_tf.client` and the `--help` of commands do not wait for TensorFlow.
"""

import importlib
import os
import platform
import signal
import sys

import wrapt

from bert_tf import lazy

if os.name == "nt":
    raise ImportError(
        "bert_tf needs Linux or macOS: tensorflow-text has no wheels for Windows. "
        "Use the Windows Subsystem for Linux (wsl --install)."
    )

__version__ = "0.1.0"


def _exit_quietly(number, frame):
    """Handles Ctrl-C: the command ends with one line and status 130, no traceback."""

    def report(*error):  # `KeyboardInterrupt`, or the error of an import that it broke.
        print("\nInterrupted.", file=sys.stderr)
        sys.exit(130)

    sys.excepthook = report
    raise KeyboardInterrupt


# Only in `python -m bert_tf.command`, and before the slow imports: while Python looks
# for the module, the first argument is "-m".
_COMMANDS = ("bert_tf.", "tasks.", "experiments.")
if sys.argv[:1] == ["-m"] and any(x.startswith(_COMMANDS) for x in sys.orig_argv):
    signal.signal(signal.SIGINT, _exit_quietly)

lazy.hide_tensorflow_logs()

# TensorFlow reads this variable when it is imported. Without it, oneDNN's kernels are
# off on x86 processors that have none of AVX512-VNNI, AVX512-BF16 and AMX.
if platform.machine().lower() in ("x86_64", "amd64"):
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

__getattr__, __dir__, __all__ = lazy.exports(__name__, __file__)

# The classes with the decorator `keras.saving.register_keras_serializable`, by module.
_REGISTERED = {
    "heads.classification": ("SequenceClassifier", "WeightedBinaryCrossentropy"),
    "heads.embedding": ("SentenceEncoder",),
    "heads.encoder": ("SentenceEmbedding",),
    "heads.multiple_choice": ("ChoiceScorer", "FlattenChoices", "UnflattenChoices"),
    "heads.question_answering": ("SpanPredictor",),
    "heads.tagging": ("FeatureTagger", "TokenClassifier"),
    "modeling.backbone": ("BertBackbone",),
    "modeling.backend": ("Dropout",),
    "modeling.bert": ("Dense", "Embeddings", "EncoderLayer", "PaddingMask"),
    "modeling.pretrainer": ("BertPretrainer", "MaskedLMLoss", "UnpackRows"),
    "text.tokenizer": ("Tokenizer",),
    "training.optimizers": ("AdamW", "Lamb", "Muon", "WarmupDecay"),
}


class _LazyClass:
    """Imports a registered class when Keras loads an object of it."""

    def __init__(self, module: str, name: str):
        self._module, self._name = module, name

    def from_config(self, config):
        module = importlib.import_module(self._module)
        return getattr(module, self._name).from_config(config)


@wrapt.when_imported("keras")
def _register_classes(keras) -> None:
    """Registers our classes without importing them: they import Keras.

    `keras.saving.load_model` finds them by name.
    """
    registered = keras.saving.get_custom_objects()
    for module, names in _REGISTERED.items():
        for name in names:
            lazy_class = _LazyClass(f"bert_tf.{module}", name)
            registered.setdefault(f"bert_tf>{name}", lazy_class)
