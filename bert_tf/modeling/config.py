# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The architecture of a BERT."""

from __future__ import annotations

import dataclasses
import pathlib
import re
from collections.abc import Mapping
from typing import Any

from bert_tf import text_files
from bert_tf.families import FAMILIES, Family

# Layers, hidden size, attention heads. The feed-forward layer is four times the
# hidden size. base and large: arXiv 1810.04805, section 3; the small ones:
# arXiv 1908.08962, "Well-Read Students Learn Better".
SIZES: Mapping[str, tuple[int, int, int]] = {
    "tiny": (2, 128, 2),
    "mini": (4, 256, 4),
    "small": (4, 512, 8),
    "medium": (8, 512, 8),
    "base": (12, 768, 12),
    "large": (24, 1024, 16),
}

# google-research/bert calls the tanh approximation of GELU "gelu"; transformers calls
# the exact form "gelu".
_GOOGLE_ACTIVATIONS = {"gelu": "gelu_tanh", "relu": "relu"}
# A writer uses the first name of each form.
HUGGING_FACE_ACTIVATIONS = {
    "gelu": "gelu_erf",
    "gelu_python": "gelu_erf",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
}
_ACTIVATIONS = sorted({*HUGGING_FACE_ACTIVATIONS.values()})

# By type or name of a field of `BertConfig`: whether a value is valid, and the rule.
_RULES = {
    "int": (lambda x: isinstance(x, int) and x > 0, "a positive integer"),
    "float": (
        lambda x: isinstance(x, int | float) and 0 <= x < 1,
        "a number of at least 0 and below 1",
    ),
    "float | None": (
        lambda x: x is None or _RULES["float"][0](x),
        "None or a number of at least 0 and below 1",
    ),
    "num_segments": (lambda x: isinstance(x, int) and x >= 0, "an integer from 0"),
    "activation": (lambda x: x in _ACTIVATIONS, f"one of {', '.join(_ACTIVATIONS)}"),
    "model_type": (lambda x: x in FAMILIES, "a family of `bert_tf.families`"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BertConfig:
    """The architecture of a BERT encoder (arXiv 1810.04805, section 3).

    Without segments, `num_segments` is 0. `embedding_dim` is the width of the
    embeddings, by default `hidden_dim`. If it differs, a dense layer follows them.
    `model_type` is the family, see `bert_tf.families`.

    Raises:
        ValueError: A size is not a positive integer, `hidden_dim` is not a multiple of
            `num_heads`, another number is outside [0, 1), or the activation or the
            family is unknown.
    """

    vocabulary_size: int
    num_layers: int
    num_heads: int
    hidden_dim: int
    intermediate_dim: int
    dropout: float = 0.1
    attention_dropout: float = 0.1
    max_sequence_length: int = 512
    num_segments: int = 2
    activation: str = "gelu_tanh"
    layer_norm_epsilon: float = 1e-12
    initializer_range: float = 0.02
    classifier_dropout: float | None = None  # None: `dropout`.
    embedding_dim: int = 0
    model_type: str = "bert"

    def __post_init__(self):
        if self.embedding_dim == 0:
            object.__setattr__(self, "embedding_dim", self.hidden_dim)
        for field in dataclasses.fields(self):
            name, value = field.name, getattr(self, field.name)
            is_valid, rule = _RULES.get(name) or _RULES[field.type]
            if isinstance(value, bool) or not is_valid(value):
                raise ValueError(f"`{name}` must be {rule}. Received: {name}={value!r}")
        if self.hidden_dim % self.num_heads:
            raise ValueError(
                "`hidden_dim` must be a multiple of `num_heads`. Received: "
                f"hidden_dim={self.hidden_dim}, num_heads={self.num_heads}"
            )

    @property
    def head_dropout(self) -> float:
        """The dropout rate of a task's head."""
        rate = self.classifier_dropout
        return self.dropout if rate is None else rate

    @property
    def family(self) -> Family:
        return FAMILIES[self.model_type]

    @classmethod
    def from_size(cls, size: str, vocabulary_size: int, **overrides: Any) -> BertConfig:
        """Returns the architecture that a command's `--size` names.

        Args:
            size: A name of `SIZES`; layers, hidden size and attention heads as in
                table 6 of the paper, e.g. `"3/768/12"`; or the path of a file,
                see `from_file`.
            vocabulary_size: Number of tokens in the vocabulary. It replaces the number
                in a file.
            **overrides: Other arguments of the constructor.

        Raises:
            ValueError: `size` is neither.
        """
        overrides["vocabulary_size"] = vocabulary_size
        if size.endswith(".json"):
            return dataclasses.replace(cls.from_file(size), **overrides)
        if re.fullmatch(r"\d+/\d+/\d+", size):
            num_layers, hidden_dim, num_heads = map(int, size.split("/"))
        elif size in SIZES:
            num_layers, hidden_dim, num_heads = SIZES[size]
        else:
            raise ValueError(
                f"`size` must be one of {', '.join(SIZES)}, layers/hidden size/heads, "
                f"for example 3/768/12, or a .json file. Received: size={size!r}"
            )
        architecture = {
            "num_layers": num_layers,
            "num_heads": num_heads,
            "hidden_dim": hidden_dim,
            "intermediate_dim": 4 * hidden_dim,
        }
        return cls(**architecture | overrides)

    @classmethod
    def from_dict(cls, fields: BertConfig | Mapping[str, Any]) -> BertConfig:
        """Inverse of `dataclasses.asdict`."""
        return fields if isinstance(fields, BertConfig) else cls(**fields)

    @classmethod
    def from_file(cls, path: str | pathlib.Path) -> BertConfig:
        """Reads google-research/bert's bert_config.json or transformers' config.json.

        A file with a `model_type` is of transformers, whose "gelu" is the exact form.

        Raises:
            ValueError: The file is not JSON, a key is missing, or a value is invalid.
                The message names the file.
        """
        values = text_files.read_json(path)
        if not isinstance(values, dict):
            raise ValueError(f"{path} must be a JSON object. Received: {values!r:.80}")
        if "model_type" in values:
            return cls.from_hugging_face(path, values)
        keys = dict(FAMILIES["bert"].keys)
        del keys["layer_norm_epsilon"], keys["classifier_dropout"]  # Not in google's.
        return cls._from_json(path, values, keys, _GOOGLE_ACTIVATIONS)

    @classmethod
    def from_hugging_face(
        cls, path: str | pathlib.Path, config: Mapping[str, Any]
    ) -> BertConfig:
        """Returns the architecture of a config.json of transformers.

        Args:
            path: The file, for error messages.
            config: Its contents.

        Raises:
            ValueError: A key is missing, or a value is invalid or not that of one of
                `bert_tf.families`.
        """
        text_files.check_fields(path, config, model_type=tuple(FAMILIES))
        family = FAMILIES[config["model_type"]]
        text_files.check_fields(path, config, **family.required)
        keys = family.keys
        # Those of this class, except the form of GELU.
        defaults = {keys[x]: getattr(cls, x) for x in keys if hasattr(cls, x)}
        values = defaults | {keys["activation"]: "gelu"} | config
        fixed = {**family.fixed, "model_type": config["model_type"]}
        return cls._from_json(path, values, keys, HUGGING_FACE_ACTIVATIONS, **fixed)

    @classmethod
    def _from_json(cls, path, values, keys, activations, **fixed):
        """Reads keys (ours: theirs) and activations (theirs: ours) of a file."""
        try:
            fields = fixed | {ours: values[key] for ours, key in keys.items()}
            activation = fields["activation"]
            fields["activation"] = activations.get(str(activation), activation)
            return cls(**fields)
        except KeyError as error:
            raise ValueError(f"{path} lacks the key {error}.") from error
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
