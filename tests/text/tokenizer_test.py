# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the tokenizer against google-research/bert: goldens and a reference."""

import functools
import glob
import os
import random
import sys
import unicodedata

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.text.rules import TokenizerRules
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


WORDPIECES = Vocabulary(
    (*SPECIAL_TOKENS, "un", "##aff", "##able", "aff", "able", "unt", "the", ",", "[")
)
LETTERS = Vocabulary(
    (
        *SPECIAL_TOKENS,
        *(
            prefix + c
            for prefix in ("", "##")
            for c in "abcdefghijklmnopqrstuvwxyz[]σς"
        ),
    )
)
BOTH_CASES = pytest.mark.parametrize("lowercase", [True, False])

# --- Words ------------------------------------------------------------------------

# Text -> uncased words, from BasicTokenizer in google-research/bert.
GOLDEN = {
    "Hello, World!": "hello , world !",
    "  two  spaces\tand\na line\r\nend ": "two spaces and a line end",
    "don't stop-gap (live)": "don ' t stop - gap ( live )",
    "naïve Café ÉTUDE": "naive cafe etude",
    "e\u0301tude A\u030angstro\u0308m": "etude angstrom",
    "straße STRASSE ẞ": "straße strasse ß",
    "½ cup, 2² m³": "½ cup , 2² m³",
    "wait… what": "wait … what",
    "Brand™ ©2020 №5": "brand™ ©2020 №5",
    "ﬁnal oﬃce": "ﬁnal oﬃce",
    "ＦＵＬＬｗｉｄｔｈ１２３！": "ｆｕｌｌｗｉｄｔｈ１２３ ！",
    "日本語のテキスト": "日 本 語 のテキスト",
    "中文English混排": "中 文 english 混 排",
    "漢字と한국": "漢 字 と\u1112\u1161\u11ab\u1100\u116e\u11a8",
    "北京２０２２": "北 京 ２０２２",
    "\u3000ideographic\u3000space": "ideographic space",
    "no\xa0break\u202fspace\u2003em": "no break space em",
    "zero\u200bwidth\u200djoiner\ufeff": "zerowidthjoiner",
    "soft\xadhyphen": "softhyphen",
    "bell\x07tab\x0bform\x0cnull\x00end": "belltabformnullend",
    "\x1c\x1d\x1e\x1f\x85": "",
    "line\u2028separator\u2029paragraph": "line separator paragraph",
    "replacement�character": "replacementcharacter",
    "ΟΔΥΣΣΕΥΣ ΣΑΣ": "οδυσσευς σας",
    "Σ Σ. ΑΣ' ΑΣ'Α": "σ σ . ας ' ασ ' α",
    "όσος ΆΛΦΑ": "οσος αλφα",
    "İstanbul ıI": "istanbul ıi",
    "Ǆ ǅ ǆ": "ǆ ǆ ǆ",
    "Привет, Йожик! Ёлка": "привет , иожик ! елка",
    "ע\u05b4ב\u05b0ר\u05b4ית": "עברית",
    "ع\u064eر\u064eب\u0650ي": "عربي",
    "ह\u093fन\u094dद\u0940": "ह\u093fनद\u0940",
    "ไทยง\u0e48าย": "ไทยงาย",
    "tiếng Việt": "tieng viet",
    "😀 👩\u200d🚀 🇬🇧": "😀 👩🚀 🇬🇧",
    "𝕏 𝔘𝔫𝔦": "𝕏 𝔘𝔫𝔦",
    "≠ ≤ ∑ ÷ ±": "= ≤ ∑ ÷ ±",
    "$5 €6 ¥7 £8": "$ 5 €6 ¥7 £8",
    "a^b `c` ~d |e| <f> =g+h": "a ^ b ` c ` ~ d | e | < f > = g + h",
    "“quotes” ‘single’ «guille»": "“ quotes ” ‘ single ’ « guille »",
    "em—dash en–dash ‐hyphen": "em — dash en – dash ‐ hyphen",
    "¿Qué? ¡Sí!": "¿ que ? ¡ si !",
    "word。次、語！": "word 。 次 、 語 ！",
    "[MASK] [CLS] [mask]": "[ mask ] [ cls ] [ mask ]",
    "##ing a##b": "# # ing a # # b",
    "user@mail.com http://x.y/z?a=1": "user @ mail . com http : / / x . y / z ? a = 1",
    "３．１４ 1,000.50": "３ ． １４ 1 , 000 . 50",
    "Å Å K Ω": "a a k ω",
    "\u2126 \u212a \u212b": "ω k a",
    "豈 更 﨎": "豈 更 﨎",
    "𠀀\U0002f800": "𠀀 丽",
    "\u1100\u1161\u11a8": "\u1100\u1161\u11a8",
    "กำ เ": "กำ เ",
    "a\u0300\u0301\u0302b": "ab",
    "ᾳ ᾼ ΰ": "α α υ",
    "ŉ ĳ ŀ": "ŉ ĳ ŀ",
    "\u180e x": "x",
    "": "",
    "   ": "",
}

