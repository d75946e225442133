# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""From records to served answers in a bucket; `ram://` in place of `gs://`."""

import dataclasses
import uuid

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import client, corpus, export, finetuning, serving, storage
from bert_tf.checkpoints import open_checkpoint
from bert_tf.data import CorpusConfig
from bert_tf.training import PretrainConfig, TrainingLoop, pretrain
from tasks.classification import Classification


class _Killed(Exception):
    pass


def _kill_after_step_8(loop):
    """Nothing is uploaded afterwards."""
    if loop.step == 8:
        storage._copies.clear()
        raise _Killed


def _forget_copies():
    """Another process or machine has no local copies."""
    storage._copies.clear()


@pytest.fixture(autouse=True)
def other_process():
    _forget_copies()


@pytest.fixture(scope="module")
def bucket() -> str:
    return f"ram://{uuid.uuid4().hex}"


def _names(path: str) -> set[str]:
    return {
        f"{directory}/{name}".removeprefix(f"{path}/")
        for directory, _, names in tf.io.gfile.walk(path)
        for name in names
    }


@pytest.fixture(scope="module")
def options(bucket, tmp_path_factory, random_encoder) -> PretrainConfig:
    """Options of a pre-training on records in the bucket."""
    folder = tmp_path_factory.mktemp("encoder")
    encoder = random_encoder(folder, num_layers=1, dropout=0.1)
    storage.make_directory(bucket)
    vocabulary = f"{bucket}/vocab.txt"
    storage.write_text(vocabulary, (folder / "vocab.txt").read_text())
    rng = np.random.default_rng(0)
    lines = (" ".join(rng.choice(["the", "cat", "sat", "on"], 6)) for _ in range(400))
    text = "".join(f"{line}\n" + "\n" * (i % 8 == 7) for i, line in enumerate(lines))
    storage.write_text(f"{bucket}/text.txt", text)
    corpus.main(
        CorpusConfig(
            input=f"{bucket}/text.txt",
            vocabulary=vocabulary,
            output=f"{bucket}/records",
            max_sequence_length=32,
            held_out_share=0.2,
            num_workers=1,
        )
    )
    return PretrainConfig(
        records=f"{bucket}/records",
        output=f"{bucket}/whole",
        size=encoder["size"],
        batch_size=4,
        steps=12,
        warmup_steps=2,
        validate_every=5,
    )


@pytest.fixture(scope="module")
def pretrained(options) -> str:
    """The model directory of an uninterrupted pre-training, in the bucket."""
    pretrain(options)
    return options.output


@pytest.mark.slow
def test_pretraining_leaves_a_complete_model_directory(pretrained):
    names = _names(pretrained)
    assert {"config.json", "vocab.txt", "model.safetensors", "metrics.json"} <= names
    assert {"history.csv", "training_state/ckpt-12.index"} <= names
    assert not [name for name in names if "unfinished" in name or ".lock" in name]


@pytest.mark.slow
def test_resume_is_bit_equal_after_kill(pretrained, options, monkeypatch):
    # Not "whole-killed": `ram://` lists that as a file in "whole".
    output = options.output.replace("whole", "killed")
    options = dataclasses.replace(options, output=output)
    with monkeypatch.context() as patch:
        patch.setattr(TrainingLoop, "check_signals", _kill_after_step_8)
        with pytest.raises(_Killed):
            pretrain(options)
    assert "training_state/ckpt-5.index" in _names(options.output)
    _forget_copies()
    pretrain(options)
    states = [n for n in _names(options.output) if n.endswith(".index")]
    assert sorted(states) == [f"training_state/ckpt-{step}.index" for step in (10, 12)]
    _forget_copies()
    expected, resumed = map(open_checkpoint, (pretrained, options.output))
    resumed = resumed.read_weights()
    for name, weight in expected.read_weights().items():
        np.testing.assert_array_equal(weight, resumed[name], err_msg=name)


@pytest.fixture(scope="module")
def fine_tuned(pretrained, bucket, tmp_path_factory):
    """Metrics of a fine-tuning, exported to the bucket."""
    file = tmp_path_factory.mktemp("tables") / "data.tsv"
    rows = "the cat\tgood\nsat on\tbad\n" * 4
    file.write_text("text\tlabel\n" + rows)
    options = Classification.Config(
        train_file=str(file),
        dev_file=str(file),
        text_a="text",
        label="label",
        init_from=pretrained,
        output=f"{bucket}/verdict",
        export=f"{bucket}/served/verdict",
        batch_size=4,
        epochs=1,
        max_sequence_length=16,
    )
    return finetuning.fine_tune(Classification, options)


@pytest.mark.slow
def test_fine_tuning_exports_a_served_model(fine_tuned, bucket):
    names = _names(f"{bucket}/verdict")
    assert {"model.safetensors", "metrics.json", "predictions_dev.tsv"} <= names
    assert not [name for name in names if "training_state" in name]

    other = f"{bucket}/served"
    path = export.main(
        export.ExportConfig(model_dir=f"{bucket}/verdict", output=other, name="verdict")
    )
    assert path == f"{other}/verdict/2"
    # A version whose upload has not finished is not loaded.
    storage.write_text(f"{other}/verdict/3/variables/variables.index", "")
    with serving.DevServer({"verdict": f"{other}/verdict"}) as server:
        assert server.models["verdict"].servable.version == 2
        text = {"text": ["the cat", "sat on"]}
        second = client.predict(text, "verdict", address=server.address)
    tf.io.gfile.rmtree(f"{other}/verdict/2")
    with serving.DevServer({"verdict": f"{other}/verdict"}) as server:
        first = client.predict(text, "verdict", address=server.address)
    for name, values in first.items():
        np.testing.assert_array_equal(values, second[name])


def test_data_of_tasks_must_be_local():
    with pytest.raises(
        ValueError, match="--train_file must be a path of this machine, not of a bucket"
    ):
        Classification.Config(train_file="gs://bucket/train.tsv", output="model")


def test_unknown_store_is_named():
    with pytest.raises(OSError, match="s3://"):
        open_checkpoint("s3://bucket/model")
