# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the tokenizer against google-research/bert: goldens and a reference."""

import dataclasses
import glob
import random
import sys
import unicodedata
from string import ascii_lowercase

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.text import GOOGLE_RULES, word_pieces
from bert_tf.text.tokenizer import Tokenizer, truncate_sizes
from bert_tf.text.vocabulary import SPECIAL_TOKENS, Vocabulary

# --- A reference implementation of tokenization.py in google-research/bert ---------


def is_punctuation(char: str) -> bool:
    ascii_symbols = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
    return char in ascii_symbols or unicodedata.category(char)[0] == "P"


# Blocks of ideographs.
CHINESE = (
    "4E00-9FFF 3400-4DBF 20000-2A6DF 2A700-2B73F 2B740-2B81F 2B820-2CEAF F900-FAFF "
    "2F800-2FA1F"
)
CHINESE_BLOCKS = [[int(end, 16) for end in b.split("-")] for b in CHINESE.split()]


def is_chinese(char: str) -> bool:
    return any(first <= ord(char) <= last for first, last in CHINESE_BLOCKS)


def reference_words(text: str, lowercase: bool) -> list[str]:
    """Cleans, splits at whitespace and CJK, strips accents, splits punctuation."""
    clean = ""
    for char in text:
        if char in " \t\n\r" or unicodedata.category(char) == "Zs":
            clean += " "
        elif char not in "\0\ufffd" and unicodedata.category(char) not in ("Cc", "Cf"):
            clean += f" {char} " if is_chinese(char) else char
    words = []
    for word in clean.split():
        if lowercase:
            word = unicodedata.normalize("NFD", word.lower())
            word = "".join(c for c in word if unicodedata.category(c) != "Mn")
        words += "".join(f" {c} " if is_punctuation(c) else c for c in word).split()
    return words


def reference_pieces(word: str, tokens: frozenset[str]) -> list[str]:
    """Greedy longest-match WordPiece."""
    pieces, start = [], 0
    while start < len(word):
        for end in range(len(word), start, -1):
            piece = "##" * (start > 0) + word[start:end]
            if piece in tokens:
                break
        else:
            return ["[UNK]"]
        pieces.append(piece)
        start = end
    return pieces


def reference_tokens(text: str, tokens: frozenset[str], lowercase: bool) -> list[str]:
    words = reference_words(text, lowercase)
    return [piece for word in words for piece in reference_pieces(word, tokens)]


# --- Helpers ----------------------------------------------------------------------


def character_vocabulary(texts, lowercase: bool) -> Vocabulary:
    """Contains each character with and without "##", so that any difference shows."""
    chars = {c for text in texts for c in "".join(reference_words(text, lowercase))}
    tokens = [prefix + char for prefix in ("", "##") for char in sorted(chars)]
    return Vocabulary((*SPECIAL_TOKENS, *tokens))


def tokens_of(tokenizer: Tokenizer, texts, **options) -> list[list[str]]:
    rows = tokenizer.tokenize(tf.constant(texts, tf.string), **options).to_list()
    return [[tokenizer.vocabulary.tokens[i] for i in row] for row in rows]


def assert_matches_reference(tokenizer: Tokenizer, texts) -> None:
    known = frozenset(tokenizer.vocabulary.tokens)
    differences = []
    for start in range(0, len(texts), 4096):
        batch = texts[start : start + 4096]
        for text, tokens in zip(batch, tokens_of(tokenizer, batch)):
            expected = reference_tokens(text, known, tokenizer.lowercase)
            if tokens != expected:
                differences.append((ascii(text), expected, tokens))
    assert not differences, f"{len(differences)} differences: {differences[:3]}"


WORDS = "un ##aff ##able aff able unt the , [ new york new_york of_the of a_"
WORDS = (*(word.replace("_", " ") for word in WORDS.split()), "")
WORDPIECES = Vocabulary((*SPECIAL_TOKENS, *WORDS))
LETTERS = Vocabulary(
    (*SPECIAL_TOKENS, *(p + c for p in ("", "##") for c in f"{ascii_lowercase}[]ασς"))
)
BOTH_CASES = pytest.mark.parametrize("lowercase", [True, False])

