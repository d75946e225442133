# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Models, exports and served answers in a bucket; `ram://` in place of `gs://`."""

import dataclasses
import uuid

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import client, export, finetuning, serving, storage, text_files
from bert_tf.checkpoints import open_checkpoint
from bert_tf.training import PretrainConfig, TrainingLoop, pretrain
from tasks.classification import Classification
from tests.toy.records import write_both_splits


class _Killed(Exception):
    pass


def _kill_after_step_8(loop):
    """Nothing is uploaded afterwards, and another process has no local copies."""
    if loop.step == 8:
        storage._copies.clear()
        raise _Killed


def _names(path: str) -> set[str]:
    return {
        f"{directory}/{name}".removeprefix(f"{path}/")
        for directory, _, names in tf.io.gfile.walk(path)
        for name in names
    }


@pytest.fixture(scope="module")
def bucket() -> str:
    return f"ram://{uuid.uuid4().hex}"


@pytest.fixture(scope="module")
def pretrained(bucket, tmp_path_factory, random_encoder, vocabulary) -> PretrainConfig:
    """Options of a finished pre-training, whose model directory is in the bucket."""
    folder = tmp_path_factory.mktemp("records")
    encoder = random_encoder(folder, num_layers=1, dropout=0.1)
    write_both_splits(folder, vocabulary)
    options = {"records": str(folder), "output": f"{bucket}/whole", "batch_size": 4}
    options |= {"steps": 12, "warmup_steps": 2, "validate_every": 5}
    options = PretrainConfig(size=encoder["size"], **options)
    pretrain(options)
    storage._copies.clear()
    return options


@pytest.mark.slow
def test_resume_is_bit_equal_after_kill(pretrained, monkeypatch):
    # Not "whole-killed": `ram://` lists that as a file in "whole".
    output = pretrained.output.replace("whole", "killed")
    options = dataclasses.replace(pretrained, output=output)
    with monkeypatch.context() as patch:
        patch.setattr(TrainingLoop, "check_signals", _kill_after_step_8)
        with pytest.raises(_Killed):
            pretrain(options)
    assert "training_state/ckpt-5.npz" in _names(output)
    pretrain(options)
    storage._copies.clear()
    names = _names(output)
    assert {"config.json", "model.safetensors", "metrics.json", "history.csv"} <= names
    states = sorted(name for name in names if "training_state" in name)
    assert states == [f"training_state/ckpt-{step}.npz" for step in (10, 12)]
    assert not [name for name in names if "unfinished" in name or ".lock" in name]
    expected, resumed = map(open_checkpoint, (pretrained.output, output))
    resumed = resumed.read_weights()
    for name, weight in expected.read_weights().items():
        np.testing.assert_array_equal(weight, resumed[name], err_msg=name)


@pytest.mark.slow
def test_fine_tuning_exports_a_served_model(pretrained, bucket, tmp_path):
    file = tmp_path / "data.tsv"
    file.write_text("text\tlabel\n" + "the cat\tgood\nsat on\tbad\n" * 4)
    options = dict.fromkeys(("train_file", "dev_file"), str(file))
    options |= {"text_a": "text", "label": "label", "init_from": pretrained.output}
    options |= {"output": f"{bucket}/verdict", "export": f"{bucket}/served/verdict"}
    options |= {"batch_size": 4, "epochs": 1, "max_sequence_length": 16}
    options = Classification.Config(**options)
    finetuning.fine_tune(Classification, options)
    storage._copies.clear()
    names = _names(options.output)
    assert {"model.safetensors", "metrics.json", "predictions_dev.tsv"} <= names
    assert not [name for name in names if "training_state" in name]

    again = export.ExportConfig(
        model_dir=options.output, output=f"{bucket}/served", name="verdict"
    )
    assert export.main(again) == f"{options.export}/2"
    # A version whose upload has not finished is not loaded.
    text_files.write_text(f"{options.export}/3/variables/variables.index", "")
    answers = []
    for version in (2, 1):
        with serving.DevServer({"verdict": options.export}) as server:
            assert server.models["verdict"].version == version
            text = {"text": ["the cat", "sat on"]}
            answers.append(client.predict(text, "verdict", address=server.address))
        tf.io.gfile.rmtree(f"{options.export}/{version}")
    for name, values in answers[0].items():
        np.testing.assert_array_equal(values, answers[1][name])


def test_data_of_tasks_must_be_local():
    with pytest.raises(ValueError, match="--train_file must be a path of this machine"):
        Classification.Config(train_file="gs://bucket/train.tsv", output="model")


def test_unknown_store_is_named():
    with pytest.raises(OSError, match="s3://"):
        open_checkpoint("s3://bucket/model")
