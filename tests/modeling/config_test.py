# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import dataclasses
import json

import pytest

from bert_tf.modeling import BertConfig
from tests.toy.checkpoints import ARCHITECTURE, CONFIG

GOOGLE = CONFIG | {"attention_probs_dropout_prob": 0.2}
OTHERS = {"model_type": "bert", "layer_norm_eps": 1e-5}  # "gelu" is the exact form.
OURS = {"activation": "gelu_erf", "layer_norm_epsilon": 1e-5}


@pytest.mark.parametrize(("others", "expected"), [({}, {}), (OTHERS, OURS)])
def test_sizes_of_google_and_of_transformers(tmp_path, others, expected):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(GOOGLE | others))
    expected = BertConfig(**ARCHITECTURE, attention_dropout=0.2, **expected)
    assert BertConfig.from_file(path) == expected
    resolved = BertConfig.from_size(str(path), vocabulary_size=100)
    assert resolved == dataclasses.replace(expected, vocabulary_size=100)


def test_from_size_accepts_layers_hidden_size_and_heads():
    expected = BertConfig.from_size("base", 100, num_layers=3)
    assert BertConfig.from_size("3/768/12", vocabulary_size=100) == expected
    with pytest.raises(ValueError, match="multiple of `num_heads`"):
        BertConfig.from_size("3/768/11", vocabulary_size=100)
    with pytest.raises(ValueError, match="one of tiny, mini, small"):
        BertConfig.from_size("huge", 100)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not valid JSON"),
        (json.dumps({"hidden_act": "gelu"}), "lacks the key 'vocab_size'"),
        (json.dumps(GOOGLE | {"hidden_act": "swish"}), "`activation` must be one of"),
        ("[]", r"must be a JSON object\. Received: \[\]"),
        (json.dumps(GOOGLE | {"hidden_size": "768"}), "positive integer.*='768'"),
        (json.dumps(GOOGLE | {"hidden_dropout_prob": None}), "`dropout` must be a num"),
        (json.dumps(GOOGLE | {"model_type": "roberta"}), "model_type must be 'bert'"),
    ],
)
def test_invalid_bert_config_raises_with_file_and_key(tmp_path, content, message):
    path = tmp_path / "bert_config.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=message) as error:
        BertConfig.from_file(path)
    assert str(path) in str(error.value)
