# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the tokenizers of Hugging Face folders.

Expected tokens are those of transformers 5.24 and tokenizers 0.23 for the same files.
"""

import dataclasses
import json
import re
import types

import pytest
import tokenizers

from bert_tf.checkpoints import (
    ModelDirectory,
    find_difference,
    folder_tokenizer,
    open_checkpoint,
)
from bert_tf.text import Tokenizer
from tests.toy import checkpoints as toy

WORDS = (
    "[PAD] [UNK] [CLS] [SEP] [MASK] the cat ##s Cat é e caf ##e ##é İ i 東 ##京 京 , . "
    "[ ] < ent > a ##a new_york [e1] mat <x>"
)
TOKENS = [word.replace("_", " ") for word in WORDS.split(" ")]
SIZE = len(TOKENS)
IDS = {token: number for number, token in enumerate(TOKENS)}
NORMALIZER = toy.NORMALIZER
BERT = {"tokenizer_class": "BertTokenizer", "do_lower_case": True}
GENERIC = {"tokenizer_class": "PreTrainedTokenizerFast"}


def added(content, **changes):
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "special"), False)
    return {"content": content, "normalized": True, **flags, **changes}


def whole(normalizer=NORMALIZER, tokens=(), limit=100, **changes):
    contents = toy.tokenizer_json(TOKENS, normalizer=normalizer, **changes)
    contents["added_tokens"] += tokens
    contents["model"]["max_input_chars_per_word"] = limit
    return {"tokenizer.json": contents, "tokenizer_config.json": GENERIC}


def decoder(*tokens, **config):
    """Returns files with added tokens in tokenizer_config.json."""
    by_id = {str(SIZE + i): token for i, token in enumerate(tokens)}
    return {"tokenizer_config.json": {**BERT, "added_tokens_decoder": by_id, **config}}


def open_files(path, files, config=(), tokens=TOKENS):
    (path / "vocab.txt").write_text("".join(f"{t}\n" for t in tokens), encoding="utf-8")
    for name, contents in files.items():
        (path / name).write_text(json.dumps(contents))
    opened = folder_tokenizer.open_tokenizer(path, dict(config), 64)
    return types.SimpleNamespace(**opened)


def build(opened):
    return Tokenizer(opened.vocabulary, opened.lowercase, 64, rules=opened.rules)


DOGS = {"dog": SIZE, "dog house": SIZE + 1, "og": SIZE + 2}
MASK = {"content": "[MASK]", "lstrip": True, "normalized": False}
NAMES = {"additional_special_tokens": ["[e1]"], "mask_token": MASK}
ENT = {"id": SIZE, **added("<Ent>", lstrip=True, rstrip=True)}


@pytest.mark.parametrize(
    ("files", "text", "expected"),
    [
        # Added tokens.
        (
            decoder(added("<Dog>")),
            "the <dog> cats<DOG>s <do g>",
            "the <Dog> cat ##s <Dog> [UNK] < [UNK] [UNK] >",
        ),
        (
            decoder(added("<Dog>", special=True, normalized=False)),
            "the <Dog> cats<Dog>s <dog>",
            "the <Dog> cat ##s <Dog> [UNK] < [UNK] >",
        ),
        (
            decoder(added("dog", single_word=True)),
            "dog dogs the.dog, dog,dog adog dog_ Dog dogdog",
            "dog [UNK] the . dog , dog , dog [UNK] [UNK] [UNK] dog [UNK]",
        ),
        (
            {"added_tokens.json": DOGS, "tokenizer_config.json": BERT},
            "dog house doghouse og dog  house",
            "dog house dog [UNK] og dog [UNK]",
        ),
        (
            whole(tokens=[ENT, {"id": SIZE + 1, **added("Ä")}]),
            "the  <ENT>  cat ä a",
            "the <Ent> [UNK] Ä [UNK] Ä Ä",
        ),
        # Special tokens.
        (
            {"special_tokens_map.json": NAMES, "tokenizer_config.json": BERT},
            "the[e1]cat [E1] [MASK] [mask] [SEP][CLS]",
            "the [e1] cat [ [UNK] ] [MASK] [ [UNK] ] [SEP] [CLS]",
        ),
        # Case and accents.
        (
            {"tokenizer_config.json": BERT | {"do_lower_case": False}},
            "Cat cat Café é",
            "Cat cat [UNK] é",
        ),
        (
            decoder(do_lower_case=False, strip_accents=True),
            "Cat cat Café é",
            "Cat cat [UNK] e",
        ),
        (decoder(strip_accents=False), "Café É e\u0301 İ", "caf ##é é [UNK] [UNK]"),
        (
            {
                "tokenizer_config.json": BERT | {"do_lower_case": False},
                "sentence_bert_config.json": {"do_lower_case": True},
            },
            "CAT Café É",
            "cat caf ##é é",
        ),
        # Other rules.
        (
            decoder(tokenize_chinese_chars=False),
            "東京 a東 東,京",
            "東 ##京 [UNK] 東 , 京",
        ),
        (
            whole(NORMALIZER | {"clean_text": False}),
            "a\u200bcat a\x07 a\x0bcat the\x85cat \x00",
            "[UNK] [UNK] a cat the cat [UNK]",
        ),
        (whole(None), "Cat cat CAFÉ", "Cat cat [UNK]"),
        (whole({"type": "Lowercase"}), "Cat CAFÉ 東京 İ", "cat caf ##é 東 ##京 [UNK]"),
        (
            whole(pre_tokenizer={"type": "WhitespaceSplit"}),
            "the cat, [e1] <x> <ent> a東",
            "the [UNK] [e1] <x> [UNK] a 東",
        ),
        (
            whole(limit=3),
            "cats aaa aaaa the,ééé",
            "[UNK] a ##a ##a [UNK] the , e ##e ##e",
        ),
        ({"tokenizer_config.json": BERT}, "new york", "[UNK] [UNK]"),
        (
            {"tokenizer_config.json": BERT},
            f"{'a' * 100} {'a' * 101}",
            "a " + "##a " * 99 + "[UNK]",
        ),
    ],
)
def test_tokens_are_those_of_transformers(tmp_path, files, text, expected):
    opened = open_files(tmp_path, files)
    tokenizer = build(opened)
    (ids,) = tokenizer.tokenize([text]).to_list()
    assert " ".join(opened.vocabulary.tokens[i] for i in ids) == expected
    assert find_difference(tokenizer, opened.original_tokenizer, [text]) is None


def test_check_shows_what_differs(tmp_path):
    opened = open_files(tmp_path, {"tokenizer_config.json": BERT})
    original = opened.original_tokenizer
    for change, text, message in (
        ({"lowercase": False}, "Cat", r"of 'Cat', ids .*\n.*\[6\] .*\n.*\[8\]"),
        ({"handle_chinese_chars": False}, "東京", r"\[16, 18\] .*\n.*\[16, 17\]"),
    ):
        options = {k: v for k, v in NORMALIZER.items() if k != "type"} | change
        original.normalizer = tokenizers.normalizers.BertNormalizer(**options)
        found = find_difference(build(opened), original, [text])
        assert re.search(message, found)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("segment", [0, 1])
def test_truncation_and_segments(tmp_path, side, segment):
    names = ["input_ids", "attention_mask", *["token_type_ids"] * segment]
    config = {**BERT, "truncation_side": side, "model_input_names": names}
    opened = open_files(tmp_path, {"tokenizer_config.json": config})
    tokenizer = build(opened)
    assert find_difference(tokenizer, opened.original_tokenizer, ["a"]) is None
    row = tokenizer.encode(["a the cat"], ["the e e e"], max_sequence_length=6)
    # tokenizers 0.23 keeps one of three pieces of the first text, and two of four.
    first, second = ([26], [5, 10]) if side == "right" else ([6], [10, 10])
    assert row["token_ids"].numpy().tolist() == [[2, *first, 3, *second, 3]]
    assert row["segment_ids"].numpy().tolist() == [[0, 0, 0, *[segment] * 3]]


@pytest.mark.parametrize(
    ("name", "value", "length"),
    [
        ("model_max_length", 1000000000000000019884624838656, 64),
        ("model_max_length", 32.0, 32),
        ("max_len", 16, 16),
        ("model_max_length", None, 64),
        ("model_max_length", float("inf"), 64),
    ],
)
def test_maximum_length(tmp_path, name, value, length):
    opened = open_files(tmp_path, {"tokenizer_config.json": {**BERT, name: value}})
    assert opened.options["max_sequence_length"] == length


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"tokenizer_config.json": {"tokenizer_class": "BertJapaneseTokenizer"}},
            "tokenizer_class='BertJapaneseTokenizer'",
        ),
        # A BertTokenizer would lowercase, though the vocabulary has capital letters.
        ({"tokenizer_config.json": {"max_len": 64}}, "do_lower_case is not set"),
        (decoder(padding_side="left"), "padding_side must be 'right'.*'left'"),
        (decoder(word_tokenizer_type="mecab"), "word_tokenizer_type='mecab'"),
        (decoder(never_split=["a"]), r"never_split=\['a'\]"),
        (decoder(cls_token="<s>"), r"cls_token must be '\[CLS\]'.*'<s>'"),
        (decoder(model_max_length="512"), "model_max_length='512'"),
        (decoder(auto_map={"AutoTokenizer": "x"}), "auto_map"),
        (
            {"added_tokens.json": {"dog": SIZE + 1}, "tokenizer_config.json": BERT},
            f"'dog' must have the id {SIZE}.*{SIZE + 1}",
        ),
        (whole({"type": "NFKC"}), "normalizer must be .*NFKC"),
        (whole(pre_tokenizer={"type": "Whitespace"}), "pre_tokenizer .*Whitespace"),
        (whole(post_processor=None), "post_processor must be"),
        (whole(limit=5000), "max_input_chars_per_word must be .*5000"),
        (whole(normalizer="x"), "is no tokenizer of the library tokenizers"),
        (
            whole({"type": "Sequence", "normalizers": []}),
            "normalizer must be .*Sequence",
        ),
        (
            whole(model={"type": "WordLevel", "vocab": IDS, "unk_token": "a"}),
            "type must be 'WordPiece'.*'WordLevel'",
        ),
        (
            whole(limit=200) | {"tokenizer_config.json": BERT},
            "of a BertTokenizer: max_char.* must be 100.*=200",
        ),
        ({"tokenizer_config.json": GENERIC}, r"must have a tokenizer\.json"),
        (
            {"sentence_bert_config.json": {"tokenizer_args": {"a": 1}}},
            "tokenizer_args must be",
        ),
    ],
)
def test_other_settings_are_refused(tmp_path, files, message):
    with pytest.raises(ValueError, match=message):
        open_files(tmp_path, files)


def test_class_in_config_json_counts(tmp_path):
    with pytest.raises(ValueError, match="BertJapaneseTokenizer"):
        open_files(tmp_path, {}, {"tokenizer_class": "BertJapaneseTokenizer"})


@pytest.mark.parametrize(
    "files",
    [
        decoder(added("<Dog>", single_word=True), truncation_side="left"),
        decoder(strip_accents=False, model_input_names=["input_ids", "attention_mask"]),
        whole(NORMALIZER | {"clean_text": False}, tokens=[ENT], limit=7),
        whole(pre_tokenizer={"type": "WhitespaceSplit"}),
    ],
)
def test_rules_survive_in_a_model_directory(tmp_path, tiny_config, files):
    opened = open_files(tmp_path, files)
    size = opened.vocabulary.size
    for _ in range(2):  # The second time compares with the first.
        ModelDirectory.create(
            tmp_path / "ours",
            architecture=dataclasses.replace(tiny_config, vocabulary_size=size),
            vocabulary=opened.vocabulary,
            lowercase=opened.lowercase,
            rules=opened.rules,
            head={"kind": "encoder"},
            options={},
        )
    back = open_checkpoint(tmp_path / "ours")
    assert (back.vocabulary, back.lowercase) == (opened.vocabulary, opened.lowercase)
    rules = [r.to_dict() | {"added_tokens": 0} for r in (back.rules, opened.rules)]
    assert rules[0] == rules[1]
    assert {*back.rules.added_tokens} == {*opened.rules.added_tokens}
    assert find_difference(build(opened), back.original_tokenizer) is None
