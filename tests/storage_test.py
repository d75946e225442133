# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of bert_tf.storage: local and remote paths behave the same."""

import errno
import os
import re
import socket
import stat
import subprocess
import sys
import uuid

import pytest

from bert_tf import storage, text_files


@pytest.fixture(params=["local", "remote"])
def directory(request, tmp_path) -> str:
    """An empty directory, local or remote (`ram://` in place of `gs://`)."""
    parent = tmp_path if request.param == "local" else f"ram://{uuid.uuid4().hex}"
    path = f"{parent}/[1] *"  # Characters of a pattern.
    storage.make_directory(path)
    return path


def test_write_find_and_remove(directory):
    path = os.path.join(directory, "a/b/c.txt")
    assert not storage.exists(path)
    storage.make_directory(os.path.dirname(path))
    storage.make_directory(os.path.dirname(path))
    text_files.write_text(path, "é\n")
    text_files.write_text(path, "é\nzwei\n")
    assert list(text_files.read_lines(path)) == ["é", "zwei"]
    assert storage.stat(path)[0] == 8
    assert storage.is_directory(os.path.dirname(path))
    assert not storage.is_directory(path)
    assert storage.glob("a/b/*", directory) == [path]
    storage.remove(path)
    assert storage.glob("a/b/*", directory) == []


def test_atomic_write_leaves_nothing_half_written(directory):
    path = os.path.join(directory, "x")
    with storage.atomic_write(path) as file:
        file.write(b"new")
        assert not storage.exists(path)
    assert list(text_files.read_lines(path)) == ["new"]
    named = re.escape(f"full: '{path}'")
    with pytest.raises(OSError, match=named), storage.atomic_write(path):
        raise OSError(28, "full")  # As from `write`.
    assert list(text_files.read_lines(path)) == ["new"]
    assert storage.glob("*", directory) == [path]


def test_missing_file_raises_file_not_found(directory):
    path = os.path.join(directory, "none")
    for access in (text_files.read_json, storage.stat, storage.remove):
        with pytest.raises(FileNotFoundError):
            access(path)


def test_file_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    synced = []

    def fsync(descriptor):
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        assert (tmp_path / "x").exists() == (synced[-1] == str(tmp_path))

    monkeypatch.setattr(os, "fsync", fsync)
    text_files.write_text(str(tmp_path / "x"), "text")
    assert len(synced) == 2
    assert synced[0].startswith(f"{tmp_path}/.unfinished-")


@pytest.mark.parametrize("failing", ["directory", "file"])
def test_directories_that_cannot_be_flushed_are_no_error(
    tmp_path, monkeypatch, failing
):
    """untitaker/python-atomicwrites#27, borgbackup/borg#1287"""

    def fsync(descriptor):
        is_directory = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        if is_directory == (failing == "directory"):
            raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "fsync", fsync)
    if failing == "directory":
        text_files.write_text(str(tmp_path / "x"), "text")
        assert (tmp_path / "x").read_text() == "text"
    else:
        with pytest.raises(OSError, match="Invalid argument"):
            text_files.write_text(str(tmp_path / "x"), "text")
        assert not list(tmp_path.iterdir())


def test_links_are_followed_and_pipes_are_kept(tmp_path):
    """As root, a rename to /dev/null would replace the device."""
    (tmp_path / "link").symlink_to("file")
    text_files.write_text(str(tmp_path / "link"), "text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "text"
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="pipe is a device or a pipe"):
        text_files.write_text(str(tmp_path / "pipe"), "text")
    assert (tmp_path / "pipe").is_fifo()
    reader, writer = os.pipe()
    os.close(writer)
    with pytest.raises(ValueError, match=f"/dev/fd/{reader} is a pipe"):
        next(text_files.read_lines(f"/dev/fd/{reader}"))
    os.close(reader)


