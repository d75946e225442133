# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The page of `bert_tf.serve --demo`: over HTTP, and in a headless Chromium.

The slow tests need /usr/bin/chromium (`apt-get install chromium`) or a path in
BERT_TF_CHROMIUM.
"""

import http.client
import json
import os
import pathlib
import re

import pytest
import tensorflow as tf

from bert_tf import heads, serving
from bert_tf.checkpoints import ModelDirectory
from tests.toy.saved_model import write_toy_model

PAGE = pathlib.Path(serving.__file__).with_name("demo_page.html")
CHROMIUM = os.environ.get("BERT_TF_CHROMIUM", "/usr/bin/chromium")


# --- Over HTTP -------------------------------------------------------------------


def get(address: str, path: str) -> tuple[int, str, bytes]:
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=20)
    connection.request("GET", path)
    response = connection.getresponse()
    answer = response.status, response.headers["Content-Type"], response.read()
    connection.close()
    return answer


def test_demo_adds_the_page_and_the_names_of_the_models(tmp_path):
    write_toy_model(tmp_path, 3)
    models = {"toy": tmp_path, "größer": tmp_path}
    with serving.DevServer(models, demo=True) as server:
        html = (200, "text/html; charset=utf-8", PAGE.read_bytes())
        assert get(server.rest_address, "/") == html
        assert get(server.rest_address, "/?x=1") == html
        status, kind, names = get(server.rest_address, "/models.json")
        assert (status, kind) == (200, "application/json")
        assert json.loads(names) == ["toy", "größer"]
        assert get(server.rest_address, "/v1/models/toy")[0] == 200
        assert get(server.rest_address, "/demo_page.html")[0] == 404


def test_there_is_no_page_without_demo(tmp_path):
    write_toy_model(tmp_path, 3)
    with serving.DevServer({"toy": tmp_path}) as server:
        assert get(server.rest_address, "/")[0] == 404
        assert get(server.rest_address, "/models.json")[0] == 404


def test_page_loads_nothing_from_other_hosts():
    page = PAGE.read_text(encoding="utf-8")
    assert not re.findall(r"https?://|@import|<script src|<link[^>]*stylesheet", page)
    assert "default-src 'none'; connect-src 'self'" in page
    assert "innerHTML" not in page  # Input must be shown as text.


# --- In a browser ----------------------------------------------------------------


def spec(name: str, *shape: None) -> tf.TensorSpec:
    return tf.TensorSpec([None, *shape], tf.string, name)


@heads.signature(spec("text"))
def classified(text):
    shares = tf.constant([[0.2, 0.7, 0.1]])
    return {
        "label": tf.fill(tf.shape(text), "<b>good</b>"),
        "probabilities": tf.repeat(shares, tf.size(text), axis=0),
    }


@heads.signature(spec("text_a"), spec("text_b"))
def scored(text_a, text_b):
    return {"score": tf.cast(tf.strings.length(text_a + text_b), tf.float32) / 2}


@heads.signature(spec("question"), spec("context"))
def answered(question, context):
    """The fourth to the sixth character, or nothing if the question is short."""
    found = tf.strings.length(question) > 3
    answer = tf.strings.substr(context, 3, 3, "UTF8_CHAR")
    answer = tf.where(found, answer, "")
    texts = tf.stack([answer, tf.where(found, "", answer)], axis=1)
    return {
        "answer": answer,
        "start": tf.where(found, 3, 0),
        "end": tf.where(found, 6, 0),
        "answers": texts,
        "scores": tf.repeat([[0.75, 0.25]], tf.size(question), axis=0),
    }


@heads.signature(spec("text"))
def tagged(text):
    """Two entities of five characters, or none if all texts are empty."""
    count = tf.where(tf.reduce_all(text == ""), 0, 2)
    starts = tf.repeat([[0, 12]], tf.size(text), axis=0)[:, :count]
    types = tf.repeat([["person", "place"]], tf.size(text), axis=0)[:, :count]
    return {
        "entities": tf.zeros_like(types),
        "entity_types": types,
        "entity_starts": starts,
        "entity_ends": starts + 5,
    }


@heads.signature(spec("text"))
def filled(text):
    masks = tf.strings.length(tf.strings.regex_replace(text, r"[^\[]", ""))
    masks = tf.reduce_max(masks)
    tokens = tf.constant([[["mat", "##s"]]])
    return {
        "tokens": tf.tile(tokens, [tf.size(text), masks, 1]),
        "scores": tf.tile([[[0.6, 0.4]]], [tf.size(text), masks, 1]),
    }


@heads.signature(spec("prompt"), spec("choices", None))
def chosen(prompt, choices):
    sizes = tf.cast(tf.strings.length(choices), tf.float32)
    return {
        "choice": tf.argmax(sizes, axis=1, output_type=tf.int32),
        "probabilities": sizes / tf.reduce_sum(sizes, axis=1, keepdims=True),
    }


@heads.signature(spec("text"))
def embedded(text):
    """Vectors [1, n], where n is the length of the text."""
    lengths = tf.cast(tf.strings.length(text), tf.float32)
    return {"sentence_embedding": tf.stack([tf.ones_like(lengths), lengths], axis=1)}


@heads.signature(tf.TensorSpec([None, None], tf.int32, "token_ids"))
def numbers(token_ids):
    return {"sum": tf.reduce_sum(token_ids, axis=1)}


MODELS = {
    "sentiment": {"serving_default": classified},
    "similarity": {"serving_default": scored},
    "squad": {"serving_default": answered},
    "names": {"serving_default": tagged},
    "blanks": {"serving_default": filled},
    "choice": {"serving_default": chosen},
    "vectors": {"serving_default": embedded, "sentence_embedding": embedded},
    "both": {"serving_default": filled, "sentence_embedding": embedded},
    "numbers": {"ids": numbers},
}
LABELS = {
    "sentiment": ["bad", "<b>good</b>", "neither"],
    "names": ["O", "B-person", "I-person", "B-place", "I-place"],
}


@pytest.fixture(scope="module")
def url(tmp_path_factory, vocabulary, tiny_config):
    """The address of a server with a model for each task."""
    folder = tmp_path_factory.mktemp("served")
    for name, functions in MODELS.items():
        directory = ModelDirectory(
            path=pathlib.Path("never-read"),
            architecture=tiny_config,
            vocabulary=vocabulary,
            lowercase=True,
            head={"labels": LABELS[name]} if name in LABELS else {},
            options={},
        )
        serving.export_saved_model(functions, folder / name, directory=directory)
    models = {name: folder / name for name in MODELS}
    with serving.DevServer(models, demo=True) as server:
        yield f"{server.rest_address}/"


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api")
    if not pathlib.Path(CHROMIUM).exists():
        pytest.skip(f"No browser at {CHROMIUM}. Run `apt-get install chromium`.")
    with playwright.sync_playwright() as play:
        # Containers seldom allow the sandbox. The page is ours.
        browser = play.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--no-zygote", "--disable-gpu"],
            timeout=30_000,
        )
        yield browser
        browser.close()


@pytest.fixture
def page(browser, url):
    """The loaded page, which must have no errors, foreign requests or overflow."""
    page = browser.new_page(viewport={"width": 360, "height": 640})
    page.set_default_timeout(10_000)
    problems = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on(
        "request",
        lambda request: (
            request.url.startswith((url, "data:")) or problems.append(request.url)
        ),
    )
    page.goto(url)
    yield page
    assert not problems
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.close()


def send(page, model: str, **inputs: str) -> None:
    page.get_by_label("Model").select_option(model)
    for name, value in inputs.items():
        page.locator(f"[name={name}]").fill(value)
    page.get_by_role("button", name="Send").click()
    page.locator("#answer").get_by_text(re.compile(r"^Took \d+ ms\.$")).wait_for()


def bars(page) -> list[tuple[str, str, int]]:
    """Returns name, percentage and relative width in percent of each bar."""
    width = "e => Math.round(100 * e.firstChild.offsetWidth / e.offsetWidth)"
    return [
        (
            row.locator(".name").inner_text(),
            row.locator(".share").inner_text(),
            row.locator(".bar").evaluate(width),
        )
        for row in page.locator(".bars li").all()
    ]


def marks(page) -> list[str]:
    return page.locator("#answer mark").all_inner_texts()


@pytest.mark.slow
def test_classes_are_bars_and_input_is_shown_as_text(page):
    send(page, "sentiment", text="<i>'quoted'</i> \"text\"")
    found = bars(page)
    assert [row[:2] for row in found] == [
        ("<b>good</b>", "70.0 %"),
        ("bad", "20.0 %"),
        ("neither", "10.0 %"),
    ]
    assert [row[2] for row in found] == pytest.approx([70, 20, 10], abs=1)
    page.get_by_text("The same request with curl").click()
    shown = page.locator("details pre").inner_text()
    assert "/v1/models/sentiment:predict" in shown
    assert "'\\''quoted'\\''" in shown


@pytest.mark.slow
def test_scores(page):
    send(page, "similarity", text_a="abc", text_b="de")
    assert page.locator(".score").inner_text() == "2.500"


@pytest.mark.slow
def test_answer_is_marked_in_the_passage_by_code_points(page):
    send(page, "squad", question="where?", context="🙂é abcdef")
    assert marks(page) == ["abc"]
    assert page.locator("#answer .text").inner_text() == "🙂é abcdef"
    assert bars(page) == [("abc", "75.0 %", 75), ("(no answer)", "25.0 %", 25)]
    send(page, "squad", question="?", context="🙂é abcdef")
    page.get_by_text("No answer in the passage.").wait_for()
    assert marks(page) == []


@pytest.mark.slow
def test_entities_are_colored_by_type(page):
    send(page, "names", text="Alice meets Paris")
    assert marks(page) == ["Alice person", "Paris place"]
    colors = {
        mark.evaluate("e => getComputedStyle(e).backgroundColor")
        for mark in page.locator("mark").all()
    }
    assert len(colors) == 2
    send(page, "names", text="")
    page.get_by_text("No entities found.").wait_for()


@pytest.mark.slow
def test_blanks_are_filled(page):
    send(page, "blanks", text="a [MASK] on [MASK]!")
    assert page.locator("#answer .text").inner_text() == "a mat on mat!"
    assert marks(page) == ["mat", "mat"]
    assert bars(page) == [("mat", "60.0 %", 60), ("##s", "40.0 %", 40)] * 2
    send(page, "blanks", text="nothing is missing")
    page.get_by_text("Type [MASK] in place of a word.").wait_for()


@pytest.mark.slow
def test_each_line_is_a_choice(page):
    send(page, "choice", prompt="a", choices="x\n\nyyy")
    assert bars(page) == [("yyy", "75.0 %", 75), ("x", "25.0 %", 25)]


@pytest.mark.slow
def test_search_sorts_texts_by_cosine(page):
    send(page, "vectors", query="x", documents="zzz\n\n<b>\ny\nzz")
    found = bars(page)
    assert [row[:2] for row in found] == [
        ("y", "1.000"),
        ("zz", "0.949"),
        ("zzz", "0.894"),
        ("<b>", "0.894"),
    ]
    assert found[0][2] == 100
    page.get_by_text("The same request with curl").click()
    shown = page.locator("details pre").inner_text()
    assert '"signature_name":"sentence_embedding","instances":["x","zzz",' in shown


@pytest.mark.slow
def test_tabs_switch_between_the_task_and_search(page):
    send(page, "both", text="a [MASK]")
    assert marks(page) == ["mat"]
    page.get_by_role("radio", name="Search").check(force=True)
    assert page.locator("#answer").inner_text() == ""
    assert page.locator("#about").inner_text().startswith("Search; version 1")
    page.get_by_role("button", name="Send").click()
    page.get_by_role("heading", name="Answer").wait_for()
    assert len(bars(page)) == 5
    page.get_by_label("Model").select_option("choice")
    page.locator("[name=prompt]").wait_for()
    assert page.get_by_role("radio").count() == 0


@pytest.mark.slow
def test_errors_are_shown(page):
    page.get_by_label("Model").select_option("numbers")
    alert = page.get_by_role("alert")
    alert.wait_for()
    assert "takes strings" in alert.inner_text()
    send(page, "choice", prompt="a", choices="x")
    page.locator("[name=choices]").fill("")
    page.get_by_role("button", name="Send").click()
    alert.wait_for()


@pytest.mark.slow
def test_keyboard_only(page):
    page.locator("[name=text]").wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "model"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.name") == "text"
    page.keyboard.press("Control+Enter")
    page.get_by_role("heading", name="Answer").wait_for()
    assert page.locator("#about").inner_text() == (
        "Classification; version 1 is available; 2 layers of 16 units; 40 tokens, "
        "uncased."
    )
