# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import pytest

from bert_tf import demo

SOURCE = '''
"""A module with and without prose.

The second paragraph runs over
two lines of the source.

>>> this_is(code)

    name    type
"""

class Thing:
    """short"""

    def method(self):
        """Returns the thing itself, as documentation likes to say."""
'''


def test_docstrings_become_paragraphs(tmp_path):
    file = tmp_path / "module.py"
    file.write_text(SOURCE)
    documents = [list(demo._prose(text)) for text in demo._docstrings(file)]
    assert documents == [
        [
            "A module with and without prose.",
            "The second paragraph runs over two lines of the source.",
        ],
        [],
        ["Returns the thing itself, as documentation likes to say."],
    ]


def test_file_with_syntax_errors_is_skipped(tmp_path):
    file = tmp_path / "template.py"
    file.write_text("{{ not python }}")
    assert list(demo._docstrings(file)) == []


@pytest.mark.slow
def test_whole_demo(tmp_path, capsys):
    options = {"vocabulary_size": 2000, "steps": 20, "output": str(tmp_path / "demo")}
    demo.main(demo.DemoConfig(**options))
    printed = capsys.readouterr().out
    assert "documents" in printed
    assert "held-out MLM accuracy" in printed
    assert printed.count("[MASK]") == 4
    assert (tmp_path / "demo/model/curve.png").is_file()
    assert (tmp_path / "demo/serving/demo/1/saved_model.pb").is_file()
