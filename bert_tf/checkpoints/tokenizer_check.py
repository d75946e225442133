# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Loads tokenizers, and compares them with the original ones of their folders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.text import Tokenizer


def load_tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    """Returns the tokenizer of a checkpoint, with the maximum length of the encoder.

    All commands that train, export or convert a checkpoint call this.

    Raises:
        ValueError: The checkpoint is a Hugging Face folder, whose own tokenizer gives
            other results for some text.
    """
    tokenizer = Tokenizer(
        checkpoint.vocabulary,
        checkpoint.lowercase,
        checkpoint.architecture.max_sequence_length,
        rules=checkpoint.rules,
    )
    original = checkpoint.original_tokenizer
    difference = original and find_difference(tokenizer, original)
    if difference:
        raise ValueError(
            f"{checkpoint.path}: the folder's tokenizer has a rule that is not "
            f"supported, so answers would be wrong. {difference}\n"
            "docs/checkpoints.md lists the supported settings."
        )
    return tokenizer


def _probe_texts(tokenizer: Tokenizer) -> list[str]:
    """Returns texts that show the differences between tokenizers of BERT."""
    texts = [
        "The quick brown fox didn't jump over 1,234.50 dogs!",
        "Héllo wörld, naïve façade; e\u0301tude A\u030angstro\u0308m Zu\u0308rich",
        "Straße STRASSE ẞ ﬁnal oﬃce ½ cup 2² m³ Ⅷ ﷺ ＦＵＬＬｗｉｄｔｈ１２３！",
        "ΟΔΥΣΣΕΥΣ ΣΑΣ όσος Σ Σ. ΑΣ' ΑΣ'Α ᾳ ᾼ",
        "İstanbul ıI IĞDIR iğdır ǅ",
        "Привет, Йожик! Ёлка Українська їжак",
        "日本語のテキスト がぎぐ ｶﾞ 中文English混排 ",
        "北京２０２２ 豈 更 𠀀 \U0002f800 \U0002b820 \u2e80 〇 々 ー 、 。",
        "대한민국 한국어 漢字と한국 \u1100\u1161\u11a8",
        "ไทยง่าย กำ ภาษาไทย हिन्दी தமிழ் עִבְרִית عَرَبي tiếng Việt",
        "😀 👩\u200d🚀 🇬🇧 👍🏽 \u2764\ufe0f",
        "a\u200bb\u200cc\u200dd\ufeffe\u2060f soft\xadhyphen",
        "no\xa0break\u202fspace\u2003em\u3000wide\u1680ogham\u205fx\u180ey\u0085z",
        "bell\x07tab\x0bform\x0cnull\x00us\x1fend\x7fdel\x80c1 \x01 \x1c\x1d",
        "line\u2028separator\u2029paragraph\r\nnext\tcell \ufffd \ue000 \U000f0000",
        "“quotes” ‘single’ «guille» em—dash en–dash ‐hyphen wait… ¿Qué? ¡Sí!",
        "$5 €6 ¥7 £8 ≠ ≤ ∑ ÷ ± a^b `c` ~d |e| <f> =g+h ＄ ＋ ⁄ ؋ № ™ ©",
        "user@mail.com https://x.y/z?a=1&b=%20#top C:\\path\\file ##ing a##b --- ...",
        "0123456789 ٠١٢٣ ３．１４ 1e-5 2026-11-25T04:03:33Z +49-170",
        "a\u0300\u0301\u0302b \u0301 \u0301a ỗ o\u0302\u0303 \U0001d165",
        "𝕏 𝔘𝔫𝔦 \U0001f600\U0001f3fd ꙮ ℵ ℃",
        "",
        "   ",
        *map(str, range(0, 1000, 37)),
    ]
    texts += [character * 3 + " x" for character in "éßıİΣ東か가ก😀—…"]
    texts += [f"a{chr(code)}b" for code in (*range(0x20, 0x30), *range(0x3A, 0x41))]
    texts += [f"a{chr(code)}b{chr(code)}" for code in range(0xA0, 0x180, 4)]
    limit = tokenizer.rules.max_characters_per_word
    for size in sorted({99, 100, 101, 199, 200, 201, limit, limit + 1}):
        texts += [f"x {unit * size} y" for unit in ("a", "é", "ก", "𝕏")]
        texts += [("9f86d081" * size)[:size] + ".", "가" * size, "e\u0301" * size]
    texts += ["acgtacgattgc" * 10, "https://example.org/" + "a1b2c3d4" * 14 + "/b"]
    tokens = [token.content for token in tokenizer.rules.added_tokens]
    tokens += [*("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused1]", "<s>")]
    # The first and last ones of a long list stand for all.
    for token in dict.fromkeys([*tokens[:40], *tokens[-20:]]):
        texts += [
            f"a {token} b",
            f"a{token}b{token}{token} .{token}, é {token}\u0301",
            f"  {token}  \u3000{token.lower()} {token.upper()} {token[:-1]}",
        ]
    return texts


def find_difference(
    tokenizer: Tokenizer, original: Any, texts: Sequence[str] | None = None
) -> str | None:
    """Describes the first difference between two tokenizers.

    Args:
        tokenizer: A tokenizer.
        original: The same in the library tokenizers.
        texts: Texts to compare. By default about 300 unusual ones.

    Returns:
        What differs: the text, and the ids or offsets of both. None if nothing does.
    """
    texts = _probe_texts(tokenizer) if texts is None else texts
    contents = [token.content for token in tokenizer.rules.added_tokens]
    original.no_truncation()
    original.no_padding()

    def is_rare(text: str) -> bool:
        longest = max(map(len, text.split()), default=0)
        return longest > 30 or any(content in text for content in contents)

    # Common and rare texts take different paths through the graph.
    for rare in (False, True):
        selected = [text for text in texts if is_rare(text) == rare]
        pieces = tokenizer.tokenize_with_offsets(selected)
        columns = zip(*(field.to_list() for field in pieces))
        encodings = original.encode_batch(selected, add_special_tokens=False)
        for text, theirs, (ids, starts, ends) in zip(selected, encodings, columns):
            place = np.cumsum([0, *(len(character.encode()) for character in text)])
            index = {byte: number for number, byte in enumerate(place)}
            spans = [(index[a], index[b]) for a, b in zip(starts, ends)]
            # Our pieces include deleted characters after them, e.g. accents.
            same_spans = all(
                a == c and b >= d and not tokenizer.normalize(text[d:b])
                for (a, b), (c, d) in zip(spans, theirs.offsets)
            )
            if ids != theirs.ids or not same_spans:
                return (
                    f"Different tokens of {text!r:.200}, ids and offsets:\n  bert_tf:"
                    f"    {ids} {spans}\n  tokenizers: {theirs.ids} {theirs.offsets}"
                )
    return None
