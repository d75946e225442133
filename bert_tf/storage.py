# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads and writes files at local and remote paths; writes are atomic and durable.

Paths with "://" go through `tf.io.gfile`: `gs://` works out of the box, other schemes
need a file system plugin. All other paths are local and do not import TensorFlow.
Every function raises `OSError` on failure, for either kind of path.
"""

from __future__ import annotations

import atexit
import bz2
import codecs
import contextlib
import fcntl
import fnmatch
import functools
import glob as local_glob
import gzip
import json
import lzma
import os
import pathlib
import re
import shutil
import socket
import tempfile
import uuid
import zlib
from collections.abc import Iterator
from typing import IO, Any, TypeVar

from absl import logging

# Prefix of the names of unfinished files and directories.
TEMPORARY_PREFIX = ".unfinished-"

# Files that mark others as complete: of training states, models and exports.
_MARKERS = (".index", "config.json", "metrics.json", "saved_model.pb")

# The first bytes of compressed text, and the function that reads it.
_COMPRESSED = {
    rb"\x1f\x8b": gzip.open,
    rb"BZh[1-9](1AY&SY|\x17rE8P\x90)": bz2.open,
    rb"\xfd7zXZ\0": lzma.open,
}

# The first bytes of files that are not UTF-8 text, and the command that converts them.
_PANDAS = "import pandas; pandas.read_parquet('{path}').to_json('{path}.jsonl'"
_NOT_TEXT = {
    rb"\xff\xfe\0\0|\0\0\xfe\xff": ("UTF-32", "iconv -f UTF-32 -t UTF-8 {path}"),
    rb"\xff\xfe|\xfe\xff": ("UTF-16", "iconv -f UTF-16 -t UTF-8 {path}"),
    rb"(.[\0-\x08]){2}": ("UTF-16LE", "iconv -f UTF-16LE -t UTF-8 {path}"),
    rb"([\0-\x08].){2}": ("UTF-16BE", "iconv -f UTF-16BE -t UTF-8 {path}"),
    rb"PAR[1E]\x15": (
        "a Parquet file",
        f"python -c \"{_PANDAS}, orient='records', lines=True)\"",
    ),
    rb"PK(\x03\x04|\x05\x06|\x07\x08)": ("a zip archive", "unzip {path}"),
    rb".{257}ustar": ("a tar archive", "tar -xf {path}"),
    rb"7z\xbc\xaf\x27\x1c": ("a 7-Zip archive", "7z x {path}"),
    rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18": ("Zstandard", "zstd -d {path}"),
    rb"%PDF-": ("a PDF file", "pdftotext {path}"),
    rb"version https://git-lfs": ("a Git LFS pointer", "git lfs pull"),
}
_FIRST_BYTES = 512

_Path = TypeVar("_Path", str, pathlib.Path)


def is_remote(path: str) -> bool:
    return "://" in path


@contextlib.contextmanager
def _remote() -> Iterator[Any]:
    """Yields `tf.io.gfile` and converts its errors to `OSError`."""
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
        with _remote() as gfile, gfile.GFile(path, mode) as file:
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
    content.
    """
    directory, name = os.path.split(path)
    # A prefix and not a suffix, because Keras checks the suffix of weight files.
    name = f"{TEMPORARY_PREFIX}{uuid.uuid4().hex[:8]}-{name}"
    temporary = os.path.join(directory, name)
    try:
        yield type(path)(temporary)
        if is_remote(temporary):
            rename(temporary, path)
        else:
            sync(temporary)
            rename(temporary, path)
            _fsync(directory or ".")
    except BaseException:
        remove_temporary = remove_directory if is_directory(temporary) else remove
        with contextlib.suppress(OSError):
            remove_temporary(temporary)
        raise


@contextlib.contextmanager
def atomic_write(path: str) -> Iterator[IO[bytes]]:
    """Opens a file for writing that appears at `path` only when it is complete."""
    with atomic_path(path) as temporary, open_file(temporary, "wb") as file:
        yield file


