# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Installs the requirements and runs the demo or the tests. Needs Python 3.10 to 3.13.

    python3 quickstart.py          pre-trains a small BERT and queries it over gRPC
    python3 quickstart.py test     runs the tests

The first run of each creates a virtual environment beside this file: .venv for the
demo, .venv-test for the tests. Arguments after `demo` are passed to
`python -m examples.demo`, arguments after `test` to pytest.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import venv

HERE = pathlib.Path(__file__).resolve().parent
# One process per core. Files are not split, because their tests share toy models.
PARALLEL = ["-n", "auto", "--maxprocesses", "4", "--dist", "loadfile"]
# Use -> virtual environment, requirements, module with its first arguments.
USES = {
    "demo": (".venv", "requirements.txt", ["examples.demo"]),
    "test": (".venv-test", "requirements-dev.txt", ["pytest", *PARALLEL]),
}

# pip's settings of the packages' sources -> options of uv.
_UV_OPTIONS = {
    "index-url": "--default-index",
    "extra-index-url": "--index",
    "find-links": "--find-links",
    "constraint": "--constraints",
    "trusted-host": "--allow-insecure-host",
}


def main(arguments: list[str]) -> int:
    use, *rest = arguments or ["demo"]
    if use not in USES:
        sys.exit(__doc__)
    if os.name == "nt":
        sys.exit(
            "error: tensorflow-text has no wheels for Windows. Run this in the Windows "
            "Subsystem for Linux (wsl --install)."
        )
    if not (3, 10) <= sys.version_info[:2] <= (3, 13):
        version = ".".join(map(str, sys.version_info[:2]))
        sys.exit(
            f"error: TensorFlow 2.21 needs Python 3.10 to 3.13; this is {version}."
        )
    folder, requirements, module = USES[use]
    python = environment(HERE / folder, HERE / requirements)
    return subprocess.call([python, "-m", *module, *rest], cwd=HERE)


def environment(folder: pathlib.Path, requirements: pathlib.Path) -> str:
    """Returns the Python of a virtual environment with `requirements` installed.

    The versions are those of requirements.lock. The environment is rebuilt if the
    requirements or the lock have changed.
    """
    files = [HERE / f"requirements{name}" for name in (".txt", "-dev.txt", ".lock")]
    *texts, lock = (file.read_text(encoding="utf-8") for file in files)
    # pip accepts no constraints with hashes.
    versions = re.sub(r" \\\n +--hash=\S+", "", lock)
    wanted = "".join([requirements.name, *texts, versions])
    installed, python = folder / "installed.txt", folder / "bin" / "python"
    found = installed.read_text(encoding="utf-8") if installed.exists() else ""
    if found != wanted or not python.exists():  # A link to a Python that is gone.
        print(f"Installing {requirements.name} into {folder} ...", flush=True)
        with tempfile.TemporaryDirectory() as temporary:
            constraints = pathlib.Path(temporary, "versions.txt")
            constraints.write_text(versions, encoding="utf-8")
            install(folder, "-r", str(requirements), "-c", str(constraints))
        installed.write_text(wanted, encoding="utf-8")
    return str(python)


def install(folder: "str | pathlib.Path", *requirements: str) -> None:
    """Creates a virtual environment and installs arguments of `pip install` into it.

    uv installs four times as fast as pip, which is used where uv fails.
    """
    venv.create(folder, with_pip=True, clear=True, symlinks=True)
    python = str(pathlib.Path(folder) / "bin" / "python")
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input"]
    uv = [python, "-m", "uv", "--quiet", "pip", "install", "--compile-bytecode"]
    get_uv = [*pip, "--retries=0", "install", "uv"]
    use_uv = [*uv, "--python", python, *_uv_options(pip), *requirements]
    if any(subprocess.run(c, capture_output=True).returncode for c in (get_uv, use_uv)):
        subprocess.run([*pip, "install", *requirements], check=True)


def _uv_options(pip: "list[str]") -> "list[str]":
    """Returns the indexes of pip's configuration, which uv does not read."""
    config = subprocess.run([*pip, "config", "list"], capture_output=True, text=True)
    found = re.findall(r"^.*\.([a-z-]+)='(.*)'$", config.stdout, re.MULTILINE)
    values = [(name, value) for name, text in found for value in text.split()]
    values = [f"{_UV_OPTIONS[n]}={v}" for n, v in values if n in _UV_OPTIONS]
    return [*values, "--index-strategy=unsafe-best-match"]  # As pip.


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
