# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import re

import pytest
import tensorflow as tf

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


@pytest.mark.slow
def test_whole_demo(tmp_path, capfd, monkeypatch):
    # Less text than in the packages.
    monkeypatch.setattr(demo, "_raw_documents", demo.pydoc_data.topics.topics.values)
    options = demo.DemoConfig(output=str(tmp_path / "demo"), steps=20)
    demo.main(options)
    printed = capfd.readouterr().out
    commands = re.findall(r"^=== python -m bert_tf\.(\w+) ", printed, re.MULTILINE)
    assert commands == ["vocab", "corpus", "pretrain", "export"]
    assert "Held-out MLM accuracy" in printed
    guesses = r"^  .*\[MASK\].*\n    (\S+ \d+%, ){4}\S+ \d+%$"
    assert len(re.findall(guesses, printed, re.MULTILINE)) == 4
    name = "demo/serving/demo"
    assert f"--model_name=demo --model_base_path={tmp_path}/{name}" in printed
    assert tf.saved_model.contains_saved_model(str(tmp_path / name / "1"))
