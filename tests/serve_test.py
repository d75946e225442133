# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import pathlib
import signal
import socket
import subprocess
import sys
import urllib.request
from concurrent import futures

import pytest

from bert_tf import client, serve
from tests.toy.saved_model import write_toy_model

ROOT = pathlib.Path(__file__).parents[1]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        return unused.getsockname()[1]


def read(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=20) as response:
        return response.read()


@pytest.mark.slow
def test_sigterm_lets_requests_under_way_finish(tmp_path):
    write_toy_model(tmp_path / "toy", 7)
    config_file = tmp_path / "models.config"
    config_file.write_text(
        'model_config_list { config { name: "toy" base_path: "/models/toy" '
        'model_platform: "tensorflow" } }'
    )
    port, rest_port = free_port(), free_port()
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "bert_tf.serve",
            f"--model_config_file={config_file}",
            f"--port={port}",
            f"--rest_api_port={rest_port}",
            "--demo",
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    lines = []
    while not lines or lines[-1] != "Ready.\n":
        lines.append(process.stdout.readline())
        assert lines[-1], process.communicate()
    assert "Production is stock TensorFlow Serving" in lines[0]
    assert lines[1:-1] == [
        f"toy: version 7 of {tmp_path}/toy\n",
        f"gRPC on 127.0.0.1:{port}\n",
        f"REST on http://127.0.0.1:{rest_port}/v1/models/toy\n",
        f"Demonstration on http://127.0.0.1:{rest_port}/\n",
    ]
    assert b"<title>" in read(f"http://127.0.0.1:{rest_port}/")

    def ask(address: str, seconds: float) -> dict:
        return client.predict(
            {"seconds": [seconds]}, "toy", signature="wait", address=address
        )

    with futures.ThreadPoolExecutor(2) as pool:
        answers = [
            pool.submit(ask, f"127.0.0.1:{port}", 0.8),
            pool.submit(ask, f"http://127.0.0.1:{rest_port}", 1.2),
        ]
        with pytest.raises(futures.TimeoutError):
            answers[0].result(timeout=0.5)
        process.send_signal(signal.SIGTERM)
        for answer in answers:
            assert answer.result()["turns"] > 0
    assert process.wait(timeout=20) == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def test_running_in_this_process(tmp_path):
    write_toy_model(tmp_path, 1)
    with serve.running(model_name="toy", model_base_path=tmp_path) as address:
        outputs = client.predict({"text": ["a"]}, "toy", address=address)
        assert outputs["label"].tolist() == [b"toy:a"]
    host, _, port = address.partition(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=5)


def configs_of(tmp_path, text: str) -> list[tuple[str, str]]:
    path = tmp_path / "models.config"
    path.write_text(text)
    options = serve.ServeConfig(model_config_file=str(path))
    return [(m.name, m.base_path) for m in serve.read_model_configs(options)]


def config_text(name: str, base_path: str, platform: str = "tensorflow") -> str:
    return (
        f'config {{ name: "{name}" base_path: "{base_path}" '
        f'model_platform: "{platform}" }}'
    )


def test_base_paths_of_a_config_file(tmp_path):
    (tmp_path / "beside").mkdir()
    (tmp_path / "other").mkdir()
    found = configs_of(
        tmp_path,
        "model_config_list {"
        + config_text("relative", "sst2")
        + config_text("absolute", f"{tmp_path}/other")
        + config_text("container", "/models/beside")
        + config_text("nowhere", "/models/nowhere")
        + "}",
    )
    assert found == [
        ("relative", f"{tmp_path}/sst2"),
        ("absolute", f"{tmp_path}/other"),
        ("container", f"{tmp_path}/beside"),
        ("nowhere", "/models/nowhere"),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no model_config_list"),
        ("model_config_list {", r"models.config: not a ModelServerConfig: 1:19"),
        ("model_config_list { config { nom: 1 } }", "nom"),
        ("model_config_list { config { name: 'a' } }", "needs a base_path"),
        (
            f"model_config_list {{ {config_text('a', '/a', '')} }}",
            'needs model_platform: "tensorflow"',
        ),
        (
            f"model_config_list {{ {config_text('a', '/a') * 2} }}",
            "two configs have the name 'a'",
        ),
    ],
)
def test_config_files_that_tensorflow_serving_would_refuse(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        configs_of(tmp_path, text)


def test_the_config_file_of_the_project_is_one():
    path = ROOT / "saved_models" / "models.config"
    options = serve.ServeConfig(model_config_file=str(path))
    assert serve.read_model_configs(options)


def test_the_demonstration_is_at_the_rest_port():
    options = serve.ServeConfig(model_base_path="x", rest_api_port=0, demo=True)
    with pytest.raises(ValueError, match="leave out --rest_api_port=0"):
        serve.main(options)


def test_nothing_to_serve():
    with pytest.raises(ValueError, match="--model_base_path or --model_config_file"):
        serve.read_model_configs(serve.ServeConfig())


def test_help_does_not_wait_for_tensorflow():
    code = (
        "import sys, bert_tf.serve;"
        "assert 'tensorflow' not in sys.modules and 'grpc' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=20)
