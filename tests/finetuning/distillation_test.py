# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import dataclasses
import functools

import keras
import numpy as np
import pytest
import scipy.special
import scipy.stats

from bert_tf.checkpoints import open_checkpoint
from bert_tf.finetuning import ScoreScale, batches, distillation, fine_tune
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


@pytest.fixture
def prepare(teachers, tmp_path, vocabulary):
    """Returns a function that returns a task and the options of its distillation."""

    def prepare(name, **changes):
        task, teacher = make_task(name, tmp_path, vocabulary), teachers(name)
        own = {"teacher_share": 1.0, "weight_decay": 0.0, "warmup_ratio": 0.0}
        own |= {"init_from": teacher, "teacher": teacher, "batch_size": 2}
        own |= {"output": str(tmp_path / "student"), **changes}
        return type(task), dataclasses.replace(task.options, **own)

    return prepare


# --- Losses ----------------------------------------------------------------------


@pytest.mark.parametrize("problem", ["classification", "multi_label", "regression"])
def test_difference_of_the_outputs_matches_scipy(problem):
    rng = np.random.default_rng(0)
    target, output = rng.normal(size=[2, 5, 3]).astype("float32")
    loss = distillation.difference(target, output, problem, 3.0)
    if problem == "classification":
        p, q = (scipy.special.softmax(x / 3, axis=1) for x in (target, output))
        expected = 9 * scipy.stats.entropy(p, q, axis=1)
    elif problem == "multi_label":
        p, q = (scipy.special.expit(x / 3) for x in (target, output))
        expected = 9 * scipy.stats.entropy([p, 1 - p], [q, 1 - q])
    else:
        expected = np.square(target - output).sum(axis=1)
    np.testing.assert_allclose(loss, expected, rtol=1e-4, atol=1e-6)


def sigmoid_of_scores(x):
    return (scipy.special.expit(x) - 0.25) / 0.5


@pytest.mark.parametrize(
    ("name", "settings", "activation", "align"),
    [
        ("spans", {}, None, lambda x: x),
        ("vectors", {}, None, lambda x: x),
        ("labels", {"labels": ("y", "no", "s")}, None, lambda x: x[:, [2, 0, 1]]),
        ("scores", {"scale": ScoreScale(1.5, 0.5)}, None, lambda x: (x - 1.5) / 0.5),
        ("scores", {"scale": ScoreScale(0.25, 0.5)}, "sigmoid", sigmoid_of_scores),
    ],
)
def test_loss_is_zero_for_the_outputs_of_the_teacher(
    name, settings, activation, align, prepare, vocabulary
):
    kind, options = prepare(name)
    task = kind(options, encoder(vocabulary))
    task.scale = settings.pop("scale", None)
    task.settings = {**task.settings, **settings}
    teacher = open_checkpoint(options.teacher)
    head = {**teacher.head, "activation": activation}
    teacher = dataclasses.replace(teacher, head=head)
    model = task.build_head(head).build(teacher.build_backbone())
    teacher.load_into(model)
    student = task.training_model(model)
    student.compile("sgd")
    distiller = distillation.Distiller(task, teacher, student)
    inputs, y, weights = next(iter(batches(task.dataset("train"), 2, max_length=32)))
    outputs = student(inputs)
    outputs = keras.tree.map_structure(lambda x: align(np.array(x)), outputs)
    loss = distiller.compute_loss(inputs, y, outputs, weights)
    assert abs(float(loss)) < 1e-6
    changed = keras.tree.map_structure(lambda x: 1.5 * x, outputs)
    assert distiller.compute_loss(inputs, y, changed, weights) > 1e-5


# --- Training --------------------------------------------------------------------


@pytest.mark.usefixtures("eagerly")
def test_the_student_learns_from_the_teacher(prepare):
    changes = {"layers": (2,), "epochs": 2, "learning_rate": 1e-3}
    kind, options = prepare("scores", **changes)
    losses = [epoch["loss"] for epoch in fine_tune(kind, options)["training"]["epochs"]]
    assert losses[-1] < losses[0]
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
def test_unsuitable_teachers(trait, change, prepare, tmp_path, monkeypatch):
    kind, options = prepare("labels")
    student = open_checkpoint(options.teacher)
    change["head"] = {**student.head, **change.get("head", {})}
    teacher = dataclasses.replace(student, **change)
    monkeypatch.setattr(distillation, "open_checkpoint", lambda _: teacher)
    with pytest.raises(ValueError, match=f"must have the same {trait} as the student"):
        fine_tune(kind, options)
    assert not (tmp_path / "student").exists()


def test_teacher_without_weights_of_its_head_is_refused(prepare, vocabulary):
    kind, options = prepare("labels")
    task, teacher = kind(options, encoder(vocabulary)), open_checkpoint(options.teacher)
    weights = {k: x for k, x in teacher.weights.items() if not k.startswith("logits")}
    teacher = dataclasses.replace(teacher, weights=weights)
    with pytest.raises(ValueError, match="has no weights for logits, so its answers"):
        distillation.Distiller(task, teacher, None)
