# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of bert_tf.export. Exports are loaded as a server does, also by TF 2.12."""

import inspect
import json
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

from bert_tf import export, serving
from bert_tf.modeling import BertBackbone, BertPretrainer
from bert_tf.text import Tokenizer
from tests.toy import checkpoints as toy_checkpoints
from tests.toy import tasks as toy_tasks
from tests.toy.models import model_directory, randomize_weights

IDS = ("token_ids", "segment_ids", "padding_mask")
TEXTS = ["the [MASK] sat", "[MASK] c [MASK]", "", "The cats, sitting on a mat."]
# Not periodic: spans of equal windows would have equal scores, up to rounding.
_LONG = " ".join(np.random.default_rng(0).choice(["ünï", "çat", "漢字🙂,", "sat"], 160))
UNUSUAL = [*TEXTS, _LONG, "\0"]


def export_to(
    output: pathlib.Path, source: pathlib.Path, name: str = "toy", **options
) -> pathlib.Path:
    paths = {"model_dir": str(source), "output": str(output)}
    return export.main(export.ExportConfig(**paths, name=name, **options))


@pytest.fixture(scope="module")
def toy(tmp_path_factory, one_layer, vocabulary):
    """Returns a model directory and its pretrainer."""
    path = tmp_path_factory.mktemp("toy")
    pretrainer = randomize_weights(BertPretrainer(BertBackbone(one_layer)), stddev=0.05)
    directory = model_directory(path, one_layer, vocabulary)
    directory.save_weights(pretrainer)
    return directory, pretrainer


@pytest.fixture(scope="module")
def server(toy, tmp_path_factory) -> serving.Servable:
    """Returns an export with layers, loaded as by a server, without its warm-up."""
    folder = tmp_path_factory.mktemp("exported")
    path = export_to(folder, toy[0].path, layers=(-2, 1))
    assert path == folder / "toy" / "1"
    (path / "assets.extra" / "tf_serving_warmup_requests").unlink()
    return serving.Servable("toy", 1, path)


def predict(
    server: serving.Servable, signature: str, **inputs
) -> dict[str, np.ndarray]:
    dtypes = {name: object if "text" in name else np.int32 for name in inputs}
    arrays = {name: np.array(x, dtypes[name]) for name, x in inputs.items()}
    return server.run(signature, arrays)


def test_names_of_signatures_and_tensors(server):
    names = {k: ({*x.inputs}, {*x.outputs}) for k, x in server.signatures.items()}
    layers = {"layer_-2", "layer_1"}
    assert {name: value for name, value in names.items() if name[:2] != "__"} == {
        "serving_default": ({"text"}, {"tokens", "scores"}),
        "embeddings": ({"text"}, {"cls", "mean", "pooled_output", *layers}),
        "sentence_embedding": ({"text"}, {"sentence_embedding"}),
        "next_sentence": ({"text_a", "text_b"}, {"label", "logits", "probabilities"}),
        "ids": ({*IDS}, {"sequence_output", "pooled_output", *layers}),
        "metadata": ({"text"}, {"json"}),
    }


@pytest.mark.usefixtures("eagerly", "plain_encoder")
def test_outputs_equal_those_of_the_model(toy, server):
    model = serving.load(toy[0].path)
    for name in ("serving_default", "embeddings"):
        found = predict(server, name, text=TEXTS)
        for key, expected in model.predict(TEXTS, signature=name).items():
            if expected.dtype == object:
                texts = np.char.decode(found[key].astype(bytes), "utf-8")
                assert texts.tolist() == expected.tolist()
            else:
                np.testing.assert_allclose(found[key], expected, atol=1e-6)


@pytest.mark.parametrize(
    ("signature", "inputs"),
    [
        ("serving_default", {"text": "not in a list"}),
        ("ids", {"token_ids": [[99]], "segment_ids": [[0]], "padding_mask": [[1]]}),
        ("ids", {key: [[0] * 33] for key in IDS}),
        ("ids", dict(zip(IDS, ([[0] * 4] * 2, [[0] * 5] * 2, [[1] * 4] * 2)))),
        ("next_sentence", {"text_a": ["a"], "text_b": ["a", "b"]}),
    ],
)
def test_invalid_requests_raise_invalid_argument(server, signature, inputs):
    with pytest.raises(tf.errors.InvalidArgumentError):
        predict(server, signature, **inputs)
    assert len(predict(server, "embeddings", text=TEXTS)["cls"]) == 4