# The cased words where they differ.
CASED = GOLDEN | {
    "Hello, World!": "Hello , World !",
    "naïve Café ÉTUDE": "naïve Café ÉTUDE",
    "e\u0301tude A\u030angstro\u0308m": "e\u0301tude A\u030angstro\u0308m",
    "straße STRASSE ẞ": "straße STRASSE ẞ",
    "Brand™ ©2020 №5": "Brand™ ©2020 №5",
    "ＦＵＬＬｗｉｄｔｈ１２３！": "ＦＵＬＬｗｉｄｔｈ１２３ ！",
    "中文English混排": "中 文 English 混 排",
    "漢字と한국": "漢 字 と한국",
    "ΟΔΥΣΣΕΥΣ ΣΑΣ": "ΟΔΥΣΣΕΥΣ ΣΑΣ",
    "Σ Σ. ΑΣ' ΑΣ'Α": "Σ Σ . ΑΣ ' ΑΣ ' Α",
    "όσος ΆΛΦΑ": "όσος ΆΛΦΑ",
    "İstanbul ıI": "İstanbul ıI",
    "Ǆ ǅ ǆ": "Ǆ ǅ ǆ",
    "Привет, Йожик! Ёлка": "Привет , Йожик ! Ёлка",
    "ע\u05b4ב\u05b0ר\u05b4ית": "ע\u05b4ב\u05b0ר\u05b4ית",
    "ع\u064eر\u064eب\u0650ي": "ع\u064eر\u064eب\u0650ي",
    "ह\u093fन\u094dद\u0940": "ह\u093fन\u094dद\u0940",
    "ไทยง\u0e48าย": "ไทยง\u0e48าย",
    "tiếng Việt": "tiếng Việt",
    "≠ ≤ ∑ ÷ ±": "≠ ≤ ∑ ÷ ±",
    "¿Qué? ¡Sí!": "¿ Qué ? ¡ Sí !",
    "[MASK] [CLS] [mask]": "[ MASK ] [ CLS ] [ mask ]",
    "Å Å K Ω": "Å Å K Ω",
    "\u2126 \u212a \u212b": "\u2126 \u212a \u212b",
    "𠀀\U0002f800": "𠀀 \U0002f800",
    "a\u0300\u0301\u0302b": "a\u0300\u0301\u0302b",
    "ᾳ ᾼ ΰ": "ᾳ ᾼ ΰ",
}


@pytest.mark.parametrize(("lowercase", "golden"), [(True, GOLDEN), (False, CASED)])
def test_words_match_google_goldens(lowercase, golden):
    expected = [words.split() for words in golden.values()]
    words = dict.fromkeys(word for words in expected for word in words)
    tokenizer = Tokenizer(Vocabulary((*SPECIAL_TOKENS, *words)), lowercase)
    assert tokens_of(tokenizer, [*golden]) == expected
    assert [reference_words(text, lowercase) for text in golden] == expected


