# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of bert_tf.storage: local and remote paths behave the same."""

import contextlib
import os
import uuid

import pytest

from bert_tf import storage


@pytest.fixture(params=["local", "remote"])
def directory(request, tmp_path) -> str:
    """An empty directory, local or remote (`ram://` in place of `gs://`)."""
    if request.param == "local":
        return str(tmp_path)
    path = f"ram://{uuid.uuid4().hex}"
    storage.make_directory(path)
    return path


def test_write_find_rename_and_remove(directory):
    path = os.path.join(directory, "a/b/c.txt")
    assert not storage.exists(path)
    storage.make_directory(os.path.dirname(path))
    storage.make_directory(os.path.dirname(path))
    storage.write_text(path, "é\n")
    storage.write_text(path, "é\nzwei\n")
    assert storage.read_text(path) == "é\nzwei\n"
    assert storage.stat(path)[0] == 8
    assert storage.is_directory(os.path.dirname(path))
    assert not storage.is_directory(path)
    assert storage.glob(os.path.join(directory, "a/b/*")) == [path]
    storage.rename(path, path + "2")
    assert storage.glob(os.path.join(directory, "a/b/c*")) == [path + "2"]
    storage.remove(path + "2")
    assert storage.glob(os.path.join(directory, "a/b/*")) == []
    storage.remove_directory(os.path.join(directory, "a"))
    assert not storage.exists(os.path.join(directory, "a/b"))


def test_atomic_write_leaves_nothing_half_written(directory):
    path = os.path.join(directory, "x")
    with storage.atomic_write(path) as file:
        file.write(b"new")
        assert not storage.exists(path)
    assert storage.read_text(path) == "new"
    with pytest.raises(TypeError), storage.atomic_write(path) as file:
        file.write(b"half" + None)
    assert storage.read_text(path) == "new"
    assert storage.glob(os.path.join(directory, "*")) == [path]


def test_atomic_path_creates_whole_directory_or_none(tmp_path):
    path = tmp_path / "x"
    for failing in (True, False):
        with (
            contextlib.suppress(KeyboardInterrupt),
            storage.atomic_path(path) as unfinished,
        ):
            unfinished.mkdir()
            (unfinished / "file").write_text("content")
            if failing:
                raise KeyboardInterrupt
        assert list(tmp_path.iterdir()) == ([] if failing else [path])
    assert (path / "file").read_text() == "content"


def test_write_json_keeps_old_file_on_error(directory):
    path = os.path.join(directory, "x.json")
    storage.write_json(path, {"a": [1, "é"]})
    with pytest.raises(TypeError):
        storage.write_json(path, {"a": object()})
    assert storage.read_json(path) == {"a": [1, "é"]}
    assert storage.glob(os.path.join(directory, "*")) == [path]


def test_missing_file_raises_file_not_found(directory):
    path = os.path.join(directory, "none")
    for access in (storage.read_text, storage.stat, storage.remove):
        with pytest.raises(FileNotFoundError):
            access(path)


def test_unknown_scheme_is_named_in_error():
    with pytest.raises(OSError, match=r"'nfs2'.*mount other"):
        storage.read_text("nfs2://bucket/x")