def test_second_process_is_refused(tmp_path):
    code = f"""
import time
from bert_tf import storage
with storage.exclusive({str(tmp_path)!r}):
    print(flush=True)
    time.sleep(100)
"""
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        holder = rf"in use by process {other.pid} on {socket.gethostname()}\."
        with pytest.raises(ValueError, match=holder), storage.exclusive(tmp_path):
            pass
        other.kill()
    # The lock of a dead process does not hold.
    (tmp_path / ".unfinished-1-file").touch()
    (tmp_path / ".unfinished-1-folder").mkdir()
    with storage.exclusive(tmp_path):
        assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_expand_globs_keeps_pattern_order_without_duplicates(tmp_path):
    for name in ("b.txt", "a.txt", "c.md"):
        (tmp_path / name).touch()
    (tmp_path / "d.txt").mkdir()
    (tmp_path / "z.txt").symlink_to("a.txt")
    patterns = f"{tmp_path}/*.md, {tmp_path}/d.txt/../*.txt,{tmp_path}/a*"
    found = storage.expand_globs(patterns)
    assert [os.path.basename(path) for path in found] == ["c.md", "a.txt", "b.txt"]
    with pytest.raises(ValueError, match=r"No file matches the pattern '.*/\*\.no'"):
        storage.expand_globs(f"{tmp_path}/*.txt,{tmp_path}/*.no")
    with pytest.raises(ValueError, match=r"It is a directory: use .*/\*"):
        storage.expand_globs(str(tmp_path))
    with pytest.raises(ValueError, match="No file matches the pattern ''"):
        storage.expand_globs("")


def test_upload_copies_changes_and_markers_last(monkeypatch):
    remote = f"ram://{uuid.uuid4().hex}/model"
    storage.make_directory(f"{remote}/logs")
    names = ("config.json", "old", "same")
    for name in (*names, "logs/events"):
        text_files.write_text(f"{remote}/{name}", name)
    copy = storage.local_copy(remote, ("logs/*",))
    assert {path.name: path.read_text() for path in copy.iterdir()} == dict(
        zip(names, names)
    )
    (copy / "state").mkdir()
    changed = ("config.json", "state/b", "state/a")
    for name in (*changed, f"{storage.TEMPORARY_PREFIX}x"):
        (copy / name).write_text("new")
    (copy / "old").unlink()
    order, atomic_path = [], storage.atomic_path

    def record(path):
        assert storage.exists(f"{remote}/old")  # Removed after everything is there.
        order.append(path.removeprefix(f"{remote}/"))
        return atomic_path(path)

    monkeypatch.setattr(storage, "atomic_path", record)
    assert storage.upload(copy / "state") == f"{remote}/state"
    assert sorted(order[:2]) == ["state/a", "state/b"]
    assert order[2:] == ["config.json"]
    for name in changed:
        assert list(text_files.read_lines(f"{remote}/{name}")) == ["new"]
    remaining = [os.path.basename(path) for path in storage.glob("*", remote)]
    assert remaining == ["config.json", "logs", "same", "state"]
    storage.upload(copy)  # Only what has changed since.
    assert len(order) == 3
    storage.remove(f"{remote}/same")  # By somebody else, too.
    (copy / "same").unlink()
    storage.upload(copy)


def test_local_copy_follows_changes_of_the_bucket():
    remote = f"ram://{uuid.uuid4().hex}/model"
    storage.make_directory(remote)
    for name in ("same", "changed", "gone"):
        text_files.write_text(f"{remote}/{name}", name)
    copy = storage.local_copy(remote)
    (copy / "new_here").touch()
    for name in ("changed", "new_there"):
        text_files.write_text(f"{remote}/{name}", f"{name} again")
    storage.remove(f"{remote}/gone")
    assert storage.local_copy(remote) == copy
    names = {path.name for path in copy.iterdir()}
    assert names == {"same", "changed", "new_here", "new_there"}
    assert (copy / "changed").read_text() == "changed again"
