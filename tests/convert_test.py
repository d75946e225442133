# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import shutil
import types

import huggingface_hub
import numpy as np
import pytest
from huggingface_hub.errors import LocalTokenNotFoundError

from bert_tf import convert
from bert_tf.checkpoints import open_checkpoint
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


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """Plays the Hugging Face Hub: keeps repositories in folders of `tmp_path`.

    It raises `hub.error` instead if that is set.
    """
    hub = types.SimpleNamespace(error=None)

    def create_repo(name, exist_ok):
        assert exist_ok
        if hub.error:
            raise hub.error
        (tmp_path / name).mkdir(parents=True)

    def upload_folder(repo_id, folder_path):
        shutil.copytree(folder_path, tmp_path / repo_id, dirs_exist_ok=True)

    api = types.SimpleNamespace(create_repo=create_repo, upload_folder=upload_folder)
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: api)
    return hub


def test_upload(hub, tmp_path, vocabulary, capsys):
    source = toy.write_hugging_face(tmp_path / "theirs", vocabulary)
    convert.main(ConvertConfig(from_=str(source), to="hf://me/verdict"))
    assert "Wrote hf://me/verdict." in capsys.readouterr().out
    uploaded = tmp_path / "me/verdict"
    assert "# verdict" in (uploaded / "README.md").read_text()
    weights = (open_checkpoint(x).read_weights() for x in (uploaded, source))
    toy.assert_equal(*weights)


@pytest.mark.parametrize(
    "error",
    [LocalTokenNotFoundError("No token found."), PermissionError("403 Forbidden")],
)
def test_refused_upload(hub, tmp_path, vocabulary, error):
    source = toy.write_hugging_face(tmp_path / "theirs", vocabulary)
    hub.error = error
    with pytest.raises(ValueError, match=f"hf auth login.*{error}"):
        convert.main(ConvertConfig(from_=str(source), to="hf://me/verdict"))
