# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The tokenizer of a Hugging Face folder.

vocab.txt, tokenizer.json                     vocabulary; rules
tokenizer_config.json                         class, rules, maximum length
special_tokens_map.json, added_tokens.json    tokens that are found inside texts
sentence_bert_config.json                     overrides of sentence-transformers

Every field is implemented, known to change nothing, or refused. If the files disagree,
the one counts that transformers 5 follows: with a BertTokenizer the vocabulary of
tokenizer.json and the rules of tokenizer_config.json, with a TokenizersBackend
(PreTrainedTokenizerFast) all of tokenizer.json.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import pathlib
from collections.abc import Mapping
from typing import Any

from absl import logging

from bert_tf import storage
from bert_tf.checkpoints.checkpoint import Checkpoint, check_fields, read_json_object
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

# --- Files -----------------------------------------------------------------------

_VOCABULARY, _TOKENIZER = "vocab.txt", "tokenizer.json"
_CONFIG, _SENTENCE_CONFIG = "tokenizer_config.json", "sentence_bert_config.json"

# The rules of a BertTokenizer besides its casing, and those that its files cannot
# change.
_BERT_RULES = {
    "strip_accents": None,
    "clean_text": True,
    "split_chinese": True,
    "split_punctuation": True,
    "max_characters_per_word": 100,
    "second_segment": 1,
}
_FIXED = ("clean_text", "split_punctuation", "max_characters_per_word")

# Rules in tokenizer_config.json.
_RULES = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "split_chinese",
}

# The name of each special token in tokenizer_config.json, and its only allowed value.
_KEYS = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
_NAMES = dict(zip(_KEYS, SPECIAL_TOKENS))

_INPUTS = ["input_ids", "token_type_ids", "attention_mask"]

# Classes whose rules are those of BERT, and classes that follow tokenizer.json.
_BERT_CLASSES = ("BertTokenizer", "BertTokenizerFast")
_GENERIC_CLASSES = ("PreTrainedTokenizerFast", "TokenizersBackend")
_CLASSES = {"tokenizer_class": (*_BERT_CLASSES, *_GENERIC_CLASSES)}

# Allowed types or values of fields. None: any, because the field changes no id of a
# text or is checked where it is used.
_FIELDS = {
    **_CLASSES,
    "added_tokens_decoder": dict,
    "model_input_names": (_INPUTS, _INPUTS[::2], [_INPUTS[i] for i in (0, 2, 1)]),
    "never_split": ([],),
    "padding_side": ("right",),
    "truncation_side": ("right", "left"),
    "truncation_strategy": ("longest_first", "LongestFirst"),
    "wordpieces_prefix": ("##",),
} | {
    field: allowed
    for allowed, fields in (
        (bool, "do_lower_case strip_accents tokenize_chinese_chars"),
        (list, "additional_special_tokens"),
        ((True,), "clean_text do_basic_tokenize"),
        ((False,), "split_special_tokens add_prefix_space add_bos_token add_eos_token"),
        (None, "name_or_path special_tokens_map_file tokenizer_file vocab_file"),
        (None, "backend is_local local_files_only use_fast from_slow verbose stride"),
        (None, "clean_up_tokenization_spaces chat_template processor_class errors"),
        (None, "pad_token_type_id pad_to_multiple_of padding truncation max_length"),
        (None, "init_inputs trust_remote_code device_map _commit_hash model_type"),
        (None, "transformers_version use_default_system_prompt return_tensors"),
        (None, "use_auth_token bos_token eos_token model_max_length max_len"),
        (None, "extra_special_tokens pad_token unk_token cls_token sep_token"),
        (None, "mask_token"),
    )
    for field in fields.split()
}
_SENTENCE_FIELDS = {
    "do_lower_case": bool,
    "transformer_task": ("feature-extraction", "fill-mask", "sequence-classification"),
    "tokenizer_name_or_path": (),
} | {
    field: allowed
    for allowed, fields in (
        (None, "max_seq_length unpad_inputs modality_config module_output_name"),
        ((), "query_length document_length query_expansion"),
        (({},), "processing_kwargs processor_kwargs tokenizer_args model_args"),
        (({},), "model_kwargs config_args config_kwargs"),
    )
    for field in fields.split()
}
# In tokenizer.json. The longest word is limited by regular expressions of RE2.
_JSON_FIELDS = {
    "type": ("WordPiece",),
    "unk_token": (SPECIAL_TOKENS[1],),
    "continuing_subword_prefix": ("##",),
    "max_input_chars_per_word": range(1, 1000),
    "normalizer": ("BertNormalizer", "Lowercase", "null"),
    "pre_tokenizer": ("BertPreTokenizer", "WhitespaceSplit"),
}


