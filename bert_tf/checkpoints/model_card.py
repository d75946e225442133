# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes model cards (README.md) and removes local paths from options, to publish them.

A card begins with the metadata that the Hugging Face Hub reads. The user adds the field
`license`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.lazy import lazy_import

huggingface_hub = lazy_import("huggingface_hub")  # A requirement of tokenizers.

# The Hub's names of our kinds of heads, if they differ by more than a hyphen.
_TASKS = {
    "classification": "text-classification",
    "embedding": "sentence-similarity",
    "encoder": "feature-extraction",
    "pretrainer": "fill-mask",
    "tagging": "token-classification",
}

# Names of options that are paths, or several of them, separated by commas.
_PATHS = r"export|init_from|input|output|records|teacher|vocabulary|\w+_(dir|file)"
# Values of other options that look like paths.
_LOOKS_LOCAL = r"(\w+:[/\\]|[/\\~]|\.\.?[/\\]).+|.*\.json"
# The folder of a path, but not of a handle such as hf://owner/name.
_FOLDERS = r"(?<![^,])(?!(?:hf|kaggle|modelscope)://)[^,]*[/\\](?=[^,])"


def without_folders(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns options of a command with file names instead of paths."""
    paths = {
        key: re.sub(_FOLDERS, "", value.rstrip("/"))
        for key, value in options.items()
        if isinstance(value, str)
        and (re.fullmatch(_PATHS, key) or re.fullmatch(_LOOKS_LOCAL, value))
    }
    return {**options, **paths}


def model_card(
    name: str,
    checkpoint: Checkpoint,
    options: Mapping[str, Any],
    base_model: str = "",
    data: str = "",
) -> str:
    """Returns the text of README.md.

    Args:
        name: The name of the model.
        checkpoint: The model, with the metrics of its training.
        options: Its options, without paths.
        base_model: The Hub's name of the checkpoint that the training began with; by
            default `source`, --init_from, or the folder of another project.
        data: Names of the training data, separated by commas. Names of the Hub,
            `owner/name`, become links.
    """
    base_model = base_model or checkpoint.source or options.get("init_from", "")
    if not base_model and "output" not in options:  # Not trained by this project.
        base_model = checkpoint.path.name
    base_model = base_model.removeprefix("hf://")
    named = (data, *map(options.get, ("task", "train_file", "records")), "unknown")
    trained_on, kind = next(filter(None, named)), checkpoint.head["kind"]
    task, metrics = _TASKS.get(kind, kind.replace("_", "-")), checkpoint.read_metrics()
    held_out = {k[4:]: v for k, v in metrics.items() if k.startswith("val_")}
    splits = {k: v for k, v in metrics.items() if isinstance(v, dict)}
    results = [
        (split, metric, round(value, 6))
        for split, values in {"validation": held_out, **splits}.items()
        for metric, value in values.items()
        if isinstance(value, float) and split not in ("training", "decision")
    ]
    evaluation = huggingface_hub.EvalResult
    metadata = huggingface_hub.ModelCardData(
        # The Hub refuses other names than its own.
        base_model=base_model.partition("@")[0] * ("://" not in base_model) or None,
        datasets=re.findall(r"(?<![^, ])[\w.-]+/[\w.-]+(?![^, ])", data) or None,
        eval_results=[
            evaluation(task, trained_on, trained_on, *result, dataset_split=split)
            for split, *result in results
        ]
        or None,
        library_name="sentence-transformers" if kind == "embedding" else "transformers",
        model_name=name,
        pipeline_tag=task,
        tags=["bert"],
    )
    lines = [
        "---\n# Add the license that you choose, for example: license: apache-2.0",
        f"{metadata.to_yaml()}\n---\n\n# {name}\n\n{checkpoint.describe()[0]}\n",
        f"Base model: {base_model or 'none'}. Training data: {trained_on}.\n",
        f'Load it with {metadata.library_name}, or `bert_tf.load("{name}")`.\n',
        *(f"- {split}: {metric} {value}" for split, metric, value in results),
    ]
    return "\n".join(lines) + "\n"
