# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The server as tensorflow-serving-api's own stubs see it.

The codes and messages are those of TensorFlow Serving, written out.
"""

import gc
import pathlib
import shutil
import threading
import time
import weakref
from concurrent import futures

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)
from tensorflow_serving.config import model_server_config_pb2

from bert_tf.serving import model_server
from tests.toy.saved_model import serve_toy_model, write_toy_model

Code = grpc.StatusCode
State = get_model_status_pb2.ModelVersionStatus


class Stubs:
    """Both services of the server on `port`."""

    def __init__(self, port: int):
        self.channel = grpc.insecure_channel(
            f"127.0.0.1:{port}", [("grpc.max_receive_message_length", -1)]
        )
        prediction = prediction_service_pb2_grpc.PredictionServiceStub(self.channel)
        self.predict = prediction.Predict
        self.classify = prediction.Classify
        self.regress = prediction.Regress
        self.metadata = prediction.GetModelMetadata
        self.multi_inference = prediction.MultiInference
        self.status = model_service_pb2_grpc.ModelServiceStub(
            self.channel
        ).GetModelStatus

    def label(self, text: str) -> str:
        """Returns the label of one text; its prefix says which version answered."""
        response = self.predict(predict_request({"text": [text]}), timeout=20)
        return response.outputs["label"].string_val[0].decode()

    def statuses(self) -> list[tuple[int, int, int]]:
        """Returns version, state and error code of each version."""
        request = get_model_status_pb2.GetModelStatusRequest()
        request.model_spec.name = "toy"
        response = self.status(request, timeout=20)
        return [
            (s.version, s.state, s.status.error_code)
            for s in response.model_version_status
        ]


def predict_request(
    inputs: dict, signature: str = "", **spec
) -> predict_pb2.PredictRequest:
    request = predict_pb2.PredictRequest()
    request.model_spec.name = spec.get("name", "toy")
    request.model_spec.signature_name = signature
    if "version" in spec:
        request.model_spec.version.value = spec["version"]
    for name, value in inputs.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    return request


def example(text: str) -> tf.train.Example:
    result = tf.train.Example()
    result.features.feature["text"].bytes_list.value.append(text.encode())
    return result


@pytest.fixture(scope="module")
def base_path(tmp_path_factory) -> pathlib.Path:
    base_path = tmp_path_factory.mktemp("toy")
    write_toy_model(base_path, 3)
    return base_path


@pytest.fixture(scope="module")
def stubs(base_path):
    with serve_toy_model(base_path) as server:
        stubs = Stubs(server.port)
        yield stubs
        stubs.channel.close()


# --- Predict ---------------------------------------------------------------------


def test_predict_answers_in_value_fields_with_the_spec_of_what_answered(stubs):
    texts = [b"a fine film", b"", b"nul \0 byte", b"\xff not UTF-8"]
    response = stubs.predict(predict_request({"text": texts}))
    assert response.model_spec.name == "toy"
    assert response.model_spec.version.value == 3
    assert response.model_spec.signature_name == "serving_default"
    assert sorted(response.outputs) == ["label", "probabilities"]
    label = response.outputs["label"]
    assert label.dtype == tf.string.as_datatype_enum
    assert [dim.size for dim in label.tensor_shape.dim] == [4]
    assert list(label.string_val) == [
        b"toy:a fine film",
        b"toy:",
        b"toy:nul \0 byte",
        b"toy:\xff not UTF-8",
    ]
    probabilities = response.outputs["probabilities"]
    # Stock servers do not use `tensor_content` unless told to.
    assert not probabilities.tensor_content
    np.testing.assert_allclose(
        list(probabilities.float_val), [11, 1.1, 0, 0, 10, 1, 11, 1.1], rtol=1e-6
    )
    assert [dim.size for dim in probabilities.tensor_shape.dim] == [4, 2]


def test_predict_on_other_dtypes(stubs):
    request = predict_request(
        {"ids": np.array([[1, 2], [3, 4]], np.int32), "negate": [False, True]}, "add"
    )
    outputs = stubs.predict(request).outputs
    assert list(outputs["total"].int64_val) == [3, -7]
    assert list(outputs["half"].double_val) == [1.5, -3.5]
    assert list(outputs["positive"].bool_val) == [True, False]
    assert list(outputs["scalar"].string_val) == [b"a\0"]
    assert not outputs["scalar"].tensor_shape.dim


def test_predict_on_an_empty_batch(stubs):
    request = predict_request({"text": tf.zeros([0], tf.string)})
    outputs = stubs.predict(request).outputs
    assert [dim.size for dim in outputs["probabilities"].tensor_shape.dim] == [0, 2]


def test_output_filter_chooses_outputs(stubs):
    request = predict_request({"text": ["a"]})
    request.output_filter.append("probabilities")
    assert list(stubs.predict(request).outputs) == ["probabilities"]


def test_messages_above_the_default_limit_of_grpc(stubs):
    text = "x" * (6 << 20)
    assert stubs.label(text) == f"toy:{text}"


def filtered(*aliases: str) -> predict_pb2.PredictRequest:
    request = predict_request({"text": ["a"]})
    request.output_filter.extend(aliases)
    return request


def malformed(**changes) -> predict_pb2.PredictRequest:
    request = predict_request({"text": ["a", "b"]})
    for field, value in changes.items():
        setattr(request.inputs["text"], field, value)
    return request


def misshapen(size: int) -> predict_pb2.PredictRequest:
    request = predict_request({"ids": [[1, 2, 3]], "negate": [True]}, "add")
    request.inputs["ids"].tensor_shape.dim[0].size = size
    return request


@pytest.mark.parametrize(
    ("request_", "code", "message"),
    [
        (predict_pb2.PredictRequest(), Code.INVALID_ARGUMENT, "Missing ModelSpec"),
        (
            predict_request({}, name="", version=1),
            Code.INVALID_ARGUMENT,
            "ModelSpec has no name specified.",
        ),
        (
            predict_request({"text": ["a"]}, name="nobody"),
            Code.NOT_FOUND,
            "Servable not found for request: Latest(nobody)",
        ),
        (
            predict_request({"text": ["a"]}, version=7),
            Code.NOT_FOUND,
            "Servable not found for request: Specific(toy, 7)",
        ),
        (
            predict_request({"text": ["a"]}, "nothing"),
            Code.FAILED_PRECONDITION,
            'Serving signature key "nothing" not found.',
        ),
        (
            predict_request({}),
            Code.INVALID_ARGUMENT,
            "input size does not match signature: 0!=1 len({}) != len({text}). "
            "Sent extra: {}. Missing but required: {text}.",
        ),
        (
            predict_request({"text": ["a"], "b": [1], "a": [1]}),
            Code.INVALID_ARGUMENT,
            "input size does not match signature: 3!=1 len({a,b,text}) != "
            "len({text}). Sent extra: {a,b}. Missing but required: {}.",
        ),
        (
            predict_request({"txt": ["a"]}),
            Code.INVALID_ARGUMENT,
            "input tensor alias not found in signature: txt. "
            "Inputs expected to be in the set {text}.",
        ),
        (
            predict_request({"text": [1.0]}),
            Code.INVALID_ARGUMENT,
            "Type mismatch: actual float vs. expect string",
        ),
        (
            predict_request({"text_a": ["a", "b"], "text_b": ["a", "b", "c"]}, "join"),
            Code.INVALID_ARGUMENT,
            "Incompatible shapes: [2] vs. [3]",
        ),
        (malformed(dtype=0), Code.INVALID_ARGUMENT, "tensor parsing error: text"),
        (
            malformed(tensor_content=b"abc"),
            Code.INVALID_ARGUMENT,
            "tensor parsing error: text",
        ),
        (misshapen(-1), Code.INVALID_ARGUMENT, "tensor parsing error: ids"),
        (misshapen(5), Code.INVALID_ARGUMENT, "tensor parsing error: ids"),
        (
            filtered("scores"),
            Code.INVALID_ARGUMENT,
            "output tensor alias not found in signature: scores "
            "Outputs expected to be in the set {label,probabilities}.",
        ),
        (
            filtered("label", "label"),
            Code.INVALID_ARGUMENT,
            "duplicate output tensor alias: label",
        ),
    ],
)
def test_predict_refuses(stubs, request_, code, message):
    with pytest.raises(grpc.RpcError) as error:
        stubs.predict(request_, timeout=20)
    assert error.value.code() == code
    assert error.value.details().startswith(message)
    assert stubs.label("still there") == "toy:still there"


def test_long_messages_are_cut(stubs):
    with pytest.raises(grpc.RpcError) as error:
        stubs.predict(predict_request({"x" * 2000: ["a"]}))
    assert len(error.value.details()) == 1024 + len("...TRUNCATED")
    assert error.value.details().endswith("x...TRUNCATED")


# --- The other methods -----------------------------------------------------------


def test_classify(stubs):
    request = classification_pb2.ClassificationRequest()
    request.model_spec.name = "toy"
    request.model_spec.signature_name = "classify"
    request.input.example_list.examples.extend([example("ab"), example("c")])
    response = stubs.classify(request)
    assert response.model_spec.signature_name == "classify"
    assert response.model_spec.version.value == 3
    found = [
        [(c.label, pytest.approx(c.score)) for c in classes.classes]
        for classes in response.result.classifications
    ]
    assert found == [[("toy:ab", 2), ("ab", 0.2)], [("toy:c", 1), ("c", 0.1)]]


def test_regress_with_a_context_that_all_examples_share(stubs):
    request = regression_pb2.RegressionRequest()
    request.model_spec.name = "toy"
    request.model_spec.signature_name = "regress"
    listed = request.input.example_list_with_context
    listed.context.CopyFrom(example("abc"))
    listed.examples.extend([tf.train.Example(), tf.train.Example()])
    values = [r.value for r in stubs.regress(request).result.regressions]
    assert values == pytest.approx([0.3, 0.3])


@pytest.mark.parametrize(
    ("signature", "examples", "message"),
    [
        ("nothing", 1, "No signature was found with the name: nothing"),
        ("", 1, "No classification inputs found in SignatureDef"),
        ("join", 1, "Expected one input Tensor."),
        ("regress", 1, "Expected classification signature outputs to contain"),
        ("classify", 0, "Input is empty."),
    ],
)
def test_classify_refuses(stubs, signature, examples, message):
    request = classification_pb2.ClassificationRequest()
    request.model_spec.name = "toy"
    request.model_spec.signature_name = signature
    request.input.example_list.examples.extend([example("a")] * examples)
    with pytest.raises(grpc.RpcError) as error:
        stubs.classify(request)
    assert error.value.code() == Code.INVALID_ARGUMENT
    assert error.value.details().startswith(message)


def test_regress_refuses_a_signature_for_classify(stubs):
    request = regression_pb2.RegressionRequest()
    request.model_spec.name = "toy"
    request.model_spec.signature_name = "classify"
    request.input.example_list.examples.append(example("a"))
    with pytest.raises(grpc.RpcError, match='called "outputs"') as error:
        stubs.regress(request)
    assert error.value.code() == Code.INVALID_ARGUMENT


def test_multi_inference_is_not_there(stubs):
    with pytest.raises(grpc.RpcError) as error:
        stubs.multi_inference(inference_pb2.MultiInferenceRequest())
    assert error.value.code() == Code.UNIMPLEMENTED


def test_metadata_has_the_signatures(stubs):
    request = get_model_metadata_pb2.GetModelMetadataRequest()
    request.model_spec.name = "toy"
    request.metadata_field.append("signature_def")
    response = stubs.metadata(request)
    assert response.model_spec.version.value == 3
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert response.metadata["signature_def"].Unpack(signatures)
    signature = signatures.signature_def["serving_default"]
    assert list(signature.inputs) == ["text"]
    assert sorted(signature.outputs) == ["label", "probabilities"]
    assert signature.method_name == "tensorflow/serving/predict"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([], "GetModelMetadataRequest must specify at least one metadata_field"),
        (["size"], "Metadata field size is not supported"),
    ],
)
def test_metadata_refuses(stubs, fields, message):
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=fields)
    request.model_spec.name = "toy"
    with pytest.raises(grpc.RpcError) as error:
        stubs.metadata(request)
    assert error.value.code() == Code.INVALID_ARGUMENT
    assert error.value.details() == message


def test_status(stubs):
    assert stubs.statuses() == [(3, State.AVAILABLE, 0)]


@pytest.mark.parametrize(
    ("name", "version", "message"),
    [
        ("nobody", None, "Could not find any versions of model nobody"),
        ("toy", 7, "Could not find version 7 of model toy"),
    ],
)
def test_status_refuses(stubs, name, version, message):
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = name
    if version:
        request.model_spec.version.value = version
    with pytest.raises(grpc.RpcError) as error:
        stubs.status(request)
    assert error.value.code() == Code.NOT_FOUND
    assert error.value.details() == message


# --- Versions --------------------------------------------------------------------


def wait_until(condition) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)


def test_versions_come_and_go_without_a_failed_request(tmp_path):
    write_toy_model(tmp_path, 9, "nine:")
    with serve_toy_model(tmp_path, poll_seconds=0.02) as server:
        stubs = Stubs(server.port)
        labels, done = [], threading.Event()

        def keep_asking() -> None:
            while not done.is_set():
                labels.append(stubs.label("x"))

        with futures.ThreadPoolExecutor(4) as pool:
            askers = [pool.submit(keep_asking) for _ in range(4)]
            try:
                (tmp_path / "11.partial").mkdir()  # Half written: not a number.
                write_toy_model(tmp_path, 10, "ten:")  # As text, 10 < 9.
                wait_until(lambda: stubs.label("x") == "ten:x")
                wait_until(lambda: (9, State.END, 0) in stubs.statuses())
                (tmp_path / "12").mkdir()
                (tmp_path / "12" / "saved_model.pb").write_bytes(b"no SavedModel")
                wait_until(lambda: stubs.statuses()[0][:2] == (12, State.END))
                shutil.rmtree(tmp_path / "12")
                shutil.rmtree(tmp_path / "10")  # Back to the one before.
                wait_until(lambda: stubs.label("x") == "nine:x")
                wait_until(lambda: len(labels) >= 1000)
            finally:
                done.set()
            for asker in askers:
                asker.result()
        assert set(labels) == {"nine:x", "ten:x"}
        stubs.channel.close()


def models_of(tmp_path, policy: dict | None = None, **kwargs) -> model_server.Models:
    model_config = model_server_config_pb2.ModelConfig(
        name="toy",
        base_path=str(tmp_path),
        model_version_policy=policy,
        **kwargs,
    )
    return model_server.Models([model_config], poll_seconds=0)


def test_a_version_that_does_not_load_leaves_the_old_one_and_says_why(
    base_path, tmp_path
):
    shutil.copytree(base_path / "3", tmp_path / "3")
    models = models_of(tmp_path)
    model = models.by_name["toy"]
    # An op that this binary does not know, as when another release exported the model.
    shutil.copytree(base_path / "3", tmp_path / "4")
    saved_model = tmp_path / "4" / "saved_model.pb"
    saved_model.write_bytes(
        saved_model.read_bytes().replace(b"Timestamp", b"Timestanp")
    )
    model.poll()
    assert list(model.servables) == [3]
    assert model.statuses[4].state == State.END
    assert model.statuses[4].status.error_code != 0
    assert "Timestanp" in model.statuses[4].status.error_message
    before = model.statuses[4]
    model.poll()
    assert model.statuses[4] is before  # It is not tried again,
    (tmp_path / "4").rename(tmp_path / "away")
    model.poll()
    shutil.copytree(base_path / "3", tmp_path / "4")
    model.poll()
    assert list(model.servables) == [4]  # until its folder has been away.


@pytest.mark.parametrize(
    ("policy", "versions"),
    [
        (None, [20]),
        ({"latest": {"num_versions": 2}}, [3, 20]),
        ({"all": {}}, [1, 3, 20]),
        ({"specific": {"versions": [1, 3, 5]}}, [1, 3]),
    ],
)
def test_version_policies(base_path, tmp_path, policy, versions):
    for version in ("1", "0003", "20", "v30", "-40", "40.partial"):
        shutil.copytree(base_path / "3", tmp_path / version)
    models = models_of(tmp_path, policy)
    assert sorted(models.by_name["toy"].servables) == versions
    response = models.predict(predict_request({"text": ["a"]}))
    assert response.model_spec.version.value == versions[-1]


def test_version_labels(base_path):
    models = models_of(base_path, version_labels={"stable": 3, "canary": 4})
    request = predict_request({"text": ["a"]})
    request.model_spec.version_label = "stable"
    assert models.predict(request).model_spec.version.value == 3
    request.model_spec.version_label = "canary"
    with pytest.raises(tf.errors.NotFoundError, match=r"Specific\(toy, 4\)"):
        models.predict(request)
    request.model_spec.version_label = "old"
    with pytest.raises(tf.errors.InvalidArgumentError, match="label: old"):
        models.predict(request)


def test_a_superseded_version_is_freed(base_path, tmp_path):
    shutil.copytree(base_path / "3", tmp_path / "3")
    model = models_of(tmp_path).by_name["toy"]
    model.servables[3].predict(predict_request({"text": ["a"]}))
    session = weakref.ref(model.servables[3]._session)
    shutil.copytree(base_path / "3", tmp_path / "4")
    model.poll()
    gc.collect()
    assert session() is None


def test_nothing_to_serve(tmp_path):
    with pytest.raises(ValueError, match="must be a folder"):
        models_of(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="no version to serve under"):
        models_of(tmp_path)
    (tmp_path / "1").mkdir()
    with pytest.raises(ValueError, match=r"no version can be loaded: .*/1: "):
        models_of(tmp_path)


def test_a_port_in_use(stubs, base_path):
    models = models_of(base_path)
    first = model_server.Server(models, "127.0.0.1", port=0, rest_port=0)
    with pytest.raises(ValueError, match="--port: "):
        model_server.Server(models, "127.0.0.1", first.port)
    with pytest.raises(ValueError, match="--rest_api_port: "):
        model_server.Server(models, "127.0.0.1", 0, first.rest_port)
    first.stop()
