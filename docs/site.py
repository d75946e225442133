# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Hooks of mkdocs: README.md is the home page, and links to other files work.

A site consists of the files in docs/. These hooks add each file of the repository that
a page links to: Markdown as a page, anything else as it is.
"""

import pathlib
import posixpath
import re

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).parents[1]
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)[^)#\s]+")


def _address(path: str) -> str:
    """Returns where the site has a file of the repository."""
    return "index.md" if path == "README.md" else path.removeprefix("docs/")


def _targets(path: str) -> list[str]:
    """Returns the files that a page links to, relative to the repository."""
    folder = posixpath.dirname(path)
    links = LINK.findall((ROOT / path).read_text(encoding="utf-8"))
    return [posixpath.normpath(posixpath.join(folder, link)) for link in links]


def on_files(files, config):
    waiting = [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    waiting, seen = ["README.md", *waiting], set()
    while waiting:
        path = waiting.pop()
        if path in seen or not (ROOT / path).is_file():
            continue
        seen.add(path)
        if not files.get_file_from_path(_address(path)):
            source = str(ROOT / path)
            files.append(File.generated(config, _address(path), abs_src_path=source))
        if path.endswith(".md"):
            waiting += _targets(path)
    return files


def on_page_markdown(markdown, page, config, files):
    """Rewrites links between files of the repository as links of the site."""
    path = pathlib.Path(page.file.abs_src_path).relative_to(ROOT).as_posix()
    folder = posixpath.dirname(page.file.src_uri)

    def rewrite(link: re.Match) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link[0]))
        return posixpath.relpath(_address(target), folder)

    return LINK.sub(rewrite, markdown)
