# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The files of a tokenizer in a Hugging Face folder: reading and writing.

vocab.txt, tokenizer.json                     vocabulary; rules
tokenizer_config.json                         class, rules, maximum length
special_tokens_map.json, added_tokens.json    tokens that are found inside texts
sentence_bert_config.json                     overrides of sentence-transformers
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
from bert_tf.text import SPECIAL_TOKENS, AddedToken, TokenizerRules, Vocabulary

# Opening checkpoints of other formats does not need it.
tokenizers = lazy_import("tokenizers")

VOCABULARY, TOKENIZER = "vocab.txt", "tokenizer.json"
CONFIG, SENTENCE_CONFIG = "tokenizer_config.json", "sentence_bert_config.json"
SPECIAL_TOKENS_MAP, ADDED_TOKENS = "special_tokens_map.json", "added_tokens.json"

# The rules of a BertTokenizer, and those that its files cannot change.
PLAIN = TokenizerRules("tokenizers", 100)
FLAGS = ("clean_text", "split_punctuation", "max_characters_per_word")

# The name of each special token in tokenizer_config.json, and its only allowed value.
NAMES = dict(
    zip(
        ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"),
        SPECIAL_TOKENS,
    )
)

# The allowed values of each field, or their type, or None for fields that are checked
# where they are used or that change no id of a text. Null is always allowed.
_IGNORED = """
    name_or_path special_tokens_map_file tokenizer_file vocab_file backend is_local
    local_files_only use_fast from_slow verbose clean_up_tokenization_spaces
    chat_template processor_class pad_token_type_id pad_to_multiple_of max_length stride
    init_inputs trust_remote_code device_map _commit_hash transformers_version errors
    use_default_system_prompt model_type padding truncation return_tensors
    use_auth_token
"""
CONFIG_FIELDS: Mapping[str, tuple | type | None] = {
    **dict.fromkeys(_IGNORED.split()),
    **dict.fromkeys((*NAMES, "bos_token", "eos_token", "model_max_length", "max_len")),
    **dict.fromkeys(("tokenizer_class", "extra_special_tokens")),
    **dict.fromkeys(("do_lower_case", "strip_accents", "tokenize_chinese_chars"), bool),
    **dict.fromkeys(("model_input_names", "additional_special_tokens"), list),
    "added_tokens_decoder": dict,
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
SENTENCE_FIELDS: Mapping[str, tuple | type | None] = {
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


# --- Reading ---------------------------------------------------------------------


def read_fields(
    path: pathlib.Path, fields: Mapping[str, tuple | type | None]
) -> dict[str, Any]:
    """Reads a JSON object without its null values, and checks its fields."""
    values = {k: v for k, v in read_json_object(path).items() if v is not None}
    for key, value in values.items():
        if key not in fields:
            raise ValueError(
                f"{path}: the field {key} is not known. Received: {key}={value!r:.80}. "
                "Remove it if it does not change how texts are tokenized."
            )
        allowed, rule = fields[key], ""
        if isinstance(allowed, type) and not isinstance(value, allowed):
            rule = f"have the type {allowed.__name__}"
        elif isinstance(allowed, tuple) and value not in allowed:
            rule = "be " + (" or ".join(map(repr, allowed)) or "null")
        if rule:
            raise ValueError(
                f"{path}: {key} must {rule}. Received: {key}={value!r:.80}"
            )
    return values


def read_tokenizer(
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
    if (kind := whole["model"]["type"]) != "WordPiece":
        raise ValueError(f"{path}: the model type must be WordPiece. Received: {kind}")
    return whole, original


def read_vocabulary(path: pathlib.Path, whole: Mapping[str, Any]) -> Vocabulary:
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


# --- Writing ---------------------------------------------------------------------


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


def google_settings(rules: TokenizerRules) -> dict[str, Any]:
    """Returns what `write_tokenizer` cannot write of google's rules."""
    return {"special_tokens_in_texts": bool(rules.added_tokens)}


def write_tokenizer(path: pathlib.Path, checkpoint: Checkpoint) -> None:
    """Writes the files of a tokenizer; `transformers` loads them without warnings.

    The files cannot express google's rules; they get those of the library tokenizers,
    which differ in rare characters and for words of more than 100 characters.
    """
    rules, vocabulary = checkpoint.rules, checkpoint.vocabulary
    if rules.library == "google":
        limit = PLAIN.max_characters_per_word
        rules = dataclasses.replace(rules, max_characters_per_word=limit)
    added = rules.added_tokens or tuple(map(AddedToken, SPECIAL_TOKENS))
    only_added = {t.content for t in added if not t.in_wordpiece}
    words = ("" if token in only_added else token for token in vocabulary.tokens)
    Vocabulary(tuple(words)).write(path / VOCABULARY)
    original = build_original(vocabulary, checkpoint.lowercase, rules)
    for token in added:
        add_token(original, token)
    storage.write_text(str(path / TOKENIZER), original.to_str(pretty=True))
    is_bert = all(getattr(rules, flag) == getattr(PLAIN, flag) for flag in FLAGS)
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
        **NAMES,
    }
    if rules.added_tokens:
        tokens = [dataclasses.asdict(token) for token in added]
        for token in tokens:
            del token["in_wordpiece"]
        ids = vocabulary.ids(token.content for token in added)
        config["added_tokens_decoder"] = dict(zip(map(str, ids), tokens))
    storage.write_json(path / CONFIG, config)