# --- Words ------------------------------------------------------------------------

# Text -> uncased words, from BasicTokenizer in google-research/bert.
GOLDEN = {
    "Hello, World!  two  spaces\tand\na line\r\nend ": "hello , world ! two spaces "
    "and a line end",
    "don't stop-gap (live) wait… what": "don ' t stop - gap ( live ) wait … what",
    "naïve Café ÉTUDE e\u0301tude a\u0300\u0301\u0302b": "naive cafe etude etude ab",
    "A\u030angstro\u0308m straße STRASSE ẞ": "angstrom straße strasse ß",
    "ﬁnal oﬃce ＦＵＬＬｗｉｄｔｈ１２３！": "ﬁnal oﬃce ｆｕｌｌｗｉｄｔｈ１２３ ！",
    "日本語のテキスト 中文English混排": "日 本 語 のテキスト 中 文 english 混 排",
    "漢字と한국 𠀀\U0002f800": "漢 字 と\u1112\u1161\u11ab\u1100\u116e\u11a8 𠀀 丽",
    "\u3000ideographic\u3000space": "ideographic space",
    "no\xa0break\u202fspace\u2003em": "no break space em",
    "zero\u200bwidth\u200djoiner\ufeff": "zerowidthjoiner",
    "bell\x07tab\x0bform\x0cnull\x00end": "belltabformnullend",
    "\x1c\x1d\x1e\x1f\x85": "",
    "line\u2028separator\u2029paragraph": "line separator paragraph",
    "replacement�character": "replacementcharacter",
    "ΟΔΥΣΣΕΥΣ ΣΑΣ": "οδυσσευς σας",
    "Σ Σ. ΑΣ' ΑΣ'Α": "σ σ . ας ' ασ ' α",
    "όσος ΆΛΦΑ ᾳ ᾼ ΰ \u2126 \u212a \u212b": "οσος αλφα α α υ ω k a",
    "İstanbul ıI Ǆ ǅ ǆ": "istanbul ıi ǆ ǆ ǆ",
    "Привет, Йожик! Ёлка": "привет , иожик ! елка",
    "ע\u05b4ב\u05b0ר\u05b4ית ع\u064eر\u064eب\u0650ي": "עברית عربي",
    "ह\u093fन\u094dद\u0940 กำ เ": "ह\u093fनद\u0940 กำ เ",
    "😀 👩\u200d🚀 🇬🇧 ≠ ≤ ∑ ÷ ±": "😀 👩🚀 🇬🇧 = ≤ ∑ ÷ ±",
    "“quotes” ‘single’ «guille»": "“ quotes ” ‘ single ’ « guille »",
    "[MASK] [CLS] [mask] ##ing a##b": "[ mask ] [ cls ] [ mask ] # # ing a # # b",
    "\u1100\u1161\u11a8": "\u1100\u1161\u11a8",
    "": "",
    "   ": "",
}


def test_words_match_google_goldens():
    expected = [words.split() for words in GOLDEN.values()]
    words = dict.fromkeys(word for words in expected for word in words)
    tokenizer = Tokenizer(Vocabulary((*SPECIAL_TOKENS, *words)))
    assert tokens_of(tokenizer, [*GOLDEN]) == expected
    assert [reference_words(text, lowercase=True) for text in GOLDEN] == expected


@BOTH_CASES
def test_characters_and_random_texts_match_reference(lowercase):
    contexts = ("{}", "a{}b", "A{0}{0} ", "é{}.", "中{}", "\u0301{}Σ")
    known = dict.fromkeys("".join(GOLDEN))
    texts = [context.format(char) for char in known for context in contexts]
    rng = random.Random(2)
    chars = "½™²€ŉ豈ง่กำ^|$¿。３.abXY ΣσςΑάé,'-:[]MASK\u0301\u00ad\u200d"
    chars += "中文가각—’\n\t\0\u00a0ßİǅﬁ😀"
    texts += ["".join(rng.choices(chars, k=rng.randint(0, 12))) for _ in range(2000)]
    vocabulary = character_vocabulary([*texts, *GOLDEN], lowercase)
    assert_matches_reference(Tokenizer(vocabulary, lowercase), [*texts, *GOLDEN])


