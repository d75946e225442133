# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The page of `bert_tf.serve --demo`: over HTTP, and in a headless Chromium.

The slow tests need /usr/bin/chromium (`apt-get install chromium`) or a path in
BERT_TF_CHROMIUM.
"""

import ast
import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
import urllib.error
import urllib.request
from typing import Any

import pytest
import tensorflow as tf

from bert_tf import heads, serving

ROOT = pathlib.Path(__file__).parents[2]
PAGE = pathlib.Path(serving.__file__).with_name("demo_page.html")
TEXT = PAGE.read_text(encoding="utf-8")
CHROMIUM = os.environ.get("BERT_TF_CHROMIUM", "/usr/bin/chromium")


def get(url: str) -> tuple[str, bytes]:
    with urllib.request.urlopen(url, timeout=20) as response:
        return response.headers["Content-Type"], response.read()


def test_demo_adds_the_page_and_the_names_of_the_models(toy_server):
    html = ("text/html; charset=utf-8", PAGE.read_bytes())
    assert get(f"{toy_server.rest_address}/?x=1") == html
    kind, names = get(f"{toy_server.rest_address}/models.json")
    assert (kind, json.loads(names)) == ("application/json", ["toy", "größer"])
    no_page = pytest.raises(urllib.error.HTTPError, match="404")
    with serving.DevServer({}) as server, no_page:
        get(server.rest_address)


def test_page_loads_nothing_from_other_hosts():
    assert not re.findall(r"https?://|@import|<script src|<link[^>]*stylesheet", TEXT)
    assert "default-src 'none'; connect-src 'self'" in TEXT
    assert "innerHTML" not in TEXT  # Input must be shown as text.


# --- Kinds of models -------------------------------------------------------------

KINDS = json.loads(re.search(r'json" id="kinds">(.*?)</script>', TEXT, re.S)[1])


def test_page_has_the_kinds_of_the_table_of_exports():
    docs = (ROOT / "docs/serving.md").read_text(encoding="utf-8")
    table = re.search(r"\| architecture \| inputs .*\n\|--.*\n((?:\|.*\n)+)", docs)[1]
    found, inputs = set(), set()
    for row in table.splitlines():
        _, names, outputs = (re.findall(r"`(\w+)`", x) for x in row.split("|")[1:4])
        inputs = {*names} or inputs  # "the same"
        matching = [kind for kind in KINDS if {*kind["outputs"]} <= {*outputs}]
        assert matching, row
        found |= {kind["name"] for kind in matching}
        examples = matching[0]["examples"]
        assert {name for example in examples for name in example} <= inputs | {"text"}
    assert found == {kind["name"] for kind in KINDS}
    shown = re.search(r"const SHOW = \{(.*?)\n\};", TEXT, re.S)[1]
    assert re.findall(r'^  "(.*?)":', shown, re.M) == [kind["name"] for kind in KINDS]


# --- In a browser ----------------------------------------------------------------


def spec(name: str, *shape: None) -> tf.TensorSpec:
    return tf.TensorSpec([None, *shape], tf.string, name)


def constant(*names: str, **values: Any) -> heads.Signature:
    """Returns a signature that gives each row of its inputs the same outputs."""

    @heads.signature(*(spec(n, *[None] * (n == "choices")) for n in names))
    def serving_default(*inputs):
        rows = tf.shape(inputs[0])[0]
        return {k: tf.repeat(tf.constant([v]), rows, axis=0) for k, v in values.items()}

    return serving_default


def embedded(prompt: str) -> heads.Signature:
    """Vectors [1, n], where n is the length of the prompt and the text."""

    @heads.signature(spec("text"))
    def sentence_embedding(text):
        lengths = tf.cast(tf.strings.length(text), tf.float32) + len(prompt)
        vectors = tf.stack([tf.ones_like(lengths), lengths], axis=1)
        return {"sentence_embedding": vectors}

    return sentence_embedding


def case(default: heads.Signature, typed: dict, bars="", marks=(), **settings):
    """Returns signatures, settings of the head, inputs to type, bars, marked texts."""
    others = settings.pop("others", {})
    return {"serving_default": default, **others}, settings, typed, bars, [*marks]


AB = {"text_a": "a", "text_b": "b"}
ANSWERS = {"answer": "abc", "start": 3, "end": 6, "scores": [0.75, 0.25]}
ANSWERS |= {"answers": ["abc", ""], "starts": [3, 0], "ends": [6, 0]}
VECTORS = ("sentence_embedding", "query", "passage")
VECTOR = {"cls": [0.0] * 400, "mean": [0.5] * 400}
NOUNS = {"words": ["قط", "أسود"], "tags": ["NOUN", "ADJ"], "scores": [0.9, 0.8]}
NOUNS |= {"entities": NOUNS["words"], "entity_types": NOUNS["tags"]}
NOUNS |= {"entity_starts": [0, 3], "entity_ends": [2, 7]}
MODELS = {
    "sentiment": case(
        constant("text", label="<b>a", probabilities=[0.3, 0.7]),
        {"text": "<i>a</i>"},
        "<b>a 70.0 % bad 30.0 %",
        labels=["bad", "<b>a"],
    ),
    "topics": case(
        constant("text", labels=["x", "z"], probabilities=[0.9, 0.2, 0.6]),
        {"text": "a"},
        "x 90.0 % z 60.0 % y 20.0 %",
        labels=["x", "y", "z"],
    ),
    "score": case(constant(*AB, score=0.25), AB, "score 25.0 %", activation="sigmoid"),
    "next": case(
        constant(*AB, label="next", probabilities=[0.8, 0.2]),
        AB,
        "next 80.0 % random 20.0 %",
        kind="pretrainer",
    ),
    "choices": case(
        constant("prompt", "choices", choice=1, probabilities=[0.4, 0.6]),
        {"prompt": "a", "choices": "b\n\nc"},
        "c 60.0 % b 40.0 %",
    ),
    "squad": case(
        constant("question", "context", **ANSWERS),
        {"question": "where?", "context": "🙂é abcdef"},
        "abc 75.0 % (no answer) 25.0 %",
        ["abc"],
    ),
    "nouns": case(
        constant("text", **NOUNS),
        {"text": "قط أسود"},
        marks=["قط NOUN", "أسود ADJ"],
        labels=["NOUN", "ADJ"],
    ),
    "mask": case(  # The model reads two of three masks.
        constant("text", tokens=[["is", "a"], ["##ly", "b"]], scores=[[0.6, 0.4]] * 2),
        {"text": "It [MASK] like[MASK] or [MASK]. End"},
        "is 60.0 % a 40.0 % ##ly 60.0 % b 40.0 %",
        ["is", "ly", "[MASK]"],
        kind="pretrainer",
    ),
    "vectors": case(  # With the prompts, the vectors are [1, 4] and [1, 14].
        embedded(""),
        {"query": "x", "documents": "zzzzzzzzzz\n"},
        "zzzzzzzzzz 0.985",
        others={
            name: embedded(prompt) for name, prompt in zip(VECTORS, ("", "q: ", "of: "))
        },
    ),
    "layers": case(
        constant("text", **VECTOR),
        {"text": "a"},
        kind="encoder",
        others={"embeddings": constant("text", **VECTOR)},
    ),
}


@pytest.fixture(scope="module")
def page(tmp_path_factory, toy_checkpoint):
    """The page of all models in a browser."""
    playwright = pytest.importorskip("playwright.sync_api")
    if not pathlib.Path(CHROMIUM).exists():
        pytest.skip(f"No browser at {CHROMIUM}. Run `apt-get install chromium`.")
    models = {name: tmp_path_factory.mktemp(name) for name in MODELS}
    for name, (signatures, head, *_) in MODELS.items():
        checkpoint = dataclasses.replace(toy_checkpoint, head=head)
        serving.export_saved_model(signatures, models[name], checkpoint=checkpoint)
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
        yield page
        browser.close()
    assert not problems


def select(page, model: str) -> None:
    page.get_by_label("Model").select_option(model)
    page.locator("#form .send").wait_for()
    assert page.evaluate("location.hash") == f"#{model}"


def send(page, **inputs: str) -> None:
    for name, value in inputs.items():
        page.locator(f"[name={name}]").fill(value)
    page.keyboard.press("Control+Enter")
    page.locator("#answer > :first-child").wait_for()


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_answers_in_a_browser(page, tmp_path, model):
    _, _, inputs, bars, marks = MODELS[model]
    scheme = ["light", "dark"][[*MODELS].index(model) % 2]
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 360 if scheme == "dark" else 1024, "height": 800})
    page.reload()
    select(page, model)
    send(page, **inputs)
    page.get_by_role("heading", name="Answer").wait_for()
    page.screenshot(path=tmp_path / f"{model}_{scheme}.png", full_page=True)
    shown = page.locator(".bars .name, .bars .share").all_inner_texts()
    assert " ".join(shown) == bars
    assert page.locator("#answer mark").all_inner_texts() == marks
    assert page.evaluate("document.body.scrollWidth <= innerWidth")
    assert page.evaluate("document.body.scrollHeight") < 1800
    if model == "mask":
        text = page.locator("#answer .text").inner_text()
        assert text == "It is likely or [MASK]. End"
    if model == "nouns":
        styles = "all => all.map((x) => x.style.cssText)"
        assert len({*page.locator("mark").evaluate_all(styles)}) == 2
        style = "getComputedStyle(document.querySelector('#answer .text')).direction"
        assert page.evaluate(style) == "rtl"


@pytest.mark.slow
def test_requests_to_copy_give_the_answer(page):
    select(page, "squad")
    send(page, **MODELS["squad"][2])
    page.get_by_text("Request and response").click()
    curl, python, response = page.locator("#answer pre").all_inner_texts()
    for command in (["bash", "-c", curl], [sys.executable, "-c", python]):
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        answer = ast.literal_eval(done.stdout)
        answer = answer["predictions"] if isinstance(answer, dict) else answer
        assert answer == json.loads(response)["predictions"]


@pytest.mark.slow
def test_examples_and_errors_in_words(page):
    select(page, "choices")
    page.locator(".examples button").first.click()
    page.get_by_role("heading", name="Answer").wait_for()
    select(page, "choices")
    send(page, prompt="a", choices=" ")
    error = page.get_by_role("alert")
    assert error.inner_text() == 'Type something in "Choices, one per line".'
    select(page, "mask")
    send(page, text="no mask")
    assert error.inner_text() == "Type [MASK] in place of a word."
    page.route("**/*:predict", lambda route: route.abort())
    send(page, text="[MASK]")
    page.get_by_text("The server does not answer.").wait_for()
    page.unroute("**/*:predict")
