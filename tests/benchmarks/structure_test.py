# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The structure script, on a project of a few lines."""

from benchmarks import structure

FILES = {
    "bert_tf/__init__.py": "",
    "bert_tf/__init__.pyi": "",
    "bert_tf/lazy.py": "def lazy_import(name): ...",
    "bert_tf/cli.py": "from bert_tf import lazy\n",
    "bert_tf/text/__init__.py": "",
    "bert_tf/text/__init__.pyi": """
from bert_tf.text import words as words
from bert_tf.text.tokenizer import Tokenizer as Tokenizer
""",
    "bert_tf/text/tokenizer.py": """
from bert_tf import cli

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


def test_imports_and_table(tmp_path, capsys):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert structure.Checkout(tmp_path).graph() == {
        "bert_tf.lazy": set(),
        "bert_tf.cli": {"bert_tf.lazy"},
        "bert_tf.text.tokenizer": {"bert_tf.cli"},
        "bert_tf.text.words": {"bert_tf.text.tokenizer"},
        "bert_tf.modeling.bert": set(),
        "bert_tf.vocab": {f"bert_tf.{x}" for x in ("cli", "lazy", "text.tokenizer")},
        "tasks.tagging": {"bert_tf.text.words"},
    }
    structure.main(structure.StructureConfig(path=str(tmp_path)))
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:] == [
        "| code lines of bert_tf and tasks | 24 |",
        "| of tests; of benchmarks | 0; 0 |",
        "| modules; code lines of the longest | 7; 11 |",
        # Packages: text, modeling. tasks -> text, vocab -> text.
        "| imports between packages; with commands and tasks | 0; 2 |",
    ]