@BOTH_CASES
def test_characters_in_contexts_match_reference(lowercase):
    contexts = ("{}", "a{}b", "A{0}{0} ", "é{}.", "中{}", "\u0301{}Σ")
    chars = dict.fromkeys("".join(GOLDEN))
    texts = [context.format(char) for char in chars for context in contexts]
    texts += GOLDEN
    vocabulary = character_vocabulary(texts, lowercase)
    assert_matches_reference(Tokenizer(vocabulary, lowercase), texts)


@BOTH_CASES
def test_random_texts_match_reference(lowercase):
    rng = random.Random(2)
    chars = "abXY ΣσςΑάé.,'-:[]MASK\u0301\u00ad\u200d中文가각—’\n\t\0\u00a0ßİǅﬁ½😀"
    texts = ["".join(rng.choices(chars, k=rng.randint(0, 12))) for _ in range(2000)]
    vocabulary = character_vocabulary(texts, lowercase)
    assert_matches_reference(Tokenizer(vocabulary, lowercase), texts)


@pytest.mark.slow
@BOTH_CASES
@pytest.mark.parametrize("context", ["{}", "a{}b"])
def test_all_assigned_code_points_match_reference(lowercase, context):
    texts = [
        context.format(char)
        for char in map(chr, range(sys.maxunicode + 1))
        if unicodedata.category(char) not in ("Cn", "Cs")
    ]
    assert len(texts) > 280_000
    vocabulary = character_vocabulary(texts, lowercase)
    assert_matches_reference(Tokenizer(vocabulary, lowercase), texts)


@pytest.mark.parametrize("name", ["uncased", "cased"])
def test_wikipedia_with_published_vocabularies_matches_reference(name):
    data = os.environ.get("BERT_TF_DATA")
    if not data:
        pytest.skip("BERT_TF_DATA, the directory of real data sets, is not set")
    lines = []
    for path in sorted(glob.glob(f"{data}/wikipedia_en/*"))[::20]:
        with open(path, encoding="utf-8") as file:
            lines += file.read().split("\n")[:400]
    vocabulary = Vocabulary.from_file(f"{data}/vocab/bert-base-{name}-vocab.txt")
    assert_matches_reference(Tokenizer(vocabulary, name == "uncased"), lines)


# --- Pieces -----------------------------------------------------------------------


def test_longest_piece_matches_first():
    texts = ["unaffable", "untable", "the, unthe", "[", "affun", ""]
    assert tokens_of(Tokenizer(WORDPIECES), texts) == [
        ["un", "##aff", "##able"],
        ["unt", "##able"],
        [
            "the",
            ",",
            "[UNK]",
        ],  # Greedy: "unt" matches first, then no piece matches "he".
        ["["],
        ["[UNK]"],
        [],
    ]


def test_each_word_has_at_least_one_piece():
    tokenizer = Tokenizer(WORDPIECES)
    rows = tokenizer.tokenize_words(["unable", "", "the", "\0", "x"]).to_list()
    assert [[WORDPIECES.tokens[i] for i in row] for row in rows] == [
        ["un", "##able"],
        ["[UNK]"],
        ["the"],
        ["[UNK]"],
        ["[UNK]"],
    ]


def test_special_tokens_can_have_any_id():
    reverse = Vocabulary(tuple(reversed(WORDPIECES.tokens)))
    tokenizer = Tokenizer(reverse)
    row = tokenizer.encode(["the x"], max_sequence_length=8, padded_length=8)
    tokens = [reverse.tokens[i] for i in row["token_ids"][0]]
    assert tokens == ["[CLS]", "the", "[UNK]", "[SEP]"] + ["[PAD]"] * 4


@pytest.mark.parametrize("limit", [100, 200])
def test_word_length_limit_counts_characters(limit):
    letters = "aกא𝕏"  # Of one to four bytes.
    pieces = [prefix + char for char in letters for prefix in ("", "##")]
    tokenizer = Tokenizer(
        Vocabulary((*SPECIAL_TOKENS, *pieces, "東", ".")),
        rules=TokenizerRules(max_characters_per_word=limit),
    )
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


