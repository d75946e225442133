# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import pathlib

import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from bert_tf.serving import Servable
from tests.toy.saved_model import write_toy_model


@pytest.fixture
def folder(tmp_path) -> pathlib.Path:
    return write_toy_model(tmp_path, 1)


def write_warmup(folder: pathlib.Path, *logs) -> pathlib.Path:
    path = folder / "assets.extra" / "tf_serving_warmup_requests"
    path.parent.mkdir()
    with tf.io.TFRecordWriter(str(path)) as writer:
        for log in logs:
            writer.write(log.SerializeToString())
    return path


def warmup_log(name: str) -> prediction_log_pb2.PredictionLog:
    log = prediction_log_pb2.PredictionLog()
    request = log.predict_log.request
    request.inputs[name].CopyFrom(tf.make_tensor_proto(["warm"]))
    return log


def test_predict_requests_of_the_warmup_file_are_run(folder, monkeypatch):
    labels = []
    predict = Servable.predict

    def spy(self, request):
        response = predict(self, request)
        labels.append(list(response.outputs["label"].string_val))
        return response

    monkeypatch.setattr(Servable, "predict", spy)
    classify = prediction_log_pb2.PredictionLog()
    classify.classify_log.request.model_spec.signature_name = "classify"
    write_warmup(folder, warmup_log("text"), classify, warmup_log("text"))
    Servable("toy", 1, folder)
    assert labels == [[b"toy:warm"]] * 2


def test_failing_or_truncated_warmup_raises(folder):
    path = write_warmup(folder, warmup_log("txt"))
    with pytest.raises(tf.errors.InvalidArgumentError, match="signature are"):
        Servable("toy", 1, folder)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(tf.errors.DataLossError):
        Servable("toy", 1, folder)
