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

from bert_tf import storage
from bert_tf.checkpoints.checkpoint import Checkpoint, read_json_object
from bert_tf.lazy import lazy_import
from bert_tf.text import (
    SPECIAL_TOKENS,
    AddedToken,
    TokenizerRules,
    Vocabulary,
    guess_lowercase,
)

# Opening checkpoints of other formats does not need it.
tokenizers = lazy_import("tokenizers")

_VOCABULARY, _TOKENIZER = "vocab.txt", "tokenizer.json"
_CONFIG, _SENTENCE_CONFIG = "tokenizer_config.json", "sentence_bert_config.json"
_SPECIAL_TOKENS_MAP, _ADDED_TOKENS = "special_tokens_map.json", "added_tokens.json"

# Classes whose rules are those of BERT, and classes that follow tokenizer.json.
_BERT_CLASSES = ("BertTokenizer", "BertTokenizerFast")
_GENERIC_CLASSES = ("PreTrainedTokenizerFast", "TokenizersBackend")

# The rules of a BertTokenizer, and those that its files cannot change.
_PLAIN = TokenizerRules("tokenizers", 100)
_FLAGS = ("clean_text", "split_punctuation", "max_characters_per_word")

# The name of each special token in tokenizer_config.json, and its only allowed value.
_NAMES = dict(
    zip(
        ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"),
        SPECIAL_TOKENS,
    )
)

# Fields of the files. None stands for a field that this module reads or that changes no
# id of a text; other fields must have one of the listed values, or be null.
_ANY = None
_IGNORED = dict.fromkeys(
    (
        *("name_or_path", "special_tokens_map_file", "tokenizer_file", "vocab_file"),
        *(
            "backend",
            "is_local",
            "local_files_only",
            "use_fast",
            "from_slow",
            "verbose",
        ),
        *("clean_up_tokenization_spaces", "chat_template", "processor_class"),
        *("pad_token_type_id", "pad_to_multiple_of", "max_length", "stride"),
        *("init_inputs", "trust_remote_code", "device_map", "_commit_hash"),
        *("transformers_version", "errors", "use_default_system_prompt"),
        *("model_type", "padding", "truncation", "return_tensors", "use_auth_token"),
    )
)
_CONFIG_FIELDS: Mapping[str, Any] = {
    **_IGNORED,
    **dict.fromkeys(("tokenizer_class", "added_tokens_decoder", "model_input_names")),
    **dict.fromkeys(("additional_special_tokens", "extra_special_tokens")),
    **dict.fromkeys(("do_lower_case", "strip_accents", "tokenize_chinese_chars")),
    **dict.fromkeys((*_NAMES, "bos_token", "eos_token", "model_max_length", "max_len")),
    "clean_text": (True,),
    "truncation_side": ("right", "left"),
    "truncation_strategy": ("longest_first", "LongestFirst"),
    "padding_side": ("right",),
    "do_basic_tokenize": (True,),
    "never_split": ([],),
    "wordpieces_prefix": ("##",),
    "split_special_tokens": (False,),
    "add_prefix_space": (False,),
    "add_bos_token": (False,),
    "add_eos_token": (False,),
}
_JSON_FIELDS: Mapping[str, Any] = dict.fromkeys(
    ("version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer")
) | dict.fromkeys(("post_processor", "decoder", "model"))
_JSON_DEFAULTS = {
    "normalizer": {"type": "BertNormalizer"},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": {"type": "BertProcessing", "cls": ("[CLS]",), "sep": ("[SEP]",)},
    "added_tokens": [],
}
_MODEL_FIELDS: Mapping[str, Any] = {
    "type": _ANY,
    "vocab": _ANY,
    "max_input_chars_per_word": _ANY,
    "unk_token": (SPECIAL_TOKENS[1],),
    "continuing_subword_prefix": ("##",),
}
_NORMALIZER_FIELDS: Mapping[str, Any] = dict.fromkeys(
    ("type", "clean_text", "handle_chinese_chars", "strip_accents", "lowercase")
)
_SENTENCE_FIELDS: Mapping[str, Any] = {
    **dict.fromkeys(("max_seq_length", "do_lower_case", "unpad_inputs")),
    **dict.fromkeys(("modality_config", "module_output_name")),
    "transformer_task": ("feature-extraction", "sequence-classification"),
    **dict.fromkeys(("processing_kwargs", "processor_kwargs", "tokenizer_args"), ({},)),
    **dict.fromkeys(("model_args", "model_kwargs", "config_args"), ({},)),
    **dict.fromkeys(("config_kwargs",), ({},)),
    **dict.fromkeys(("query_length", "document_length", "query_expansion"), ()),
    "tokenizer_name_or_path": (),
}

