# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads and writes files at local and remote paths; writes are atomic and durable.

Paths with "://" go through `tf.io.gfile`: `gs://` works out of the box, other schemes
need a file system plugin. All other paths are local and do not import TensorFlow.
Every function raises `OSError` on failure, for either kind of path.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import fnmatch
import functools
import glob as local_glob
import os
import pathlib
import shutil
import socket
import tempfile
import uuid
from collections.abc import Callable, Iterator
from typing import IO, Any, TypeVar

from absl import logging

# Prefix of the names of unfinished files and directories.
TEMPORARY_PREFIX = ".unfinished-"

# Files that mark others as complete, in models and exports.
_MARKERS = ("config.json", "metrics.json", "saved_model.pb")

_Path = TypeVar("_Path", str, pathlib.Path)


def is_remote(path: str) -> bool:
    return "://" in path


@contextlib.contextmanager
def tensorflow_files() -> Iterator[Any]:
    """Yields `tf.io.gfile` and converts TensorFlow's errors to `OSError`."""
    import tensorflow as tf

    try:
        yield tf.io.gfile
    except tf.errors.NotFoundError as error:
        raise FileNotFoundError(error.message) from error
    except tf.errors.UnimplementedError as error:
        raise OSError(
            f"{error.message}. TensorFlow supports gs:// out of the box; mount other "
            "stores as a local directory or load a file system plugin."
        ) from error
    except tf.errors.OpError as error:
        raise OSError(error.message) from error


@contextlib.contextmanager
def open_file(path: str, mode: str) -> Iterator[IO[bytes]]:
    """Opens a file in mode "rb" or "wb"."""
    if is_remote(path):
        with tensorflow_files() as gfile, gfile.GFile(path, mode) as file:
            yield file
    else:
        with open(path, mode) as file:
            yield file


@contextlib.contextmanager
def atomic_path(path: _Path) -> Iterator[_Path]:
    """Yields a temporary path to write to and renames it to `path` on success.

    The caller creates a file or, for local paths only, a directory. A file replaces an
    existing file; a directory only an empty one. On an exception the temporary path
    is removed and `path` is unchanged. A power failure leaves the old or the new
    content. A symbolic link is followed.

    Raises:
        OSError: `path` is neither, but a device or a pipe, such as /dev/null.
    """
    if not is_remote(os.fspath(path)):
        path = type(path)(os.path.realpath(path))
        if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
            raise OSError(f"{path} is a device or a pipe. Choose a regular file.")
    directory, name = os.path.split(path)
    # A prefix and not a suffix, because Keras checks the suffix of weight files.
    name = f"{TEMPORARY_PREFIX}{uuid.uuid4().hex[:8]}-{name}"
    temporary = os.path.join(directory, name)
    try:
        yield type(path)(temporary)
        if is_remote(temporary):
            with tensorflow_files() as gfile:
                gfile.rename(temporary, path, overwrite=True)
        else:
            for name in (*pathlib.Path(temporary).rglob("*"), temporary):
                _fsync(name)
            os.replace(temporary, path)
            _fsync(directory or ".")
    except BaseException as error:
        # Of a full disk. TensorFlow's errors have a message and no number.
        if getattr(error, "errno", None) and not error.filename:
            error.filename = os.fspath(path)
        remove_temporary = shutil.rmtree if os.path.isdir(temporary) else remove
        with contextlib.suppress(OSError):
            remove_temporary(temporary)
        raise


@contextlib.contextmanager
def atomic_write(path: str) -> Iterator[IO[bytes]]:
    """Opens a file for writing that appears at `path` only when it is complete."""
    with atomic_path(path) as temporary, open_file(temporary, "wb") as file:
        yield file


# --- Files and directories -------------------------------------------------------


def _either(local: Callable, name: str) -> Callable:
    """Returns `local`, which calls that function of `tf.io.gfile` for remote paths."""

    @functools.wraps(local)
    def call(path: str, *arguments: Any) -> Any:
        if not is_remote(path):
            return local(path, *arguments)
        with tensorflow_files() as gfile:
            return getattr(gfile, name)(path, *arguments)

    return call


exists = _either(os.path.exists, "exists")
is_directory = _either(os.path.isdir, "isdir")
make_directory = _either(functools.partial(os.makedirs, exist_ok=True), "makedirs")
remove = _either(os.remove, "remove")
_glob = _either(functools.partial(local_glob.glob, recursive=True), "glob")


def glob(pattern: str, directory: str | os.PathLike = "") -> list[str]:
    """Returns the paths that match a pattern in a directory, sorted."""
    return sorted(_glob(os.path.join(local_glob.escape(directory), pattern)))


def expand_globs(patterns: str) -> list[str]:
    """Returns the files that comma-separated glob patterns match, without duplicates.

    Files are in the order of the patterns, sorted within each pattern. Symbolic links
    and other spellings of a path are duplicates.

    Raises:
        ValueError: A pattern matches no file.
    """
    paths: dict[str, str] = {}
    for pattern in map(str.strip, patterns.split(",")):
        files = [path for path in glob(pattern) if not is_directory(path)]
        if not files:
            hint = f" It is a directory: use {pattern}/*." * is_directory(pattern)
            raise ValueError(f"No file matches the pattern {pattern!r}.{hint}")
        for path in files:
            paths.setdefault(real_path(path), path)
    return list(paths.values())


def real_path(path: str) -> str:
    """Returns the path without symbolic links, the same for all names of a file."""
    return path.rstrip("/") if is_remote(path) else os.path.realpath(path)


