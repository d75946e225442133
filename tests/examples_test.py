# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The notebook in examples/ runs to the last cell, and so do the scripts."""

import json
import pathlib
import re
import runpy
import sys

import nbclient
import nbformat
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import client
from examples import demo

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


HEADS = {
    "toy": {"kind": "encoder"},
    "dots": {"similarity_fn_name": "dot", "prompts": {"query": "a", "passage": "a"}},
}


def answer(self, inputs, model, signature="", timeout=0):
    """Answers as servers do: vectors count the letters a, b and c.

    "scorer" scores a pair by the length of its second text.
    """
    if model == "scorer":
        return {"score": np.array([len(text) for text in inputs["text_b"]])}
    if signature == "metadata":
        return {"json": [json.dumps({"head": HEADS[model]})]}
    prompt = HEADS[model].get("prompts", {}).get(signature, "")
    texts = [prompt + text for text in inputs["text"]]
    counts = [[text.count(letter) for letter in "abc"] for text in texts]
    return {"sentence_embedding": np.array(counts)}


CORPUS = "\ufeffaab\n\nbbb größer\n  cccc \nabc\n"
BOTH = ["c", "1.0000  4  cccc", "a", "0.8944  1  aab"]
BEST = ["2.0000  13  ab", "2.0000  14  ab"]
MANY = "b\n" * 11 + "b accc\n" + "ab\n" * 9 + "longest, no match\n"


@pytest.mark.parametrize(
    ("corpus", "arguments", "printed"),
    [
        (CORPUS, ["b", "--top_k=2"], ["1.0000  3  bbb größer", "0.5774  5  abc"]),
        (CORPUS, ["c", "a", "--top_k=1"], BOTH),
        ("b\n" * 33 + "a", ["a", "--top_k=1"], ["1.0000  34  a"]),
        ("b", ["b"], ["1.0000  1  b"]),
        # ab, abb and acbc with prompts, and without normalization.
        ("bb\ncbc", ["b", "--model=dots"], ["3.0000  1  bb", "2.0000  2  cbc"]),
        (MANY, ["b", "--top_k=2", "--rerank=scorer"], BEST),
    ],
)
def test_search(tmp_path, monkeypatch, capsys, corpus, arguments, printed):
    monkeypatch.setattr(client.Client, "predict", answer)
    path = tmp_path / "corpus.txt"
    path.write_text(corpus, encoding="utf-8")
    main = runpy.run_path(str(ROOT / "examples/search.py"))["main"]
    main(["--model=toy", f"--corpus={path}", *arguments])
    assert capsys.readouterr().out.splitlines() == printed


def test_search_of_a_table_keeps_its_vectors(tmp_path, monkeypatch, capsys):
    sent = []

    def count(self, inputs, model, signature="", timeout=0):
        sent.extend(inputs["text"] if signature != "metadata" else [])
        return answer(self, inputs, model, signature, timeout)

    monkeypatch.setattr(client.Client, "predict", count)
    main = runpy.run_path(str(ROOT / "examples/search.py"))["main"]
    path, vectors = tmp_path / "corpus.csv", tmp_path / "v.npz"
    path.write_text('key,text\nR-1,"a\nb"\nR-2,\nR-3,bb\nR-4,cc\n')
    arguments = ["--model=toy", f"--corpus={path}", f"--vectors={vectors}", "b"]
    with pytest.raises(ValueError, match=r"is a table\. Select the column .* --text"):
        main(arguments)
    arguments += ["--text=text", "--id=key", "--top_k=2"]
    for texts in (["b", "a b", "bb", "cc"], ["b", "a b"]):
        main(arguments)
        assert sent == texts  # The vector of the first one is compared.
        sent.clear()
        found = capsys.readouterr().out.splitlines()
        assert found == ["1.0000  R-3  bb", "0.7071  R-1  a b"]
    with path.open("a") as file:
        file.write("R-5,bbb\n")
    main(arguments)
    assert sent[-1] == "bbb"
    assert len(sent) == 3
    path.write_text("key,text\nR-1,c\n")
    with pytest.raises(ValueError, match="has other texts or another model"):
        main(arguments)


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
