# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The architecture of a BERT."""

from __future__ import annotations

import dataclasses
import pathlib
import re
from collections.abc import Mapping
from typing import Any

from bert_tf import storage

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
ACTIVATIONS = ("gelu_tanh", "gelu_erf", "relu")
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

# Replaces the logits of masked elements, and is added to masked attention scores. It is
# finite, so that the softmax of a row of padding is uniform and not NaN.
MASKED_SCORE = -1e9

# Fields of `BertConfig` -> keys of a `bert_config.json`.
GOOGLE_KEYS = {
    "vocabulary_size": "vocab_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "hidden_dim": "hidden_size",
    "intermediate_dim": "intermediate_size",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "max_sequence_length": "max_position_embeddings",
    "num_segments": "type_vocab_size",
    "activation": "hidden_act",
    "initializer_range": "initializer_range",
}
HUGGING_FACE_KEYS = GOOGLE_KEYS | {
    "layer_norm_epsilon": "layer_norm_eps",
    "classifier_dropout": "classifier_dropout",
}

# Fields of transformers' config.json that have one value in a BERT.
_HUGGING_FACE_FIELDS = {
    "model_type": ("bert",),
    "position_embedding_type": ("absolute",),
    "is_decoder": (False,),
    "add_cross_attention": (False,),
}

# By type of a field of `BertConfig`: whether a value is valid, and the rule.
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
    "str": (lambda x: x in ACTIVATIONS, f"one of {', '.join(ACTIVATIONS)}"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BertConfig:
    """The architecture of a BERT encoder (arXiv 1810.04805, section 3).

    Raises:
        ValueError: A size is not a positive integer, `hidden_dim` is not a multiple of
            `num_heads`, another number is outside [0, 1), or the activation is unknown.
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

    def __post_init__(self):
        for field in dataclasses.fields(self):
            name, value = field.name, getattr(self, field.name)
            is_valid, rule = _RULES[field.type]
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
        values = storage.read_json(path)
        if not isinstance(values, dict):
            raise ValueError(f"{path} must be a JSON object. Received: {values!r:.80}")
        if "model_type" in values:
            return cls.from_hugging_face(path, values)
        return cls._from_json(path, values, GOOGLE_KEYS, _GOOGLE_ACTIVATIONS)

    @classmethod
    def from_hugging_face(
        cls, path: str | pathlib.Path, config: Mapping[str, Any]
    ) -> BertConfig:
        """Returns the architecture of a config.json of transformers.

        Args:
            path: The file, for error messages.
            config: Its contents.

        Raises:
            ValueError: A key is missing, or a value is invalid or not that of a BERT.
        """
        storage.check_fields(path, config, **_HUGGING_FACE_FIELDS)
        keys = HUGGING_FACE_KEYS
        # Those of this class, except the form of GELU.
        defaults = {keys[x]: getattr(cls, x) for x in keys if hasattr(cls, x)}
        values = defaults | {"hidden_act": "gelu"} | config
        return cls._from_json(path, values, keys, HUGGING_FACE_ACTIVATIONS)

    @classmethod
    def _from_json(cls, path, values, keys, activations):
        """Reads keys (ours: theirs) and activations (theirs: ours) of a file."""
        try:
            fields = {ours: values[key] for ours, key in keys.items()}
            activation = fields["activation"]
            fields["activation"] = activations.get(str(activation), activation)
            return cls(**fields)
        except KeyError as error:
            raise ValueError(f"{path} lacks the key {error}.") from error
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
