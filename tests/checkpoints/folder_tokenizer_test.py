# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the tokenizers of Hugging Face folders.

Expected tokens are those of transformers 5.24 and tokenizers 0.23 for the same files.
"""

import dataclasses
import json
import types

import numpy as np
import pytest
import tokenizers

from bert_tf.checkpoints import folder_tokenizer, open_checkpoint
from bert_tf.text import Tokenizer, Vocabulary
from tests.toy import checkpoints as toy
from tests.toy.models import model_directory

WORDS = (
    "[PAD] [UNK] [CLS] [SEP] [MASK] the cat ##s Cat é e caf ##e ##é İ i 東 ##京 京 , . "
    "[ ] < ent > a ##a new_york [e1] mat <x>"
)
TOKENS = [word.replace("_", " ") for word in WORDS.split(" ")]
SIZE = len(TOKENS)
NORMALIZER = toy.NORMALIZER
CASED = NORMALIZER | {"lowercase": False}
SEQUENCE, LOWERCASE = {"type": "Sequence"}, {"type": "Lowercase"}
BERT = {"tokenizer_class": "BertTokenizer", "do_lower_case": True}
GENERIC = {"tokenizer_class": "PreTrainedTokenizerFast"}


def added(content, **changes):
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "special"), False)
    return {"content": content, "normalized": True, **flags, **changes}


def whole(normalizer=NORMALIZER, tokens=(), **changes):
    contents = toy.tokenizer_json(TOKENS, normalizer=normalizer, **changes)
    contents["added_tokens"] += tokens
    return {"tokenizer.json": contents, "tokenizer_config.json": GENERIC}


def decoder(*tokens, **config):
    """Returns files with added tokens in tokenizer_config.json."""
    by_id = {str(SIZE + i): token for i, token in enumerate(tokens)}
    return {"tokenizer_config.json": {**BERT, "added_tokens_decoder": by_id, **config}}


def open_files(path, files, tokens=TOKENS):
    (path / "vocab.txt").write_text("".join(f"{t}\n" for t in tokens), encoding="utf-8")
    for name, contents in files.items():
        (path / name).write_text(json.dumps(contents))
    config = files.get("config.json", {})
    return types.SimpleNamespace(**folder_tokenizer.open_tokenizer(path, config, 64))


def build(opened):
    return Tokenizer(opened.vocabulary, opened.lowercase, 64, rules=opened.rules)


def dogs(*ids):
    """Returns files with added tokens in added_tokens.json."""
    added = dict(zip(("dog", "dog house", "og"), ids))
    return {"added_tokens.json": added, "tokenizer_config.json": BERT}


JAPANESE = {"tokenizer_class": "BertJapaneseTokenizer"}
SWAPPED = toy.tokenizer_json([*TOKENS[:5], "cat", "the"])
MASK = {"content": "[MASK]", "lstrip": True, "normalized": False}
NAMES = {"additional_special_tokens": ["[e1]"], "mask_token": MASK}
TRUNCATION = {"direction": "Left", "max_length": 8, "stride": 0}
TRUNCATION |= {"strategy": "LongestFirst"}
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
        (  # Equal after normalization: the first added token counts.
            decoder(added("Dog"), added("DÖG"), added("the cat")),
            "DOG dög dogs THE CAT",
            "Dog Dog Dog [UNK] the cat",
        ),
        (
            decoder(added("<Dog>", special=True, normalized=False)),
            "the <Dog> cats<Dog>s <dog>",
            "the <Dog> cat ##s <Dog> [UNK] < [UNK] >",
        ),
        (
            dogs(SIZE, SIZE + 1, SIZE + 2),
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
        (  # Version 6 of sentence-transformers; transformers writes never_split.
            whole(SEQUENCE | {"normalizers": [LOWERCASE, CASED]})
            | decoder(do_lower_case=False, never_split=["[CLS]"]),
            "CAT Café É",
            "cat caf ##é é",
        ),
        # Other rules.
        (
            decoder(tokenize_chinese_chars=False),
            "東京 a東 東,京",
            "東 ##京 [UNK] 東 , 京",
        ),
    ],
)
def test_tokens_are_those_of_transformers(tmp_path, files, text, expected):
    opened = open_files(tmp_path, files)
    (ids,) = build(opened).tokenize([text]).to_list()
    assert " ".join(opened.vocabulary.tokens[i] for i in ids) == expected


@pytest.mark.parametrize(("rows", "size"), [(SIZE - 1, SIZE - 1), (SIZE, SIZE)])
def test_mask_that_transformers_adds(tmp_path, rows, size):
    """Examples learned vocabularies without it: huggingface/tokenizers#106."""
    tokens = [token for token in TOKENS if token != "[MASK]"]
    mask = {str(SIZE - 1): added("[MASK]", special=True, normalized=False)}
    files = decoder(added_tokens_decoder=mask) | {"config.json": {"vocab_size": rows}}
    opened = open_files(tmp_path, files, tokens)
    assert opened.vocabulary.size == size


@pytest.mark.parametrize("segment", [0, 1])
def test_truncation_and_segments(tmp_path, segment):
    names = ["input_ids", "attention_mask", *["token_type_ids"] * segment]
    tokenizer = build(open_files(tmp_path, decoder(model_input_names=names)))
    row = tokenizer.encode(["a the cat"], ["the e e e"], max_sequence_length=6)
    # tokenizers 0.23 keeps one of three pieces of the first text, and two of four.
    assert row["token_ids"].numpy().tolist() == [[2, 26, 3, 5, 10, 3]]
    assert row["segment_ids"].numpy().tolist() == [[0, 0, 0, *[segment] * 3]]


