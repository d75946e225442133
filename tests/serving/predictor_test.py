# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Signatures of checkpoints, and their answers; `tests/tasks` has trained models."""

import copy
import os
import pickle
import threading

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import softmax

import bert_tf
from bert_tf import heads, keras_private
from bert_tf.checkpoints import open_checkpoint
from bert_tf.serving import Predictor, load_signatures
from bert_tf.text import Tokenizer
from tests.toy import checkpoints as toy
from tests.toy.tasks import write_model

TEXTS = ["the cat sat on the mat", "a dog", ""]


# --- Checkpoints of other projects -----------------------------------------------


@pytest.mark.usefixtures("eagerly", "plain_encoder")
def test_single_label_of_texts_at_most_as_long_as_the_tokenizer_says(
    tmp_path, vocabulary
):
    tokenizer = {"do_lower_case": True, "model_max_length": 5}
    name = "BertForSequenceClassification"
    toy.write_hugging_face(tmp_path, vocabulary, name, tokenizer=tokenizer)
    model = bert_tf.load(tmp_path)
    assert model.signatures.keys() == {"serving_default", "ids"}
    found = model.predict(TEXTS)
    inputs = Tokenizer.from_checkpoint(tmp_path)(TEXTS)
    assert inputs["token_ids"].shape[1] == 5
    logits = model.predict(**inputs, signature="ids")["logits"]
    expected = softmax(logits, axis=1)
    np.testing.assert_allclose(found["probabilities"], expected, atol=1e-6)
    names = np.array(["no", "maybe", "yes"])
    assert found["label"].tolist() == names[logits.argmax(axis=1)].tolist()


@pytest.mark.usefixtures("eagerly", "plain_encoder")
def test_layer_and_predictor_cut_texts_alike(tmp_path, one_layer, vocabulary):
    """At the length of the fine-tuning, not at the number of positions."""
    length = {"max_sequence_length": 8}
    folder = write_model("texts", tmp_path, one_layer, vocabulary, options=length).path
    model, text = bert_tf.load(folder), ["the cat sat on the mat, a cat sat on mats"]
    inputs = Tokenizer.from_checkpoint(folder)(text)
    assert inputs["token_ids"].shape == (1, 8)
    expected = model.predict(**inputs, signature="ids")["logits"]
    np.testing.assert_allclose(model.predict(text)["logits"], expected, atol=1e-6)


@pytest.mark.usefixtures("eagerly", "plain_encoder")
def test_pieces_of_a_word_have_own_tags(tmp_path, vocabulary):
    """Golden values: pipeline of transformers 5.23, aggregation_strategy="simple"."""
    labels = {"0": "I-A", "1": "O", "2": "B-B"}
    name = "BertForTokenClassification"
    toy.write_hugging_face(tmp_path, vocabulary, name, id2label=labels)
    found = bert_tf.load(tmp_path).predict(["the cats sat, a mat"])
    assert found["entities"].tolist() == [["s", ", a mat"]]
    assert found["entity_types"].tolist() == [["A", "A"]]
    np.testing.assert_allclose(
        found["entity_scores"], [[0.4039603, 0.4831255]], atol=1e-6
    )
    assert found["entity_starts"].tolist() == [[7, 12]]
    assert found["entity_ends"].tolist() == [[8, 19]]


@pytest.mark.usefixtures("eagerly", "plain_encoder")
def test_next_sentence(tmp_path, vocabulary):
    """Golden values: BertForNextSentencePrediction of transformers 5.23."""
    toy.write_hugging_face(tmp_path, vocabulary, "BertForNextSentencePrediction")
    found = bert_tf.load(tmp_path).predict(["the cat", "a mat"], ["sat", "on the mat"])
    assert found["label"].tolist() == ["next", "next"]
    np.testing.assert_allclose(
        found["probabilities"], [[0.6530, 0.3470], [0.6662, 0.3338]], atol=5e-5
    )


@pytest.mark.parametrize(
    ("class_name", "missing", "message"),
    [
        ("BertForSequenceClassification", "classifier", "weights for logits;"),
        ("BertForMultipleChoice", "bert.pooler", "weights for pooler;"),
    ],
)
def test_untrained_heads_are_rejected(
    tmp_path, vocabulary, class_name, missing, message
):
    tensors = toy.values(toy.hugging_face_shapes(class_name))
    tensors = {k: v for k, v in tensors.items() if not k.startswith(missing)}
    toy.write_hugging_face(tmp_path, vocabulary, class_name, tensors=tensors)
    with pytest.raises(ValueError, match=message):
        bert_tf.load(tmp_path)


def test_options_of_encoders_are_rejected_for_tasks(tmp_path, vocabulary):
    toy.write_hugging_face(tmp_path, vocabulary, "BertForMultipleChoice")
    with pytest.raises(ValueError, match="requires a model without a task"):
        load_signatures(open_checkpoint(tmp_path), layers=[1])


# --- Predictor -------------------------------------------------------------------


@heads.signature(heads.string_input("text"))
def split(text):
    words = tf.strings.split(text).to_tensor()
    return {"words": words, "lengths": tf.strings.length(words)}


@heads.signature(tf.TensorSpec([None, None], tf.int32, "numbers"))
def double(numbers):
    return {"doubled": 2 * numbers}


@heads.signature(heads.string_input("text"))
def fixed(text):
    return {"sizes": tf.stack([tf.strings.length(text)] * 2, axis=1)}


