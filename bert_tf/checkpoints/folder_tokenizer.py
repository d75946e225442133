# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The tokenizer of a Hugging Face folder, from the files in `tokenizer_files`.

Every field is implemented, known to change nothing, or refused. If the files disagree,
the one counts that transformers 5 follows: with a BertTokenizer the vocabulary of
tokenizer.json and the rules of tokenizer_config.json, with a TokenizersBackend
(PreTrainedTokenizerFast) all of tokenizer.json.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from bert_tf.checkpoints.checkpoint import read_json_object
from bert_tf.checkpoints.tokenizer_files import (
    ADDED_TOKENS,
    CONFIG,
    CONFIG_FIELDS,
    FLAGS,
    NAMES,
    PLAIN,
    SENTENCE_CONFIG,
    SENTENCE_FIELDS,
    SPECIAL_TOKENS_MAP,
    TOKENIZER,
    add_token,
    build_original,
    read_fields,
    read_tokenizer,
    read_vocabulary,
)
from bert_tf.lazy import lazy_import
from bert_tf.text import (
    GOOGLE_RULES,
    SPECIAL_TOKENS,
    AddedToken,
    TokenizerRules,
    Vocabulary,
    guess_lowercase,
)

# Opening checkpoints of other formats does not need it.
tokenizers = lazy_import("tokenizers")

# Classes whose rules are those of BERT, and classes that follow tokenizer.json.
_BERT_CLASSES = ("BertTokenizer", "BertTokenizerFast")
_GENERIC_CLASSES = ("PreTrainedTokenizerFast", "TokenizersBackend")

_MAX_WORD = 999  # Repetitions in a regular expression of RE2, less one.


class FolderTokenizer(NamedTuple):
    """The tokenizer of a folder.

    Attributes:
        vocabulary: All tokens, with the added ones.
        lowercase: Whether it lowercases.
        rules: All other rules.
        max_length: The maximum number of tokens of a text.
        notes: What was decided, one sentence each.
        original: The same in the library tokenizers, to compare with. None for
            google's rules.
    """

    vocabulary: Vocabulary
    lowercase: bool
    rules: TokenizerRules
    max_length: int
    notes: list[str]
    original: tokenizers.Tokenizer | None


def open_tokenizer(
    path: pathlib.Path,
    model_config: Mapping[str, Any],
    positions: int,
    google: Mapping[str, Any] | None = None,
) -> FolderTokenizer:
    """Reads all files of a folder's tokenizer.

    Args:
        path: The folder.
        model_config: The contents of config.json.
        positions: The maximum number of tokens of the model.
        google: The result of `google_settings`. It counts unless somebody has added
            tokens since then.

    Raises:
        ValueError: A file is missing or damaged, files contradict each other, or a
            setting is not supported. The message names file, setting and value.
    """
    name = read_json_object(path / CONFIG).get("tokenizer_class")
    name = name or model_config.get("tokenizer_class")
    is_bert = name is None or name in _BERT_CLASSES
    if not is_bert and name not in _GENERIC_CLASSES:
        known = ", ".join((*_BERT_CLASSES, *_GENERIC_CLASSES))
        raise ValueError(
            f"{path}: tokenizer_class must be one of {known}. Received: "
            f"tokenizer_class={name!r}, whose rules are not supported."
        )
    config = read_fields(path / CONFIG, CONFIG_FIELDS)
    sentence = read_fields(path / SENTENCE_CONFIG, SENTENCE_FIELDS)
    whole, original = read_tokenizer(path / TOKENIZER)
    if not is_bert and not whole:
        raise ValueError(
            f"{path}: a folder with tokenizer_class={name!r} must have a {TOKENIZER}."
        )
    vocabulary, notes = read_vocabulary(path, whole), []
    rules, lowercase = PLAIN, None
    if whole:
        rules, lowercase = _json_rules(path / TOKENIZER, whole, original)
    if is_bert:
        rules, lowercase = _bert_rules(path, config, rules, lowercase, notes)
    rules = _with_inputs(path / CONFIG, config, is_bert, rules, notes)
    if lowercase is None:
        lowercase, note = guess_lowercase(vocabulary)
        if not lowercase:
            raise ValueError(
                f"{path}: do_lower_case is not set, so transformers lowercases and "
                f"strips accents. {note} Set do_lower_case in {CONFIG}, to false for "
                "a cased model."
            )
        notes.append(note)
    if is_bert:
        original = build_original(vocabulary, lowercase, rules)
    vocabulary, added = _added_tokens(path, config, whole, vocabulary, original)
    direction = str((whole.get("truncation") or {}).get("direction", "right")).lower()
    rules = dataclasses.replace(
        rules,
        truncation_side=config.get("truncation_side", direction),
        added_tokens=added,
    )
    if sentence.get("do_lower_case") and not lowercase:
        # sentence-transformers lowercases before a tokenizer that does not.
        strip_accents = bool(rules.strip_accents)
        rules, lowercase = dataclasses.replace(rules, strip_accents=strip_accents), True
        steps = [tokenizers.normalizers.Lowercase(), original.normalizer]
        original.normalizer = tokenizers.normalizers.Sequence([s for s in steps if s])
    if google and {token.content for token in added} <= set(SPECIAL_TOKENS):
        in_texts = google.get("special_tokens_in_texts")
        rules = dataclasses.replace(
            rules,
            library="google",
            max_characters_per_word=GOOGLE_RULES.max_characters_per_word,
            added_tokens=tuple(map(AddedToken, SPECIAL_TOKENS if in_texts else ())),
        )
        original = None
    lengths = {"max_seq_length": sentence.get("max_seq_length")}
    lengths |= {name: config.get(name) for name in ("model_max_length", "max_len")}
    length = _max_length(path, lengths, positions)
    return FolderTokenizer(vocabulary, lowercase, rules, length, notes, original)


