# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints import google, open_checkpoint
from bert_tf.modeling import BertPretrainer
from tests.toy import checkpoints as toy


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "theirs"


def test_outputs_equal_google_research_bert(folder, vocabulary):
    """Golden values: modeling.py and run_pretraining.py of google-research/bert."""
    toy.write_google(folder, vocabulary)
    model = open_checkpoint(folder).load_model(BertPretrainer)
    outputs = model(toy.PRETRAINER_INPUTS)
    np.testing.assert_allclose(
        tf.nn.log_softmax(outputs["mlm"])[:, 0, :4],
        [
            [-3.7182088, -4.9666481, -4.4932613, -4.6973858],
            [-4.0328813, -5.4378004, -3.8400338, -4.5132856],
        ],
        atol=3e-6,
    )
    np.testing.assert_allclose(
        tf.nn.log_softmax(outputs["nsp"])[:, 0],
        [[-0.6492121, -0.7391016], [-0.5276441, -0.8915818]],
        atol=3e-6,
    )


def test_reads_all_weights_and_drops_optimizer_state(folder, vocabulary, caplog):
    tensors = toy.values(toy.google_shapes())
    state = {f"{name}/adam_m": 0 * tensor for name, tensor in tensors.items()}
    state["global_step"] = np.int64(7)
    toy.write_google(folder, vocabulary, tensors | state, model_type="bert")
    (folder / "bert_config.json").rename(folder / "config.json")
    theirs = open_checkpoint(folder)
    assert theirs.format == google.FORMAT
    assert "not used" not in caplog.text
    weights = theirs.read_weights()
    assert len(weights) == len(tensors)
    np.testing.assert_array_equal(
        weights["nsp/kernel"], tensors["cls/seq_relationship/output_weights"].T
    )


def task_tensors(outputs: int, prefix: str) -> dict[str, np.ndarray]:
    """Returns the variables of a task: BERT's and those of the output layer."""
    shapes = toy.google_shapes()
    shapes = {name: shapes[name] for name in shapes if name.startswith("bert/")}
    shapes[f"{prefix}output_weights"] = (outputs, 8)
    return toy.values(shapes | {f"{prefix}output_bias": (outputs,)})


LABELS = [f"LABEL_{i}" for i in range(5)]


CLASSES = {"kind": "classification"}


@pytest.mark.parametrize(
    ("prefix", "outputs", "slots", "head"),
    [
        # run_classifier.py, and run_ner.py of BioBERT.
        ("", 5, ["adam_m", "adam_v"], CLASSES | {"labels": LABELS}),
        ("", 2, ["ExponentialMovingAverage"], CLASSES | {"labels": LABELS[:2]}),
        ("", 1, [], CLASSES | {"problem": "regression"}),
        # run_squad.py.
        ("cls/squad/", 2, [], {"kind": "question_answering"}),
    ],
)
def test_heads_of_tasks(folder, vocabulary, prefix, outputs, slots, head, caplog):
    tensors = task_tensors(outputs, prefix)
    state = {f"{name}/{slot}": 0 * x for name, x in tensors.items() for slot in slots}
    state["beta1_power"] = np.float32(0.9)
    toy.write_google(folder, vocabulary, tensors | state)
    checkpoint = open_checkpoint(folder)
    assert checkpoint.head == head
    assert "not used" not in caplog.text
    weights, kernel = checkpoint.read_weights(), tensors[f"{prefix}output_weights"]
    np.testing.assert_array_equal(weights["logits/kernel"], kernel.T)
    bias = tensors[f"{prefix}output_bias"]
    np.testing.assert_array_equal(weights["logits/bias"], bias)
    for kind in ("tagging", "encoder"):
        assert prefix or open_checkpoint(folder, head=kind).head["kind"] == kind


def test_last_step_is_read(folder, vocabulary):
    toy.write_google(folder, vocabulary)
    assert google.last_checkpoint(folder) == f"{folder}/bert_model.ckpt"
    for file in folder.glob("bert_model.ckpt*"):
        for step in (9, 10):
            name = file.name.replace("bert_model.ckpt", f"model.ckpt-{step}")
            (folder / name).write_bytes(file.read_bytes())
        file.unlink()
    assert google.last_checkpoint(folder) == f"{folder}/model.ckpt-10"


DAMAGED = r"bert_model\.ckpt is damaged or incomplete"


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("bert_model.ckpt.data-00000-of-00001", lambda x: x[:1000], DAMAGED),
        ("bert_model.ckpt.index", lambda x: b"half", DAMAGED),
        ("bert_config.json", None, r"no bert_config\.json\. Copy the bert_conf"),
    ],
)
def test_damaged_and_missing_files_raise(folder, vocabulary, name, change, message):
    file = toy.write_google(folder, vocabulary) / name
    contents = file.read_bytes()
    file.unlink()
    if change:
        file.write_bytes(change(contents))
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        open_checkpoint(folder).read_weights()


def test_opens_checkpoint_written_by_google(real_data, caplog):
    checkpoint = open_checkpoint(real_data / "tf1_checkpoint")
    assert checkpoint.architecture.hidden_dim == 4
    assert checkpoint.head == {"kind": "pretrainer"}
    assert "not used" not in caplog.text
    assert checkpoint.load_into(checkpoint.load_model(BertPretrainer)) == []


# --- Model Garden ----------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["", "bert_encoder_v2/"])
def test_outputs_equal_model_garden(tmp_path, vocabulary, prefix, caplog):
    """Golden values: BertEncoder and BertEncoderV2 of tf-models-official 2.20."""
    toy.write_model_garden(tmp_path, vocabulary, prefix)
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.head == {"kind": "encoder"}
    assert "not used" not in caplog.text
    encoded = checkpoint.load_backbone()(toy.INPUTS)
    np.testing.assert_allclose(
        encoded["pooled_output"][:, :4],
        [
            [-0.3090781, 0.1883425, 0.1716313, -0.7593714],
            [-0.0460117, 0.1325621, 0.3010353, -0.8194460],
        ],
        atol=2e-6,
    )
