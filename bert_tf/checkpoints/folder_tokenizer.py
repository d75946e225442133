# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The tokenizer of a Hugging Face folder.

vocab.txt, tokenizer.json                     vocabulary; rules
tokenizer_config.json                         class, rules, maximum length
special_tokens_map.json, added_tokens.json    tokens that are found inside texts
sentence_bert_config.json                     overrides of sentence-transformers

Every setting that changes tokens is implemented or refused. If the files disagree, the
one counts that transformers 5 follows: with a BertTokenizer the vocabulary of
tokenizer.json and the rules of tokenizer_config.json, with a TokenizersBackend
(PreTrainedTokenizerFast) all of tokenizer.json.
"""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
from collections.abc import Mapping
from typing import Any

from absl import logging

from bert_tf import text, text_files
from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.families import FAMILIES
from bert_tf.lazy import lazy_import
from bert_tf.text import SPECIAL_TOKENS, AddedToken, Vocabulary
from bert_tf.text_files import check_fields, read_json_object

# Opening checkpoints of other formats does not need it.
tokenizers = lazy_import("tokenizers")

# --- Files -----------------------------------------------------------------------

_VOCABULARY, _TOKENIZER = "vocab.txt", "tokenizer.json"
_CONFIG, _SENTENCE_CONFIG = "tokenizer_config.json", "sentence_bert_config.json"

# Our rules -> their fields in tokenizer_config.json, and in the normalizer of
# tokenizer.json.
_RULES = {
    "lowercase": ("do_lower_case", "lowercase"),
    "strip_accents": ("strip_accents", "strip_accents"),
    "split_chinese": ("tokenize_chinese_chars", "handle_chinese_chars"),
}

# The name of each special token in tokenizer_config.json, and its only allowed value.
_NAMES = {f"{token.strip('[]').lower()}_token": token for token in SPECIAL_TOKENS}

_INPUTS = ["input_ids", "token_type_ids", "attention_mask"]

# Classes that follow tokenizer.json. The rules of those of a family are BERT's.
_GENERIC_CLASSES = ("PreTrainedTokenizerFast", "TokenizersBackend")

# Allowed types or values of the fields that change tokens in these classes.
_FIELDS = {
    **{key: bool for key, _ in _RULES.values()},
    "added_tokens_decoder": dict,
    "additional_special_tokens": list,
    "auto_map": (),
    "clean_text": (True,),
    "do_basic_tokenize": (True,),
    "model_input_names": (_INPUTS, _INPUTS[::2], [_INPUTS[i] for i in (0, 2, 1)]),
    "padding_side": ("right",),
    "split_special_tokens": (False,),
    "truncation_side": ("right",),
    "wordpieces_prefix": ("##",),
}
_SENTENCE_FIELDS = {
    "do_lower_case": bool,
    **dict.fromkeys(("processing_kwargs", "processor_kwargs", "tokenizer_args"), ({},)),
    **dict.fromkeys(("model_args", "model_kwargs", "config_args"), ({},)),
    **dict.fromkeys(("query_length", "document_length", "query_expansion"), ()),
    "modality_config": tuple(
        {"text": {"method": "forward", "method_output_name": name}}
        for name in ("last_hidden_state", "logits")
    ),
}
# In tokenizer.json.
_JSON_FIELDS = {
    "normalizer": ("BertNormalizer",),
    "clean_text": (True,),
    "pre_tokenizer": ("BertPreTokenizer",),
    "type": ("WordPiece",),
    "unk_token": (SPECIAL_TOKENS[1],),
    "continuing_subword_prefix": ("##",),
    "max_input_chars_per_word": (100,),
}

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
        google: The folder's declaration that its rules are those of
            google-research/bert. Ignored if tokens were added later.

    Returns:
        `vocabulary`, `lowercase`, `rules`, and `options` with the maximum length, of a
        `Checkpoint`.

    Raises:
        ValueError: A file is missing or damaged, files contradict each other, or a
            setting is not supported. The message names file, setting and value.
    """
    ends = ("Tokenizer", "TokenizerFast")
    classes = [family.name + end for family in FAMILIES.values() for end in ends]
    fields = {"tokenizer_class": (*classes, *_GENERIC_CLASSES)}
    check_fields(path, model_config, **fields)
    config = read_json_object(path / _CONFIG, **fields, **_FIELDS)
    config = {key: value for key, value in config.items() if value is not None}
    sentence = read_json_object(path / _SENTENCE_CONFIG, **_SENTENCE_FIELDS)
    name = config.get("tokenizer_class") or model_config.get("tokenizer_class")
    is_bert = name not in _GENERIC_CLASSES
    whole = _read_tokenizer(path / _TOKENIZER)
    if not (whole or is_bert):
        raise ValueError(f"{path} must have a {_TOKENIZER} with the class {name}.")
    vocabulary = _read_vocabulary(path, whole)
    # A BertTokenizer ignores the normalizer of tokenizer.json.
    source, place = (config, 0) if is_bert else (whole["normalizer"], 1)
    rules = {x: source[k[place]] for x, k in _RULES.items() if k[place] in source}
    segment = whole.get("second_segment", 1)
    if segment and not is_bert and "model_input_names" not in config:
        logging.warning(
            f"{path / _CONFIG}: model_input_names is not set: second texts get the "
            "segment id 0, as in transformers 5. For 1, add token_type_ids to it."
        )
    inputs = config.get("model_input_names", _INPUTS if is_bert else ())
    rules["second_segment"] = segment * ("token_type_ids" in inputs)
    lowercase = rules.pop("lowercase", None)
    if lowercase is None:
        lowercase, note = text.guess_lowercase(vocabulary)
        if not lowercase:
            raise ValueError(
                f"{path}: do_lower_case is not set, so transformers lowercases and "
                f"strips accents. {note} Set do_lower_case in {_CONFIG}, to false for "
                "a cased model."
            )
        logging.warning("%s: %s", path, note)
    # sentence-transformers lowercases before a tokenizer that does not. Version 6 has
    # it in tokenizer.json, where BertTokenizer of transformers 5 ignores it.
    lowers = sentence.get("do_lower_case") or whole.get("lowers")
    if lowers and not lowercase:
        lowercase, rules["strip_accents"] = True, bool(rules.get("strip_accents"))
    vocabulary, added = _added_tokens(path, config, whole, vocabulary, model_config)
    library = "tokenizers"
    if google and {token.content for token in added} <= set(SPECIAL_TOKENS):
        in_texts, library = google.get("special_tokens_in_texts"), "google"
        added = tuple(map(AddedToken, SPECIAL_TOKENS if in_texts else ()))
    length = _max_length(path, {**config, **sentence}, positions)
    return {
        "vocabulary": vocabulary,
        "lowercase": lowercase,
        "rules": text.TokenizerRules(library, added_tokens=added, **rules),
        "options": {"max_sequence_length": length},
    }