def read_text(path: str) -> str:
    with open_file(path, "rb") as file:
        return file.read().decode("utf-8")


def write_text(path: str, text: str) -> None:
    """Writes a file atomically."""
    with atomic_write(path) as file:
        file.write(text.encode("utf-8"))


def read_json(path: str | os.PathLike) -> Any:
    """Reads a JSON file.

    Raises:
        ValueError: The file is not valid JSON; the message names it.
    """
    try:
        return json.loads(read_text(os.fspath(path)))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from error


def write_json(path: str | os.PathLike, value: Any) -> None:
    """Writes a JSON file atomically."""
    write_text(os.fspath(path), json.dumps(value, indent=2) + "\n")


# --- Text files ------------------------------------------------------------------


def read_lines(path: str) -> Iterator[str]:
    """Yields the lines of a UTF-8 text file without line ends.

    The file may begin with a byte order mark and have Unix or Windows line ends.

    Raises:
        ValueError: The file is not UTF-8, and as `open_text`. The message names the
            file and, if the text begins as UTF-8, the line.
    """
    return (line for _, line in read_lines_from(path, 0))


def read_lines_from(
    path: str, start: int, max_bytes: int = -1
) -> Iterator[tuple[int, str]]:
    """Yields (byte offset, text) of each line that begins at or after byte `start`.

    Lines of local and compressed files that are longer than `max_bytes`, unless
    negative, are yielded in pieces.

    Raises:
        ValueError: As `read_lines`.
    """
    with open_text(path) as (file, is_compressed):
        # The `readline` of a remote file has no limit and drops carriage returns.
        is_plain = not is_remote(path) or is_compressed
        limit = (max_bytes,) if is_plain else ()
        offset = 0
        if start:  # Begin one byte earlier, because a line may start at `start`.
            file.seek(start - 1)
            while (piece := file.readline(*limit)) and not piece.endswith(b"\n"):
                pass
            offset = file.tell()
        encoding = "utf-8" if offset else "utf-8-sig"
        decoder = codecs.getincrementaldecoder(encoding)()  # Joins cut characters.
        try:
            while line := file.readline(*limit):
                is_complete = line.endswith(b"\n") or len(line) != max_bytes
                yield offset, decoder.decode(line, is_complete).rstrip("\r\n")
                offset = offset + len(line) if is_plain else file.tell()
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path}, line {line_number(path, offset)}: not UTF-8 text "
                f"({error.reason} 0x{error.object[error.start]:02x} at byte "
                f"{error.start} of the line). Convert the file, for example: "
                "iconv -f CP1252 -t UTF-8, or with -f UTF-16LE, -f GB18030, ..."
            ) from None


@contextlib.contextmanager
def open_text(path: str) -> Iterator[tuple[IO[bytes], bool]]:
    """Opens a text file for reading; the first bytes, not the suffix, tell its format.

    Yields:
        The bytes of the text, and whether the file is compressed: gzip, bzip2 or xz.

    Raises:
        ValueError: The file is UTF-16, an archive or another known format, or is
            damaged. The message names the format and the command that converts it.
    """
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(open_file(path, "rb"))
        head = _first_bytes(file)
        opened = [o for start, o in _COMPRESSED.items() if re.match(start, head)]
        try:
            if opened:
                file = stack.enter_context(opened[0](file))
                head = _first_bytes(file)
            _check_is_text(head, path, is_compressed=bool(opened))
            yield file, bool(opened)
        except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
            if getattr(error, "errno", None) or not opened:  # Not of the compression.
                raise
            raise ValueError(f"{path}: damaged compressed file: {error}") from error


def _first_bytes(file: IO[bytes]) -> bytes:
    head = file.read(_FIRST_BYTES)
    file.seek(0)
    return head


def _check_is_text(head: bytes, path: str, is_compressed: bool) -> None:
    for start, (name, command) in _NOT_TEXT.items():
        if re.match(start, head, re.DOTALL):
            first = "Decompress it, then: " if is_compressed else "Convert it: "
            raise ValueError(
                f"{path} is {name}, not UTF-8 text. {first}{command.format(path=path)}"
            )


