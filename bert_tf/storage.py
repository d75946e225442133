# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Files on this machine or elsewhere: what preparing and reading records needs of them.

A path with "://" goes to `tf.io.gfile`: `gs://` with TensorFlow as it comes, others
with a file system plugin. All others are local, and TensorFlow is not imported for
them. What goes wrong is an `OSError` in either case.
"""

from __future__ import annotations

import contextlib
import glob as local_glob
import json
import os
import pathlib
import shutil
import uuid
from collections.abc import Iterator
from typing import IO, Any, TypeVar

# The names of what is being written begin so.
UNFINISHED = ".unfinished-"

_Path = TypeVar("_Path", str, pathlib.Path)


def is_remote(path: str) -> bool:
    return "://" in path


@contextlib.contextmanager
def _remote() -> Iterator[Any]:
    """Yields `tf.io.gfile`, and turns its errors into those of local files."""
    import tensorflow as tf

    try:
        yield tf.io.gfile
    except tf.errors.NotFoundError as error:
        raise FileNotFoundError(error.message) from error
    except tf.errors.UnimplementedError as error:
        raise OSError(
            f"{error.message}. TensorFlow itself knows gs://; mount other stores as a "
            "local folder, or load a file system plugin."
        ) from error
    except tf.errors.OpError as error:
        raise OSError(error.message) from error


@contextlib.contextmanager
def opened(path: str, mode: str) -> Iterator[IO[bytes]]:
    """Opens a file for "rb" or "wb"."""
    if is_remote(path):
        with _remote() as gfile, gfile.GFile(path, mode) as file:
            yield file
    else:
        with open(path, mode) as file:
            yield file


@contextlib.contextmanager
def replaced(path: _Path) -> Iterator[_Path]:
    """Yields a path beside `path` to write to, which gets its name when all went well.

    It becomes a file or, on this machine, a folder. A folder takes the place of none or
    an empty one.
    """
    folder, name = os.path.split(path)
    # Keras asks for the ending, so the mark stands in front.
    mark = f"{UNFINISHED}{uuid.uuid4().hex[:8]}-"
    unfinished = os.path.join(folder, mark + name)
    try:
        yield type(path)(unfinished)
        rename(unfinished, path)
    except BaseException:
        remove_unfinished = remove_directory if is_directory(unfinished) else remove
        with contextlib.suppress(OSError):
            remove_unfinished(unfinished)
        raise


@contextlib.contextmanager
def written(path: str) -> Iterator[IO[bytes]]:
    """Opens a file for writing, which gets its name when it is complete."""
    with replaced(path) as unfinished, opened(unfinished, "wb") as file:
        yield file


def read_text(path: str) -> str:
    with opened(path, "rb") as file:
        return file.read().decode("utf-8")


def write_text(path: str, text: str) -> None:
    """Writes a whole file beside its place, then renames it into it."""
    with written(path) as file:
        file.write(text.encode("utf-8"))


def read_json(path: str | os.PathLike) -> Any:
    return json.loads(read_text(os.fspath(path)))


def write_json(path: str | os.PathLike, value: Any) -> None:
    """Writes a JSON file beside its place, then renames it into it."""
    write_text(os.fspath(path), json.dumps(value, indent=2) + "\n")


def exists(path: str) -> bool:
    if is_remote(path):
        with _remote() as gfile:
            return gfile.exists(path)
    return os.path.exists(path)


def is_directory(path: str) -> bool:
    if is_remote(path):
        with _remote() as gfile:
            return gfile.isdir(path)
    return os.path.isdir(path)


def glob(pattern: str) -> list[str]:
    """Returns what matches a pattern, sorted."""
    if is_remote(pattern):
        with _remote() as gfile:
            return sorted(gfile.glob(pattern))
    return sorted(local_glob.glob(pattern, recursive=True))


def stat(path: str) -> tuple[int, int]:
    """Returns the size of a file in bytes, and when it was changed, in seconds."""
    if is_remote(path):
        with _remote() as gfile:
            remote = gfile.stat(path)
            return remote.length, remote.mtime_nsec // 10**9
    local = os.stat(path)
    return local.st_size, int(local.st_mtime)


def make_directory(path: str) -> None:
    """Makes a directory and those above it, where they do not exist."""
    if is_remote(path):
        with _remote() as gfile:
            gfile.makedirs(path)
    else:
        os.makedirs(path, exist_ok=True)


def rename(source: str, target: str) -> None:
    """Renames a file; one of the new name is replaced."""
    if is_remote(source):
        with _remote() as gfile:
            gfile.rename(source, target, overwrite=True)
    else:
        os.replace(source, target)


def remove(path: str) -> None:
    if is_remote(path):
        with _remote() as gfile:
            gfile.remove(path)
    else:
        os.remove(path)


def remove_directory(path: str) -> None:
    """Removes a directory with everything in it."""
    if is_remote(path):
        with _remote() as gfile:
            gfile.rmtree(path)
    else:
        shutil.rmtree(path)