def _read_tokenizer(path: pathlib.Path) -> dict[str, Any]:
    """Returns the contents of tokenizer.json with all defaults; {} without the file.

    Adds `second_segment`, the segment id of second texts, and `lowers`, whether a
    Lowercase precedes its normalizer.
    """
    if not path.is_file():
        return {}
    try:
        original = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # The library raises no other class.
        raise ValueError(
            f"{path} is no tokenizer of the library tokenizers {tokenizers.__version__}"
            f": {error}"
        ) from error
    whole = json.loads(original.to_str())
    sequence = (whole["normalizer"] or {}).get("normalizers", [])
    kept = [part for part in sequence if part != {"type": "Lowercase"}]
    whole["lowers"] = len(kept) < len(sequence)
    if len(kept) == 1:
        whole["normalizer"] = kept[0]
    normalizer, model = whole["normalizer"] or {}, whole["model"]
    types = {
        part: (whole[part] or {}).get("type", "null")
        for part in ("normalizer", "pre_tokenizer")
    }
    check_fields(path, {**normalizer, **model, **types}, **_JSON_FIELDS)
    for part in ("truncation", "padding"):
        check_fields(f"{path}: {part}", whole[part] or {}, direction=("Right",))
    return {**whole, "second_segment": _second_segment(path, original)}


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


def _read_vocabulary(path: pathlib.Path, whole: Mapping[str, Any]) -> Vocabulary:
    """Returns the vocabulary of the WordPiece model."""
    file = path / _VOCABULARY
    if not whole:
        return Vocabulary.from_file(file)
    by_id = {number: token for token, number in whole["model"]["vocab"].items()}
    tokens = [by_id.get(number, "") for number in range(max(by_id, default=-1) + 1)]
    listed = Vocabulary.from_file(file).tokens if file.is_file() else ()
    for number, (ours, theirs) in enumerate(zip(listed, tokens)):
        if ours != theirs.strip():
            raise ValueError(
                f"{path}: the token with id {number} is {ours!r} in {_VOCABULARY}, but "
                f"{theirs!r} in {_TOKENIZER}."
            )
    return Vocabulary(tuple(tokens))


def _max_length(path: pathlib.Path, config: Mapping[str, Any], positions: int) -> int:
    """Returns the first length that is set, but at most `positions`."""
    names = ("max_seq_length", "model_max_length", "max_len")
    name = next((x for x in names if config.get(x) is not None), "")
    length = config.get(name, positions)
    if not isinstance(length, int | float) or not length >= 3:
        raise ValueError(
            f"{path}: {name} must be a number of at least 3. Received: {length!r:.80}"
        )
    return int(min(length, positions))