def test_tokens_with_spaces_and_empty_tokens_are_unreachable():
    # BasicTokenizer of google-research/bert and transformers split at spaces first.
    tokens = (*SPECIAL_TOKENS, "new", "york", "new york", "", "of the", "of", "a ", "a")
    tokenizer = Tokenizer(Vocabulary(tokens))
    texts = ["new york", "new  york of the", "a new", ""]
    expected = [["new", "york"], ["new", "york", "of", "[UNK]"], ["a", "new"], []]
    assert tokens_of(tokenizer, texts) == expected


def test_empty_control_and_huge_strings():
    tokenizer = Tokenizer(LETTERS)
    texts = ["", " ", "\n\t\u3000", "\0", "\0a\0b", "\u0301", b"\xff\xfe", "\ufffd"]
    assert tokens_of(tokenizer, texts) == [[], [], [], [], ["a", "##b"], [], [], []]
    assert len(tokens_of(tokenizer, ["ab " * 1_000_000])[0]) == 2_000_000
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
    texts = [
        "a [MASK]",
        "[mask]",
        "a[MASK]b[MASK][MASK]",
        "[[MASK]]",
        "[CLS]",
        "\ufaff",
    ]
    typed = ["[", "m", "##a", "##s", "##k", "]"]
    assert tokens_of(tokenizer, texts) == [
        ["a", *typed],
        typed,
        ["a", *typed, "b", *typed, *typed],
        ["[", *typed, "]"],
        ["[", "c", "##l", "##s", "]"],
        ["[UNK]"],
    ]
    assert tokens_of(tokenizer, texts[:5], allow_mask=True) == [
        ["a", "[MASK]"],
        typed,
        ["a", "[MASK]", "b", "[MASK]", "[MASK]"],
        ["[", "[MASK]", "]"],
        ["[", "c", "##l", "##s", "]"],
    ]


@BOTH_CASES
def test_offsets_around_masks(lowercase):
    text = "é[MASK]b [MASK] σ"
    pieces = Tokenizer(LETTERS, lowercase).tokenize_with_offsets(
        [text, "[MASK]"], allow_mask=True
    )
    spans = zip(pieces.starts[0].numpy(), pieces.ends[0].numpy())
    assert [text.encode()[start:end].decode() for start, end in spans] == [
        "é",
        "[MASK]",
        "b",
        "[MASK]",
        "σ",
    ]
    assert pieces.ids[0][1] == LETTERS.mask_id
    assert (pieces.starts[1][0], pieces.ends[1][0]) == (0, 6)


# --- Offsets ----------------------------------------------------------------------


def spans_of(tokenizer: Tokenizer, text: str | bytes) -> list[tuple[str, bytes]]:
    """Returns the (token without "##", bytes of the text) of all pieces."""
    data = text.encode() if isinstance(text, str) else text
    pieces = tokenizer.tokenize_with_offsets([data])
    return [
        (tokenizer.vocabulary.tokens[i].removeprefix("##"), data[start:end])
        for i, start, end in zip(*(values[0].numpy() for values in pieces))
    ]


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("Été — là", ["É", "t", "é", "—", "l", "à"]),
        ("e\u0301a\u0300\u0302.", ["e\u0301", "a\u0300\u0302", "."]),
        (
            "a\u200bb\u00a0c",
            ["a\u200b", "b", "c"],
        ),  # Deleted characters belong to the piece before.
        ("각a", ["각", "각", "각", "a"]),  # NFD of one character gives three.
        ("中a文", ["中", "a", "文"]),
        ("≠½", ["≠", "½"]),
        ("a𐄀b", ["a", "𐄀", "b"]),  # Four-byte punctuation.
        ("ΑΣ ΣΑ", ["Α", "Σ", "Σ", "Α"]),
        ("«𝕏»…", ["«", "𝕏", "»", "…"]),
    ],
)
def test_offsets_are_byte_offsets_in_the_text(text, spans):
    tokenizer = Tokenizer(character_vocabulary([text], True))
    assert [span.decode() for _, span in spans_of(tokenizer, text)] == spans