def test_layers_are_hidden_states_of_the_model(toy, server):
    """`tests/checkpoints` compares these with transformers."""
    backbone = toy[1].backbone
    inputs = Tokenizer.from_checkpoint(toy[0]).encode(tf.constant(TEXTS))
    expected = keras.Model(backbone.input, backbone.hidden_states)(inputs)
    states = predict(server, "ids", **inputs)
    means = predict(server, "embeddings", text=TEXTS)
    mask = tf.cast(inputs["padding_mask"][:, :, tf.newaxis], tf.float32)
    for name, layer in {"layer_-2": 0, "layer_1": 1}.items():
        x = expected[layer] * mask
        np.testing.assert_allclose(states[name], x, atol=1e-6)
        mean = tf.reduce_sum(x, axis=1) / tf.reduce_sum(mask, axis=1)
        np.testing.assert_allclose(means[name], mean, atol=1e-6)


NOBODY = r"no head of the kind 'of_nobody', only .* or name it tasks\.of_nobody"
SINGLE = {"kind": "classification", "pairs": False}


@pytest.mark.parametrize(
    ("head", "options", "message"),
    [
        ({"kind": "of_nobody"}, {}, NOBODY),
        (SINGLE, {"pairs": True}, r"\(--pairs\) requires .* single texts$"),
        (None, {"layers": (-3,)}, r"from -2 to 1. Received: layers=\(-3,\)$"),
        (None, {"name": ".."}, r"name of a served model .* Received: '\.\.'$"),
        (None, {"name": "bert:v2"}, "name of a served model .* Received: 'bert:v2'$"),
    ],
)
def test_models_and_options_that_raise(toy, tmp_path, head, options, message):
    directory = toy[0]
    if head:
        parts = directory.architecture, directory.vocabulary
        directory = model_directory(tmp_path / "model", *parts, head)
    with pytest.raises(ValueError, match=message):
        export_to(tmp_path, directory.path, **options)


# --- TensorFlow 2.12 -------------------------------------------------------------
# The oldest supported runtime: TensorFlow Serving 2.13 links the same ops.


def run_requests(requests: list[tuple]) -> list[dict]:
    """Returns the outputs of requests (path of an export, signature, inputs) as JSON.

    Also runs in TensorFlow 2.12, in a process with nothing else from this file.
    """
    sessions, answers = {}, []
    for path, key, inputs in requests:
        if path not in sessions:
            session = tf.compat.v1.Session(graph=tf.Graph())
            with session.graph.as_default():
                load = tf.compat.v1.saved_model.loader.load
                sessions[path] = session, load(session, ["serve"], path).signature_def
        session, signatures = sessions[path]
        infos = [signatures[key].inputs[name] for name in inputs]
        dtypes = [tf.as_dtype(info.dtype).as_numpy_dtype for info in infos]
        arrays = [
            np.array(value, dtype) for value, dtype in zip(inputs.values(), dtypes)
        ]
        outputs = signatures[key].outputs
        options = config_pb2.CallableOptions(
            feed=[info.name for info in infos],
            fetch=[info.name for info in outputs.values()],
        )
        # Unlike `run`, does not check shapes; neither does a server.
        answer = session._make_callable_from_options(options)
        answers.append(dict(zip(outputs, answer(*arrays))))
    decode = lambda x: x.decode() if isinstance(x, bytes) else x.tolist()  # noqa: E731
    return json.loads(json.dumps(answers, default=decode))


_IMPORTS = """
import json, sys
import numpy as np
import tensorflow as tf
import tensorflow_text
from tensorflow.core.framework import op_def_pb2
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.client import pywrap_tf_session
from tensorflow.python.framework import kernels
"""
_RUN_REQUESTS = f"""
{inspect.getsource(run_requests)}
print(json.dumps([tf.__version__, run_requests(json.load(sys.stdin))]))
"""
_LIST_OPS = """
buffer = pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList())
ops = op_def_pb2.OpList.FromString(buffer).op
devices = ("CPU", "DEFAULT")
listed = kernels.get_all_registered_kernels().kernel
on_cpu = {kernel.op for kernel in listed if kernel.device_type in devices}
for op in sorted(ops, key=lambda op: op.name):
    if op.name in on_cpu and not op.name.startswith("_") and "PyFunc" not in op.name:
        print(op.name, *sorted(attribute.name for attribute in op.attr))
"""


def run(python: str, script: str, stdin: str = "") -> str:
    # `import bert_tf` turned oneDNN on. TensorFlow 2.12 dies with it on bfloat16 where
    # the processor has no AVX-512; its own default there is off.
    environment = {k: v for k, v in os.environ.items() if k != "TF_ENABLE_ONEDNN_OPTS"}
    done = subprocess.run(
        [python, "-c", _IMPORTS + script],
        input=stdin,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        env=environment | {"TF_CPP_MIN_LOG_LEVEL": "2"},
    )
    return done.stdout


@pytest.fixture(scope="module")
def old_python() -> str:
    python = os.environ.get("BERT_TF_COMPAT_PYTHON")
    if not python:
        pytest.skip(
            "BERT_TF_COMPAT_PYTHON, a Python with tensorflow-cpu 2.12.1, "
            "tensorflow-text 2.12.1 and numpy < 2, is not set"
        )
    return python


