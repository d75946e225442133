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


def test_file_with_syntax_errors_is_skipped(tmp_path):
    file = tmp_path / "template.py"
    file.write_text("{{ not python }}")
    assert list(demo._docstrings(file)) == []


@pytest.mark.slow
def test_whole_demo(tmp_path, capfd, monkeypatch):
    # Less text than in the packages.
    monkeypatch.setattr(demo, "_raw_documents", demo.pydoc_data.topics.topics.values)
    monkeypatch.setattr(demo, "_MIN_STEPS", 20)
    options = {
        "vocabulary_size": 2000,
        "minutes": 0.01,
        "output": str(tmp_path / "demo"),
    }
    demo.main(demo.DemoConfig(**options))
    printed = capfd.readouterr().out
    commands = re.findall(r"^=== python -m bert_tf\.(\w+) ", printed, re.MULTILINE)
    assert commands == ["vocab", "corpus", "pretrain", "pretrain", "export"]
    assert "(--minutes=0.01, at least 20 steps)" in printed
    assert "Held-out MLM accuracy" in printed
    guesses = r"^  .*\[MASK\].*\n    (\S+ \d+%, ){4}\S+ \d+%$"
    assert len(re.findall(guesses, printed, re.MULTILINE)) == 4
    name = "demo/serving/demo"
    assert f"--model_name=demo --model_base_path={tmp_path}/{name}" in printed
    assert tf.saved_model.contains_saved_model(str(tmp_path / name / "1"))

    demo.main(demo.DemoConfig(**options))  # Nothing is done again.
    printed = capfd.readouterr().out
    assert "Continuing with what" in printed
    assert "=== python -m" not in printed
    with pytest.raises(ValueError, match=r"holds a demo with --minutes=0\.01"):
        demo.main(demo.DemoConfig(**options | {"minutes": 5.0}))
