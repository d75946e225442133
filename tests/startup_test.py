# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Log lines while TensorFlow is imported, with a module that plays TensorFlow."""

import os
import pathlib
import platform
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]

# Lines of TensorFlow 2.21 and of 2.15, and the output of somebody else.
TENSORFLOW = """
import contextlib, os, types
def log(text):
    with contextlib.suppress(OSError):  # C++ ignores a closed descriptor.
        os.write(2, text)
log(b'''WARNING: All log messages before absl::InitializeLog() is called are ...
I0000 00:00:1795369644.805830   31363 port.cc:153] oneDNN custom operations are on.
2026-01-02 12:00:00.123456: I tensorflow/core/util/port.cc:113] oneDNN operations
To enable the following instructions: AVX2 AVX512F
the user's own line
''')
def list_physical_devices():
    log(b"E0000 00:00:1795369649.472712   31363 cuda.cc:52] cannot load libcudnn\\n")
import sys
hidden = {name for name, module in sys.modules.items() if module is None}
config = types.SimpleNamespace(list_physical_devices=list_physical_devices)
"""
NAME = "TF_ENABLE_ONEDNN_OPTS"
OWN = "the user's own line\n"
ERROR = "E0000 00:00:1795369649.472712   31363 cuda.cc:52] cannot load libcudnn\n"


def run(folder, script, **environment):
    (folder / "tensorflow.py").write_text(TENSORFLOW)
    inherited = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    path = os.pathsep.join(map(str, (folder, ROOT)))
    done = subprocess.run(
        [sys.executable, "-c", f"from bert_tf import startup\n{script}"],
        env=inherited | {"PYTHONPATH": path} | environment,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stderr


HIDE = "startup.hide_tensorflow_logs()\nimport tensorflow\n"


def test_only_log_lines_are_hidden(tmp_path):
    script = HIDE + "import subprocess; subprocess.run(['sh', '-c', 'echo child >&2'])"
    assert run(tmp_path, script) == (0, OWN + "child\n")


def test_plotting_packages_are_hidden_during_the_import_only(tmp_path):
    script = "assert tensorflow.hidden == {'matplotlib', 'sklearn'}; import matplotlib"
    assert run(tmp_path, HIDE + script) == (0, OWN)
    loaded = "import matplotlib\n" + HIDE + "assert tensorflow.hidden == {'sklearn'}"
    assert run(tmp_path, loaded) == (0, OWN)


def test_errors_are_shown_on_request(tmp_path):
    script = HIDE + "startup.show_errors()\nstartup.show_errors()"
    assert run(tmp_path, script) == (0, OWN + ERROR)


def test_failed_import_keeps_its_traceback(tmp_path):
    (tmp_path / "tensorflow").mkdir()  # A package takes precedence.
    (tmp_path / "tensorflow/__init__.py").write_text("raise ImportError('no libcuda')")
    status, stderr = run(tmp_path, HIDE)
    assert status == 1
    assert stderr.endswith("ImportError: no libcuda\n")


def test_log_level_of_the_user_disables_the_filter(tmp_path):
    _, stderr = run(tmp_path, HIDE, TF_CPP_MIN_LOG_LEVEL="0")
    assert "oneDNN" in stderr
    assert OWN in stderr


def test_log_level_of_a_parent_process_keeps_it(tmp_path):
    assert run(tmp_path, HIDE, TF_CPP_MIN_LOG_LEVEL="3") == (0, OWN)


def test_closed_stderr_is_no_error(tmp_path):
    script = "import os; os.close(2)\n" + HIDE + "print(tensorflow.__name__)"
    assert run(tmp_path, script)[0] == 0


@pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="x86")
@pytest.mark.parametrize(("given", "used"), [({}, "1"), ({NAME: "0"}, "0")])
def test_onednn_is_on_unless_the_user_has_set_it(given, used):
    environment = {k: v for k, v in os.environ.items() if k != NAME} | given
    script = f"import bert_tf, os, sys; sys.stdout.write(os.environ['{NAME}'])"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True
    )
    assert done.stdout.decode() == used


@pytest.mark.slow
def test_commands_are_silent_with_the_real_tensorflow(tmp_path):
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "2"}
    (tmp_path / "a.txt").write_text("One sentence.\nAnother one.\n\n" * 50)
    command = [sys.executable, "-m", "bert_tf", "vocab", "--input=a.txt"]
    command += ["--output=vocab.txt", "--vocabulary_size=60"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr
    imports = "import bert_tf.startup as s; s.hide_tensorflow_logs(); import bert_tf; "
    imports += "bert_tf.BertBackbone; bert_tf.Tokenizer; bert_tf.AdamW"
    done = subprocess.run(
        [sys.executable, "-c", imports], env=environment, capture_output=True
    )
    assert done.stderr == b""