@pytest.mark.slow
@BOTH_CASES
def test_all_assigned_code_points_match_reference(lowercase):
    texts = [
        f"{char} a{char}b"
        for char in map(chr, range(sys.maxunicode + 1))
        if unicodedata.category(char) not in ("Cn", "Cs")
    ]
    assert len(texts) > 280_000
    vocabulary = character_vocabulary(texts, lowercase)
    assert_matches_reference(Tokenizer(vocabulary, lowercase), texts)


@pytest.mark.parametrize("name", ["uncased", "cased"])
def test_wikipedia_with_published_vocabularies_matches_reference(real_data, name):
    lines = []
    for path in sorted(glob.glob(f"{real_data}/wikipedia_en/*"))[::40]:
        with open(path, encoding="utf-8") as file:
            lines += file.read().split("\n")[:400]
    vocabulary = Vocabulary.from_file(f"{real_data}/vocab/bert-base-{name}-vocab.txt")
    assert_matches_reference(Tokenizer(vocabulary, name == "uncased"), lines)


# --- Pieces -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("unaffable", "un ##aff ##able"),
        ("untable", "unt ##able"),
        # Greedy: "unt" matches first, then no piece matches "he".
        ("the, unthe", "the , [UNK]"),
        ("[", "["),
        ("affun", "[UNK]"),
        # BasicTokenizer of google-research/bert and transformers split at spaces first.
        ("new  york of the", "new york of the"),
        ("a ", "[UNK]"),
        ("", ""),
    ],
)
def test_longest_piece_matches_first(text, tokens):
    assert tokens_of(Tokenizer(WORDPIECES), [text]) == [tokens.split()]


def test_word_length_limit_counts_characters():
    limit, letters = 200, "aกא𝕏"  # Of one to four bytes.
    pieces = [prefix + char for char in letters for prefix in ("", "##")]
    pieces += ["東", ".", "x" * 300]  # tf_text would refuse the last one.
    tokenizer = Tokenizer(Vocabulary((*SPECIAL_TOKENS, *pieces)))
    for char in letters:
        word, mixed = char * limit, (letters * limit)[:limit]
        texts = [word, word + char, f"{word}{char} {char}.{word}{char}東"]
        texts += [mixed, mixed + char, mixed + "\u0301" * 9, char * 100_000]
        unknown, known = ["[UNK]"], [char, *[f"##{char}"] * (limit - 1)]
        rows = tokens_of(tokenizer, texts)
        assert rows[:3] == [known, unknown, ["[UNK]", char, ".", "[UNK]", "東"]]
        assert [len(row) for row in rows[3:]] == [limit, 1, limit, 1]
        pieces = tokenizer.tokenize_with_offsets(texts[1:3])
        end = len((word + char).encode())
        assert pieces.starts.to_list()[0] == [0]
        assert pieces.ends.to_list()[0] == [end]
        assert pieces.ends.to_list()[1][0] == end


def test_empty_control_and_huge_strings():
    tokenizer = Tokenizer(LETTERS)
    texts = ["", " ", "\n\t\u3000", "\0", "\0a\0b", "\u0301", b"\xff\xfe", "\ufffd"]
    assert tokens_of(tokenizer, texts) == [[], [], [], [], ["a", "##b"], [], [], []]
    assert len(tokens_of(tokenizer, ["ab " * 100_000])[0]) == 200_000
    assert tokens_of(tokenizer, []) == []


def test_invalid_utf8_is_skipped():
    rng = random.Random(3)
    valid = "héllo wörld — 中文 한국 😀 𝕏".encode()
    texts = []
    for _ in range(2000):
        text = bytearray(valid)
        for _ in range(rng.randint(1, 5)):
            place = rng.randrange(len(text))
            if rng.random() < 0.5:
                text[place] = rng.randrange(256)
            else:
                del text[place : place + 2]
        texts.append(bytes(text))
    decoded = [text.decode("utf-8", "ignore") for text in texts]
    assert any(a != b.encode() for a, b in zip(texts, decoded))
    tokenizer = Tokenizer(character_vocabulary(decoded, True))
    known = frozenset(tokenizer.vocabulary.tokens)
    assert tokens_of(tokenizer, texts) == [
        reference_tokens(text, known, True) for text in decoded
    ]


