# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of bert_tf.serving.saved_model on small graphs without a model."""

import functools
import json
import pathlib
import threading
from collections.abc import Iterator

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text as tf_text
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

import bert_tf
from bert_tf import heads, serving
from bert_tf.serving import saved_model

TEXT = heads.string_input("text")
NUMBERS = tf.TensorSpec([None, None], tf.int32, "token_ids")


@pytest.fixture
def export(tmp_path, toy_checkpoint):
    """Returns a function that exports signatures to the folder `tmp_path`."""
    export = serving.export_saved_model
    return functools.partial(export, folder=tmp_path, checkpoint=toy_checkpoint)


def names(folder: pathlib.Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def of_text(function) -> heads.Signature:
    """Returns a signature with one input, a text, and one output, "y"."""
    return heads.signature(TEXT)(lambda text: {"y": function(text)})


def of_numbers(function) -> heads.Signature:
    """The same for token ids."""
    return heads.signature(NUMBERS)(lambda token_ids: {"y": function(token_ids)})


length, scalar = of_text(tf.strings.length), of_text(tf.size)
words = of_text(lambda text: tf.strings.split(text).to_tensor())


@heads.signature(tf.TensorSpec([None, None], tf.string, "choices"))
def lengths(choices):
    return {"lengths": tf.strings.length(choices)}


@pytest.mark.parametrize(
    ("signatures", "can_batch"),
    [
        ({"serving_default": length}, True),
        ({"serving_default": length, "choices": lengths}, True),
        ({"serving_default": length, "words": words}, False),
        ({"serving_default": words}, False),
        ({"serving_default": scalar}, False),
        ({"serving_default": lengths}, False),
        ({"length": length}, False),
    ],
)
def test_which_models_can_batch(signatures, can_batch):
    functions = {n: f.get_concrete_function() for n, f in signatures.items()}
    assert saved_model._can_batch(functions) == can_batch


def read_meta_graph(path: pathlib.Path) -> meta_graph_pb2.MetaGraphDef:
    file = path / "saved_model.pb"
    return saved_model_pb2.SavedModel.FromString(file.read_bytes()).meta_graphs[0]


def warmup_requests(path: pathlib.Path) -> Iterator[predict_pb2.PredictRequest]:
    file = str(path / "assets.extra" / "tf_serving_warmup_requests")
    for record in tf.data.TFRecordDataset(file).as_numpy_iterator():
        yield prediction_log_pb2.PredictionLog.FromString(record).predict_log.request


# --- Version folders -------------------------------------------------------------


def test_versions_increase_and_are_never_replaced(tmp_path, export):
    folder = tmp_path / "made" / "model"
    (folder / str(2**63)).mkdir(parents=True)  # No version.
    signatures = {"serving_default": length}
    for version, expected in ((0, "1"), (0, "2"), (9, "9"), (0, "10")):
        path = export(signatures, folder=folder, version=version)
        assert path == folder / expected
    before = (folder / "2" / "saved_model.pb").stat()
    with pytest.raises(ValueError, match=r"model/2 exists, and exports never replace"):
        export(signatures, folder=folder, version=2)
    assert (folder / "2" / "saved_model.pb").stat() == before
    assert names(folder) == {".lock", "1", "2", "9", "10", str(2**63)}


def test_other_graphs_can_call_an_export(export):
    """As in tf.data or Keras' TFSMLayer, or when the export is loaded and saved."""
    path = export({"serving_default": length})
    served = tf.saved_model.load(str(path)).signatures["serving_default"]
    dataset = tf.data.Dataset.from_tensors(["ab"]).map(lambda text: served(text=text))
    assert next(iter(dataset))["y"].numpy().tolist() == [2]


def test_exports_wait_for_each_other(tmp_path, export, monkeypatch):
    """Each gets its own version, and removes what a killed one left."""
    save, threads = tf.saved_model.save, []
    (tmp_path / ".unfinished-0123abcd-1" / "variables").mkdir(parents=True)

    def start_another(*arguments, **options):
        monkeypatch.setattr(tf.saved_model, "save", save)
        threads.append(threading.Thread(target=export, args=[{"f": length}]))
        threads[0].start()
        threads[0].join(timeout=0.5)
        assert len(names(tmp_path)) == 2
        save(*arguments, **options)

    monkeypatch.setattr(tf.saved_model, "save", start_another)
    export({"f": length})
    threads[0].join()
    assert names(tmp_path) == {".lock", "1", "2"}
    assert serving.Servable("toy", 1, tmp_path / "1")


DISK_FULL = tf.errors.ResourceExhaustedError(None, None, "No space left on device")


@pytest.mark.parametrize(
    ("place", "error"),
    [
        ("saved_model.save", KeyboardInterrupt),
        ("saved_model.save", DISK_FULL),
        ("io.TFRecordWriter.write", DISK_FULL),
    ],
)
def test_interrupted_export_leaves_no_version(
    tmp_path, export, monkeypatch, place, error
):
    def interrupted(*arguments, **options):
        assert not any(name.isdecimal() for name in names(tmp_path))
        raise error

    monkeypatch.setattr(f"tensorflow.{place}", interrupted)
    with pytest.raises((KeyboardInterrupt, OSError), match=r"^$|No space left"):
        export({"f": length})
    assert names(tmp_path) == {".lock"}


# --- Op check --------------------------------------------------------------------


@of_text
def new_text_op(text):
    words = tf.strings.split(text)
    return tf_text.RoundRobinTrimmer(4).trim([words, words])[0].to_tensor()


@of_numbers
def new_op_in_branch(token_ids):
    def body():
        return tf.raw_ops.SegmentMaxV2(
            data=token_ids, segment_ids=tf.range(tf.shape(token_ids)[0]), num_segments=3
        )

    return tf.cond(tf.size(token_ids) > 3, body, lambda: token_ids)


@of_numbers
def new_attribute(token_ids):
    return tf.raw_ops.GatherNd(
        params=token_ids, indices=[[7, 7]], bad_indices_policy="IGNORE"
    )


@tf.function(input_signature=[NUMBERS], jit_compile=True)
def compiled(token_ids):
    return {"y": token_ids + 1}


calls_compiled = of_numbers(lambda token_ids: compiled(token_ids)["y"] * 2)
identity = functools.partial(tf.numpy_function, lambda x: x, stateful=False)
callback = of_text(lambda text: identity([text], tf.string))


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (callback, "the op PyFunc"),
        (new_text_op, "the op TFText>RoundRobinTrim "),
        (new_op_in_branch, "the op SegmentMaxV2 "),
        (new_attribute, "the attribute bad_indices_policy of GatherNd "),
        (compiled, "jit_compile=True"),
        (calls_compiled, "jit_compile=True"),
    ],
)
def test_unsupported_ops_and_attributes_are_named(tmp_path, export, function, named):
    with pytest.raises(ValueError, match="TensorFlow Serving") as caught:
        export({"f": function})
    assert named in str(caught.value)
    assert names(tmp_path) == {".lock"}


