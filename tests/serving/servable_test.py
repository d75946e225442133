# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import pathlib

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

from bert_tf.serving import servable
from tests.toy.saved_model import write_toy_model


@pytest.fixture
def folder(tmp_path) -> pathlib.Path:
    return write_toy_model(tmp_path, 1)


def write_warmup(folder: pathlib.Path, logs) -> None:
    path = folder / "assets.extra" / "tf_serving_warmup_requests"
    path.parent.mkdir()
    with tf.io.TFRecordWriter(str(path)) as writer:
        for log in logs:
            writer.write(log.SerializeToString())


def warmup_log(name: str) -> prediction_log_pb2.PredictionLog:
    log = prediction_log_pb2.PredictionLog()
    request = log.predict_log.request
    request.inputs[name].CopyFrom(tf.make_tensor_proto(["warm"]))
    return log


def test_warmup_requests_are_answered_before_the_first_user(folder, monkeypatch):
    seen = []
    predict = servable.Servable.predict

    def spy(self, request: predict_pb2.PredictRequest):
        response = predict(self, request)
        seen.append(list(response.outputs["label"].string_val))
        return response

    monkeypatch.setattr(servable.Servable, "predict", spy)
    log = prediction_log_pb2.PredictionLog()
    log.classify_log.request.model_spec.signature_name = "classify"
    example = log.classify_log.request.input.example_list.examples.add()
    example.features.feature["text"].bytes_list.value.append(b"a")
    write_warmup(folder, [warmup_log("text"), warmup_log("text"), log])
    servable.Servable("toy", 1, folder)
    assert seen == [[b"toy:warm"]] * 2


@pytest.mark.parametrize(
    ("logs", "error", "message"),
    [
        ([warmup_log("txt")], tf.errors.InvalidArgumentError, "not found in signature"),
        (
            [warmup_log("text")] * 1001,
            tf.errors.InvalidArgumentError,
            "exceeds the maximum",
        ),
        (
            [prediction_log_pb2.PredictionLog(session_run_log={})],
            tf.errors.UnimplementedError,
            "session_run_log",
        ),
    ],
)
def test_a_version_whose_warmup_fails_is_not_served(folder, logs, error, message):
    write_warmup(folder, logs)
    with pytest.raises(error, match=message):
        servable.Servable("toy", 1, folder)


def test_a_warmup_file_that_is_cut_off(folder):
    write_warmup(folder, [warmup_log("text")])
    path = folder / "assets.extra" / "tf_serving_warmup_requests"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(tf.errors.DataLossError):
        servable.Servable("toy", 1, folder)


def test_answers_are_those_of_the_saved_model(folder):
    text = ["", "one", "größer", "x" * 1000]
    expected = tf.saved_model.load(str(folder)).signatures["serving_default"](
        text=tf.constant(text)
    )
    request = predict_pb2.PredictRequest()
    request.inputs["text"].CopyFrom(tf.make_tensor_proto(text))
    outputs = servable.Servable("toy", 1, folder).predict(request).outputs
    assert outputs.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(tf.make_ndarray(outputs[name]), value)
