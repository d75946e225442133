# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Shared setup: a quiet TensorFlow with two CPU devices, a vocabulary, tiny models."""

import dataclasses
import functools
import json
import os
import pathlib
import pkgutil
import signal
from collections.abc import Callable, Iterator

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import pytest

from bert_tf import serving
from bert_tf.families import FAMILIES
from bert_tf.lazy import lazy_import
from bert_tf.modeling import BertConfig
from bert_tf.text import Vocabulary

# The process that starts the workers of pytest-xdist does not need it.
tf = lazy_import("tensorflow")

# Shells start background jobs, such as a CI run, with Ctrl-C ignored. The processes of
# tests must not inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Sets two logical devices, for tests of data parallelism on any machine."""
    if session.config.getoption("dist", "no") == "no":  # This process runs tests.
        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("CPU")[0],
            [tf.config.LogicalDeviceConfiguration()] * 2,
        )


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Gives tests of long texts short names: pytest-xdist sends and prints them."""
    is_long = isinstance(val, str | bytes) and len(val) > 100
    return f"{argname} of {len(val)}" if is_long else None


@pytest.fixture(autouse=True)
def eager_functions(request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs graph functions eagerly in tests that call most of them once.

    Tracing takes longer. The tests of exports run the graphs.
    """
    is_eager = request.path.parent.name in ("checkpoints", "heads")
    tf.config.run_functions_eagerly(is_eager)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture(scope="session", autouse=True)
def cached_word_pieces() -> Iterator[None]:
    """Most tests have a tokenizer that another test has built, in 0.1 seconds."""
    name = "bert_tf.text.tokenizer.WordPieces"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(name, functools.lru_cache(32)(pkgutil.resolve_name(name)))
        yield


@pytest.fixture(scope="session")
def real_data() -> pathlib.Path:
    """Returns the folder of the real data sets."""
    if "BERT_TF_DATA" not in os.environ:
        pytest.skip("BERT_TF_DATA, the folder of the real data sets, is not set.")
    return pathlib.Path(os.environ["BERT_TF_DATA"])


@pytest.fixture(scope="session")
def vocabulary() -> Vocabulary:
    """Returns 40 tokens: special tokens, letters, words and continuation pieces."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["the", "cat", "sat", "on", "mat", "##s", "##ing", ".", ","]
    return Vocabulary(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *words))


@pytest.fixture(scope="session")
def tiny_config(vocabulary: Vocabulary) -> BertConfig:
    """Returns an architecture with 2 layers, 16 units and no dropout."""
    sizes = {"intermediate_dim": 32, "max_sequence_length": 32}
    rates = {"dropout": 0.0, "attention_dropout": 0.0}
    return BertConfig.from_size("2/16/2", vocabulary.size, **sizes, **rates)


@pytest.fixture(scope="session")
def one_layer(tiny_config: BertConfig) -> BertConfig:
    return dataclasses.replace(tiny_config, num_layers=1)


@pytest.fixture(scope="session")
def random_encoder(
    tiny_config: BertConfig, vocabulary: Vocabulary
) -> Callable[..., dict[str, str]]:
    """Returns a function that writes the files of a randomly initialized encoder.

    The function takes the folder and changes to `tiny_config`. It returns the options
    `size` and `vocabulary` of a task.
    """

    def write(folder: pathlib.Path, **changes) -> dict[str, str]:
        config = dataclasses.replace(tiny_config, **changes)
        keys = FAMILIES["bert"].keys.items()
        written = {"model_type": "bert"} | {key: getattr(config, x) for x, key in keys}
        # The size of the vocabulary overrides `vocab_size`.
        written |= {"hidden_act": "gelu_new", "vocab_size": 1}
        size, words = folder / "size.json", folder / "vocab.txt"
        size.write_text(json.dumps(written))
        vocabulary.write(words)
        return {"size": str(size), "vocabulary": str(words)}

    return write


@pytest.fixture(scope="session")
def toy_checkpoint(vocabulary: Vocabulary, tiny_config: BertConfig):
    """Returns a `Checkpoint` without weights, for exports of small graphs."""
    from bert_tf.checkpoints import Checkpoint

    head = {"kind": "classification", "labels": ["no", "yes"]}
    path = pathlib.Path("never-read")
    return Checkpoint(path, tiny_config, vocabulary, True, head, {})


@pytest.fixture(scope="session")
def toy_export(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Returns the base path of `tests.toy.saved_model`, version 3."""
    from tests.toy.saved_model import write_toy_model

    return write_toy_model(tmp_path_factory.mktemp("toy"), 3).parent


@pytest.fixture(scope="module")
def toy_server(toy_export: pathlib.Path) -> Iterator["serving.DevServer"]:
    """Serves `toy_export` by two names, with the demo page."""
    models = {"toy": toy_export, "größer": toy_export}
    with serving.DevServer(models, demo=True) as server:
        yield server


@pytest.fixture
def eagerly() -> None:
    """Tracing graphs would take longer than running a few steps eagerly."""
    tf.config.run_functions_eagerly(True)  # `eager_functions` resets it.


@pytest.fixture
def without_fusion(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling groups of ops for each shape would take most of the time."""
    monkeypatch.setattr("bert_tf.modeling.backend.cpu_only", lambda: False)


@pytest.fixture
def plain_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Signatures have the encoder for training, which is equal and faster to build."""
    name = "bert_tf.serving.predictor.optimize_for_inference"
    monkeypatch.setattr(name, lambda model, *_, **__: model)
