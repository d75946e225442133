# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The notebook in examples/ runs to the last cell, and so do the scripts."""

import pathlib
import re
import runpy
import sys

import nbclient
import nbformat
import pytest
import tensorflow as tf

from bert_tf import heads, serving
from bert_tf.checkpoints import ModelDirectory
from bert_tf.serving import DevServer
from examples import demo
from tests.toy.saved_model import write_toy_model

ROOT = pathlib.Path(__file__).parents[1]
NOTEBOOK = ROOT / "examples/checkpoint_to_served_answer.ipynb"


def test_notebook_is_stored_without_outputs():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in cells)


@pytest.mark.slow
def test_notebook_answers_over_grpc(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(NOTEBOOK, as_version=4)

    nbclient.NotebookClient(
        notebook, timeout=900, resources={"metadata": {"path": NOTEBOOK.parent}}
    ).execute()

    outputs = notebook.cells[-2].outputs
    printed = "".join(o.text for o in outputs if o.get("name") == "stdout")
    assert re.search(r"clever\. -> good .*\n.*dull\. -> bad ", printed)


def letter_counts(prompt: str = "") -> heads.Signature:
    """Returns a signature whose vectors count the letters a, b and c."""

    @heads.signature(heads.string_input("text"))
    def count(text):
        others = ("[^a]", "[^b]", "[^c]")
        only = [tf.strings.regex_replace(prompt + text, x, "") for x in others]
        counts = tf.stack([tf.strings.length(letters) for letters in only], axis=1)
        return {"sentence_embedding": tf.cast(counts, tf.float32)}

    return count


@pytest.fixture(scope="module")
def address(tmp_path_factory, tiny_config, vocabulary):
    """A server with sentence encoders and a cross-encoder."""
    folder = tmp_path_factory.mktemp("served")
    prompts = {"query": "a", "passage": "c"}
    model_heads = {
        "toy": {"kind": "encoder"},
        "dots": {"similarity_fn_name": "dot", "prompts": prompts},
    }
    for name, head in model_heads.items():
        signatures = {"sentence_embedding": letter_counts()}
        signatures |= {k: letter_counts(v) for k, v in head.get("prompts", {}).items()}
        directory = ModelDirectory(folder, tiny_config, vocabulary, True, head, {})
        serving.export_saved_model(signatures, folder / name, checkpoint=directory)
    write_toy_model(folder / "scorer", 1, serving_default="score")
    names = (*model_heads, "scorer")
    with DevServer({name: folder / name for name in names}) as server:
        yield server.address


@pytest.mark.parametrize(
    ("corpus", "arguments", "printed"),
    [
        (
            "aab\n\nbbb größer\n  cccc \nabc\n",
            ["b", "--top_k=2"],
            ["1.0000  3  bbb größer", "0.5774  5  abc"],
        ),
        (
            "\ufeffaab\n\nbbb\ncccc\n",
            ["c", "a", "--top_k=1"],
            ["c", "1.0000  4  cccc", "a", "0.8944  1  aab"],
        ),
        ("b\n" * 33 + "a", ["a", "--top_k=1"], ["1.0000  34  a"]),
        ("b", ["b"], ["1.0000  1  b"]),
        # ab and cbb, with prompts, without normalization.
        ("bb\ncbc", ["b", "--model=dots"], ["2.0000  1  bb", "1.0000  2  cbc"]),
        (
            "b\n" * 11 + "b accc\n" + "ab\n" * 9 + "longest, no match\n",
            ["b", "--top_k=2", "--rerank=scorer"],
            ["2.0000  13  ab", "2.0000  14  ab"],
        ),
    ],
)
def test_search(address, tmp_path, capsys, corpus, arguments, printed):
    path = tmp_path / "corpus.txt"
    path.write_text(corpus, encoding="utf-8")
    main = runpy.run_path(str(ROOT / "examples/search.py"))["main"]
    main([f"--address={address}", "--model=toy", f"--corpus={path}", *arguments])
    assert capsys.readouterr().out.splitlines() == printed


def test_search_errors_are_one_line(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["search", "--model=m", "--corpus=none.txt", "q"])
    with pytest.raises(SystemExit, match=r"^error: .* 'none\.txt'$"):
        runpy.run_path(str(ROOT / "examples/search.py"), run_name="__main__")


# --- The demo --------------------------------------------------------------------

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
    assert len(re.findall(guesses, printed, re.MULTILINE)) == 5
    name = "demo/serving/demo"
    assert f"--model_name=demo --model_base_path={tmp_path}/{name} --demo" in printed
    assert (tmp_path / "demo/model/report.md").exists()
    assert tf.saved_model.contains_saved_model(str(tmp_path / name / "1"))
