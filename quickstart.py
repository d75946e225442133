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
import subprocess
import sys
import venv

HERE = pathlib.Path(__file__).resolve().parent
# One process per core. Files are not split, because their tests share toy models.
PARALLEL = ["-n", "auto", "--maxprocesses", "4", "--dist", "loadfile"]
# Use -> virtual environment, requirements, module with its first arguments.
USES = {
    "demo": (".venv", "requirements.txt", ["examples.demo"]),
    "test": (".venv-test", "requirements-dev.txt", ["pytest", *PARALLEL]),
}


def main(arguments: list[str]) -> int:
    use, *rest = arguments or ["demo"]
    if use not in USES:
        sys.exit(__doc__)
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

    The environment is rebuilt if the requirements have changed.
    """
    python = str(folder / "bin" / "python")
    files = (HERE / "requirements.txt", HERE / "requirements-dev.txt")
    wanted = requirements.name + "".join(f.read_text(encoding="utf-8") for f in files)
    installed = folder / "installed.txt"
    if not installed.exists() or installed.read_text(encoding="utf-8") != wanted:
        print(f"Installing {requirements.name} into {folder} ...", flush=True)
        symlinks = os.name != "nt"  # As `python -m venv` has them.
        venv.create(folder, with_pip=True, clear=True, symlinks=symlinks)
        install = [python, "-m", "pip", "install", "--quiet"]
        install += ["--disable-pip-version-check", "-r", str(requirements)]
        subprocess.run(install, check=True, env={**os.environ, "PIP_NO_INPUT": "1"})
        installed.write_text(wanted, encoding="utf-8")
    return python


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