@pytest.mark.parametrize(
    ("name", "value", "length"),
    [
        ("max_len", 16, 16),
        ("model_max_length", None, 64),
        ("model_max_length", float("inf"), 64),
        ("model_max_length", 10**30, 64),  # "Unlimited" in transformers.
    ],
)
def test_maximum_length(tmp_path, name, value, length):
    opened = open_files(tmp_path, decoder(**{name: value}))
    assert opened.options["max_sequence_length"] == length


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"tokenizer_config.json": JAPANESE}, "_class='BertJapaneseTokenizer'"),
        # A BertTokenizer would lowercase, though the vocabulary has capital letters.
        ({"tokenizer_config.json": {"max_len": 64}}, "do_lower_case is not set"),
        (decoder(padding_side="left"), "padding_side must be 'right'.*'left'"),
        (decoder(cls_token="<s>"), r"cls_token must be '\[CLS\]'.*'<s>'"),
        (decoder(model_max_length="512"), "model_max_length must .* Received: '512'"),
        (decoder(auto_map={"AutoTokenizer": "x"}), "auto_map"),
        (decoder(added("dog", single_word=True)), "'dog': single_word must be False"),
        (dogs(SIZE + 1), f"'dog' must have the id {SIZE}.*{SIZE + 1}"),
        (whole({"type": "NFKC"}), "normalizer must be .*NFKC"),
        (whole(truncation=TRUNCATION), "truncation: direction must be 'Right'.*'Left'"),
        (whole(NORMALIZER | {"clean_text": False}), "clean_text must be True"),
        (whole(post_processor=None), "post_processor must be"),
        (whole(normalizer="x"), "is no tokenizer of the library tokenizers"),
        ({"tokenizer_config.json": GENERIC}, r"must have a tokenizer\.json"),
        ({"tokenizer.json": SWAPPED}, r"5 is 'the' in vocab\.txt, but 'cat' in token"),
    ],
)
def test_other_settings_are_refused(tmp_path, files, message):
    with pytest.raises(ValueError, match=message):
        open_files(tmp_path, files)


TEXTS = [
    "The quick brown fox didn't jump over 1,234.50 dogs! user@x.com C:\\ ##ing a##b",
    "Héllo wörld, naïve façade; e\u0301tude A\u030angstro\u0308m \u0301 \u0301a",
    "Straße STRASSE ẞ ﬁnal oﬃce ½ cup 2² Ⅷ ﷺ ＦＵＬＬｗｉｄｔｈ１２３！ İstanbul ıI ǅ",
    "ΟΔΥΣΣΕΥΣ ΣΑΣ όσος Σ Σ. ΑΣ' ΑΣ'Α ᾳ ᾼ Привет, Йожик! עִבְרִית عَرَبي हिन्दी กำ",
    "日本語 がぎぐ ｶﾞ 中文English混排 豈 更 𠀀 \U0002f800 \U0002b820 〇 々 ー 。 한국",
    "😀 👩\u200d🚀 a\u200bb\u200cc\ufeffe soft\xad \ufffd \ue000 \U000f0000 𝕏",
    "no\xa0break\u202fspace\u3000wide\u1680x\u180ey\u0085z bell\x07\x0b\0\u2028a\r\nb",
    "“quotes” ‘single’ «guille» em—dash ‐hyphen wait… ¿Qué? $5 €6 ≠ ≤ ∑ ÷ a^b `c` ~d",
    *("x " + unit * size + " y" for unit in "aéก𝕏가" for size in (99, 100, 101, 201)),
    *(f"a{t}b {t}{t} {t.lower()} .{t}\u0301" for t in ("[MASK]", "<Dog>")),
    "",
]


@pytest.mark.parametrize(
    "files",
    [
        decoder(added("<Dog>")),
        decoder(added("<Dog>", special=True, normalized=False), strip_accents=False),
        decoder(do_lower_case=False, model_input_names=["input_ids", "attention_mask"]),
        decoder(tokenize_chinese_chars=False),
        whole(tokens=[ENT]),
    ],
)
def test_library_tokenizers_gives_the_same_tokens(tmp_path, tiny_config, files):
    opened = open_files(tmp_path, files)
    letters = {c for text in TEXTS for c in text.lower() + text if c.strip()}
    letters = {c for c in letters if c.isprintable()}
    tokens = [*TOKENS, *({*letters, *(f"##{c}" for c in letters)} - {*TOKENS})]
    contents = [token.content for token in opened.rules.added_tokens]
    vocabulary = Vocabulary((*tokens, *(t for t in contents if t not in tokens)))
    for _ in range(2):  # The second time compares with the first.
        model_directory(
            tmp_path / "ours",
            dataclasses.replace(tiny_config, vocabulary_size=vocabulary.size),
            vocabulary,
            {"kind": "encoder"},
            lowercase=opened.lowercase,
            rules=opened.rules,
        )
    back = open_checkpoint(tmp_path / "ours")
    assert (back.vocabulary, back.lowercase) == (vocabulary, opened.lowercase)
    added = opened.rules.added_tokens  # Perhaps in another order.
    assert {*back.rules.added_tokens} == {*added}
    assert dataclasses.replace(back.rules, added_tokens=added) == opened.rules
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "ours/tokenizer.json"))
    theirs = library.encode_batch(TEXTS, add_special_tokens=False)
    tokenizer = Tokenizer.from_checkpoint(back)
    ids, starts, _ = tokenizer.tokenize_with_offsets(TEXTS)
    for number, (text, their) in enumerate(zip(TEXTS, theirs)):
        assert ids[number].numpy().tolist() == their.ids, text
        bytes_before = np.cumsum([0, *(len(char.encode()) for char in text)])
        expected = [bytes_before[start] for start, _ in their.offsets]
        assert starts[number].numpy().tolist() == expected, text
