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
from typing import Any, NamedTuple

from bert_tf.checkpoints.checkpoint import check_fields, read_json_object
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

VOCABULARY, TOKENIZER, CONFIG = "vocab.txt", "tokenizer.json", "tokenizer_config.json"
_SENTENCE_CONFIG = "sentence_bert_config.json"

# The rules of a BertTokenizer, and those that its files cannot change.
PLAIN = TokenizerRules("tokenizers", 100)
FIXED = ("clean_text", "split_punctuation", "max_characters_per_word")

# The name of each special token in tokenizer_config.json, and its only allowed value.
_KEYS = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
NAMES = dict(zip(_KEYS, SPECIAL_TOKENS))

# Classes whose rules are those of BERT, and classes that follow tokenizer.json.
_BERT_CLASSES = ("BertTokenizer", "BertTokenizerFast")
_GENERIC_CLASSES = ("PreTrainedTokenizerFast", "TokenizersBackend")
_CLASSES = {"tokenizer_class": (*_BERT_CLASSES, *_GENERIC_CLASSES)}

# Fields that change no id of a text, or that are checked where they are used.
_IGNORED = """
    name_or_path special_tokens_map_file tokenizer_file vocab_file backend is_local
    local_files_only use_fast from_slow verbose clean_up_tokenization_spaces
    chat_template processor_class pad_token_type_id pad_to_multiple_of max_length stride
    init_inputs trust_remote_code device_map _commit_hash transformers_version errors
    use_default_system_prompt model_type padding truncation return_tensors
    use_auth_token bos_token eos_token model_max_length max_len extra_special_tokens
"""
_FIELDS = {
    **_CLASSES,
    **dict.fromkeys((*_IGNORED.split(), *NAMES)),
    **dict.fromkeys(("do_lower_case", "strip_accents", "tokenize_chinese_chars"), bool),
    **dict.fromkeys(("model_input_names", "additional_special_tokens"), list),
    **dict.fromkeys(("clean_text", "do_basic_tokenize"), (True,)),
    **dict.fromkeys(("split_special_tokens", "add_prefix_space"), (False,)),
    **dict.fromkeys(("add_bos_token", "add_eos_token"), (False,)),
    "added_tokens_decoder": dict,
    "truncation_side": ("right", "left"),
    "truncation_strategy": ("longest_first", "LongestFirst"),
    "padding_side": ("right",),
    "never_split": ([],),
    "wordpieces_prefix": ("##",),
}
_SENTENCE_FIELDS = {
    **dict.fromkeys(("max_seq_length", "unpad_inputs")),
    **dict.fromkeys(("modality_config", "module_output_name")),
    "do_lower_case": bool,
    "transformer_task": ("feature-extraction", "fill-mask", "sequence-classification"),
    **dict.fromkeys(("processing_kwargs", "processor_kwargs", "tokenizer_args"), ({},)),
    **dict.fromkeys(("model_args", "model_kwargs", "config_args"), ({},)),
    "config_kwargs": ({},),
    **dict.fromkeys(("query_length", "document_length", "query_expansion"), ()),
    "tokenizer_name_or_path": (),
}
# In tokenizer.json. The longest word is limited by regular expressions of RE2.
_JSON_FIELDS = {
    "unk_token": (SPECIAL_TOKENS[1],),
    "continuing_subword_prefix": ("##",),
    "max_input_chars_per_word": range(1, 1000),
    "normalizer": ("BertNormalizer", "Lowercase", "null"),
    "pre_tokenizer": ("BertPreTokenizer", "WhitespaceSplit"),
}