def test_offsets_of_unknown_words_cover_the_word():
    text = "the Ünknown— the"
    spans = spans_of(Tokenizer(WORDPIECES), text)
    expected = ["the", "Ünknown", "—", "the"]
    assert [span.decode() for _, span in spans] == expected


def test_offsets_include_invalid_bytes():
    spans = spans_of(Tokenizer(LETTERS), b"\xffab \xe2\x82c \x80\xf0\x9f\x98")
    assert spans == [("a", b"a"), ("b", b"b"), ("c", b"c")]


@BOTH_CASES
def test_bytes_at_offsets_normalize_to_the_piece(lowercase):
    texts = [*GOLDEN]
    tokenizer = Tokenizer(character_vocabulary(texts, lowercase), lowercase)
    pieces = tokenizer.tokenize_with_offsets(texts)
    assert pieces.ids.to_list() == tokenizer.tokenize(texts).to_list()
    for text in texts:
        for piece, span in spans_of(tokenizer, text):
            words = "".join(reference_words(span.decode(), lowercase))
            # Alone, a sigma is not final. Hangul gives several pieces.
            assert piece in words.replace("σ", "ς") or piece in words


# --- Model inputs -----------------------------------------------------------------


def names(inputs: dict[str, tf.Tensor]) -> list[str]:
    return [
        " ".join(LETTERS.tokens[i] for i in row) for row in inputs["token_ids"].numpy()
    ]


def test_encode_texts():
    inputs = Tokenizer(LETTERS).encode(["a bc", "", "d"], max_sequence_length=6)
    assert names(inputs) == [
        "[CLS] a b ##c [SEP]",
        "[CLS] [SEP] [PAD] [PAD] [PAD]",
        "[CLS] d [SEP] [PAD] [PAD]",
    ]
    assert inputs["padding_mask"].numpy().tolist() == [
        [1, 1, 1, 1, 1],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
    ]
    assert not inputs["segment_ids"].numpy().any()
    assert {tensor.dtype for tensor in inputs.values()} == {tf.int32}
    assert inputs.keys() == {"token_ids", "segment_ids", "padding_mask"}


def test_encode_pairs():
    inputs = Tokenizer(LETTERS).encode(
        ["a b", "", "c c"],
        ["d", "e", ""],
        max_sequence_length=8,
        padded_length=9,
        return_offsets=True,
    )
    assert names(inputs) == [
        "[CLS] a b [SEP] d [SEP] [PAD] [PAD] [PAD]",
        "[CLS] [SEP] e [SEP] [PAD] [PAD] [PAD] [PAD] [PAD]",
        "[CLS] c c [SEP] [SEP] [PAD] [PAD] [PAD] [PAD]",
    ]
    assert inputs["segment_ids"].numpy().tolist() == [
        [0, 0, 0, 0, 1, 1, 0, 0, 0],
        [0, 0, 1, 1, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 1, 0, 0, 0, 0],
    ]
    assert tf.reduce_sum(inputs["padding_mask"], axis=1).numpy().tolist() == [6, 4, 5]
    assert inputs["start_offsets"].numpy().tolist() == [
        [0, 0, 2, 0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 0, 0, 0],
        [0, 0, 2, 0, 0, 0, 0, 0, 0],
    ]
    assert inputs["end_offsets"].numpy().tolist() == [
        [0, 1, 3, 0, 1, 0, 0, 0, 0],
        [0, 0, 1, 0, 0, 0, 0, 0, 0],
        [0, 1, 3, 0, 0, 0, 0, 0, 0],
    ]


