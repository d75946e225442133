# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The structure script, on a project of a few lines."""

import pathlib

import pytest

from benchmarks import structure

FILES = {
    "bert_tf/__init__.py": "",
    "bert_tf/lazy.py": "def lazy_import(name): ...",
    "bert_tf/storage.py": "",
    "bert_tf/cli.py": "from bert_tf import storage\n",
    "bert_tf/text/__init__.py": "",
    "bert_tf/text/__init__.pyi": """
from bert_tf.text import words as words
from bert_tf.text.tokenizer import Tokenizer as Tokenizer
""",
    "bert_tf/text/tokenizer.py": """
from bert_tf import storage

class Tokenizer: ...
""",
    "bert_tf/text/words.py": "from bert_tf.text import tokenizer\n",
    "bert_tf/modeling/__init__.py": "",
    "bert_tf/modeling/__init__.pyi": "from bert_tf.modeling.bert import Bert as Bert\n",
    "bert_tf/modeling/bert.py": '''"""A docstring."""

import keras  # A comment.


class Bert(keras.Model):
    # A comment on a line of its own.
    def call(self, inputs):
        """A docstring.

        Two more lines.
        """
        return (
            inputs
        )
''',
    "bert_tf/vocab.py": """
import typing
from bert_tf import cli, text
from bert_tf.lazy import lazy_import

if typing.TYPE_CHECKING:
    from bert_tf.modeling import Bert
else:
    import json

tf = lazy_import("tensorflow")

def main():
    def inner():
        return text.Tokenizer()
""",
    "tasks/__init__.py": "",
    "tasks/tagging.py": """
import bert_tf

print(bert_tf.text.words, bert_tf.modeling.unknown)
""",
}


@pytest.fixture
def checkout(tmp_path) -> structure.Checkout:
    write(tmp_path, FILES)
    return structure.Checkout(tmp_path)


def write(root: pathlib.Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_closure_follows_used_names_only(checkout):
    assert checkout.closure(["bert_tf.vocab"]) == {
        "bert_tf.vocab",
        "bert_tf.cli",
        "bert_tf.lazy",
        "bert_tf.storage",
        "bert_tf.text.tokenizer",
    }


def test_table(checkout, capsys):
    root = str(checkout.root)
    structure.main(structure.StructureConfig(path=f"{root},{root}"))
    lines = capsys.readouterr().out.splitlines()
    assert all(line.count("|") == 4 for line in lines)
    rows = dict(line[2:-2].split(" | ", 1) for line in lines[2:])
    # Packages: text, modeling. tasks -> text, vocab -> text.
    row = "imports between packages; with commands and tasks"
    assert rows[row] == "0; 2 | 0; 2"
    assert rows["import cycles of modules"] == "0 | 0"