def _added_tokens(
    path: pathlib.Path,
    config: Mapping[str, Any],
    whole: Mapping[str, Any],
    vocabulary: Vocabulary,
    model_config: Mapping[str, Any],
) -> tuple[Vocabulary, tuple[AddedToken, ...]]:
    """Returns the vocabulary with the added tokens, and these.

    Leaves out a [MASK] without a row in the token embedding: transformers declares one
    if the vocabulary has none.
    """
    by_id = config.get("added_tokens_decoder")
    if by_id is None:  # Versions of transformers before 4.34.
        config = {**config, **read_json_object(path / "special_tokens_map.json")}
    special = _special_tokens(path, config)
    if by_id is None:
        contents = {token.content for token in special}
        listed = read_json_object(path / "added_tokens.json").items()
        added = [
            (number, {"content": content, "special": content in contents})
            for content, number in listed
        ]
    else:
        added = sorted((int(number), token) for number, token in by_id.items())
    added += [(token["id"], token) for token in whole.get("added_tokens", ())]
    rows, declared = model_config.get("vocab_size", math.inf), {}
    for number, token in added:
        token = _to_token(token)
        if number < rows or token.content != _NAMES["mask_token"]:
            declared[token.content] = token, number
    for token in special:
        if token.content in vocabulary.tokens or token.content not in SPECIAL_TOKENS:
            declared.setdefault(token.content, (token, None))

    tokens = list(vocabulary.tokens)
    index = {token: number for number, token in enumerate(tokens)}
    for content, (_, number) in declared.items():
        actual = index.setdefault(content, len(tokens))
        if actual == len(tokens):
            tokens.append(content)
        if number not in (None, actual):
            raise ValueError(
                f"{path}: the added token {content!r} must have the id {actual}, its "
                f"place in the vocabulary or the first free one. Received: {number}"
            )
    return Vocabulary(tuple(tokens)), tuple(token for token, _ in declared.values())


def _special_tokens(path: pathlib.Path, config: Mapping[str, Any]) -> list[AddedToken]:
    """Returns the special tokens, after checking those of BERT."""
    named = {name: _to_token(config.get(name) or "").content for name in _NAMES}
    check_fields(path / _CONFIG, named, **{k: (v, "") for k, v in _NAMES.items()})
    extra = config.get("extra_special_tokens") or ()
    tokens = [config.get("bos_token"), config.get("eos_token")]
    tokens += extra.values() if isinstance(extra, dict) else extra
    tokens += config.get("additional_special_tokens", ())
    return [_to_token(token) for token in (*tokens, *SPECIAL_TOKENS) if token]


def _to_token(token: str | dict[str, Any]) -> AddedToken:
    """Its `lstrip` and `rstrip` are left out, because they change no ids."""
    if isinstance(token, str):
        return AddedToken(token)
    content, special = token["content"], token.get("special", True)
    check_fields(f"added token {content!r}", token, single_word=(False,))
    return AddedToken(content, token.get("normalized", not special), special)


# --- Writing ---------------------------------------------------------------------


def write_tokenizer(path: pathlib.Path, checkpoint: Checkpoint) -> None:
    """Writes the files of a tokenizer; `transformers` loads them without warnings.

    The files cannot express google's rules; they get those of the library tokenizers,
    which differ in rare characters and for words of more than 100 characters.
    """
    rules, vocabulary = checkpoint.rules, checkpoint.vocabulary
    vocabulary.write(path / _VOCABULARY)
    added = rules.added_tokens or tuple(map(AddedToken, SPECIAL_TOKENS))
    original = _build_tokenizer(checkpoint, added)
    text_files.write_text(str(path / _TOKENIZER), original.to_str(pretty=True))
    config = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": checkpoint.lowercase,
        "strip_accents": rules.strip_accents,
        "tokenize_chinese_chars": rules.split_chinese,
        "model_max_length": checkpoint.max_sequence_length,
        "model_input_names": _INPUTS if rules.second_segment else _INPUTS[::2],
        **_NAMES,
    }
    if rules.added_tokens:
        ids = map(str, vocabulary.ids(token.content for token in added))
        config["added_tokens_decoder"] = dict(zip(ids, map(dataclasses.asdict, added)))
    text_files.write_json(path / _CONFIG, config)


def _build_tokenizer(
    checkpoint: Checkpoint, added: tuple[AddedToken, ...]
) -> tokenizers.BertWordPieceTokenizer:
    """Builds a tokenizer of the library tokenizers."""
    rules, vocabulary = checkpoint.rules, checkpoint.vocabulary
    ids = {token: number for number, token in enumerate(vocabulary.tokens)}
    # The WordPiece model must not find tokens that were added to its vocabulary.
    further = {token.content for token in added} - {*SPECIAL_TOKENS}
    while next(reversed(ids)) in further:
        ids.popitem()
    original = tokenizers.BertWordPieceTokenizer(
        ids,
        handle_chinese_chars=rules.split_chinese,
        strip_accents=rules.strip_accents,
        lowercase=checkpoint.lowercase,
    )
    if not rules.second_segment:
        cls, sep = SPECIAL_TOKENS[2:4]
        original.post_processor = tokenizers.processors.TemplateProcessing(
            single=f"{cls} $A {sep}",
            pair=f"{cls} $A {sep} $B {sep}",
            special_tokens=[(cls, vocabulary.cls_id), (sep, vocabulary.sep_id)],
        )
    for token in added:
        add = original.add_special_tokens if token.special else original.add_tokens
        add([tokenizers.AddedToken(**dataclasses.asdict(token))])
    return original
