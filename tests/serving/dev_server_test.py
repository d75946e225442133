# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The development server over gRPC, with the stubs of tensorflow-serving-api."""

import os
import pathlib
import shutil
import socket
import time
import urllib.request
from concurrent import futures

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework.tensor_pb2 import TensorProto, VariantTensorDataProto
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_log_pb2,
    prediction_service_pb2_grpc,
)

from bert_tf import client
from bert_tf.serving import DevServer, dev_server
from bert_tf.serving.servable import Servable, load_newest

Code = grpc.StatusCode
State = get_model_status_pb2.ModelVersionStatus


class Stubs:
    """Both services of the server at `address`."""

    def __init__(self, address: str):
        self.channel = grpc.insecure_channel(address)
        prediction = prediction_service_pb2_grpc.PredictionServiceStub(self.channel)
        self.predict, self.classify = prediction.Predict, prediction.Classify
        self.metadata = prediction.GetModelMetadata
        models = model_service_pb2_grpc.ModelServiceStub(self.channel)
        self.status = models.GetModelStatus


def label(stubs: Stubs) -> bytes:
    """Returns an answer of the model."""
    response = stubs.predict(predict_request({"text": ["x"]}), timeout=20)
    return response.outputs["label"].string_val[0]


def predict_request(
    inputs: dict, signature: str = "", **spec
) -> predict_pb2.PredictRequest:
    protos = {name: tf.make_tensor_proto(value) for name, value in inputs.items()}
    spec = {"name": "toy", "signature_name": signature, **spec}
    return predict_pb2.PredictRequest(model_spec=spec, inputs=protos)


def wait_until(condition) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "the condition is still false after 30 s"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def stubs(toy_server):
    stubs = Stubs(toy_server.address)
    yield stubs
    stubs.channel.close()


# --- Predict ---------------------------------------------------------------------


def test_predict_returns_value_fields_and_the_model_spec(stubs):
    texts = [b"a fine film", b"", b"nul \0 byte", b"\xff not UTF-8"]
    response = stubs.predict(predict_request({"text": texts}))
    spec = {"name": "toy", "version": {"value": 3}, "signature_name": "serving_default"}
    shares = [[11, 1.1], [0, 0], [10, 1], [11, 1.1]]
    outputs = {
        "label": tf.make_tensor_proto([b"toy:" + text for text in texts]),
        # TensorFlow Serving does not use `tensor_content` either.
        "probabilities": TensorProto(
            dtype=1,
            tensor_shape={"dim": [{"size": 4}, {"size": 2}]},
            float_val=np.array(shares, np.float32).ravel(),
        ),
    }
    assert response == predict_pb2.PredictResponse(model_spec=spec, outputs=outputs)


def with_outputs(*names: str) -> predict_pb2.PredictRequest:
    request = predict_request({"text": ["a"]})
    request.output_filter.extend(names)
    return request


def with_tensor(dtype: tf.DType | int, *shape: int, **fields):
    """A request whose input `text` or `ids` has the fields of a TensorProto."""
    is_add = dtype == tf.int32
    dtype = getattr(dtype, "as_datatype_enum", dtype)
    dims = [{"size": size} for size in shape]
    proto = TensorProto(dtype=dtype, tensor_shape={"dim": dims}, **fields)
    request = predict_request({"negate": [True]} if is_add else {}, "add" * is_add)
    request.inputs["ids" if is_add else "text"].CopyFrom(proto)
    return request


# TensorFlow dies when it parses this one.
LIST = VariantTensorDataProto(type_name="tensorflow::TensorList", metadata=b"\xff" * 3)
UNEQUAL = {"text_a": ["a", "b"], "text_b": ["a", "b", "c"]}
INVALID, UNKNOWN = Code.INVALID_ARGUMENT, Code.NOT_FOUND
MALFORMED = "values do not fit dtype and shape"


