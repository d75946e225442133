# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the command bert_tf.evaluate."""

import json
import shutil

import numpy as np
import pytest
import scipy.special

from bert_tf import evaluate
from bert_tf.data import Records
from bert_tf.heads import SequenceClassifier
from bert_tf.modeling import BertBackbone, BertPretrainer
from bert_tf.text import Vocabulary
from tests.toy.models import encoder_inputs, model_directory, randomize_weights
from tests.toy.records import write_both_splits

pytestmark = pytest.mark.usefixtures("eagerly")
TEXT = "\n\n".join(f"the cat sat on mat {c}. " * n for n, c in enumerate("abcdefgh", 1))


@pytest.fixture(scope="module")
def model(tmp_path_factory, tiny_config, vocabulary):
    directory = model_directory(tmp_path_factory.mktemp("mlm"), tiny_config, vocabulary)
    model = randomize_weights(BertPretrainer(BertBackbone(tiny_config)))
    directory.save_weights(model)
    return directory.path, model


def run(path, tmp_path, **changes):
    (tmp_path / "text.txt").write_text(TEXT)
    options = {"input": str(tmp_path / "text.txt"), "document_separator": "blank_line"}
    options["output"] = str(tmp_path / "masked.jsonl")
    options |= changes
    return evaluate.main(evaluate.EvaluateConfig(model_dir=str(path), **options))


def test_metrics_are_those_of_the_written_rows(model, tmp_path, capsys, vocabulary):
    path, pretrainer = model
    metrics = run(path, tmp_path, max_sequence_length=16)
    rows = [json.loads(x) for x in (tmp_path / "masked.jsonl").read_text().splitlines()]
    assert metrics["rows"] == len(rows) > 8  # Long documents have several rows.
    losses, hits, seen = [], [], []
    for row in rows:
        length = sum(row["attention_mask"])
        ids, labels = (np.array(row[k])[:length] for k in ("input_ids", "labels"))
        positions = np.arange(length)[np.newaxis]
        inputs = encoder_inputs([ids]) | {"mask_positions": positions}
        inputs["first_positions"] = positions[:, :1]
        logits = pretrainer(inputs)["mlm"].numpy()[0][labels >= 0]
        wanted = labels[labels >= 0]
        assert len(wanted) == max(1, round(length * 0.15))
        shares = scipy.special.log_softmax(logits, axis=1)
        losses += (-shares[range(len(wanted)), wanted]).tolist()
        hits += (logits.argmax(axis=1) == wanted).tolist()
        original = np.where(labels >= 0, labels, ids)
        seen += [vocabulary.tokens[i] for i in original[1:-1]]
    assert metrics["loss"] == pytest.approx(np.mean(losses), abs=1e-5)
    assert metrics["accuracy"] == pytest.approx(np.mean(hits))
    assert metrics["perplexity"] == pytest.approx(np.exp(np.mean(losses)), rel=1e-4)
    assert sorted(seen) == sorted(TEXT.replace(".", " .").split())  # Nothing is lost.
    assert f"Masked-LM loss {metrics['loss']:.4f}, accuracy" in capsys.readouterr().out
    assert run(path, tmp_path, max_sequence_length=16) == metrics
    assert run(path, tmp_path, max_sequence_length=16, seed=1) != metrics


def test_records_of_the_training(model, tmp_path, vocabulary):
    path, pretrainer = model
    records = tmp_path / "records"
    write_both_splits(records, vocabulary, pairs_per_row=2, length=32)
    options = {"records": str(records), "input": ""}
    metrics = run(path, tmp_path, **options, output="")
    pretrainer.compile()
    dataset = Records(records).dataset("validation", batch_size=4)
    expected = pretrainer.evaluate(dataset, return_dict=True, verbose=0)
    assert metrics["loss"] == pytest.approx(expected["mlm_loss"])
    assert metrics["accuracy"] == pytest.approx(expected["mlm_accuracy"])
    with pytest.raises(ValueError, match="--pack=false"):
        run(path, tmp_path, **options)
    changed = Vocabulary((*vocabulary.tokens[:-1], "other"))
    write_both_splits(tmp_path / "others", changed)
    with pytest.raises(ValueError, match="another vocabulary"):
        run(path, tmp_path, records=str(tmp_path / "others"), input="")


def test_checkpoint_without_masked_lm_head(tmp_path, one_layer, vocabulary):
    head = {"kind": "classification", "labels": ["a", "b"]}
    directory = model_directory(tmp_path / "m", one_layer, vocabulary, head)
    directory.save_weights(SequenceClassifier(BertBackbone(one_layer), 2))
    with pytest.raises(ValueError, match=r"has no masked-LM head\. .* classification"):
        run(directory.path, tmp_path)


def test_other_rules_than_those_of_records(model, tmp_path):
    path = shutil.copytree(model[0], tmp_path / "m")
    config = json.loads((path / "tokenizer_config.json").read_text())
    config["strip_accents"] = False
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    message = "another tokenizer than records of bert_tf.corpus: lowercase=True"
    with pytest.raises(ValueError, match=message):
        run(path, tmp_path)