# --- Rules -----------------------------------------------------------------------


def _json_rules(
    path: pathlib.Path, whole: Mapping[str, Any], original: tokenizers.Tokenizer
) -> tuple[TokenizerRules, bool]:
    """Returns the rules in tokenizer.json, and whether it lowercases."""
    model, normalizer = whole["model"], whole["normalizer"] or {"type": None}
    if normalizer["type"] == "Sequence" and len(normalizer["normalizers"]) == 1:
        (normalizer,) = normalizer["normalizers"]
    pre_tokenizer = whole["pre_tokenizer"] or {"type": None}
    for name, received, allowed in (
        ("unk_token", model["unk_token"], (SPECIAL_TOKENS[1],)),
        ("continuing_subword_prefix", model["continuing_subword_prefix"], ("##",)),
        ("normalizer", normalizer["type"], ("BertNormalizer", "Lowercase", None)),
        (
            "pre_tokenizer",
            pre_tokenizer["type"],
            ("BertPreTokenizer", "WhitespaceSplit"),
        ),
    ):
        if received not in allowed:
            known = " or ".join(str(value or "null") for value in allowed)
            raise ValueError(f"{path}: {name} must be {known}. Received: {received}")
    limit = model["max_input_chars_per_word"]
    if not 0 < limit <= _MAX_WORD:
        raise ValueError(
            f"{path}: max_input_chars_per_word must be from 1 to {_MAX_WORD}. "
            f"Received: {limit}"
        )
    rules = TokenizerRules(
        library="tokenizers",
        max_characters_per_word=limit,
        strip_accents=False,
        clean_text=False,
        split_chinese=False,
        split_punctuation=pre_tokenizer["type"] == "BertPreTokenizer",
        second_segment=_second_segment(path, original),
    )
    if normalizer["type"] != "BertNormalizer":
        return rules, normalizer["type"] == "Lowercase"
    rules = dataclasses.replace(
        rules,
        strip_accents=normalizer["strip_accents"],
        clean_text=normalizer["clean_text"],
        split_chinese=normalizer["handle_chinese_chars"],
    )
    return rules, normalizer["lowercase"]


def _second_segment(path: pathlib.Path, original: tokenizers.Tokenizer) -> int:
    """Returns the segment id of second texts."""
    original.no_truncation()
    original.no_padding()
    single, pair = original.encode("a"), original.encode("a", "a")
    pieces = original.encode("a", add_special_tokens=False).tokens
    cls, sep = SPECIAL_TOKENS[2:4]
    first, second = [cls, *pieces, sep], [*pieces, sep]
    if single.tokens == first and pair.tokens == first + second:
        for segment in (0, 1):
            if pair.type_ids == [0] * len(first) + [segment] * len(second):
                return segment
    raise ValueError(
        f"{path}: post_processor must be [CLS] A [SEP], and [CLS] A [SEP] B [SEP] for "
        f"pairs. Received: {' '.join(pair.tokens)}, segments {pair.type_ids}"
    )


def _bert_rules(
    path: pathlib.Path,
    config: Mapping[str, Any],
    rules: TokenizerRules,
    json_lowercase: bool | None,
    notes: list[str],
) -> tuple[TokenizerRules, bool | None]:
    """Returns the rules of a BertTokenizer, and whether it lowercases if that is set.

    Args:
        path: The folder.
        config: The contents of tokenizer_config.json.
        rules: Those of tokenizer.json.
        json_lowercase: Whether tokenizer.json lowercases; None if it is absent.
        notes: Gets a note if both differ.
    """
    for flag in FLAGS:
        if getattr(rules, flag) != getattr(PLAIN, flag):
            raise ValueError(
                f"{path / TOKENIZER}: {flag} is {getattr(rules, flag)!r}, but a "
                f"BertTokenizer has {getattr(PLAIN, flag)!r}. If {TOKENIZER} is "
                f'right, set "tokenizer_class": "TokenizersBackend" in {CONFIG}.'
            )
    lowercase = config.get("do_lower_case", json_lowercase)
    if json_lowercase not in (None, lowercase):
        notes.append(
            f"{CONFIG} has do_lower_case={lowercase}, {TOKENIZER} has lowercase="
            f"{json_lowercase}. The first counts, as in transformers."
        )
    changes = {
        "strip_accents": config.get("strip_accents", rules.strip_accents),
        "split_chinese": config.get("tokenize_chinese_chars", rules.split_chinese),
    }
    return dataclasses.replace(rules, **changes), lowercase


