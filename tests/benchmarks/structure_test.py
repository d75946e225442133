# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The structure script, on a project of a few lines."""

from benchmarks import structure

FILES = {
    "bert_tf/__init__.py": "",
    "bert_tf/__init__.pyi": "",
    "bert_tf/lazy.py": "'A docstring.'\n\ndef lazy_import(name): ...  # A comment.\n",
    "bert_tf/text/__init__.py": "",
    "bert_tf/text/__init__.pyi": "from bert_tf.text import words as words\n"
    "from bert_tf.text.tokenizer import Tokenizer as Tokenizer\n",
    "bert_tf/text/tokenizer.py": "class Tokenizer:\n    '''A docstring.\n\n    '''\n",
    "bert_tf/text/words.py": "from bert_tf.text import tokenizer\n",
    "bert_tf/vocab.py": """
import typing
from bert_tf import text
from bert_tf.lazy import lazy_import

if typing.TYPE_CHECKING:
    from bert_tf.text import words

lazy_import("bert_tf.corpus")
def main(): return text.Tokenizer(
    # A comment in a line of its own.
)
""",
    "bert_tf/corpus.py": "",
    "tasks/__init__.py": "",
    "tasks/tagging.py": "import bert_tf\nprint(bert_tf.text.words, bert_tf.text.no)\n",
}


def test_imports_and_table(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert structure.Checkout(tmp_path).graph() == {
        "bert_tf.lazy": set(),
        "bert_tf.corpus": set(),
        "bert_tf.text.tokenizer": set(),
        "bert_tf.text.words": {"bert_tf.text.tokenizer"},
        "bert_tf.vocab": {f"bert_tf.{x}" for x in ("corpus", "lazy", "text.tokenizer")},
        "tasks.tagging": {"bert_tf.text.words"},
    }
    assert dict(structure.structure(structure.Checkout(tmp_path))) == {
        "code lines of bert_tf and tasks": "13",
        "of tests; of benchmarks": "0; 0",
        "modules; code lines of the longest": "6; 8",
        # vocab -> corpus, vocab -> text, tasks -> text.
        "imports between packages; with commands and tasks": "0; 3",
    }