# --- [MASK] -----------------------------------------------------------------------


def test_mask_in_text_is_ordinary_text_unless_allowed():
    tokenizer = Tokenizer(LETTERS)
    texts = ["a[MASK]b[MASK] [MASK]", "[[MASK]]", "[mask]", "[CLS]"]
    typed, others = "[ m ##a ##s ##k ]", ["[ m ##a ##s ##k ]", "[ c ##l ##s ]"]
    for allow_mask, mask in ((False, typed), (True, "[MASK]")):
        expected = [f"a {mask} b {mask} {mask}", f"[ {mask} ]", *others]
        found = tokens_of(tokenizer, texts, allow_mask=allow_mask)
        assert list(map(" ".join, found)) == expected


@pytest.mark.parametrize("with_offsets", [False, True])
def test_many_texts_are_tokenized_in_parts(monkeypatch, with_offsets):
    tokenizer = Tokenizer(LETTERS)
    function = tokenizer.tokenize_with_offsets if with_offsets else tokenizer.tokenize
    texts = tf.constant(["a b", "", "a b c", "[SEP] d", "e"])
    expected = tf.nest.map_structure(lambda x: x.to_list(), function(texts))
    monkeypatch.setattr(word_pieces, "_TEXTS_AT_ONCE", 2)
    found = tf.nest.map_structure(lambda x: x.to_list(), function(texts))
    assert found == expected


@pytest.mark.parametrize("library", ["google", "tokenizers"])
def test_parts_of_truncated_texts(monkeypatch, library):
    """Only the pieces of the rows are kept, unless pairs need the sizes of texts."""
    rules = dataclasses.replace(GOOGLE_RULES, library=library)
    tokenizer = Tokenizer(LETTERS, rules=rules)
    texts = (
        ["a b c d e f g", "a", "", "a b c d e f"],
        ["c d e f g", "d e f", "g", "a b"],
    )
    for columns in (texts[:1], texts):
        rows = [tokenizer.rows(*columns, max_sequence_length=6)]
        with monkeypatch.context() as patch:
            patch.setattr(word_pieces, "_TEXTS_AT_ONCE", 2)
            rows.append(tokenizer.rows(*columns, max_sequence_length=6))
        whole, parts = (part.inputs() for part in rows)
        for name, values in whole.items():
            np.testing.assert_array_equal(values, parts[name])
        is_less = len(rows[1].tokens) < len(rows[0].tokens)
        assert is_less == (len(columns) == 1 or library == "google")


# --- Offsets ----------------------------------------------------------------------


def spans_of(
    tokenizer: Tokenizer, text: str | bytes, **options
) -> list[tuple[str, bytes]]:
    """Returns the (token without "##", bytes of the text) of all pieces."""
    data = text.encode() if isinstance(text, str) else text
    pieces = tokenizer.tokenize_with_offsets([data], **options)
    return [
        (tokenizer.vocabulary.tokens[i].removeprefix("##"), data[start:end])
        for i, start, end in zip(*(values[0].numpy() for values in pieces))
    ]


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("Été — là", "É t é — l à"),
        ("e\u0301a\u0300\u0302.", "e\u0301 a\u0300\u0302 ."),
        ("a\u200bb\u00a0c", "a\u200b b c"),  # Deleted characters belong to "a".
        ("각a", "각 각 각 a"),  # NFD of one character gives three.
        ("中a文", "中 a 文"),
        ("≠½", "≠ ½"),
        ("a𐄀b", "a 𐄀 b"),  # Four-byte punctuation.
        ("ΑΣ ΣΑ", "Α Σ Σ Α"),
        ("é[MASK]b [MASK] σ", "é [MASK] b [MASK] σ"),
        (b"\xffab \xe2\x82c \x80\xf0\x9f\x98", "a b c"),
    ],
)
def test_offsets_are_byte_offsets_in_the_text(text, spans):
    decoded = text.decode(errors="ignore") if isinstance(text, bytes) else text
    tokenizer = Tokenizer(character_vocabulary([decoded], True))
    found = spans_of(tokenizer, text, allow_mask=True)
    assert b" ".join(span for _, span in found).decode() == spans