def line_number(path: str, offset: int) -> int:
    """Returns the number, from 1, of the line that begins at a byte offset."""
    with open_text(path) as (file, _):
        number = 1
        while file.tell() < offset:
            file.readline()
            number += 1
        return number


# --- Files and directories -------------------------------------------------------


def exists(path: str) -> bool:
    return _call("exists", path)


def is_directory(path: str) -> bool:
    return _call("isdir", path)


def glob(pattern: str) -> list[str]:
    """Returns the paths that match a pattern, sorted."""
    return sorted(_call("glob", pattern))


def expand_globs(patterns: str) -> list[str]:
    """Returns the files that comma-separated glob patterns match, without duplicates.

    Files are in the order of the patterns, sorted within each pattern.

    Other entries, for example pipes and broken symbolic links, are skipped with a
    warning.

    Raises:
        ValueError: A pattern matches no file.
    """
    paths: list[str] = []
    for pattern in filter(None, map(str.strip, patterns.split(","))):
        matches = [path for path in glob(pattern) if not is_directory(path)]
        files = [path for path in matches if is_remote(path) or os.path.isfile(path)]
        for path in set(matches).difference(files):
            logging.warning("Skipped %s: a pipe, device or broken link.", path)
        if not files:
            hint = f" It is a directory: use {pattern}/*." * is_directory(pattern)
            raise ValueError(f"No file matches the pattern {pattern!r}.{hint}")
        paths += files
    if not paths:
        raise ValueError(
            f"At least one file or glob pattern is required. Got {patterns!r}."
        )
    return list(dict.fromkeys(paths))


def stat(path: str) -> tuple[int, int]:
    """Returns the size of a file in bytes and its modification time in seconds."""
    time, size = _version(path)
    return size, time // 10**9


def sync(path: str | os.PathLike) -> None:
    """Flushes a local file, or a directory and its contents, to the disk."""
    for name in (*pathlib.Path(path).rglob("*"), path):
        _fsync(name)


