# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""What is hidden while TensorFlow is imported, with a module that plays TensorFlow."""

import os
import pathlib
import platform
import subprocess
import sys

import pytest
import tensorflow as tf

from bert_tf import lazy

ROOT = pathlib.Path(__file__).parents[1]
TENSORFLOW = """
import os, sys, types
def list_physical_devices():
    os.write(2, b"E0000 00:00:1795369649.472712   31363 cuda.cc:52] cannot load CUDA")
os.write(2, b"WARNING: All log messages before absl::InitializeLog() is called are")
hidden = {name for name, module in sys.modules.items() if module is None}
config = types.SimpleNamespace(list_physical_devices=list_physical_devices)
"""
ONEDNN = "TF_ENABLE_ONEDNN_OPTS"


@pytest.mark.parametrize(
    ("environment", "hidden"), [({}, True), ({"TF_CPP_MIN_LOG_LEVEL": "0"}, False)]
)
def test_only_the_import_of_tensorflow_is_quiet(tmp_path, environment, hidden):
    if any(pathlib.Path("/dev").glob("nvidia[0-9]*")):
        pytest.skip("With a GPU, all lines are shown.")
    (tmp_path / "tensorflow.py").write_text(TENSORFLOW)
    inherited = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    path = os.pathsep.join(map(str, (tmp_path, ROOT)))
    script = (
        "from bert_tf import lazy; lazy.skip_keras_wrappers(); import tensorflow"
        "; import sys; assert 'sklearn' not in sys.modules"
        "; print(*sorted(tensorflow.hidden), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=inherited | {"PYTHONPATH": path} | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    if hidden:
        assert done.stderr == "matplotlib sklearn\n"
    else:
        assert done.stderr.startswith("WARNING: All log messages")


@pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="x86")
@pytest.mark.parametrize(("given", "used"), [({}, "1"), ({ONEDNN: "0"}, "0")])
def test_onednn_is_on_unless_the_user_has_set_it(given, used):
    environment = {k: v for k, v in os.environ.items() if k != ONEDNN} | given
    script = f"import bert_tf, os, sys; sys.stdout.write(os.environ['{ONEDNN}'])"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True
    )
    assert done.stdout.decode() == used


def test_other_backends_of_keras_are_refused(monkeypatch):
    monkeypatch.setattr("keras.config.backend", lambda: "torch")
    with pytest.raises(ValueError, match="BERT needs Keras with the backend"):
        lazy.require_backend("BERT", "tensorflow", "jax")


@pytest.mark.slow
def test_scripts_are_silent_with_the_real_tensorflow(tmp_path):
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "2"}
    imports = "import bert_tf; bert_tf.BertBackbone; bert_tf.Tokenizer; bert_tf.AdamW; "
    imports += "import keras; keras.wrappers.SKLearnClassifier"
    done = subprocess.run(
        [sys.executable, "-c", imports], env=environment, capture_output=True
    )
    assert done.stderr == b""


def test_the_fitting_tensorflow_text_is_named(monkeypatch):
    """tensorflow-text for another TensorFlow raises this error for its own ops."""

    def undefined_symbol(name):
        raise tf.errors.NotFoundError(None, None, "_normalize_ops.so: undefined symbol")

    monkeypatch.setattr(tf, "__version__", "2.18.1")
    monkeypatch.setattr(lazy.importlib, "import_module", undefined_symbol)
    with pytest.raises(ImportError, match=r"TensorFlow 2\.18\.1 .*text==2\.18\.\*'$"):
        lazy.import_tensorflow_text()
