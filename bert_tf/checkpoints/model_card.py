# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a folder to publish says about its model: README.md, and options without paths.

The first lines of README.md are the metadata that the Hugging Face Hub reads. The field
`license` is left to the user.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.lazy import lazy_import

huggingface_hub = lazy_import("huggingface_hub")  # A requirement of tokenizers.

# The Hub's tasks.
_TASKS = {
    "classification": "text-classification",
    "embedding": "sentence-similarity",
    "encoder": "feature-extraction",
    "multiple_choice": "multiple-choice",
    "pretrainer": "fill-mask",
    "question_answering": "question-answering",
    "tagging": "token-classification",
}

# Options that are paths, or several, separated by commas. Others are if they look so.
_PATHS = r"export|init_from|input|output|records|teacher|vocabulary|\w+_(dir|file)"
_LOOKS_LOCAL = r"(\w+:[/\\]|[/\\~]|\.\.?[/\\]).+|.*\.json"


def without_folders(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns options of a command with the names of files instead of their paths.

    Handles of models, such as hf://owner/name, stay.
    """

    def name(path: str) -> str:
        is_handle = path.startswith(("hf://", "kaggle://", "modelscope://"))
        return path if is_handle else pathlib.PureWindowsPath(path).name

    return {
        key: ",".join(map(name, value.split(",")))
        if isinstance(value, str)
        and (re.fullmatch(_PATHS, key) or re.fullmatch(_LOOKS_LOCAL, value))
        else value
        for key, value in options.items()
    }


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
            default the name of --init_from, or of the folder of another project.
        data: Names of the training data, separated by commas. Names of the Hub,
            `owner/name`, become links.
    """
    base_model = base_model or options.get("init_from", "").removeprefix("hf://")
    if not base_model and "output" not in options:  # Not trained by this project.
        cached = re.search(r"models--([^/]+)/snapshots", str(checkpoint.path))
        base_model = cached[1].replace("--", "/") if cached else checkpoint.path.name
    names = list(filter(None, map(str.strip, data.split(","))))
    trained = ("task", "train_file", "records")
    shown = ", ".join(names) or next(filter(None, map(options.get, trained)), "unknown")
    kind = checkpoint.head["kind"]
    task = _TASKS.get(kind, kind)
    results = [
        huggingface_hub.EvalResult(
            task, shown, shown, metric, value, dataset_split=split
        )
        for split, metric, value in _metrics(checkpoint.read_metrics())
    ]
    metadata = huggingface_hub.ModelCardData(
        base_model=base_model or None,
        datasets=[x for x in names if re.fullmatch(r"[\w.-]+/[\w.-]+", x)] or None,
        eval_results=results or None,
        library_name="sentence-transformers" if kind == "embedding" else "transformers",
        model_name=name,
        pipeline_tag=task,
        tags=["bert"],
    )
    table = [
        f"| {r.dataset_split} | {r.metric_type} | {r.metric_value} |" for r in results
    ]
    if table:
        table = ["\n| split | metric | value |", "|---|---|--:|", *table]
    lines = [
        "---\n# Add the license that you choose, for example: license: apache-2.0",
        f"{metadata.to_yaml()}\n---\n\n# {name}\n\n{checkpoint.describe()[0]}\n",
        f"Base model: {base_model or 'none'}. Training data: {shown}.\n\n```python",
        f'bert_tf.load("{name}")  # Or with {metadata.library_name}.\n```',
        *table,
    ]
    return "\n".join(lines) + "\n"


def _metrics(metrics: Mapping[str, Any]) -> Iterator[tuple[str, str, float]]:
    """Yields the split, the name and the value of each metric on held-out data."""
    splits = {k: v for k, v in metrics.items() if isinstance(v, Mapping)}
    # Of pre-training.
    held_out = ((k, v) for k, v in metrics.items() if k.startswith("val_"))
    splits["validation"] = {k.removeprefix("val_"): v for k, v in held_out}
    for split in sorted(splits.keys() - {"training", "decision"}):
        for name, value in splits[split].items():
            if isinstance(value, float):
                yield split, name, round(value, 6)