def _fsync(path: str | os.PathLike) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def exclusive(directory: str | os.PathLike) -> Iterator[None]:
    """Locks a local directory; removes unfinished files that a killed process left.

    At the end, a copy of a remote directory is uploaded. That one is not locked.

    The operating system releases the lock when the process ends. The lock also holds
    between hosts that share the directory, if their file system supports `flock`.

    Raises:
        ValueError: Another process holds the lock. The message names it.
    """
    with open(os.path.join(directory, ".lock"), "a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
        for path in pathlib.Path(directory).glob(f"{TEMPORARY_PREFIX}*"):
            (remove_directory if path.is_dir() else remove)(str(path))
        try:
            yield
        finally:
            upload(directory)


def list_directory(path: str) -> list[str]:
    """Returns the names of the files and directories in a directory."""
    return [name.rstrip("/") for name in _call("listdir", path)]


def make_directory(path: str) -> None:
    """Creates a directory and its parents, unless they exist."""
    _call("makedirs", path)


def rename(source: str, target: str) -> None:
    """Renames a file, replacing `target` if it exists."""
    _call("rename", source, target, True)


def remove(path: str) -> None:
    _call("remove", path)


def remove_directory(path: str) -> None:
    """Removes a directory and its contents."""
    _call("rmtree", path)


# --- Copies of remote directories ------------------------------------------------

_Version = tuple[int, int]  # Modification time and size of a file.

# By remote directory and skipped files: the local copy, and the versions of the files
# that are the same in both places, by remote path and by local path.
_copies: dict[tuple[str, tuple[str, ...]], tuple[str, dict[str, _Version]]] = {}


def local_copy(path: str, skip: tuple[str, ...] = ()) -> str:
    """Copies a remote directory to this machine until the process ends.

    Later calls update the same copy with the files that changed in the bucket.

    Args:
        path: The directory. A remote one may not exist yet: the copy is empty then.
        skip: Glob patterns of files that are not copied.

    Returns:
        The copy, whose changes `upload` copies back; `path` if it is local.
    """
    if not is_remote(path):
        return path
    if (path, skip) not in _copies:
        parent = tempfile.mkdtemp(prefix="bert_tf-")
        atexit.register(shutil.rmtree, parent, ignore_errors=True)
        copy = os.path.join(parent, pathlib.Path(path).name)
        os.mkdir(copy)
        print(f"{copy} is the local copy of {path}.", flush=True)
        _copies[path, skip] = copy, {}
    copy, synced = _copies[path, skip]
    _copy_changes(path, copy, synced, skip)
    return copy


def upload(path: _Path) -> _Path | str:
    """Copies what changed in a `local_copy` back; other directories are left alone.

    Object stores cannot rename directories. Files are copied in the order in which they
    were written, those that mark others as complete last, before old ones are removed.

    Args:
        path: The copy, or a directory in it.

    Returns:
        The remote directory of `path`; `path` itself if it is in no copy.
    """
    for (remote, _), (copy, synced) in _copies.items():
        if pathlib.Path(path).is_relative_to(copy):
            _copy_changes(copy, remote, synced)
            return os.path.join(remote, os.path.relpath(path, copy)).removesuffix("/.")
    return path


def _copy_changes(
    source: str, target: str, synced: dict[str, _Version], skip: tuple[str, ...] = ()
) -> None:
    """Copies the files that are not in `synced`, and removes those that are gone."""
    versions = _versions(source, skip)
    for name in sorted(versions, key=lambda n: (n.endswith(_MARKERS), versions[n])):
        path, copy = os.path.join(source, name), os.path.join(target, name)
        if synced.get(path) != versions[name]:
            make_directory(os.path.dirname(copy))
            with atomic_path(copy) as temporary, _remote() as gfile:
                gfile.copy(path, temporary)
            synced[path], synced[copy] = versions[name], _version(copy)
    prefix = os.path.join(source, "")
    names = [p.removeprefix(prefix) for p in synced if p.startswith(prefix)]
    for name in set(names) - versions.keys():
        remove(os.path.join(target, name))
        del synced[prefix + name], synced[os.path.join(target, name)]


def _versions(directory: str, skip: tuple[str, ...] = ()) -> dict[str, _Version]:
    """Returns the version of each complete file by relative path."""
    skip += (f"*{TEMPORARY_PREFIX}*", "*.lock")
    versions = {}
    with _remote() as gfile:  # Walks through local directories, too.
        walk = list(gfile.walk(directory)) if gfile.exists(directory) else []
    for parent, _, files in walk:
        for path in (os.path.join(parent, file) for file in files):
            name = os.path.relpath(path, directory)
            if not any(fnmatch.fnmatch(name, pattern) for pattern in skip):
                # Removed meanwhile; and ram:// lists runs.tsv as runs/.tsv.
                with contextlib.suppress(FileNotFoundError):
                    versions[name] = _version(path)
    return versions


def _version(path: str) -> _Version:
    if is_remote(path):
        remote = _call("stat", path)
        return remote.mtime_nsec, remote.length
    local = os.stat(path)
    return local.st_mtime_ns, local.st_size


# The local equivalents of functions of `tf.io.gfile`.
_LOCAL = {
    "exists": os.path.exists,
    "glob": functools.partial(local_glob.glob, recursive=True),
    "isdir": os.path.isdir,
    "listdir": os.listdir,
    "makedirs": functools.partial(os.makedirs, exist_ok=True),
    "remove": os.remove,
    "rename": lambda source, target, overwrite: os.replace(source, target),
    "rmtree": shutil.rmtree,
}


def _call(function: str, path: str, *arguments: Any) -> Any:
    """Calls a function of `tf.io.gfile`, or its local equivalent for a local path."""
    if not is_remote(path):
        return _LOCAL[function](path, *arguments)
    with _remote() as gfile:
        return getattr(gfile, function)(path, *arguments)
