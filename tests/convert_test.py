# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest

from bert_tf import convert
from bert_tf.convert import ConvertConfig
from tests.toy import checkpoints as toy


def test_command_prints_what_it_read_and_wrote(tmp_path, vocabulary, capsys, caplog):
    tensors = toy.values(toy.hugging_face_shapes("BertForMaskedLM"))
    tensors["bert.extra"] = np.zeros(3, np.float32)
    source = toy.write_hugging_face(
        tmp_path / "theirs", vocabulary, "BertForMaskedLM", tensors=tensors
    )
    convert.main(ConvertConfig(from_=str(source), to=str(tmp_path / "to")))
    printed = capsys.readouterr().out
    for line in (
        f"Read {source} (Hugging Face BertForMaskedLM).",
        "  2 layers, hidden size 8, 2 heads, 16 positions, gelu_erf; 40 tokens, un",
        "  kind: pretrainer",
        "  newly_initialized: ['pooler', 'nsp']",
        f"Wrote {tmp_path / 'to'}.",
    ):
        assert line in printed, line
    assert "Tensors that are not used: bert.extra." in caplog.text


def test_upload_is_a_command_of_the_hub(tmp_path, vocabulary):
    source = toy.write_hugging_face(tmp_path / "theirs", vocabulary)
    with pytest.raises(ValueError, match="hf upload me/verdict FOLDER"):
        convert.main(ConvertConfig(from_=str(source), to="hf://me/verdict"))
