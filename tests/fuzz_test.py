# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Fuzz tests: any byte strings give finite outputs and offsets inside the text."""

import dataclasses

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import heads
from bert_tf.finetuning import Task
from bert_tf.modeling import BertBackbone, BertPretrainer
from bert_tf.text import Tokenizer
from tasks.question_answering import QuestionAnswering
from tasks.tagging import Tagging
from tests.toy import tasks as toy_tasks
from tests.toy.models import pretrained_signatures, randomize_weights
from tests.toy.tasks import make_task

pytestmark = pytest.mark.slow

# Invalid UTF-8, control characters, and words of the vocabulary.
BYTES = st.one_of(
    st.binary(max_size=60),
    st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.lists(
        st.sampled_from(
            ["the", " cat", "[MASK]", "[SEP]", "\0", "é", "́", "🙂", "漢", " " * 9]
        ),
        max_size=60,
    ).map(lambda parts: "".join(parts).encode()),
)
TEXTS = st.lists(BYTES, min_size=1, max_size=4)

fuzzed = hypothesis.settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck),
    derandomize=True,
)


@pytest.fixture(scope="module")
def pretrainer(tiny_config) -> BertPretrainer:
    tf.keras.utils.set_random_seed(7)
    config = dataclasses.replace(tiny_config, num_layers=1)
    return randomize_weights(BertPretrainer(BertBackbone(config)))


@pytest.fixture(scope="module")
def pretrained(pretrainer, vocabulary) -> dict[str, heads.Signature]:
    return pretrained_signatures(pretrainer, Tokenizer(vocabulary))


def serve(task: Task, pretrainer: BertPretrainer) -> heads.Signature:
    model = task.model(pretrainer.backbone)
    return toy_tasks.serve(task, model)["serving_default"]


@pytest.fixture(scope="module")
def answer(tmp_path_factory, pretrainer, vocabulary) -> heads.Signature:
    folder, tokenizer = tmp_path_factory.mktemp("squad"), Tokenizer(vocabulary)
    task = make_task(QuestionAnswering, folder, tokenizer, max_question_length=8)
    return serve(task, pretrainer)


@pytest.fixture(scope="module")
def tag(tmp_path_factory, pretrainer, vocabulary) -> heads.Signature:
    folder = tmp_path_factory.mktemp("conll")
    return serve(make_task(Tagging, folder, Tokenizer(vocabulary)), pretrainer)


def assert_finite(outputs) -> dict[str, np.ndarray]:
    arrays = {name: value.numpy() for name, value in outputs.items()}
    for value in arrays.values():
        assert value.dtype.kind != "f" or np.isfinite(value).all()
    return arrays


@fuzzed
@hypothesis.given(texts=TEXTS)
def test_fill_mask_and_embeddings_are_finite(texts, pretrained):
    for name in ("serving_default", "embeddings"):
        for value in assert_finite(pretrained[name](tf.constant(texts))).values():
            assert len(value) == len(texts)


@fuzzed
@hypothesis.given(question=BYTES, context=BYTES)
def test_answer_offsets_are_inside_the_context(question, context, answer):
    outputs = assert_finite(answer(tf.constant([question]), tf.constant([context])))
    best = [outputs[name][0] for name in ("answer", "start_byte", "end_byte")]
    candidates = zip(*(outputs[n][0] for n in ("answers", "start_bytes", "end_bytes")))
    for text, start, end in (best, *candidates):
        assert 0 <= start <= end <= len(context)
        assert context[start:end] == text


@fuzzed
@hypothesis.given(texts=TEXTS)
def test_entity_offsets_are_inside_the_text(texts, tag):
    outputs = assert_finite(tag(tf.constant(texts)))
    columns = ("entities", "entity_start_bytes", "entity_end_bytes")
    for text, *row in zip(texts, *(outputs[name] for name in columns), strict=True):
        for entity, start, end in zip(*row, strict=True):
            assert 0 <= start <= end <= len(text)
            assert text[start:end] == entity