# --- Model inputs -----------------------------------------------------------------


def names(inputs: dict[str, tf.Tensor]) -> list[str]:
    return [
        " ".join(LETTERS.tokens[i] for i in row) for row in inputs["token_ids"].numpy()
    ]


def test_encode_pairs():
    inputs = Tokenizer(LETTERS).encode(
        ["a b", "", "c c"], ["d", "e", ""], max_sequence_length=8
    )
    assert names(inputs) == [
        "[CLS] a b [SEP] d [SEP]",
        "[CLS] [SEP] e [SEP] [PAD] [PAD]",
        "[CLS] c c [SEP] [SEP] [PAD]",
    ]
    expected = {
        "segment_ids": [[0, 0, 0, 0, 1, 1], [0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 1, 0]],
        "padding_mask": [[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 0]],
    }
    assert {name: inputs[name].numpy().tolist() for name in expected} == expected
    assert {tensor.dtype for tensor in inputs.values()} == {tf.int32}
    assert inputs.keys() == {"token_ids", *expected}


def test_truncate_sizes_equals_removing_one_by_one():
    a, b = (size.ravel() for size in np.mgrid[:12, :12])
    for max_pieces in range(24):
        expected = []
        for sizes in zip(a, b):
            sizes = list(sizes)
            while sum(sizes) > max_pieces:
                sizes[0 if sizes[0] > sizes[1] else 1] -= 1
            expected.append(sizes)
        truncated = truncate_sizes([tf.constant(a), tf.constant(b)], max_pieces)
        assert np.stack(truncated, axis=1).tolist() == expected


def test_encode_rejects_invalid_arguments():
    tokenizer = Tokenizer(LETTERS)
    for texts, options, message in (
        ((["a"], ["b"]), {}, r"at least 3.*max_sequence_length=2"),
        ((["a"],), {"padded_length": 1}, "at least 2.*max_sequence_length=1"),
    ):
        with pytest.raises(ValueError, match=message):
            tokenizer.encode(*texts, max_sequence_length=2, **options)


@pytest.mark.parametrize(("padded_length", "size"), [(4, 4), (5, 5), (9, 5)])
def test_padded_length_alone_also_truncates(padded_length, size):
    tokenizer = Tokenizer(LETTERS, max_sequence_length=5)
    inputs = tokenizer.encode(["a b c d e", "f"], padded_length=padded_length)
    assert inputs["token_ids"].shape == (2, padded_length)
    assert inputs["padding_mask"].numpy().sum(axis=1).tolist() == [size, 3]
    empty = tokenizer.encode(tf.zeros([0], tf.string), padded_length=padded_length)
    assert empty["token_ids"].shape == (0, padded_length)


def test_decode_joins_pieces_and_leaves_out_special_tokens():
    tokenizer = Tokenizer(WORDPIECES)
    ids = tokenizer.encode(["the unaffable [", "aff"])["token_ids"]
    for form in (ids, ids.numpy().tolist(), tf.ragged.constant(ids.numpy().tolist())):
        assert tokenizer.decode(form).numpy().tolist() == [b"the unaffable [", b"aff"]
    masked = tokenizer.encode("the [MASK]", allow_mask=True)["token_ids"]
    assert tokenizer.decode(masked) == b"the [MASK]"


# --- Graphs -----------------------------------------------------------------------


def test_single_strings_in_tf_data():
    # Special tokens can have any id.
    reverse = Vocabulary(tuple(reversed(LETTERS.tokens)))
    tokenizer = Tokenizer(reverse, max_sequence_length=6)
    pairs = (["a cat", "b"], ["a", "on mat"])
    batch = tokenizer.encode(*pairs, padded_length=6)  # Truncated to six.
    dataset = tf.data.Dataset.from_tensor_slices(pairs).map(tokenizer.encode).batch(2)
    tf.nest.map_structure(np.testing.assert_array_equal, next(iter(dataset)), batch)
    tokens = [reverse.tokens[i] for i in batch["token_ids"][0]]
    assert tokens == ["[CLS]", "a", "c", "[SEP]", "a", "[SEP]"]
    assert tokenizer.tokenize("a b").shape == (2,)