def test_encode_truncates_longer_segment():
    tokenizer = Tokenizer(LETTERS)
    assert names(tokenizer.encode(["a b c d"], max_sequence_length=5)) == [
        "[CLS] a b c [SEP]"
    ]
    pairs = (["a b c d", "a", "a b c"], ["x", "x y z z", "x y z"])
    assert names(tokenizer.encode(*pairs, max_sequence_length=6)) == [
        "[CLS] a b [SEP] x [SEP]",
        "[CLS] a [SEP] x y [SEP]",
        "[CLS] a b [SEP] x [SEP]",  # Equal lengths: the second loses first.
    ]
    assert names(tokenizer.encode(["a"], ["b"], max_sequence_length=3)) == [
        "[CLS] [SEP] [SEP]"
    ]


def test_encode_keeps_head_and_tail():
    tokenizer = Tokenizer(LETTERS)
    text = tf.constant(["a b c d e f g h i j", "a b c", ""])
    encoded = tokenizer.encode(
        text, max_sequence_length=10, keep="head_tail", return_offsets=True
    )
    assert names(encoded) == [
        "[CLS] a b e f g h i j [SEP]",
        "[CLS] a b c [SEP]" + 5 * " [PAD]",
        "[CLS] [SEP]" + 8 * " [PAD]",
    ]
    starts = encoded["start_offsets"][0].numpy().tolist()
    assert starts == [0, 0, 2, 8, 10, 12, 14, 16, 18, 0]
    pair = (["a b c d e f g h"], ["x y z x y z"])
    assert names(tokenizer.encode(*pair, max_sequence_length=11, keep="head_tail")) == [
        "[CLS] a f g h [SEP] x x y z [SEP]"
    ]


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


def test_encode_empty_batch():
    inputs = Tokenizer(LETTERS).encode(
        tf.zeros([0], tf.string), max_sequence_length=8, padded_length=8
    )
    assert inputs["token_ids"].shape == [0, 8]


def test_encode_rejects_invalid_arguments():
    tokenizer = Tokenizer(LETTERS)
    with pytest.raises(ValueError, match=r"at least 3.*max_sequence_length=2"):
        tokenizer.encode(["a"], ["b"], max_sequence_length=2)
    with pytest.raises(ValueError, match=r"padded_length=7, max_sequence_length=8"):
        tokenizer.encode(["a"], max_sequence_length=8, padded_length=7)
    with pytest.raises(ValueError, match=r"shape \[B\]. Received: text.shape=\(1, 1\)"):
        tokenizer.encode([["a"]], max_sequence_length=8)
    with pytest.raises(tf.errors.InvalidArgumentError, match="text_b"):
        tokenizer.encode(["a"], ["b", "c"], max_sequence_length=8)


# --- Graphs -----------------------------------------------------------------------


def test_encode_in_tf_data():
    tokenizer = Tokenizer(LETTERS)
    dataset = tf.data.Dataset.from_tensor_slices(["a", "b c", "d"]).batch(2)
    dataset = dataset.map(lambda text: tokenizer.encode(text, max_sequence_length=8))
    assert [row for inputs in dataset for row in names(inputs)] == [
        "[CLS] a [SEP] [PAD]",
        "[CLS] b c [SEP]",
        "[CLS] d [SEP]",
    ]


def test_encode_in_saved_model(tmp_path):
    class Exported(tf.Module):
        def __init__(self):
            super().__init__()
            self.tokenizer = Tokenizer(LETTERS)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)] * 2)
        def __call__(self, text_a, text_b):
            return self.tokenizer.encode(
                text_a,
                text_b,
                max_sequence_length=16,
                padded_length=16,
                allow_mask=True,
                return_offsets=True,
            )

    module = Exported()
    tf.saved_model.save(module, tmp_path, signatures=module.__call__)
    loaded = tf.saved_model.load(tmp_path).signatures["serving_default"]
    a, b = tf.constant(["Éa [MASK]", ""]), tf.constant(["a\u0301b", "c"])
    outputs = loaded(text_a=a, text_b=b)
    expected = Tokenizer(LETTERS).encode(
        a, b, max_sequence_length=16, padded_length=16, allow_mask=True,
        return_offsets=True,
    )  # fmt: skip
    assert outputs.keys() == expected.keys()
    for name, values in expected.items():
        assert outputs[name].shape == [2, 16]
        assert (outputs[name] == values).numpy().all(), name
    assert names(outputs)[0].startswith("[CLS] e ##a [MASK] [SEP] a ##b [SEP]")
    assert outputs["end_offsets"][0].numpy().tolist()[:8] == [0, 2, 3, 10, 0, 3, 4, 0]