def stat(path: str) -> tuple[int, int]:
    """Returns the size of a file in bytes and its modification time in nanoseconds."""
    if not is_remote(path):
        local = os.stat(path)
        return local.st_size, local.st_mtime_ns
    with tensorflow_files() as gfile:
        remote = gfile.stat(path)
    return remote.length, remote.mtime_nsec


def _fsync(path: str | os.PathLike) -> None:
    """Flushes a local file, or the names in a directory, to the disk."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:  # Network and Windows mounts cannot flush directories.
        if error.errno == errno.EIO or not os.path.isdir(path):
            raise


@contextlib.contextmanager
def exclusive(directory: str | os.PathLike, *, wait: bool = False) -> Iterator[None]:
    """Locks a local directory; removes unfinished files that a killed process left.

    At the end, a copy of a remote directory is uploaded. Remote ones are not locked.

    The operating system releases the lock when the process ends. The lock also holds
    between hosts that share the directory, if their file system supports `flock`.

    Args:
        directory: The directory. The lock is a file `.lock` in it.
        wait: Whether to wait for a process that holds the lock.

    Raises:
        ValueError: Another process holds the lock. The message names it.
    """
    if is_remote(os.fspath(directory)):
        yield
        return
    directory = pathlib.Path(directory)
    with open(directory / ".lock", "a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            file.seek(0)
            raise ValueError(
                f"{directory} is in use by {file.read()}. Wait until that process "
                "has finished, stop it, or choose another --output."
            ) from None
        except OSError as error:  # Some network file systems.
            logging.warning("Cannot lock %s: %s", directory, error)
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        for path in directory.glob(f"{TEMPORARY_PREFIX}*"):
            (shutil.rmtree if path.is_dir() else os.remove)(path)
        try:
            yield
        finally:
            upload(directory)


# --- Copies of remote directories ------------------------------------------------

_Stats = dict[str, tuple[int, int]]  # What `stat` returns, by path.

# By remote directory and skipped files: the local copy; and by relative path, the stats
# of the files that are the same in both directories, by directory.
_copies: dict[tuple[str, tuple[str, ...]], tuple[str, dict[str, _Stats]]] = {}


def local_copy(path: str | os.PathLike, skip: tuple[str, ...] = ()) -> pathlib.Path:
    """Copies a remote directory to this machine until the process ends.

    Later calls update the same copy with the files that changed in the bucket.

    Args:
        path: The directory. A remote one may not exist yet: the copy is empty then.
        skip: Glob patterns of files that are not copied.

    Returns:
        The copy, whose changes `upload` copies back; `path` if it is local.
    """
    path = os.fspath(path)
    if not is_remote(path):
        return pathlib.Path(path)
    if (path, skip) not in _copies:
        parent = tempfile.mkdtemp(prefix="bert_tf-")
        atexit.register(shutil.rmtree, parent, ignore_errors=True)
        copy = os.path.join(parent, pathlib.Path(path).name)
        os.mkdir(copy)
        print(f"{copy} is the local copy of {path}.", flush=True)
        _copies[path, skip] = copy, {}
    copy, synced = _copies[path, skip]
    _copy_changes(path, copy, synced, skip)
    return pathlib.Path(copy)


def upload(path: pathlib.Path) -> pathlib.Path | str:
    """Copies what changed in a `local_copy` back; other directories are left alone.

    Object stores cannot rename directories. Files are copied in the order in which they
    were written, those that mark others as complete last, before old ones are removed.

    Args:
        path: The copy, or a directory in it.

    Returns:
        The remote directory of `path`; `path` itself if it is in no copy.
    """
    for (remote, _), (copy, synced) in _copies.items():
        if path.is_relative_to(copy):
            _copy_changes(copy, remote, synced)
            return os.path.join(remote, path.relative_to(copy)).removesuffix("/.")
    return path


def _copy_changes(
    source: str, target: str, synced: dict[str, _Stats], skip: tuple[str, ...] = ()
) -> None:
    """Copies the files that are not in `synced`, and removes those that are gone."""
    stats = _stats(source, skip)
    for name in sorted(stats, key=lambda n: (n.endswith(_MARKERS), stats[n][1])):
        if synced.get(name, {}).get(source) != stats[name]:
            copy = os.path.join(target, name)
            make_directory(os.path.dirname(copy))
            with atomic_path(copy) as temporary, tensorflow_files() as gfile:
                gfile.copy(os.path.join(source, name), temporary)
            synced[name] = {source: stats[name], target: stat(copy)}
    for name in synced.keys() - stats.keys():
        with contextlib.suppress(FileNotFoundError):  # Somebody else removed it.
            remove(os.path.join(target, name))
        del synced[name]


def _stats(directory: str, skip: tuple[str, ...]) -> _Stats:
    """Returns the stats of each complete file by relative path."""
    skip += (f"*{TEMPORARY_PREFIX}*", "*.lock")
    stats = {}
    with tensorflow_files() as gfile:  # Walks through local directories, too.
        walk = list(gfile.walk(directory)) if gfile.exists(directory) else []
    for parent, _, files in walk:
        for path in (os.path.join(parent, file) for file in files):
            name = os.path.relpath(path, directory)
            if not any(fnmatch.fnmatch(name, pattern) for pattern in skip):
                # Removed meanwhile; and ram:// lists runs.tsv as runs/.tsv.
                with contextlib.suppress(FileNotFoundError):
                    stats[name] = stat(path)
    return stats