@pytest.mark.parametrize(
    ("request_", "code", "message"),
    [
        (predict_pb2.PredictRequest(), INVALID, "must name a model"),
        (predict_request({}, name="nobody"), UNKNOWN, "No model 'nobody'"),
        (predict_request({}, version={"value": 7}), UNKNOWN, "serves version 3 only"),
        (predict_request({}, version_label="x"), INVALID, "No version has the label"),
        (predict_request({}, "none"), Code.FAILED_PRECONDITION, "'none', only ['add'"),
        (predict_request({}), INVALID, "inputs of the signature are ['text']. Got []."),
        (predict_request({"text": [1.0]}), INVALID, "Got float32 of shape (1,)."),
        (predict_request({"text": "a"}), INVALID, "(None,). Got string of shape ()."),
        (predict_request(UNEQUAL, "join"), INVALID, "Incompatible shapes: [2] vs. [3]"),
        (with_tensor(0, 1), INVALID, MALFORMED),
        (with_tensor(tf.variant, 1, variant_val=[LIST]), INVALID, MALFORMED),
        (with_tensor(tf.resource, 1, resource_handle_val=[{}]), INVALID, MALFORMED),
        (with_tensor(tf.string, 3, string_val=[b"a"]), INVALID, MALFORMED),
        (with_tensor(tf.string, 3, tensor_content=b"\2\0\3abxy"), INVALID, MALFORMED),
        (with_tensor(tf.int32, -1, 3, int_val=[1, 2, 3]), INVALID, MALFORMED),
        (with_tensor(tf.int32, 0, 2**30), INVALID, MALFORMED),
        (with_tensor(tf.int32, 2**62, 2**62, int_val=[1]), INVALID, MALFORMED),
        (with_outputs("scores"), INVALID, "['label', 'probabilities']. Got ['scores']"),
    ],
)
def test_predict_rejects(stubs, request_, code, message):
    with pytest.raises(grpc.RpcError) as error:
        stubs.predict(request_, timeout=20)
    assert message in error.value.details()
    assert error.value.code() == code
    assert label(stubs) == b"toy:x"


def test_limits_of_messages(stubs):
    """Of errors, which gRPC would drop, and of requests."""
    with pytest.raises(grpc.RpcError) as error:
        stubs.predict(predict_request({"x" * 20_000: ["a"]}))
    assert len(error.value.details()) == 1024
    with pytest.raises(grpc.RpcError) as error:
        stubs.predict(predict_request({"text": [b"x" * (65 << 20)]}))
    assert error.value.code() == Code.RESOURCE_EXHAUSTED


# --- The other methods -----------------------------------------------------------


def test_other_methods_are_not_implemented(stubs, caplog):
    with pytest.raises(grpc.RpcError) as error:
        stubs.classify(classification_pb2.ClassificationRequest())
    assert error.value.code() == Code.UNIMPLEMENTED
    assert not caplog.records  # No traceback.


def test_metadata_has_the_signatures_and_status_the_version(stubs):
    request = get_model_metadata_pb2.GetModelMetadataRequest()
    request.model_spec.name = "toy"
    with pytest.raises(grpc.RpcError, match="metadata_field must be") as error:
        stubs.metadata(request)
    assert error.value.code() == INVALID
    request.metadata_field.append("signature_def")
    response = stubs.metadata(request)
    assert response.model_spec.version.value == 3
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert response.metadata["signature_def"].Unpack(signatures)
    signature = signatures.signature_def["serving_default"]
    assert list(signature.inputs) == ["text"]
    assert sorted(signature.outputs) == ["label", "probabilities"]
    assert signature.method_name == "tensorflow/serving/predict"
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = "toy"
    (status,) = stubs.status(request, timeout=20).model_version_status
    assert (status.version, status.state) == (3, State.AVAILABLE)


# --- Abandoned and large requests ------------------------------------------------


def wait_request(file: pathlib.Path, rows: int = 1) -> predict_pb2.PredictRequest:
    """A request that runs until the file exists."""
    return predict_request({"files": [str(file)] * rows}, "wait")


@pytest.fixture
def runs(monkeypatch) -> list[str]:
    """The starts and ends of all requests: "started", "done", or name of the error."""
    events, predict = [], Servable.predict

    def spy(self, request, seconds=1e6):
        events.append("started")
        try:
            response = predict(self, request, seconds)
        except tf.errors.OpError as error:
            events.append(type(error).__name__)
            raise
        events.append("done")
        return response

    monkeypatch.setattr(Servable, "predict", spy)
    return events


@pytest.mark.parametrize(("timeout", "limit"), [(0.3, 300), (None, 0.3)])
def test_run_stops_at_the_deadline(stubs, runs, tmp_path, monkeypatch, timeout, limit):
    """That of the client or of the server."""
    monkeypatch.setattr(dev_server, "_MAX_SECONDS", limit)
    with pytest.raises(grpc.RpcError) as error:
        stubs.predict(wait_request(tmp_path / "never"), timeout=timeout)
    assert error.value.code() == Code.DEADLINE_EXCEEDED
    wait_until(lambda: runs == ["started", "DeadlineExceededError"])