def assert_versions_agree(old_python: str, requests: list[tuple], atol=1e-5) -> None:
    """Asserts that TensorFlow 2.12 and the current version give equal answers."""
    version, old = json.loads(run(old_python, _RUN_REQUESTS, json.dumps(requests)))
    assert version.startswith("2.12.")
    new = run_requests(requests)
    for request, old_outputs, new_outputs in zip(requests, old, new, strict=True):
        assert old_outputs.keys() == new_outputs.keys()
        for name, value in old_outputs.items():
            if np.array(value).dtype.kind == "f":
                np.testing.assert_allclose(value, new_outputs[name], atol=atol)
            else:
                assert value == new_outputs[name], request


TEXT, NO_TEXT = {"text": UNUSUAL}, {"text": []}
PAIR = {"text_a": UNUSUAL, "text_b": UNUSUAL[::-1]}
QUESTION = {"question": UNUSUAL[::-1], "context": UNUSUAL}
CHOICES = {"prompt": UNUSUAL, "choices": [[text, "", "the cat"] for text in UNUSUAL]}
LONG_TEXT = {"text": ["the cat sat. " * 200] * 9}
# Task, options, inputs.
TASKS = [
    ("windows", {"long_text": "window_max"}, [TEXT, NO_TEXT]),
    ("scores", {}, [PAIR]),
    ("spans", {}, [QUESTION]),
    ("choices", {}, [CHOICES]),
    ("tags", {}, [TEXT, LONG_TEXT, NO_TEXT]),
    ("features", {}, [TEXT, {"text": TEXTS[:1]}, LONG_TEXT, NO_TEXT]),
]


@pytest.mark.slow
def test_tensorflow_2_12_runs_tasks(old_python, toy, tmp_path):
    directory, pretrainer = toy
    requests, backbone = [], pretrainer.backbone
    for name, options, inputs in TASKS:
        path = toy_tasks.export(name, tmp_path, backbone, directory, **options)
        requests += [(str(path), "serving_default", values) for values in inputs]
    assert_versions_agree(old_python, requests)


@pytest.mark.slow
def test_tensorflow_2_12_runs_keras_models_of_strings(old_python, toy, tmp_path):
    directory, pretrainer = toy
    text = keras.Input((), dtype="string", name="text")
    inputs = Tokenizer.from_checkpoint(directory)(text)
    model = keras.Model(text, pretrainer.backbone(inputs))
    path = str(serving.export_saved_model(model, tmp_path))
    requests = [(path, "serving_default", values) for values in (TEXT, NO_TEXT)]
    assert_versions_agree(old_python, requests)


# Heads of Hugging Face whose graphs no task has.
CLASSES = [
    ("SequenceClassification", {"problem_type": "multi_label_classification"}, TEXT),
    ("TokenClassification", {"id2label": {"0": "I-A", "1": "O", "2": "B-B"}}, TEXT),
    ("NextSentencePrediction", {}, PAIR),
]


@pytest.mark.slow
def test_tensorflow_2_12_runs_checkpoints(old_python, toy, vocabulary, tmp_path):
    path = str(export_to(tmp_path, toy[0].path, layers=(-2, 0)))
    ids = dict(zip(IDS, ([[2, 7, 9, 3]], [[0, 0, 1, 1]], [[1, 1, 1, 0]])))
    requests = [(path, "ids", ids), (path, "metadata", {"text": [""]})]
    for name in ("serving_default", "embeddings"):
        requests += [(path, name, TEXT), (path, name, NO_TEXT)]
    for name, config, inputs in CLASSES:
        folder = tmp_path / "theirs" / name
        toy_checkpoints.write_hugging_face(
            folder, vocabulary, f"BertFor{name}", **config
        )
        path = str(export_to(tmp_path, folder, name))
        empty = {name: [] for name in inputs}
        requests += [(path, "serving_default", x) for x in (inputs, empty)]
    assert_versions_agree(old_python, requests)


@pytest.mark.slow
def test_tensorflow_2_12_runs_bfloat16(old_python, toy, tmp_path):
    path = str(export_to(tmp_path, toy[0].path, precision="mixed_bfloat16"))
    assert_versions_agree(old_python, [(path, "embeddings", TEXT)], atol=0.1)


@pytest.mark.slow
def test_list_of_ops_matches_tensorflow_2_12(old_python):
    old, new = (run(x, _LIST_OPS).splitlines() for x in (old_python, sys.executable))
    still_there = {line.split()[0] for line in new}
    expected = [line for line in old if line.split()[0] in still_there]
    file = pathlib.Path(export.__file__).with_name("serving") / "tf_serving_ops.txt"
    listed = file.read_text(encoding="ascii").splitlines()
    assert [line for line in listed if not line.startswith("#")] == expected
