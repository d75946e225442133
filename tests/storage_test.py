# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of bert_tf.storage: the same behaviour on disk and behind "://"."""

import contextlib
import os
import uuid

import pytest

from bert_tf import storage


@pytest.fixture(params=["local", "remote"])
def folder(request, tmp_path) -> str:
    """An existing folder; `ram://` stands for gs:// and what else TensorFlow knows."""
    if request.param == "local":
        return str(tmp_path)
    path = f"ram://{uuid.uuid4().hex}"
    storage.make_directory(path)
    return path


def test_files_are_written_found_and_removed(folder):
    path = os.path.join(folder, "a/b/c.txt")
    assert not storage.exists(path)
    storage.make_directory(os.path.dirname(path))
    storage.make_directory(os.path.dirname(path))
    storage.write_text(path, "é\n")
    storage.write_text(path, "é\nzwei\n")
    assert storage.read_text(path) == "é\nzwei\n"
    assert storage.stat(path)[0] == 8
    assert storage.is_directory(os.path.dirname(path))
    assert not storage.is_directory(path)
    assert storage.glob(os.path.join(folder, "a/b/*")) == [path]
    storage.rename(path, path + "2")
    assert storage.glob(os.path.join(folder, "a/b/c*")) == [path + "2"]
    storage.remove(path + "2")
    assert storage.glob(os.path.join(folder, "a/b/*")) == []
    storage.remove_directory(os.path.join(folder, "a"))
    assert not storage.exists(os.path.join(folder, "a/b"))


def test_a_file_has_its_name_when_it_is_complete(folder):
    path = os.path.join(folder, "x")
    with storage.written(path) as file:
        file.write(b"new")
        assert not storage.exists(path)
    assert storage.read_text(path) == "new"
    with pytest.raises(TypeError), storage.written(path) as file:
        file.write(b"half" + None)
    assert storage.read_text(path) == "new"
    assert storage.glob(os.path.join(folder, "*")) == [path]


def test_a_folder_has_its_name_when_it_is_complete(tmp_path):
    path = tmp_path / "x"
    for failing in (True, False):
        with (
            contextlib.suppress(KeyboardInterrupt),
            storage.replaced(path) as unfinished,
        ):
            unfinished.mkdir()
            (unfinished / "file").write_text("content")
            if failing:
                raise KeyboardInterrupt
        assert list(tmp_path.iterdir()) == ([] if failing else [path])
    assert (path / "file").read_text() == "content"


def test_json_is_written_whole_or_not_at_all(folder):
    path = os.path.join(folder, "x.json")
    storage.write_json(path, {"a": [1, "é"]})
    with pytest.raises(TypeError):
        storage.write_json(path, {"a": object()})
    assert storage.read_json(path) == {"a": [1, "é"]}
    assert storage.glob(os.path.join(folder, "*")) == [path]


def test_what_is_missing_is_a_missing_file(folder):
    path = os.path.join(folder, "none")
    for access in (storage.read_text, storage.stat, storage.remove):
        with pytest.raises(FileNotFoundError):
            access(path)


def test_a_store_that_tensorflow_does_not_know_is_named():
    with pytest.raises(OSError, match=r"'nfs2'.*mount other stores"):
        storage.read_text("nfs2://bucket/x")