def test_single_texts_do_not_wait_for_large_requests(stubs, runs, tmp_path):
    end = tmp_path / "end"
    large = [stubs.predict.future(wait_request(end, rows=2)) for _ in range(8)]
    try:
        wait_until(lambda: len(runs) == 8)
        assert label(stubs) == b"toy:x"
        assert not any(call.done() for call in large)
    finally:
        end.touch()
    assert all(call.result(timeout=20).outputs["turns"] for call in large)


# --- Versions --------------------------------------------------------------------


def test_highest_number_is_served(toy_export, tmp_path):
    others = ("v30", "-40", "40.partial", "9" * 30, str(2**63))
    for version in ("1", "0003", "1" * 19, *others):
        os.symlink(toy_export / "3", tmp_path / version)
    assert load_newest("toy", tmp_path).version == int("1" * 19)


def test_path_with_wildcards(toy_export, tmp_path):
    shutil.copytree(toy_export / "3", tmp_path / "model[1]*" / "3")
    assert load_newest("toy", tmp_path / "model[1]*").version == 3


def test_version_in_a_bucket_is_served(toy_export):
    """Uses `ram://` in place of `gs://`."""
    bucket, files = "ram://dev_server_test", tf.io.gfile
    for path in filter(pathlib.Path.is_file, (toy_export / "3").rglob("*")):
        target = f"{bucket}/3/{path.relative_to(toy_export / '3')}"
        files.makedirs(os.path.dirname(target))
        files.copy(path, target)
    assert load_newest("toy", bucket).version == 3


def test_nothing_to_serve(tmp_path):
    with pytest.raises(ValueError, match=f"{tmp_path}/1. Pass the folder of a model"):
        load_newest("toy", tmp_path)
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "saved_model.pb").write_bytes(b"no SavedModel")
    with pytest.raises(ValueError, match=f"Cannot load {tmp_path}/1: "):
        load_newest("toy", tmp_path)


def test_failing_warmup_request_is_an_error(toy_export, tmp_path):
    path = shutil.copytree(toy_export / "3", tmp_path / "1") / "assets.extra"
    path.mkdir()
    log = prediction_log_pb2.PredictionLog()
    log.predict_log.request.CopyFrom(predict_request({"txt": ["a"]}))
    with tf.io.TFRecordWriter(f"{path}/tf_serving_warmup_requests") as writer:
        writer.write(log.SerializeToString())
    with pytest.raises(ValueError, match=r"signature are \['text'\]. Got \['txt'\]"):
        load_newest("toy", tmp_path)


# --- Shutdown --------------------------------------------------------------------


def test_stop_cancels_requests_that_take_too_long(
    toy_export, monkeypatch, runs, tmp_path
):
    monkeypatch.setattr(dev_server, "_GRACE_SECONDS", 0.2)
    with futures.ThreadPoolExecutor(1) as pool:
        with DevServer({"toy": toy_export}) as server:
            stubs = Stubs(server.address)
            answer = pool.submit(stubs.predict, wait_request(tmp_path / "end"))
            wait_until(lambda: runs)
        (tmp_path / "end").touch()
        assert answer.exception(timeout=20).code() == Code.UNAVAILABLE
        stubs.channel.close()
    wait_until(lambda: runs[-1] == "done")


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="There is no IPv6.")
def test_ipv6(toy_export):
    with DevServer({"toy": toy_export}, host="::1") as server:
        assert server.address.startswith("[::1]:")
        status = f"{server.rest_address}/v1/models/toy"
        assert urllib.request.urlopen(status).status == 200
        assert client.predict({"text": ["a"]}, "toy", address=server.address)


def test_names_that_rest_cannot_address(toy_export):
    with pytest.raises(ValueError, match=r"slashes and colons.* 'bert:v2'"):
        DevServer({"bert:v2": toy_export})


def test_port_in_use(toy_export, monkeypatch):
    models = {"toy": toy_export}
    with DevServer(models) as first:
        addresses = (first.address, first.rest_address)
        port, rest_port = (int(address.split(":")[-1]) for address in addresses)
        monkeypatch.setattr(dev_server, "load_newest", None)  # Not called.
        with pytest.raises(ValueError, match=f"Cannot listen on .* {port} and"):
            DevServer(models, port=port)
        with pytest.raises(ValueError, match=f"and {rest_port}: .*in use"):
            DevServer(models, rest_port=rest_port)
