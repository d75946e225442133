# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import dataclasses
import functools
import types

import keras
import numpy as np
import pytest
import scipy.special
import scipy.stats
import sklearn.metrics
import tensorflow as tf

from bert_tf.checkpoints import open_checkpoint
from bert_tf.finetuning import batches, fine_tune, objectives, run
from bert_tf.modeling import BertBackbone
from bert_tf.text import SPECIAL_TOKENS, Vocabulary
from tests.toy.checkpoints import encoder
from tests.toy.tasks import make_task, write_model


@pytest.fixture(scope="module")
def teachers(tmp_path_factory, vocabulary, tiny_config, one_layer):
    """Returns a function that writes a teacher with random weights for a task.

    The teacher of scores has two layers.
    """

    @functools.cache
    def write(name: str) -> str:
        config = tiny_config if name == "scores" else one_layer
        folder = tmp_path_factory.mktemp(name)
        return str(write_model(name, folder, config, vocabulary, options={}).path)

    return write


def make_options(name, folder, vocabulary, teacher, **changes):
    task = make_task(name, folder, vocabulary)
    own = {"teacher_share": 1.0, "weight_decay": 0.0, "warmup_ratio": 0.0}
    own |= {"init_from": teacher, "teacher": teacher, "epochs": 1, "batch_size": 2}
    own["output"] = str(folder / "student")
    return type(task), dataclasses.replace(task.options, **own | changes)


# --- Losses ----------------------------------------------------------------------


@pytest.mark.parametrize("target_kind", ["class", "labels", "score"])
def test_loss_of_the_outputs_matches_scipy(target_kind):
    rng = np.random.default_rng(0)
    target, output = rng.normal(size=[2, 5, 3]).astype("float32")
    options = types.SimpleNamespace(teacher_temperature=3.0)
    task = types.SimpleNamespace(options=options, target_kind=target_kind)
    student = types.SimpleNamespace(_task=task)
    loss = objectives.Distiller._difference(student, target, output)
    if target_kind == "class":
        p, q = (scipy.special.softmax(x / 3, axis=1) for x in (target, output))
        expected = 9 * scipy.stats.entropy(p, q, axis=1)
    elif target_kind == "labels":
        p, q = (scipy.special.expit(x / 3) for x in (target, output))
        expected = 9 * scipy.stats.entropy([p, 1 - p], [q, 1 - q])
    else:
        expected = np.square(target - output).sum(axis=1)
    np.testing.assert_allclose(loss, expected, rtol=1e-4, atol=1e-6)


@pytest.fixture
def distill(teachers, tmp_path, vocabulary):
    """Returns the distiller of a copy of a teacher, its task, and a batch."""

    def make(name: str, **head):
        kind, options = make_options(name, tmp_path, vocabulary, teachers(name))
        task = kind(options, encoder(vocabulary))
        task.head = {**task.head, **head}
        checkpoint = open_checkpoint(options.teacher)
        model = task.served_head().build(BertBackbone(checkpoint.architecture))
        trainable = task.training_model(model)
        distiller = objectives.Distiller(task, trainable)
        trainable.compile("sgd", run._loss(task))
        checkpoint.standardized(task.head).load_into(model)
        batch = next(iter(batches(task.dataset("train"), 2, max_length=32)))
        return distiller, (task, checkpoint), batch

    return make


@pytest.mark.parametrize("name", ["labels", "spans", "choices", "vectors"])
def test_the_loss_of_a_copy_of_the_teacher_is_zero(name, distill):
    distiller, _, (inputs, targets, weights) = distill(name)
    outputs = distiller(inputs, training=True)
    loss = distiller.compute_loss(inputs, targets, outputs, weights)
    assert abs(float(loss)) < 1e-6
    changed = keras.tree.map_structure(lambda x: 1.5 * x, outputs)
    assert distiller.compute_loss(inputs, targets, changed, weights) > 1e-5


@pytest.mark.parametrize(
    ("name", "head", "align"),
    [
        ("labels", {"labels": ("y", "no", "s")}, lambda x: x[:, [2, 0, 1]]),
        ("scores", {"mean": 1.5, "deviation": 0.5}, lambda x: (x - 1.5) / 0.5),
    ],
)
def test_labels_and_scores_of_the_teacher_are_aligned(name, head, align, distill):
    distiller, (task, teacher), (inputs, *_) = distill(name, **head)
    model = task.served_head(teacher.head).build(BertBackbone(teacher.architecture))
    teacher.load_into(model)
    (outputs,) = distiller._teach(inputs)
    np.testing.assert_allclose(outputs, align(model(inputs).numpy()), atol=1e-5)


def test_a_teacher_with_a_sigmoid_teaches_probabilities(distill, monkeypatch):
    def with_sigmoid(path):
        teacher = open_checkpoint(path)
        head = {**teacher.head, "activation": "sigmoid"}
        return dataclasses.replace(teacher, head=head)

    monkeypatch.setattr(objectives, "open_checkpoint", with_sigmoid)
    standard = {"mean": 0.25, "deviation": 0.5}
    distiller, (task, teacher), (inputs, *_) = distill("scores", **standard)
    model = task.served_head(teacher.head).build(BertBackbone(teacher.architecture))
    teacher.load_into(model)
    (outputs,) = distiller._teach(inputs)
    expected = (scipy.special.expit(model(inputs).numpy()) - 0.25) / 0.5
    np.testing.assert_allclose(outputs, expected, atol=1e-5)


