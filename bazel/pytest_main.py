# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs one test file under Bazel. `--slow` runs its slow tests instead of the others.

Exits with the status of pytest, so that failures and files without tests fail the
target. A file whose tests are all of the other kind passes.
"""

import sys

import pytest


class CollectedTests:
    """Counts the tests of the file before markers deselect any."""

    count = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self.count = len(items)


def main(arguments: list[str]) -> int:
    if "--slow" in arguments:
        arguments = [a for a in arguments if a != "--slow"] + ["-m", "slow"]
    options = ["--config-file=pyproject.toml", "-p", "no:cacheprovider", "-ra"]
    collected = CollectedTests()
    status = pytest.main([*options, *arguments], plugins=[collected])
    if status == pytest.ExitCode.NO_TESTS_COLLECTED and collected.count:
        return 0
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
