# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The page of `bert_tf.serve --demo`: over HTTP, and in a headless Chromium.

The slow test needs /usr/bin/chromium (`apt-get install chromium`) or a path in
BERT_TF_CHROMIUM.
"""

import json
import os
import pathlib
import re
import urllib.error
import urllib.request

import pytest
import tensorflow as tf

from bert_tf import heads, serving
from bert_tf.checkpoints import ModelDirectory
from tests.toy.saved_model import write_toy_model

PAGE = pathlib.Path(serving.__file__).with_name("demo_page.html")
CHROMIUM = os.environ.get("BERT_TF_CHROMIUM", "/usr/bin/chromium")


def get(url: str) -> tuple[str, bytes]:
    with urllib.request.urlopen(url, timeout=20) as response:
        return response.headers["Content-Type"], response.read()


def test_demo_adds_the_page_and_the_names_of_the_models(tmp_path):
    write_toy_model(tmp_path, 3)
    with serving.DevServer({"toy": tmp_path, "größer": tmp_path}, demo=True) as server:
        html = ("text/html; charset=utf-8", PAGE.read_bytes())
        assert get(f"{server.rest_address}/?x=1") == html
        kind, names = get(f"{server.rest_address}/models.json")
        assert (kind, json.loads(names)) == ("application/json", ["toy", "größer"])
    no_page = pytest.raises(urllib.error.HTTPError, match="404")
    with serving.DevServer({"toy": tmp_path}) as server, no_page:
        get(server.rest_address)


def test_page_loads_nothing_from_other_hosts():
    page = PAGE.read_text(encoding="utf-8")
    assert not re.findall(r"https?://|@import|<script src|<link[^>]*stylesheet", page)
    assert "default-src 'none'; connect-src 'self'" in page
    assert "innerHTML" not in page  # Input must be shown as text.


def spec(name: str, *shape: None) -> tf.TensorSpec:
    return tf.TensorSpec([None, *shape], tf.string, name)


@heads.signature(spec("text"))
def classified(text):
    shares = tf.repeat([[0.2, 0.7, 0.1]], tf.size(text), axis=0)
    return {"label": tf.fill(tf.shape(text), "<b>good</b>"), "probabilities": shares}


@heads.signature(spec("question"), spec("context"))
def answered(question, context):
    """The fourth to the sixth character."""
    answer = tf.strings.substr(context, 3, 3, "UTF8_CHAR")
    return {
        "answer": answer,
        "start": tf.fill(tf.shape(answer), 3),
        "end": tf.fill(tf.shape(answer), 6),
        "answers": tf.stack([answer, tf.zeros_like(answer)], axis=1),
        "scores": tf.repeat([[0.75, 0.25]], tf.size(question), axis=0),
    }


@heads.signature(spec("text"))
def embedded(text):
    """Vectors [1, n], where n is the length of the text."""
    lengths = tf.cast(tf.strings.length(text), tf.float32)
    return {"sentence_embedding": tf.stack([tf.ones_like(lengths), lengths], axis=1)}


SIGNATURES = {"sentiment": classified, "squad": answered, "vectors": embedded}


@pytest.mark.slow
def test_answers_in_a_browser(tmp_path, vocabulary, tiny_config):
    playwright = pytest.importorskip("playwright.sync_api")
    if not pathlib.Path(CHROMIUM).exists():
        pytest.skip(f"No browser at {CHROMIUM}. Run `apt-get install chromium`.")
    head = {"labels": ["bad", "<b>good</b>", "neither"]}
    directory = ModelDirectory(tmp_path, tiny_config, vocabulary, True, head, {})
    models = {name: tmp_path / name for name in SIGNATURES}
    for name, function in SIGNATURES.items():
        signatures = {"serving_default": function}
        if name == "vectors":
            signatures["sentence_embedding"] = function
        serving.export_saved_model(signatures, models[name], directory=directory)
    problems = []
    with (
        serving.DevServer(models, demo=True) as server,
        playwright.sync_playwright() as play,
    ):
        # Containers seldom allow the sandbox. The page is ours.
        flags = ["--no-sandbox", "--no-zygote", "--disable-gpu"]
        browser = play.chromium.launch(executable_path=CHROMIUM, args=flags)
        page = browser.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(server.rest_address)

        def send(model: str, **inputs: str) -> list[str]:
            """Returns the name and the number of each bar of the answer."""
            page.get_by_label("Model").select_option(model)
            for name, value in inputs.items():
                page.locator(f"[name={name}]").fill(value)
            page.get_by_role("button", name="Send").click()
            page.get_by_role("heading", name="Answer").wait_for()
            return page.locator(".bars .name, .bars .share").all_inner_texts()

        bars = ["<b>good</b>", "70.0 %", "bad", "20.0 %", "neither", "10.0 %"]
        assert send("sentiment", text="<i>a</i>") == bars
        bars = ["abc", "75.0 %", "(no answer)", "25.0 %"]
        assert send("squad", question="where?", context="🙂é abcdef") == bars
        assert page.locator("#answer mark").all_inner_texts() == ["abc"]
        bars = ["y", "1.000", "zzz", "0.894", "<b>", "0.894"]
        assert send("vectors", query="x", documents="zzz\n\n<b>\ny") == bars
        browser.close()
    assert not problems