def test_loss_of_several_labels_is_the_mean_over_texts_and_labels():
    task = types.SimpleNamespace(target_kind="labels")
    rng = np.random.default_rng(0)
    logits = rng.normal(size=[4, 3]).astype("float32")
    labels = rng.integers(0, 2, [4, 3]).astype("float32")
    loss = run._loss(task)(labels, logits, np.full(4, 0.25, "float32"))
    expected = sklearn.metrics.log_loss(
        labels.ravel(), scipy.special.expit(logits).ravel()
    )
    np.testing.assert_allclose(loss, expected, rtol=1e-6)


# --- Training --------------------------------------------------------------------


@pytest.mark.usefixtures("eagerly")
def test_the_student_learns_from_the_teacher(teachers, tmp_path, vocabulary):
    changes = {"layers": "2", "epochs": 8, "learning_rate": 1e-2}
    teacher = teachers("scores")
    kind, options = make_options("scores", tmp_path, vocabulary, teacher, **changes)
    training = fine_tune(kind, options)["training"]
    losses = [epoch["loss"] for epoch in training["epochs"]]
    assert losses[-1] < 0.9 * losses[0]
    student = open_checkpoint(options.output)
    assert student.architecture.num_layers == 1
    assert student.options["teacher"] == options.teacher


# --- Checks ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trait", "change"),
    [
        ("kind", {"head": {"kind": "tagging"}}),
        ("problem", {"head": {"problem": "regression"}}),
        ("labels", {"head": {"labels": ["a", "b"]}}),
        ("lowercase", {"lowercase": False}),
        ("vocabulary", {"vocabulary": Vocabulary((*SPECIAL_TOKENS, "é"))}),
    ],
)
def test_unsuitable_teachers(
    trait, change, teachers, tmp_path, vocabulary, monkeypatch
):
    student = open_checkpoint(teachers("labels"))
    change["head"] = {**student.head, **change.get("head", {})}
    teacher = dataclasses.replace(student, **change)
    monkeypatch.setattr(objectives, "open_checkpoint", lambda _: teacher)
    path = str(student.path)
    kind, options = make_options("labels", tmp_path, vocabulary, path)
    with pytest.raises(ValueError, match=f"must have the same {trait} as the student"):
        fine_tune(kind, options)
    assert not (tmp_path / "student").exists()


# --- Sentence encoders -----------------------------------------------------------

EMBEDDINGS = np.random.default_rng(0).normal(size=(4, 3, 5)).astype(np.float32)
SCORES = np.array([0.2, 0.9, 0.2, 0.5], np.float32)
IDS = np.arange(12, dtype=np.int32).reshape(4, 3)


def loss_and_gradient(loss, embeddings, targets, weights=None):
    """Returns the loss and its gradient w.r.t. the embeddings."""
    embeddings = tf.constant(embeddings)
    if weights is None:
        weights = np.full(len(embeddings), 1 / len(embeddings))
    weights = tf.constant(weights, tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(embeddings)
        unit = tf.math.l2_normalize(embeddings, axis=2)
        value = objectives.LOSSES[loss](unit, tf.constant(targets), weights, 0.25)
    return float(value), tape.gradient(value, embeddings).numpy()


@pytest.mark.parametrize(
    ("loss", "texts", "targets", "expected", "gradient", "total"),
    [  # Golden values: CoSENTLoss and MultipleNegativesRankingLoss of
        # sentence-transformers 6.2, with scale=4.
        ("cosent", 2, SCORES, 4.1327872, [-0.0102625, -0.1780196, 0.066623], 15.03817),
        ("in_batch_negatives", 3, IDS, 2.5749917, [0.2280205, -0.5855201, 0.172941],
         7.8210220),
    ],
)  # fmt: skip
def test_losses_equal_sentence_transformers(
    loss, texts, targets, expected, gradient, total
):
    value, found = loss_and_gradient(loss, EMBEDDINGS[:, :texts], targets)
    assert value == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(found[1, 0, :3], gradient, rtol=1e-4)
    assert np.abs(found).sum() == pytest.approx(total, rel=1e-5)


@pytest.mark.parametrize(
    ("loss", "targets"),
    [("cosent", SCORES), ("in_batch_negatives", IDS[:, :2])],
)
def test_padding_rows_do_not_count(loss, targets):
    embeddings = EMBEDDINGS[:, :2]
    expected, gradient = loss_and_gradient(loss, embeddings[:3], targets[:3])
    weights = [1 / 3, 1 / 3, 1 / 3, 0]
    value, found = loss_and_gradient(loss, embeddings, targets, weights)
    assert value == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(found[:3], gradient, atol=1e-6)
    np.testing.assert_array_equal(found[3], 0)


def test_known_positives_are_no_negatives():
    """In-batch negatives equal a softmax over the other texts only."""
    ids = np.array([[0, 1, 2], [0, 3, -1], [4, 1, 0], [3, 5, 6]], np.int32)
    # For each example, the candidates (example, column) that remain.
    kept = [
        [(0, 1), (0, 2), (3, 1), (3, 2)],  # Without 1, 0, and (1, 1).
        [(1, 1), (0, 2), (2, 1), (3, 1), (3, 2)],  # Without (0, 1), missing, and 0.
        [(2, 1), (0, 2), (1, 1), (2, 2), (3, 1), (3, 2)],
        [(3, 1), (0, 1), (0, 2), (2, 1), (2, 2), (3, 2)],  # Without 3, its first text.
    ]
    unit = EMBEDDINGS / np.linalg.norm(EMBEDDINGS, axis=2, keepdims=True)
    losses = []
    for row, candidates in enumerate(kept):
        logits = np.array([unit[row, 0] @ unit[c] for c in candidates]) / 0.25
        losses.append(np.log(np.exp(logits).sum()) - logits[0])
    value, _ = loss_and_gradient("in_batch_negatives", EMBEDDINGS, ids)
    assert value == pytest.approx(np.mean(losses), rel=1e-5)