def _read(path: pathlib.Path, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Reads a JSON object without its null values, and checks its fields."""
    values = read_json_object(path, **fields)
    for key in values:
        if key not in fields and values[key] is not None:
            raise ValueError(
                f"{path}: the field {key} is not known. Received: {key}="
                f"{values[key]!r:.80}. Remove it if it does not change how texts are "
                "tokenized."
            )
    return {key: value for key, value in values.items() if value is not None}


def _read_tokenizer(
    path: pathlib.Path,
) -> tuple[dict[str, Any], tokenizers.Tokenizer | None]:
    """Returns the contents of tokenizer.json, and its tokenizer; none if absent."""
    if not path.is_file():
        return {}, None
    try:
        original = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # The library raises no other class.
        raise ValueError(
            f"{path} is no tokenizer of the library tokenizers {tokenizers.__version__}"
            f": {error}"
        ) from error
    whole = json.loads(original.to_str())  # With the defaults of all fields.
    check_fields(f"{path}: model", whole["model"], type=("WordPiece",))
    return whole, original


def _read_vocabulary(path: pathlib.Path, whole: Mapping[str, Any]) -> Vocabulary:
    """Returns the vocabulary of the WordPiece model."""
    file = path / VOCABULARY
    if not whole and not file.is_file():
        raise ValueError(
            f"{path} has no {VOCABULARY} and no {TOKENIZER}. Copy the model's "
            "vocabulary into the folder."
        )
    vocabulary = Vocabulary.from_file(file) if file.is_file() else None
    if not whole:
        return vocabulary
    by_id = {number: token for token, number in whole["model"]["vocab"].items()}
    tokens = [by_id.get(number, "") for number in range(max(by_id, default=-1) + 1)]
    # A BertTokenizer appends them; vocab.txt may have them in their places.
    added = {token["content"] for token in whole["added_tokens"]}
    columns = itertools.zip_longest(vocabulary.tokens, tokens) if vocabulary else ()
    for number, (ours, theirs) in enumerate(columns):
        is_added = theirs is None and (ours in added or not ours)
        if ours != (theirs or "").strip() and (ours or theirs) and not is_added:
            raise ValueError(
                f"{path}: the token with id {number} is {ours!r} in {VOCABULARY}, but "
                f"{theirs!r} in {TOKENIZER}."
            )
    try:
        return Vocabulary(tuple(tokens))
    except ValueError as error:
        raise ValueError(f"{path / TOKENIZER}: {error}") from error


# --- Opening ---------------------------------------------------------------------


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
        google: What the folder declares of google's rules. It counts unless somebody
            has added tokens since then.

    Raises:
        ValueError: A file is missing or damaged, files contradict each other, or a
            setting is not supported. The message names file, setting and value.
    """
    check_fields(path, model_config, **_CLASSES)
    config = _read(path / CONFIG, _FIELDS)
    sentence = _read(path / _SENTENCE_CONFIG, _SENTENCE_FIELDS)
    name = config.get("tokenizer_class") or model_config.get("tokenizer_class")
    is_bert = name not in _GENERIC_CLASSES
    whole, original = _read_tokenizer(path / TOKENIZER)
    if not is_bert and not whole:
        raise ValueError(
            f"{path}: a folder with tokenizer_class={name!r} must have a {TOKENIZER}."
        )
    vocabulary, notes = _read_vocabulary(path, whole), []
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
    null = {"type": "null"}
    model, normalizer = whole["model"], whole["normalizer"] or null
    if normalizer["type"] == "Sequence" and len(normalizer["normalizers"]) == 1:
        (normalizer,) = normalizer["normalizers"]
    types = {"normalizer": normalizer["type"]}
    types["pre_tokenizer"] = (whole["pre_tokenizer"] or null)["type"]
    check_fields(path, {**model, **types}, **_JSON_FIELDS)
    rules = TokenizerRules(
        library="tokenizers",
        max_characters_per_word=model["max_input_chars_per_word"],
        strip_accents=False,
        clean_text=False,
        split_chinese=False,
        split_punctuation=types["pre_tokenizer"] == "BertPreTokenizer",
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
    for flag in FIXED:
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
        names |= _read(path / "special_tokens_map.json", _FIELDS)
    contents = {name: _content(names.get(name)) for name in NAMES}
    check_fields(path / CONFIG, contents, **{k: (v,) for k, v in NAMES.items()})
    extra = names.get("extra_special_tokens") or ()
    special = [names.get(name) for name in ("bos_token", "eos_token", *NAMES)]
    special += names.get("additional_special_tokens") or ()
    special += extra.values() if isinstance(extra, dict) else extra
    special = [_to_token(token) for token in (*special, *SPECIAL_TOKENS) if token]

    declared: dict[str, tuple[AddedToken, int | None]] = {}  # By content, with its id.
    if by_id is None:
        for content, number in read_json_object(path / "added_tokens.json").items():
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


# --- The library tokenizers ------------------------------------------------------


def build_original(
    vocabulary: Vocabulary, lowercase: bool, rules: TokenizerRules
) -> tokenizers.Tokenizer:
    """Builds a tokenizer of the library tokenizers without added tokens."""
    own = {t.content for t in rules.added_tokens if not t.in_wordpiece}
    ids = {token: i for i, token in enumerate(vocabulary.tokens) if token not in own}
    _, unk, cls, sep, _ = SPECIAL_TOKENS
    model = tokenizers.models.WordPiece(
        ids, unk_token=unk, max_input_chars_per_word=rules.max_characters_per_word
    )
    original = tokenizers.Tokenizer(model)
    original.normalizer = tokenizers.normalizers.BertNormalizer(
        clean_text=rules.clean_text,
        handle_chinese_chars=rules.split_chinese,
        strip_accents=rules.strip_accents,
        lowercase=lowercase,
    )
    original.pre_tokenizer = (
        tokenizers.pre_tokenizers.BertPreTokenizer()
        if rules.split_punctuation
        else tokenizers.pre_tokenizers.WhitespaceSplit()
    )
    segment = rules.second_segment
    original.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{cls} $A {sep}",
        pair=f"{cls} $A {sep} $B:{segment} {sep}:{segment}",
        special_tokens=[(cls, vocabulary.cls_id), (sep, vocabulary.sep_id)],
    )
    original.decoder = tokenizers.decoders.WordPiece()
    return original


def add_token(original: tokenizers.Tokenizer, token: AddedToken) -> None:
    """Adds a token to a tokenizer of the library tokenizers."""
    options = dataclasses.asdict(token)
    del options["in_wordpiece"]
    add = original.add_special_tokens if token.special else original.add_tokens
    add([tokenizers.AddedToken(**options)])
