# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import pathlib
import re


def documented(page: str, module: str) -> list[str]:
    """Returns the arguments of the only `python -m module` in a page's code."""
    text = pathlib.Path(__file__).parents[2].joinpath(page).read_text(encoding="utf-8")
    lines = text.replace("\\\n", " ")
    (line,) = re.findall(rf"^python -m {module} (.*)", lines, re.MULTILINE)
    return line.split()