def test_new_attributes_with_default_values_are_accepted(export):
    # TopKV2 has no index_type in TensorFlow 2.12.
    export({"top": of_numbers(lambda token_ids: tf.math.top_k(token_ids).values)})


UNNAMED = tf.function(
    tf.strings.length, input_signature=[tf.TensorSpec([None], "string")]
)


@pytest.mark.parametrize(
    "function", [tf.strings.length, tf.function(tf.strings.length), UNNAMED]
)
def test_functions_without_named_inputs_are_refused(export, function):
    with pytest.raises(ValueError, match="signature f must have named inputs"):
        export({"f": function})


def test_plain_functions_check_ranks_too(export):
    """Servers check names and dtypes only; tf_text's ops read out of bounds."""
    plain = tf.function(lambda text: {"text": text}, input_signature=[TEXT])
    path = export({"f": plain})
    functions = read_meta_graph(path).graph_def.library.function
    ops = [n.op for f in functions if "lambda" in f.signature.name for n in f.node_def]
    assert "EnsureShape" in ops


# --- Files -----------------------------------------------------------------------


def test_used_variables_are_written_once_and_others_not(export):
    weights, unused = tf.Variable([1, 2]), tf.Variable([3, 4, 5])
    one = tf.function(lambda x: {"y": x + weights[0]}, input_signature=[NUMBERS])
    two = tf.function(lambda x: {"y": x + weights[1]}, input_signature=[NUMBERS])
    path = export({"one": one, "two": two})
    written = dict(tf.train.list_variables(str(path / "variables" / "variables")))
    del written["_CHECKPOINTABLE_OBJECT_GRAPH"]
    assert list(written.values()) == [[2]] != [unused.shape]
    nodes = read_meta_graph(path).graph_def.node
    (handle,) = [node for node in nodes if node.op == "VarHandleOp"]
    assert "debug_name" not in handle.attr
    loaded = tf.saved_model.load(str(path)).signatures
    assert loaded["two"](token_ids=tf.constant([[7]]))["y"].numpy() == [[9]]


def test_metadata_and_vocabulary_file(export, vocabulary):
    path = export({"f": length})
    function = tf.saved_model.load(str(path)).signatures["metadata"]
    text, again = function(tf.constant(["", "ignored"]))["json"].numpy()
    assert text == again  # One per row, as batching requires.
    metadata = json.loads(text)
    assert metadata["head"]["labels"] == ["no", "yes"]
    assert metadata["vocabulary_sha256"] == vocabulary.fingerprint
    assert metadata["architecture"]["hidden_dim"] == 16
    tokens = (path / "assets.extra" / "vocab.txt").read_text(encoding="utf-8")
    assert tuple(tokens.split()) == vocabulary.tokens