@pytest.fixture(scope="module")
def loaded():
    signatures = {"serving_default": split, "ids": double, "fixed": fixed}
    return Predictor(None, signatures)


@pytest.mark.parametrize("batch_size", [32, 2])
def test_batches_are_padded_to_the_longest(loaded, batch_size):
    found = loaded.predict(["a bc", "d", "the cat säß", ""], batch_size=batch_size)
    expected = [["a", "bc", ""], ["d", "", ""], ["the", "cat", "säß"], [""] * 3]
    assert found["words"].tolist() == expected
    assert found["lengths"].tolist() == [[1, 2, 0], [1, 0, 0], [3, 3, 5], [0, 0, 0]]


def test_strings_keep_their_length(loaded):
    """NumPy's own drop NULs at the end and are as long as the longest: numpy#20118."""
    texts = ["a\0", "b" * 1000]
    found = loaded.predict(texts)["words"]
    assert found.tolist() == [[text] for text in texts]
    assert found.dtype == object


def test_single_string_empty_list_and_lists_of_different_length(loaded):
    assert loaded.predict("the cat")["words"].tolist() == [["the", "cat"]]
    assert loaded.predict(text=["the"])["words"].tolist() == [["the"]]
    assert loaded.predict([])["words"].shape == (0, 0)
    assert loaded.predict([], signature="fixed")["sizes"].shape == (0, 2)
    found = loaded.predict([[2, 5, 3], [2, 3]], signature="ids")
    assert found["doubled"].tolist() == [[4, 10, 6], [4, 6, 0]]
    assert len(repr(loaded)) < 400


def test_empty_texts_are_counted(loaded, caplog):
    assert loaded.predict(["the", " ", ""])["words"].shape == (3, 1)
    assert "2 of 3 values of `text` are empty" in caplog.text
    caplog.clear()
    loaded.predict(["the cat"])
    assert not caplog.text


def test_threads_build_a_graph_once():
    traced, answers = [], []

    @heads.signature(heads.string_input("text"))
    def length(text):
        traced.append(text)
        return {"length": tf.strings.length(text)}

    model = Predictor(None, {"serving_default": length})
    start = threading.Barrier(16)

    def run():
        start.wait()
        answers.extend(model.predict(["abc"] * 3, batch_size=1)["length"])

    threads = [threading.Thread(target=run) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [3] * 48
    assert len(traced) == 1


@pytest.mark.usefixtures("eagerly", "plain_encoder")
@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_copies_are_loaded_from_the_same_folder(
    tmp_path, vocabulary, monkeypatch, copied
):
    toy.write_hugging_face(tmp_path / "m", vocabulary, "BertForSequenceClassification")
    monkeypatch.chdir(tmp_path)
    model = bert_tf.load("m", pairs=True)
    monkeypatch.chdir("/")  # As in a process of a pool.
    expected, found = (x.predict(["a"], ["b"]) for x in (model, copied(model)))
    np.testing.assert_array_equal(found["probabilities"], expected["probabilities"])


def test_only_loaded_predictors_are_copied(loaded):
    with pytest.raises(TypeError, match=r"Only a predictor that `bert_tf\.load`"):
        copy.deepcopy(loaded)


def test_after_a_fork_an_error_names_it(loaded):
    """TensorFlow would wait for its threads for ever: tensorflow#2448."""
    loaded.predict(["a"])
    reader, writer = os.pipe()
    if not (child := os.fork()):
        try:
            loaded.predict(["a"])
        except RuntimeError as error:
            os.write(writer, str(error).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert b"fork of one that had started TensorFlow" in os.read(reader, 1000)
    keras_private.check_not_forked()  # The parent may still predict.


@pytest.mark.usefixtures("eagerly", "plain_encoder")
def test_pairs_and_their_logits(tmp_path, vocabulary):
    name = "BertForSequenceClassification"
    toy.write_hugging_face(tmp_path, vocabulary, name)
    texts = ["the cat", "a dog"], ["sat", "on the mat"]
    with pytest.raises(ValueError, match=r"2 columns .* pass pairs=True to `load`"):
        bert_tf.load(tmp_path).predict(*texts)
    model = bert_tf.load(tmp_path, pairs=True)
    found = model.predict(*texts)
    inputs = Tokenizer(vocabulary).encode(*map(tf.constant, texts))
    logits = model.predict(**inputs, signature="ids")["logits"]
    np.testing.assert_allclose(found["logits"], logits, atol=1e-5)
    np.testing.assert_allclose(found["probabilities"], softmax(logits, 1), atol=1e-6)


@pytest.mark.parametrize(
    ("columns", "named", "message"),
    [
        ([["a"], ["b"]], {}, "serving_default has the inputs text"),
        ([["a"]], {"text": ["b"]}, r"1 columns and the names \['text'\]"),
        ([], {"texts": ["a"]}, r"the names \['texts'\]"),
        ([[1, 2]], {}, r"`text` must have dtype string .* Received: \[1, 2\]"),
        ([[["a"]]], {}, r"shape \(None,\). Received: \[\['a'\]\]"),
        ([["a"]], {"signature": "no"}, "must be one of serving_default, ids, fixed"),
        ([["a"]], {"batch_size": -1}, "must be at least 1. Received: -1"),
    ],
)
def test_wrong_inputs_are_named(loaded, columns, named, message):
    with pytest.raises(ValueError, match=message):
        loaded.predict(*columns, **named)