_MAX_WORD = 999  # Repetitions in a regular expression of RE2, less one.


@dataclasses.dataclass(frozen=True)
class FolderTokenizer:
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
    notes: tuple[str, ...]
    original: tokenizers.Tokenizer | None


def open_tokenizer(
    path: pathlib.Path,
    model_config: Mapping[str, Any],
    positions: int,
    google: TokenizerRules | None = None,
) -> FolderTokenizer:
    """Reads all files of a folder's tokenizer.

    Args:
        path: The folder.
        model_config: The contents of config.json.
        positions: The maximum number of tokens of the model.
        google: Google's rules, which `write_tokenizer` cannot write. They count unless
            somebody has added tokens since then.

    Raises:
        ValueError: A file is missing or damaged, files contradict each other, or a
            setting is not supported. The message names file, setting and value.
    """
    name = read_json_object(path / _CONFIG).get("tokenizer_class")
    name = name or model_config.get("tokenizer_class")
    is_bert = name is None or name in _BERT_CLASSES
    if not is_bert and name not in _GENERIC_CLASSES:
        known = ", ".join((*_BERT_CLASSES, *_GENERIC_CLASSES))
        raise ValueError(
            f"{path}: tokenizer_class must be one of {known}. Received: "
            f"tokenizer_class={name!r}, whose rules are not supported."
        )
    config = _read(path / _CONFIG, _CONFIG_FIELDS)
    sentence = _read(path / _SENTENCE_CONFIG, _SENTENCE_FIELDS)
    _read(path / _TOKENIZER, _JSON_FIELDS)
    whole = read_json_object(path / _TOKENIZER)
    whole = _JSON_DEFAULTS | whole if whole else {}
    if not is_bert and not whole:
        raise ValueError(
            f"{path}: a folder with tokenizer_class={name!r} must have a {_TOKENIZER}."
        )
    notes: list[str] = []
    json_rules, json_lowercase = _json_rules(path / _TOKENIZER, whole)
    rules, lowercase = json_rules, json_lowercase
    if is_bert:
        for flag in _FLAGS:
            if getattr(rules, flag) != getattr(_PLAIN, flag):
                raise ValueError(
                    f"{path / _TOKENIZER}: {flag} is {getattr(rules, flag)!r}, but a "
                    f"BertTokenizer has {getattr(_PLAIN, flag)!r}. If {_TOKENIZER} is "
                    f'right, set "tokenizer_class": "TokenizersBackend" in {_CONFIG}.'
                )
        lowercase = config.get("do_lower_case", json_lowercase)
        if json_lowercase not in (None, lowercase):
            notes.append(
                f"{_CONFIG} has do_lower_case={lowercase}, {_TOKENIZER} has lowercase="
                f"{json_lowercase}. The first counts, as in transformers."
            )
        rules = dataclasses.replace(
            rules,
            strip_accents=config.get("strip_accents", rules.strip_accents),
            split_chinese=config.get("tokenize_chinese_chars", rules.split_chinese),
        )
    names = config.get("model_input_names")
    if names is None and not is_bert and rules.second_segment:
        names = ["input_ids", "attention_mask"]
        notes.append(
            "model_input_names is not set: second texts get the segment id 0, as in "
            "transformers 5. For 1, add token_type_ids to it."
        )
    if names is not None and not {"input_ids", "attention_mask"} <= {*names}:
        raise ValueError(
            f"{path / _CONFIG}: model_input_names must contain input_ids and "
            f"attention_mask. Received: {names!r:.80}"
        )
    if names is not None and "token_type_ids" not in names:
        rules = dataclasses.replace(rules, second_segment=0)
    direction = str((whole.get("truncation") or {}).get("direction", "right")).lower()
    vocabulary = _vocabulary(path, whole)
    if lowercase is None:
        lowercase, note = guess_lowercase(vocabulary)
        if not lowercase:
            raise ValueError(
                f"{path}: do_lower_case is not set, so transformers lowercases and "
                f"strips accents. {note} Set do_lower_case in {_CONFIG}, to false for "
                "a cased model."
            )
        notes.append(note)
    original = _original(vocabulary, lowercase, rules)
    if whole and not is_bert:
        original = tokenizers.Tokenizer.from_str(json.dumps(whole))
    vocabulary, added = _added_tokens(path, config, whole, vocabulary, original)
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
    own = {token.content for token in google.added_tokens} if google else set()
    if google and {token.content for token in added} <= own.union(SPECIAL_TOKENS):
        names = ("library", "max_characters_per_word", "added_tokens")
        changes = {name: getattr(google, name) for name in names}
        rules, original = dataclasses.replace(rules, **changes), None
    lengths = {"max_seq_length": sentence.get("max_seq_length")}
    lengths |= {name: config.get(name) for name in ("model_max_length", "max_len")}
    return FolderTokenizer(
        vocabulary=vocabulary,
        lowercase=lowercase,
        rules=rules,
        max_length=_max_length(path, lengths, positions),
        notes=tuple(notes),
        original=original,
    )