def _read(path: pathlib.Path, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Reads a JSON object without its null values, and checks its fields."""
    values = read_json_object(path, **fields)
    values = {key: value for key, value in values.items() if value is not None}
    for key in values.keys() - fields:
        raise ValueError(
            f"{path}: the field {key} is not known. Received: {key}={values[key]!r:.80}"
            ". Remove it if it does not change how texts are tokenized."
        )
    return values


def _read_vocabulary(path: pathlib.Path, whole: Mapping[str, Any]) -> Vocabulary:
    """Returns the vocabulary of the WordPiece model."""
    file = path / _VOCABULARY
    if not whole:
        return Vocabulary.from_file(file)
    by_id = {number: token for token, number in whole["model"]["vocab"].items()}
    tokens = [by_id.get(number, "") for number in range(max(by_id, default=-1) + 1)]
    # A BertTokenizer appends them; vocab.txt may have them in their places.
    added = {token["content"] for token in whole["added_tokens"]}
    listed = Vocabulary.from_file(file).tokens if file.is_file() else ()
    columns = itertools.zip_longest(listed, tokens) if listed else ()
    for number, (ours, theirs) in enumerate(columns):
        is_added = theirs is None and (ours in added or not ours)
        if (ours or "") != (theirs or "").strip() and not is_added:
            raise ValueError(
                f"{path}: the token with id {number} is {ours!r} in {_VOCABULARY}, but "
                f"{theirs!r} in {_TOKENIZER}."
            )
    try:
        return Vocabulary(tuple(tokens))
    except ValueError as error:
        raise ValueError(f"{path / _TOKENIZER}: {error}") from error


# --- Reading ---------------------------------------------------------------------


def open_tokenizer(
    path: pathlib.Path,
    model_config: Mapping[str, Any],
    positions: int,
    google: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Reads all files of a folder's tokenizer.

    Args:
        path: The folder.
        model_config: The contents of config.json.
        positions: The maximum number of tokens of the model.
        google: What the folder declares of google's rules. It counts unless somebody
            has added tokens since then.

    Returns:
        `vocabulary`, `lowercase`, `rules`, `original_tokenizer`, and `options` with the
        maximum length, of a `Checkpoint`.

    Raises:
        ValueError: A file is missing or damaged, files contradict each other, or a
            setting is not supported. The message names file, setting and value.
    """
    check_fields(path, model_config, **_CLASSES)
    config = _read(path / _CONFIG, _FIELDS)
    sentence = _read(path / _SENTENCE_CONFIG, _SENTENCE_FIELDS)
    name = config.get("tokenizer_class") or model_config.get("tokenizer_class")
    is_bert, file = name not in _GENERIC_CLASSES, path / _TOKENIZER
    original, whole, rules = None, {}, {**_BERT_RULES, "lowercase": None}
    if file.is_file():
        original, whole, rules = _read_tokenizer(file)
    elif not is_bert:
        raise ValueError(f"{path} must have a {_TOKENIZER} with the class {name}.")
    vocabulary = _read_vocabulary(path, whole)
    if is_bert:
        fixed = {key: (_BERT_RULES[key],) for key in _FIXED}
        check_fields(f"{file} of a BertTokenizer", rules, **fixed)
        declared = {_RULES[key]: config[key] for key in _RULES.keys() & config}
        if rules["lowercase"] not in (None, {**rules, **declared}["lowercase"]):
            text = (
                "%s: do_lower_case is %s, but lowercase in %s is %s. The first counts."
            )
            values = config["do_lower_case"], _TOKENIZER, rules["lowercase"]
            logging.warning(text, path / _CONFIG, *values)
        rules |= declared
    elif rules["second_segment"] and "model_input_names" not in config:
        text = (
            "%s: model_input_names is not set: second texts get the segment id 0, as "
        )
        text += "in transformers 5. For 1, add token_type_ids to it."
        logging.warning(text, path / _CONFIG)
    inputs = config.get("model_input_names", _INPUTS if is_bert else ())
    rules["second_segment"] *= "token_type_ids" in inputs
    lowercase = rules.pop("lowercase")
    if lowercase is None:
        lowercase, note = guess_lowercase(vocabulary)
        if not lowercase:
            raise ValueError(
                f"{path}: do_lower_case is not set, so transformers lowercases and "
                f"strips accents. {note} Set do_lower_case in {_CONFIG}, to false for "
                "a cased model."
            )
        logging.warning("%s: %s", path, note)
    # sentence-transformers lowercases before a tokenizer that does not.
    if is_lowered := sentence.get("do_lower_case") and not lowercase:
        lowercase, rules["strip_accents"] = True, bool(rules["strip_accents"])
    vocabulary, added = _added_tokens(path, config, whole, vocabulary)
    direction = str((whole.get("truncation") or {}).get("direction", "right")).lower()
    side = config.get("truncation_side", direction)
    rules = TokenizerRules(
        library="tokenizers", truncation_side=side, added_tokens=added, **rules
    )
    if google and {token.content for token in added} <= set(SPECIAL_TOKENS):
        in_texts, original = google.get("special_tokens_in_texts"), None
        rules = dataclasses.replace(
            rules,
            library="google",
            max_characters_per_word=GOOGLE_RULES.max_characters_per_word,
            added_tokens=tuple(map(AddedToken, SPECIAL_TOKENS if in_texts else ())),
        )
    elif is_bert:
        original = _build_original(vocabulary, lowercase, rules)
    else:
        if is_lowered:
            original.normalizer = _normalizer(lowercase, rules)
        _add_tokens(original, added)
    return {
        "vocabulary": vocabulary,
        "lowercase": lowercase,
        "rules": rules,
        "original_tokenizer": original,
        "options": {
            "max_sequence_length": _max_length(path, config, sentence, positions)
        },
    }


def _read_tokenizer(
    path: pathlib.Path,
) -> tuple[tokenizers.Tokenizer, dict[str, Any], dict[str, Any]]:
    """Returns the tokenizer in tokenizer.json, the contents of the file, and its rules.

    The contents have the defaults of all fields. The rules are attributes of
    `TokenizerRules`, and `lowercase`.
    """
    try:
        original = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # The library raises no other class.
        raise ValueError(
            f"{path} is no tokenizer of the library tokenizers {tokenizers.__version__}"
            f": {error}"
        ) from error
    whole = json.loads(original.to_str())
    normalizer, pre_tokenizer = (
        whole[part] or {"type": "null"} for part in ("normalizer", "pre_tokenizer")
    )
    if normalizer["type"] == "Sequence" and len(normalizer["normalizers"]) == 1:
        (normalizer,) = normalizer["normalizers"]
    types = {"normalizer": normalizer["type"], "pre_tokenizer": pre_tokenizer["type"]}
    check_fields(path, {**whole["model"], **types}, **_JSON_FIELDS)
    rules = {
        "lowercase": normalizer.get("lowercase", normalizer["type"] == "Lowercase"),
        "strip_accents": normalizer.get("strip_accents", False),
        "clean_text": normalizer.get("clean_text", False),
        "split_chinese": normalizer.get("handle_chinese_chars", False),
        "split_punctuation": types["pre_tokenizer"] == "BertPreTokenizer",
        "max_characters_per_word": whole["model"]["max_input_chars_per_word"],
        "second_segment": _second_segment(path, original),
    }
    return original, whole, rules


def _second_segment(path: pathlib.Path, original: tokenizers.Tokenizer) -> int:
    """Returns the segment id of second texts."""
    original.no_truncation()
    original.no_padding()
    single, pair = original.encode("a"), original.encode("a", "a")
    pieces = original.encode("a", add_special_tokens=False).tokens
    cls, sep = SPECIAL_TOKENS[2:4]
    first, second = [cls, *pieces, sep], [*pieces, sep]
    segments = [0] * len(first) + [pair.type_ids[-1]] * len(second)
    is_bert = single.tokens == first and pair.tokens == first + second
    if not is_bert or pair.type_ids != segments or segments[-1] > 1:
        raise ValueError(
            f"{path}: post_processor must be [CLS] A [SEP], and [CLS] A [SEP] B [SEP] "
            f"for pairs. Received: {' '.join(pair.tokens)}, segments {pair.type_ids}"
        )
    return segments[-1]


def _max_length(
    path: pathlib.Path,
    config: Mapping[str, Any],
    sentence: Mapping[str, Any],
    positions: int,
) -> int:
    """Returns the first length that is set, but at most `positions`."""
    lengths = {"max_seq_length": sentence.get("max_seq_length")}
    lengths |= {name: config.get(name) for name in ("model_max_length", "max_len")}
    for name, length in lengths.items():
        if length is None:
            continue
        if not isinstance(length, int | float) or not length >= 3:
            raise ValueError(
                f"{path}: {name} must be a number of at least 3. Received: "
                f"{name}={length!r:.80}"
            )
        return int(min(length, positions))
    return positions


def _added_tokens(
    path: pathlib.Path,
    config: Mapping[str, Any],
    whole: Mapping[str, Any],
    vocabulary: Vocabulary,
) -> tuple[Vocabulary, tuple[AddedToken, ...]]:
    """Returns the vocabulary with the added tokens, and these.

    The order is that of transformers 5.
    """
    by_id = config.get("added_tokens_decoder")
    if by_id is None:
        config = {**config, **_read(path / "special_tokens_map.json", _FIELDS)}
    names = ("bos_token", "eos_token", *_NAMES)
    named = {name: _to_token(config[name]) for name in names if config.get(name)}
    contents = {name: token.content for name, token in named.items()}
    check_fields(path / _CONFIG, contents, **{k: (v,) for k, v in _NAMES.items()})
    extra = config.get("extra_special_tokens") or ()
    extra = extra.values() if isinstance(extra, dict) else extra
    others = (*config.get("additional_special_tokens", ()), *extra, *SPECIAL_TOKENS)
    special = [*named.values(), *map(_to_token, others)]

    declared: dict[str, tuple[AddedToken, int | None]] = {}  # By content, with its id.
    if by_id is None:
        contents = {token.content for token in special}
        for content, number in read_json_object(path / "added_tokens.json").items():
            flags = {"normalized": content not in contents}
            flags["special"] = content in contents
            declared[content] = AddedToken(content, **flags), number
    numbered = sorted((int(number), token) for number, token in (by_id or {}).items())
    numbered += [(token["id"], token) for token in whole.get("added_tokens", ())]
    for number, token in numbered:
        token = _to_token(token)
        declared[token.content] = token, number
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
    return Vocabulary(tuple(tokens)), tuple(added)


def _to_token(token: str | dict[str, Any]) -> AddedToken:
    if isinstance(token, str):
        return AddedToken(token)
    fields = {f.name for f in dataclasses.fields(AddedToken)} - {"in_wordpiece"}
    flags = {"normalized": not token.get("special", True)}
    return AddedToken(**flags | {name: token[name] for name in fields & token.keys()})


# --- The library tokenizers ------------------------------------------------------


def _normalizer(lowercase: bool, rules: TokenizerRules) -> Any:
    return tokenizers.normalizers.BertNormalizer(
        clean_text=rules.clean_text,
        handle_chinese_chars=rules.split_chinese,
        strip_accents=rules.strip_accents,
        lowercase=lowercase,
    )


def _add_tokens(original: tokenizers.Tokenizer, added: tuple[AddedToken, ...]) -> None:
    for token in added:
        add = original.add_special_tokens if token.special else original.add_tokens
        add([tokenizers.AddedToken(**_flags(token))])


def _flags(token: AddedToken) -> dict[str, Any]:
    """Returns the attributes that the library tokenizers has, too."""
    flags = dataclasses.asdict(token)
    del flags["in_wordpiece"]
    return flags


def _build_original(
    vocabulary: Vocabulary, lowercase: bool, rules: TokenizerRules
) -> tokenizers.Tokenizer:
    """Builds a tokenizer of the library tokenizers."""
    own = {t.content for t in rules.added_tokens if not t.in_wordpiece}
    ids = {token: i for i, token in enumerate(vocabulary.tokens) if token not in own}
    _, unk, cls, sep, _ = SPECIAL_TOKENS
    model = tokenizers.models.WordPiece(
        ids, unk_token=unk, max_input_chars_per_word=rules.max_characters_per_word
    )
    original = tokenizers.Tokenizer(model)
    original.normalizer = _normalizer(lowercase, rules)
    pre_tokenizers = tokenizers.pre_tokenizers
    original.pre_tokenizer = (
        pre_tokenizers.BertPreTokenizer()
        if rules.split_punctuation
        else pre_tokenizers.WhitespaceSplit()
    )
    segment = rules.second_segment
    original.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{cls} $A {sep}",
        pair=f"{cls} $A {sep} $B:{segment} {sep}:{segment}",
        special_tokens=[(cls, vocabulary.cls_id), (sep, vocabulary.sep_id)],
    )
    original.decoder = tokenizers.decoders.WordPiece()
    _add_tokens(original, rules.added_tokens)
    return original