def _with_inputs(
    path: pathlib.Path,
    config: Mapping[str, Any],
    is_bert: bool,
    rules: TokenizerRules,
    notes: list[str],
) -> TokenizerRules:
    """Returns the rules with the segment id of second texts in `model_input_names`."""
    names = config.get("model_input_names")
    if names is None and not is_bert and rules.second_segment:
        names = ["input_ids", "attention_mask"]
        notes.append(
            "model_input_names is not set: second texts get the segment id 0, as in "
            "transformers 5. For 1, add token_type_ids to it."
        )
    if names is None:
        return rules
    if not {"input_ids", "attention_mask"} <= {*names}:
        raise ValueError(
            f"{path}: model_input_names must contain input_ids and attention_mask. "
            f"Received: {names!r:.80}"
        )
    segment = rules.second_segment if "token_type_ids" in names else 0
    return dataclasses.replace(rules, second_segment=segment)


def _max_length(path: pathlib.Path, lengths: Mapping[str, Any], positions: int) -> int:
    """Returns the first length that is set, but at most `positions`."""
    for name, length in lengths.items():
        if length is None:
            continue
        is_number = isinstance(length, int | float) and not isinstance(length, bool)
        if not is_number or not length >= 3:
            raise ValueError(
                f"{path}: {name} must be a number of at least 3. Received: "
                f"{name}={length!r:.80}"
            )
        return int(min(length, positions))
    return positions


# --- Tokens ----------------------------------------------------------------------


def _added_tokens(
    path: pathlib.Path,
    config: Mapping[str, Any],
    whole: Mapping[str, Any],
    vocabulary: Vocabulary,
    original: tokenizers.Tokenizer,
) -> tuple[Vocabulary, tuple[AddedToken, ...]]:
    """Returns the vocabulary with the added tokens, and these; adds them to `original`.

    The order is that of transformers 5.
    """
    names, by_id = dict(config), config.get("added_tokens_decoder")
    if by_id is None:
        names |= read_fields(path / SPECIAL_TOKENS_MAP, CONFIG_FIELDS)
    for name, expected in NAMES.items():
        if (received := _content(names.get(name, expected))) != expected:
            raise ValueError(
                f"{path / CONFIG}: {name} must be {expected!r}. Received: "
                f"{name}={received!r:.80}"
            )
    extra = names.get("extra_special_tokens") or ()
    special = [names.get(name) for name in ("bos_token", "eos_token", *NAMES)]
    special += names.get("additional_special_tokens") or ()
    special += extra.values() if isinstance(extra, dict) else extra
    special = [_to_token(token) for token in (*special, *SPECIAL_TOKENS) if token]

    declared: dict[str, tuple[AddedToken, int | None]] = {}  # By content, with its id.
    if by_id is None:
        for content, number in read_json_object(path / ADDED_TOKENS).items():
            is_special = any(token.content == content for token in special)
            flags = {"normalized": not is_special, "special": is_special}
            declared[content] = AddedToken(content, **flags), number
    for number, token in sorted((by_id or {}).items(), key=lambda item: int(item[0])):
        declared[_content(token)] = _to_token(token), int(number)
    for token in whole.get("added_tokens", ()):
        declared[token["content"]] = _to_token(token), token["id"]
    for token in special:
        if token.content in vocabulary.tokens or token.content not in SPECIAL_TOKENS:
            declared.setdefault(token.content, (token, None))

    tokens, added = list(vocabulary.tokens), []
    index = {token: number for number, token in enumerate(tokens)}
    for content, (token, number) in declared.items():
        in_wordpiece = index.get(content, vocabulary.size) < vocabulary.size
        actual = index.setdefault(content, len(tokens))
        tokens[actual : actual + 1] = [content]
        if number not in (None, actual):
            raise ValueError(
                f"{path}: the added token {content!r} must have the id {actual}, its "
                f"place in the vocabulary or the first free one. Received: {number}"
            )
        added.append(dataclasses.replace(token, in_wordpiece=in_wordpiece))
        add_token(original, token)
    return Vocabulary(tuple(tokens)), tuple(added)


def _content(token: Any) -> Any:
    return token.get("content") if isinstance(token, dict) else token


def _to_token(token: str | dict[str, Any]) -> AddedToken:
    if isinstance(token, str):
        return AddedToken(token)
    fields = {f.name for f in dataclasses.fields(AddedToken)} - {"in_wordpiece"}
    flags = {"normalized": not token.get("special", True)}
    return AddedToken(**flags | {name: token[name] for name in fields & token.keys()})
