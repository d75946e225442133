# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import json
import threading
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import training
from bert_tf.checkpoints import open_checkpoint
from bert_tf.modeling import BertBackbone, BertPretrainer, Dropout
from bert_tf.training import PretrainConfig, create_devices, distribution, pretrain
from bert_tf.training.distribution import has_bfloat16_instructions, read_tf_config
from bert_tf.training.tensorflow_devices import tensorflow_step
from tests.toy import workers
from tests.toy.checkpoints import assert_equal
from tests.toy.records import make_batch, write_both_splits


def test_a_lost_worker_is_an_error_that_keeps_no_objects_alive():
    pools = []

    def train():
        pool = threading.Event()
        pools.append(weakref.ref(pool))
        raise tf.errors.UnavailableError(None, None, "Socket closed")

    lost = pytest.raises(ValueError, match="Lost the connection to another worker")
    with lost as raised, create_devices("default").errors():
        try:
            train()
        finally:
            train()
    assert [pool() for pool in pools] == [None, None], raised


@pytest.mark.parametrize(
    "error",
    [
        tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor"),
        RuntimeError("RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm"),
    ],
)
def test_exhausted_memory_names_the_flags(error):
    with (
        pytest.raises(ValueError, match=r"--micro_batch_size .* reports: .*(OOM|Ran)"),
        create_devices("default").errors(),
    ):
        raise error


def test_mirrored_without_gpus_raises(monkeypatch):
    monkeypatch.setattr(
        tf.config,
        "list_logical_devices",
        lambda kind: ["CPU:0"] if kind == "CPU" else [],
    )
    with pytest.raises(ValueError, match="--strategy=mirrored needs GPUs"):
        create_devices("mirrored")


@pytest.mark.parametrize(
    ("cluster", "kind", "index", "message"),
    [
        ({"worker": ["a:1"]}, "worker", 1, "the same cluster"),
        ({"worker": ["a:1"]}, "evaluator", 0, "KeyError..evaluator"),
        ({"worker": ["a"]}, "worker", 0, "with ports"),
        (["a:1"], "worker", 0, "Received: TF_CONFIG="),
        ({}, "", 0, "needs the environment variable TF_CONFIG"),
    ],
)
def test_wrong_tf_config_is_named(monkeypatch, cluster, kind, index, message):
    config = {"cluster": cluster, "task": {"type": kind, "index": index}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config if cluster else {}))
    with pytest.raises(ValueError, match=message):
        create_devices("multi_worker")


@pytest.mark.parametrize(
    ("kind", "index", "number"), [("chief", 0, 0), ("worker", "0", 1), ("worker", 1, 2)]
)
def test_chief_is_the_first_process(monkeypatch, kind, index, number):
    cluster = {"worker": ["a:1", "b:1"], "chief": ["c:1"]}
    config = {"cluster": cluster, "task": {"type": kind, "index": index}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    assert read_tf_config() == (["c:1", "a:1", "b:1"], number)


@pytest.mark.parametrize(("flag", "found"), [("avx2", False), ("avx512_bf16", True)])
def test_processor_without_bfloat16_prints_a_line(
    tmp_path, monkeypatch, capsys, flag, found
):
    file = tmp_path / "cpuinfo"
    file.write_text(f"flags\t\t: fpu sse4_2 {flag} sha_ni\n")
    assert has_bfloat16_instructions(str(file)) == found
    monkeypatch.setattr(distribution, "has_bfloat16_instructions", lambda: found)
    create_devices("default", "float32")
    create_devices("default", "mixed_bfloat16")
    line = "no instructions for bfloat16, so the training will be slower"
    assert capsys.readouterr().out.count(line) == (not found)


def test_replicas_draw_different_dropout_masks():
    strategy = create_devices("mirrored").strategy
    with strategy.scope():
        inputs = keras.Input((64,))
        model = keras.Model(inputs, Dropout(0.5)(inputs))

    @tf.function
    def masks():
        outputs = strategy.run(lambda: model(tf.ones((1, 64)), training=True))
        return strategy.experimental_local_results(outputs)

    first, second = masks(), masks()
    draws = [np.asarray(mask) for mask in (*first, *second)]
    for i, a in enumerate(draws):
        for b in draws[:i]:
            assert (a != b).any()


# --- Steps -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def batches(vocabulary):
    """Three batches of eight rows, with unequal numbers of masked tokens."""
    made = [make_batch(vocabulary, batch_size=8, seed=seed) for seed in range(3)]
    return tf.nest.map_structure(lambda *tensors: tf.stack(tensors), *made)


def train(batches, config, strategy="default", wrap=lambda step: step, **arguments):
    """Returns the weights after three steps, the metrics, and the last norm."""
    keras.utils.set_random_seed(5)
    strategy = create_devices(strategy).strategy
    with strategy.scope():
        model = BertPretrainer(BertBackbone(config))
        model.compile(training.AdamW(1e-2))
        training.create_training_variables(model)
    step = tensorflow_step(model, **arguments)
    run = wrap(lambda *batch: strategy.run(step, args=(batch,)))
    dataset = tf.data.Dataset.from_tensor_slices(batches)
    for batch in strategy.experimental_distribute_dataset(dataset):
        run(*batch)
    # Adam and clipping hide a constant factor in all gradients; their norm does not.
    metrics = {"gradient_norm": model.optimizer.gradient_norm.numpy()}
    return model.get_weights(), model.get_metrics_result() | metrics


@pytest.mark.usefixtures("without_fusion")
@pytest.mark.parametrize(
    ("options", "xla"),
    [
        ({}, False),  # Eager.
        pytest.param(
            {"wrap": tf.function, "strategy": "mirrored"}, True, marks=pytest.mark.slow
        ),
    ],
)
def test_micro_batches_and_xla_train_like_the_whole_batch(
    batches, one_layer, options, xla
):
    weights, metrics = train(batches, one_layer)
    found = train(batches, one_layer, micro_batch_size=2, xla=xla, **options)
    # Adam normalizes gradients, so rounding errors of small ones are visible.
    assert_equal(found[0], weights, atol=2e-5)
    assert_equal(found[1], metrics, rtol=1e-4)


@pytest.mark.slow
def test_workers_train_to_the_same_weights_as_one(vocabulary, random_encoder, tmp_path):
    packed = {"length": 40, "pairs_per_row": 2}
    write_both_splits(tmp_path / "records", vocabulary, **packed)
    size = random_encoder(tmp_path, num_layers=1, max_sequence_length=40)["size"]
    options = {"records": str(tmp_path / "records"), "size": size, "dropout": 0.0}
    options |= {"learning_rate": 1e-2, "batch_size": 8, "steps": 6, "warmup_steps": 1}
    options |= {"validate_every": 3, "strategy": "multi_worker"}
    command = ["-m", "bert_tf.pretrain", *(f"--{k}={v}" for k, v in options.items())]

    workers.run(*command, f"--output={tmp_path / 'all'}", statuses=(0, 0))
    options |= {"strategy": "default", "output": str(tmp_path / "one")}
    pretrain(PretrainConfig(**options))
    one, many = (open_checkpoint(tmp_path / name) for name in ("one", "all"))
    assert_equal(many.read_weights(), one.read_weights(), atol=2e-5)
    for name, value in one.read_metrics().items():
        if name != "tokens_per_second":
            assert many.read_metrics()[name] == pytest.approx(value, rel=1e-4), name
