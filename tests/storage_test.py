# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of bert_tf.storage: local and remote paths behave the same."""

import contextlib
import gzip
import os
import random
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


# --- Text files ------------------------------------------------------------------


def test_expand_globs_keeps_pattern_order_without_duplicates(tmp_path):
    for name in ("b.txt", "a.txt", "c.md"):
        (tmp_path / name).touch()
    (tmp_path / "d.txt").mkdir()
    found = storage.expand_globs(f"{tmp_path}/*.md, {tmp_path}/*.txt,{tmp_path}/a*")
    assert [os.path.basename(path) for path in found] == ["c.md", "a.txt", "b.txt"]


def test_expand_globs_names_pattern_without_match(tmp_path):
    (tmp_path / "a.txt").touch()
    with pytest.raises(ValueError, match=r"No file matches the pattern '.*/\*\.md'"):
        storage.expand_globs(f"{tmp_path}/*.txt,{tmp_path}/*.md")
    with pytest.raises(ValueError, match=r"It is a directory: use .*/\*"):
        storage.expand_globs(str(tmp_path))
    with pytest.raises(ValueError, match="At least one file"):
        storage.expand_globs(" , ")


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_read_lines_handles_byte_order_mark_line_ends_and_gzip(tmp_path, compress):
    text = "\ufeffDer Löwe\r\n\r\nschläft\u2028heute\n\ufeffnacht".encode()
    (tmp_path / "text").write_bytes(compress(text))
    assert list(storage.read_lines(str(tmp_path / "text"))) == [
        "Der Löwe",
        "",
        "schläft\u2028heute",  # Only \n ends a line.
        "\ufeffnacht",  # A byte order mark only at the start of the file.
    ]


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_read_lines_names_line_that_is_not_utf8(tmp_path, compress):
    (tmp_path / "latin").write_bytes(
        compress("Eins.\nZwei.\nfünf.\n".encode("latin-1"))
    )
    with pytest.raises(ValueError, match=r"latin, line 3: not UTF-8 .* 0xfc"):
        list(storage.read_lines(str(tmp_path / "latin")))


def test_error_after_a_start_offset_has_the_line_number_of_the_file(tmp_path):
    (tmp_path / "latin").write_bytes(b"One.\nTwo.\n\nThree.\nFour \xe9.\n")
    with pytest.raises(ValueError, match="line 5"):
        list(storage.read_lines_from(str(tmp_path / "latin"), 7))


def test_damaged_gzip_file_is_named(tmp_path):
    whole = gzip.compress(random.Random(0).randbytes(1000).hex().encode())
    (tmp_path / "half.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"half\.gz: damaged gzip file after line 0"):
        list(storage.read_lines(str(tmp_path / "half.gz")))