# --- Writing ---------------------------------------------------------------------


def write_tokenizer(path: pathlib.Path, checkpoint: Checkpoint) -> None:
    """Writes the files of a tokenizer; `transformers` loads them without warnings.

    The files cannot express google's rules; they get those of the library tokenizers,
    which differ in rare characters and for words of more than 100 characters.
    """
    rules, vocabulary = checkpoint.rules, checkpoint.vocabulary
    added = rules.added_tokens or tuple(map(AddedToken, SPECIAL_TOKENS))
    changes: dict[str, Any] = {"added_tokens": added}
    if rules.library == "google":
        changes["max_characters_per_word"] = _BERT_RULES["max_characters_per_word"]
    rules = dataclasses.replace(rules, **changes)
    only_added = {t.content for t in added if not t.in_wordpiece}
    words = ("" if token in only_added else token for token in vocabulary.tokens)
    Vocabulary(tuple(words)).write(path / _VOCABULARY)
    original = _build_original(vocabulary, checkpoint.lowercase, rules)
    storage.write_text(str(path / _TOKENIZER), original.to_str(pretty=True))
    is_bert = all(getattr(rules, name) == _BERT_RULES[name] for name in _FIXED)
    length = checkpoint.architecture.max_sequence_length
    config = {
        "tokenizer_class": "BertTokenizer" if is_bert else "PreTrainedTokenizerFast",
        "do_lower_case": checkpoint.lowercase,
        "strip_accents": rules.strip_accents,
        "tokenize_chinese_chars": rules.split_chinese,
        "model_max_length": checkpoint.options.get("max_sequence_length", length),
        "truncation_side": rules.truncation_side,
        "model_input_names": _INPUTS if rules.second_segment else _INPUTS[::2],
        **_NAMES,
    }
    if checkpoint.rules.added_tokens:
        ids = map(str, vocabulary.ids(token.content for token in added))
        config["added_tokens_decoder"] = dict(zip(ids, map(_flags, added)))
    storage.write_json(path / _CONFIG, config)