def test_warmup_covers_signatures_lengths_and_batches(export):
    ids = of_numbers(lambda token_ids: tf.reduce_sum(token_ids, 1))
    signatures = {"serving_default": length, "ids": ids}
    path = export(signatures)
    assert (path / "batching_params.pbtxt").exists()
    sizes = {name: set() for name in signatures}
    for request in warmup_requests(path):
        (array,) = map(tf.make_ndarray, request.inputs.values())
        is_text = array.dtype == object  # [CLS] and [SEP] are added.
        tokens = len(array[0].split()) + 2 if is_text else array.shape[1]
        sizes[request.model_spec.signature_name].add((len(array), tokens))
    assert all(shapes == {(1, 8), (8, 32)} for shapes in sizes.values())


def test_failing_warmup_request_aborts_the_export(tmp_path, export):
    only_one = of_text(lambda text: tf.ensure_shape(text, [1]))
    with pytest.raises(tf.errors.InvalidArgumentError):
        export({"f": only_one})
    assert names(tmp_path) == {".lock"}


# --- Keras models ------------------------------------------------------------------


def test_keras_model_of_strings(tmp_path, one_layer, vocabulary):
    a, b = (keras.Input((), dtype="string", name=name) for name in ("question", "text"))
    tokenizer = bert_tf.Tokenizer(vocabulary, max_sequence_length=16)
    x = bert_tf.BertBackbone(one_layer)(tokenizer((a, b)))["pooled_output"]
    model = keras.Model([b, a], keras.layers.Dense(2, name="scores")(x))
    path = serving.export_saved_model(model, tmp_path)
    served = tf.saved_model.load(str(path)).signatures
    texts = [tf.constant(["the cat", ""]), tf.constant(["a mat", "sat"])]
    answer = served["serving_default"](text=texts[0], question=texts[1])["scores"]
    np.testing.assert_allclose(answer, model(texts), atol=1e-6)
    (metadata,) = served["metadata"](tf.constant(["x"]))["json"].numpy()
    assert json.loads(metadata)["vocabulary_sha256"] == vocabulary.fingerprint
    assert (path / "assets.extra/vocab.txt").exists()


def test_keras_models_with_numbers_and_sequential_ones(tmp_path, one_layer, vocabulary):
    tokenizer = bert_tf.Tokenizer(vocabulary, max_sequence_length=8)
    encoder, text = bert_tf.BertBackbone(one_layer), keras.Input((), dtype="string")
    numbers = keras.Input((3,), name="numbers"), keras.Input((), name="number")
    outputs = encoder(tokenizer(text))
    scores = keras.layers.Dense(2)(outputs["pooled_output"])
    total = keras.ops.sum(numbers[0], axis=1) + numbers[1]
    answers = {"scores": scores, "total": total}
    model = keras.Model([text, *numbers], answers)
    path = serving.export_saved_model(model, tmp_path / "numbers")
    served = tf.saved_model.load(str(path)).signatures["serving_default"]
    inputs = [tf.constant(["the cat"]), tf.ones((1, 3)), tf.ones(1)]
    found = served(**dict(zip((text.name, "numbers", "number"), inputs)))
    np.testing.assert_allclose(found["scores"], model(inputs)["scores"], atol=1e-6)
    assert found["total"].numpy() == [4.0]

    head = heads.SequenceClassifier(bert_tf.BertBackbone(one_layer), 2)
    sequential = keras.Sequential([keras.Input((), dtype="string"), tokenizer, head])
    path = serving.export_saved_model(sequential, tmp_path / "sequential")
    served = tf.saved_model.load(str(path)).signatures["serving_default"]
    (found,) = served(inputs[0]).values()
    np.testing.assert_allclose(found, sequential(inputs[0]), atol=1e-6)

    class Subclass(keras.Model):
        def __init__(self):
            super().__init__(name="own")
            self.tokenizer, self.encoder, self.built = tokenizer, encoder, True

    unnamed = keras.Model(text, [outputs["pooled_output"], outputs["sequence_output"]])
    for model, message in [
        (unnamed, "Outputs of one layer must have names"),
        (Subclass(), "own must be a functional model"),
        ({"serving_default": length}, "Functions need `checkpoint`"),
    ]:
        with pytest.raises(ValueError, match=message):
            serving.export_saved_model(model, tmp_path / "refused")
    for version in (-1, 2**63):
        with pytest.raises(ValueError, match=f"from 1 to .* Received: {version}"):
            serving.export_saved_model(sequential, tmp_path / "new", version=version)


def test_keras_model_without_tokenizer_is_refused(tmp_path, one_layer):
    model = bert_tf.BertBackbone(one_layer)
    with pytest.raises(ValueError, match=r"must have a bert_tf\.Tokenizer .* pooler"):
        serving.export_saved_model(model, tmp_path)
    assert not names(tmp_path)