def _original(
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


def _add(original: tokenizers.Tokenizer, token: AddedToken) -> None:
    options = dataclasses.asdict(token)
    del options["in_wordpiece"]
    add = original.add_special_tokens if token.special else original.add_tokens
    add([tokenizers.AddedToken(**options)])


def _read(path: pathlib.Path, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Reads a JSON object without its null values, and checks its fields."""
    return _checked(path, read_json_object(path), fields)


def _checked(
    path: pathlib.Path, values: Any, fields: Mapping[str, Any]
) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise ValueError(f"{path} must contain JSON objects. Received: {values!r:.80}")
    values = {k: v for k, v in values.items() if v is not None}
    for key, value in values.items():
        if key not in fields:
            raise ValueError(
                f"{path}: the field {key} is not known. Received: {key}={value!r:.80}. "
                "Remove it if it does not change how texts are tokenized."
            )
        allowed = fields[key]
        if allowed is not _ANY and value not in allowed:
            options = " or ".join(map(repr, allowed)) or "null"
            raise ValueError(
                f"{path}: {key} must be {options}. Received: {key}={value!r:.80}"
            )
    types = {
        **dict.fromkeys(("do_lower_case", "strip_accents", "lowercase"), bool),
        **dict.fromkeys(("tokenize_chinese_chars", "handle_chinese_chars"), bool),
        **dict.fromkeys(("clean_text",), bool),
        **dict.fromkeys(("added_tokens_decoder", "vocab", "truncation"), dict),
        **dict.fromkeys(("model_input_names", "additional_special_tokens"), list),
        **dict.fromkeys(("added_tokens",), list),
        "max_input_chars_per_word": int,
    }
    for key in values.keys() & types.keys():
        if not isinstance(values[key], types[key]):
            raise ValueError(
                f"{path}: {key} must have the type {types[key].__name__}. Received: "
                f"{key}={values[key]!r:.80}"
            )
    return values


# --- tokenizer.json --------------------------------------------------------------


def _json_rules(
    path: pathlib.Path, whole: Mapping[str, Any]
) -> tuple[TokenizerRules, bool | None]:
    """Returns the rules in tokenizer.json, and whether it lowercases."""
    if not whole:
        return _PLAIN, None
    kind = _type(path, "model", whole.get("model"))
    if kind != "WordPiece":
        raise ValueError(f"{path}: the model type must be WordPiece. Received: {kind}")
    model = _checked(path, whole["model"], _MODEL_FIELDS)
    limit = model.get("max_input_chars_per_word", 100)
    if not 0 < limit <= _MAX_WORD:
        raise ValueError(
            f"{path}: max_input_chars_per_word must be from 1 to {_MAX_WORD}. "
            f"Received: {limit}"
        )
    normalizer, lowercase = _normalizer(path, whole.get("normalizer"))
    kind = _type(path, "pre_tokenizer", whole.get("pre_tokenizer"))
    if kind not in ("BertPreTokenizer", "WhitespaceSplit"):
        raise ValueError(
            f"{path}: pre_tokenizer must be BertPreTokenizer or WhitespaceSplit. "
            f"Received: {whole.get('pre_tokenizer')!r:.200}"
        )
    rules = TokenizerRules(
        library="tokenizers",
        max_characters_per_word=limit,
        split_punctuation=kind == "BertPreTokenizer",
        second_segment=_second_segment(path, whole.get("post_processor")),
        **normalizer,
    )
    return rules, lowercase


def _type(path: pathlib.Path, name: str, value: Any) -> str | None:
    if not isinstance(value, dict | None):
        raise ValueError(
            f"{path}: {name} must have the type dict. Received: {name}={value!r:.80}"
        )
    return (value or {}).get("type")


def _normalizer(path: pathlib.Path, value: Any) -> tuple[dict[str, Any], bool | None]:
    """Returns fields of `TokenizerRules`, and whether it lowercases."""
    kind = _type(path, "normalizer", value)
    nothing = {"clean_text": False, "split_chinese": False, "strip_accents": False}
    if value is None or kind == "Lowercase":
        return nothing, kind == "Lowercase"
    if kind == "Sequence" and len(value.get("normalizers") or ()) == 1:
        return _normalizer(path, value["normalizers"][0])
    if kind != "BertNormalizer":
        raise ValueError(
            f"{path}: normalizer must be BertNormalizer, Lowercase or null. Received: "
            f"{value!r:.200}"
        )
    value = _checked(path, value, _NORMALIZER_FIELDS)
    fields = {
        "clean_text": value.get("clean_text", True),
        "split_chinese": value.get("handle_chinese_chars", True),
        "strip_accents": value.get("strip_accents"),
    }
    return fields, value.get("lowercase")


def _second_segment(path: pathlib.Path, value: Any) -> int:
    """Returns the segment id of second texts."""
    kind = _type(path, "post_processor", value)
    cls, sep = SPECIAL_TOKENS[2:4]
    if kind == "BertProcessing" and (value["cls"][0], value["sep"][0]) == (cls, sep):
        return 1
    if kind == "TemplateProcessing":

        def flat(template: Any) -> list[tuple[str, int]]:
            return [(e["id"], e["type_id"]) for item in template for e in item.values()]

        single, pair = flat(value["single"]), flat(value["pair"])
        first = [(cls, 0), ("A", 0), (sep, 0)]
        if single == first and pair[:3] == first:
            for segment in (0, 1):
                if pair[3:] == [("B", segment), (sep, segment)]:
                    return segment
    raise ValueError(
        f"{path}: post_processor must be [CLS] A [SEP], and [CLS] A [SEP] B [SEP] for "
        f"pairs. Received: {value!r:.400}"
    )


# --- Vocabulary ------------------------------------------------------------------


def _vocabulary(path: pathlib.Path, whole: Mapping[str, Any]) -> Vocabulary:
    """Returns the vocabulary of the WordPiece model."""
    vocabularies = []
    if (path / _VOCABULARY).is_file():
        vocabularies.append(Vocabulary.from_file(path / _VOCABULARY))
    if whole:
        ids = whole["model"].get("vocab", {})
        by_id = {number: token for token, number in ids.items()}
        try:
            tokens = [
                by_id.get(number, "") for number in range(max(by_id, default=-1) + 1)
            ]
            vocabularies.append(Vocabulary(tuple(tokens)))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path / _TOKENIZER}: {error}") from error
    if not vocabularies:
        raise ValueError(
            f"{path} has no {_VOCABULARY} and no {_TOKENIZER}. Copy the model's "
            "vocabulary into the folder."
        )
    added = {token.get("content") for token in whole.get("added_tokens", ())}
    first, last = vocabularies[0].tokens, vocabularies[-1].tokens
    for number, (ours, theirs) in enumerate(itertools.zip_longest(first, last)):
        is_added = theirs is None and (ours in added or not ours)
        if ours != (theirs or "").strip() and (ours or theirs) and not is_added:
            raise ValueError(
                f"{path}: the token with id {number} is {ours!r} in {_VOCABULARY}, but "
                f"{theirs!r} in {_TOKENIZER}."
            )
    return vocabularies[-1]


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
    declared: dict[str, tuple[Any, int | None]] = {}  # Content -> token, declared id.
    names = dict(config)
    by_id = config.get("added_tokens_decoder")
    if by_id is None:
        special = read_json_object(path / _SPECIAL_TOKENS_MAP)
        names |= _checked(path / _SPECIAL_TOKENS_MAP, special, _CONFIG_FIELDS)
    for name, expected in _NAMES.items():
        if (received := _content(names.get(name, expected))) != expected:
            raise ValueError(
                f"{path / _CONFIG}: {name} must be {expected!r}. Received: "
                f"{name}={received!r:.80}"
            )
    extra = [names.get("additional_special_tokens"), names.get("extra_special_tokens")]
    extra = [
        *(extra[0] or ()),
        *(extra[1].values() if isinstance(extra[1], dict) else extra[1] or ()),
    ]
    special = [names.get(name) for name in ("bos_token", "eos_token", *_NAMES)] + extra
    special = [*map(_to_token, [*(t for t in special if t), *SPECIAL_TOKENS])]
    if by_id is None:
        for content, number in read_json_object(path / _ADDED_TOKENS).items():
            is_special = any(token.content == content for token in special)
            declared[content] = (
                AddedToken(content, normalized=not is_special, special=is_special),
                number,
            )
    for number, token in sorted((by_id or {}).items(), key=lambda item: int(item[0])):
        declared[_content(token)] = _to_token(token), int(number)
    for token in whole.get("added_tokens", ()):
        declared[_content(token)] = _to_token(token), token.get("id")
    for token in special:
        if token.content in vocabulary.tokens or token.content not in SPECIAL_TOKENS:
            declared.setdefault(token.content, (token, None))

    tokens = list(vocabulary.tokens)
    index = {token: number for number, token in enumerate(tokens)}
    added = []
    for content, (token, number) in declared.items():
        in_wordpiece = content in index and index[content] < vocabulary.size
        actual = index.setdefault(content, len(tokens))
        tokens[actual : actual + 1] = [content]
        if number not in (None, actual):
            raise ValueError(
                f"{path}: the added token {content!r} must have the id {actual}, its "
                f"place in the vocabulary or the first free one. Received: {number}"
            )
        token = dataclasses.replace(token, in_wordpiece=in_wordpiece)
        added.append(token)
        _add(original, token)
    return Vocabulary(tuple(tokens)), tuple(added)


def _content(token: Any) -> Any:
    return token.get("content") if isinstance(token, dict) else token


def _to_token(token: Any) -> AddedToken:
    if isinstance(token, str):
        return AddedToken(token)
    fields = {f.name for f in dataclasses.fields(AddedToken)} - {"in_wordpiece"}
    special = token.get("special", True)
    return AddedToken(
        **{"normalized": not special, **{k: token[k] for k in fields & token.keys()}}
    )


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


# --- Writing ---------------------------------------------------------------------


def write_tokenizer(path: pathlib.Path, checkpoint: Checkpoint) -> None:
    """Writes the files of a tokenizer; `transformers` loads them without warnings.

    The files cannot express google's rules; they get those of the library tokenizers,
    which differ in rare characters and for words of more than 100 characters.
    """
    rules, vocabulary = checkpoint.rules, checkpoint.vocabulary
    if rules.library == "google":
        limit = _PLAIN.max_characters_per_word
        rules = dataclasses.replace(rules, max_characters_per_word=limit)
    added = rules.added_tokens or tuple(map(AddedToken, SPECIAL_TOKENS))
    only_added = {t.content for t in added if not t.in_wordpiece}
    words = ("" if token in only_added else token for token in vocabulary.tokens)
    Vocabulary(tuple(words)).write(path / _VOCABULARY)
    original = _original(vocabulary, checkpoint.lowercase, rules)
    for token in added:
        _add(original, token)
    storage.write_text(str(path / _TOKENIZER), original.to_str(pretty=True))
    is_bert = all(getattr(rules, flag) == getattr(_PLAIN, flag) for flag in _FLAGS)
    length = checkpoint.architecture.max_sequence_length
    names = ["input_ids", "token_type_ids", "attention_mask"]
    config = {
        "tokenizer_class": "BertTokenizer" if is_bert else "PreTrainedTokenizerFast",
        "do_lower_case": checkpoint.lowercase,
        "strip_accents": rules.strip_accents,
        "tokenize_chinese_chars": rules.split_chinese,
        "model_max_length": checkpoint.options.get("max_sequence_length", length),
        "truncation_side": rules.truncation_side,
        "model_input_names": names if rules.second_segment else names[::2],
        **_NAMES,
    }
    if rules.added_tokens:
        tokens = [dataclasses.asdict(token) for token in added]
        for token in tokens:
            del token["in_wordpiece"]
        ids = vocabulary.ids(token.content for token in added)
        config["added_tokens_decoder"] = dict(zip(map(str, ids), tokens))
    storage.write_json(path / _CONFIG, config)