def test_single_string_gives_vectors(vocabulary):
    tokenizer = Tokenizer(vocabulary, max_sequence_length=5)
    one = tokenizer.encode("the cat sat on", return_offsets=True)
    batch = tokenizer.encode(["the cat sat on"], return_offsets=True)
    assert one["token_ids"].shape == (5,)  # Truncated to the tokenizer's maximum.
    for name in one:
        np.testing.assert_array_equal(one[name], batch[name][0])
    pair = tokenizer.encode("the", "cat", max_sequence_length=6)
    assert pair["segment_ids"].numpy().tolist() == [0, 0, 0, 1, 1, 0]
    assert tokenizer.tokenize("the cat").shape == (2,)
    assert tokenizer.decode(pair["token_ids"]) == "the cat"


def test_padded_length_alone_also_truncates(vocabulary):
    tokenizer = Tokenizer(vocabulary, max_sequence_length=5)
    texts = ["the cat sat on the mat", "cat"]
    for padded_length, size in ((4, 4), (5, 5), (9, 5)):
        inputs = tokenizer.encode(texts, padded_length=padded_length)
        assert inputs["token_ids"].shape == (2, padded_length)
        assert inputs["padding_mask"].numpy().sum(axis=1).tolist() == [size, 3]


@pytest.mark.parametrize("batched_by", ["batch", "padded_batch"])
def test_encode_before_batch_in_tf_data(vocabulary, batched_by):
    tokenizer = Tokenizer(vocabulary, max_sequence_length=6)
    dataset = tf.data.Dataset.from_tensor_slices((["the cat", "sat"], ["a", "on mat"]))
    for pairs in (dataset, dataset.map(lambda a, b: a)):
        before, after = (
            getattr(pairs.map(tokenizer.encode), batched_by)(2),
            pairs.batch(2).map(functools.partial(tokenizer.encode, padded_length=6)),
        )
        tf.nest.map_structure(
            np.testing.assert_array_equal, next(iter(before)), next(iter(after))
        )


def test_decode_joins_pieces_and_leaves_out_special_tokens(vocabulary):
    tokenizer = Tokenizer(vocabulary)
    texts = ["the cat sat on the mat", "cats"]
    ids = tokenizer.encode(texts)["token_ids"]
    assert tokenizer.decode(ids).numpy().tolist() == [text.encode() for text in texts]
    ragged = tokenizer.tokenize(texts)
    for form in (ragged, ragged.to_list()):
        assert tokenizer.decode(form)[1] == b"cats"
    graph = tf.function(tokenizer.decode)
    assert graph(ids)[0] == b"the cat sat on the mat"
    masked = tokenizer.encode("the [MASK]", allow_mask=True)["token_ids"]
    assert tokenizer.decode(masked) == b"the [MASK]"


def test_texts_with_rare_rules_keep_their_places_in_the_batch(vocabulary):
    tokenizer = Tokenizer(vocabulary)
    texts = ["the cat", "ΣΑΣ sat", "", "on " + "a" * 300, "mats", "Σ"]
    pieces = tokenizer.tokenize_with_offsets(texts)
    ids = tokenizer.tokenize(texts).to_list()
    assert pieces.ids.to_list() == ids
    for i, text in enumerate(texts):
        alone = tokenizer.tokenize_with_offsets([text])
        for batch, single in zip(pieces, alone):
            assert batch[i].numpy().tolist() == single[0].numpy().tolist()
