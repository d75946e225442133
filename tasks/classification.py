# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Classes or scores for single sentences and pairs (paper, section 4.1).

A data set of GLUE in its own files, or a TSV, CSV or JSONL file with named columns::

    sentence                                               label
    it 's a charming and often affecting journey .         1

    python -m tasks.classification --task=sst2 --data_dir=glue/SST-2 \\
        --init_from=models/base --output=models/sst2

    python -m tasks.classification --train_file=train.csv --dev_file=dev.csv \\
        --text_a=question --text_b=answer --label=verdict \\
        --init_from=models/base --output=models/verdict

Out: the fine-tuned model directory, its scores on dev in metrics.json, and
predictions_dev.tsv with the index, the prediction, and the probability of each class
(.csv or .jsonl if the data are that). With a test set (test.tsv in --data_dir, or
--test_file) there is predictions_test.tsv as well; it needs no labels. For the test
sets of GLUE, the file to submit is written too, e.g. SST-2.tsv. BERT base reaches
92.7 % on SST-2's dev set (table 6).

A text with more than --max_sequence_length tokens is cut (--long_text=truncate, or
head_tail: the first quarter and the end are kept), or read in windows that overlap:
each is trained to give the label of the text, and what the text gets is the mean
(window_mean) or, class by class, the maximum (window_max) of their logits.
"""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bert_tf import cli, finetuning, serving, text
from bert_tf.data import Table, write_table
from bert_tf.finetuning import glue
from bert_tf.finetuning.data_sets import TablesConfig
from bert_tf.finetuning.glue import GLUE, DataSet
from bert_tf.finetuning.task import Task
from bert_tf.lazy import lazy_import

finetune = lazy_import("bert_tf.finetuning.run")
heads = lazy_import("bert_tf.modeling.heads")
scipy = lazy_import("scipy")
sklearn = lazy_import("sklearn")
tf = lazy_import("tensorflow")

if TYPE_CHECKING:
    import keras

    from bert_tf.finetuning import Split
    from bert_tf.modeling.bert import BertBackbone
    from bert_tf.text.tokenizer import Tokenizer

# --- Metrics ---------------------------------------------------------------------

# Each takes (gold, predicted): class numbers, or scores. A model that always says
# the same has no correlation; scipy calls it NaN, here it is 0.
METRICS: Mapping[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "accuracy": lambda gold, predicted: sklearn.metrics.accuracy_score(gold, predicted),
    "f1": lambda gold, predicted: sklearn.metrics.f1_score(
        gold, predicted, zero_division=0
    ),
    "macro_f1": lambda gold, predicted: sklearn.metrics.f1_score(
        gold, predicted, average="macro", zero_division=0
    ),
    "matthews_correlation": lambda gold, predicted: sklearn.metrics.matthews_corrcoef(
        gold, predicted
    ),
    "pearson": lambda gold, predicted: np.nan_to_num(
        scipy.stats.pearsonr(gold, predicted).statistic
    ),
    "spearman": lambda gold, predicted: np.nan_to_num(
        scipy.stats.spearmanr(gold, predicted).statistic
    ),
}


# --- The task --------------------------------------------------------------------


class Example(NamedTuple):
    """A row of a file; `label` is None where the file has none."""

    path: pathlib.Path
    line: int
    text_a: str
    text_b: str
    label: str | None


class Classification(Task):
    """See the module docstring."""

    kind = "classification"

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Config(TablesConfig):
        """Options of `python -m tasks.classification`."""

        task: str = cli.option(
            "",
            help=f"Data set of GLUE, one of {', '.join(GLUE)}.",
            common=True,
        )
        text_a: str = cli.option(
            "",
            help="Column of the (first) sentence.",
            common=True,
        )
        text_b: str = cli.option(
            "",
            help="Column of the second sentence, if any.",
            common=True,
        )
        label: str = cli.option(
            "",
            help="Column of the class or score.",
            common=True,
        )
        problem: str = cli.option(
            "auto",
            help="Whether labels are names or numbers; auto: what --task is, else "
            "classification.",
            choices=("auto", "classification", "regression"),
        )
        long_text: str = cli.option(
            "truncate",
            help="What becomes of a text that is longer than --max_sequence_length: "
            "it loses its end or its middle, or is read in windows whose logits are "
            "averaged or of which the largest count.",
            choices=("truncate", "head_tail", "window_mean", "window_max"),
        )

    def __init__(self, options: Config, tokenizer: Tokenizer):
        super().__init__(options, tokenizer)
        self.data_set = _glue(options) if options.task else _own_data(options)
        self.in_windows = options.long_text.startswith("window")
        if self.in_windows and self.data_set.text_b:
            raise ValueError(
                f"--long_text={options.long_text} is for single texts; pairs take "
                "truncate or head_tail."
            )
        self.metrics = self.data_set.metrics
        self.metric = self.metrics[0]
        self.examples = {
            split: self._read(split, paths)
            for split in self.data_set.files
            if (paths := self._find(split))
        }
        train = self.examples["train"]
        if self.data_set.problem == "regression":
            # The model learns standardised scores, so that their unit is no matter.
            self.labels = ()
            self.mean, self.deviation = _mean_and_deviation(train)
        else:
            self.labels = _label_names(train)
        self.gold = {name: self._gold(e) for name, e in self.examples.items()}

    @property
    def head(self) -> Mapping[str, Any]:
        facts = {"problem": self.data_set.problem, "pairs": bool(self.data_set.text_b)}
        if self.labels:
            return facts | {"labels": list(self.labels)}
        return facts | {"mean": self.mean, "deviation": self.deviation}

    @property
    def evaluation_splits(self) -> Sequence[str]:
        return [name for name in self.examples if name != "train"]

    def model(self, backbone: BertBackbone) -> keras.Model:
        return heads.SequenceClassifier(backbone, num_classes=len(self.labels) or 1)

    def preprocess(self, *texts: tf.Tensor) -> Any:
        """Returns the encoder's inputs [N, S], or `text.Windows` of them."""
        limit = self.options.max_sequence_length
        if not self.in_windows:
            return self.tokenizer.encode(
                *texts, max_sequence_length=limit, keep=self._keep
            )
        return text.cut_windows(self.tokenizer, self.tokenizer.tokenize(*texts), limit)

    def dataset(self, name: str) -> Split:
        examples, targets = self.examples[name], self.gold[name]
        if targets is not None and not self.labels:
            targets = (targets[:, np.newaxis] - self.mean) / self.deviation
        text_a = [example.text_a for example in examples]
        if self.in_windows:
            return self._windows(name, text_a, targets)
        texts = [text_a]
        if self.data_set.text_b:
            texts.append([example.text_b for example in examples])
        inputs = finetuning.encode(self.preprocess, *texts)
        if targets is not None:
            targets = tf.constant(targets)
        return finetuning.Split(name, np.arange(len(examples)), inputs, targets)

    def _windows(
        self, name: str, texts: Sequence[str], targets: np.ndarray | None
    ) -> Split:
        """A split whose examples are windows; those of a text weigh as much as one."""
        windows = self.preprocess(tf.constant(texts))
        row, inputs = windows.row.numpy(), windows.ragged_inputs()
        if targets is None:
            return finetuning.Split(name, row, inputs)
        weights = tf.constant(1 / np.bincount(row)[row], tf.float32)
        return finetuning.Split(name, row, inputs, tf.constant(targets[row]), weights)

    @property
    def _keep(self) -> str:
        return "head_tail" if self.options.long_text == "head_tail" else "head"

    def _logits(self, split: Split, outputs: Sequence[np.ndarray]) -> np.ndarray:
        """Logits of the texts [N, C], from those of their windows."""
        logits, first = np.stack(outputs), np.unique(split.source, return_index=True)[1]
        if self.options.long_text == "window_max":
            return np.maximum.reduceat(logits, first)
        return np.add.reduceat(logits, first) / np.bincount(split.source)[:, np.newaxis]

    def _scores(self, logits: np.ndarray) -> list[float]:
        """Scores in the unit of the data, from logits [N, 1]."""
        return (logits[:, 0] * self.deviation + self.mean).tolist()

    def evaluate(self, split: Split, outputs: Sequence[np.ndarray]) -> dict[str, float]:
        logits, gold = self._logits(split, outputs), self.gold[split.name]
        predicted = logits.argmax(axis=1) if self.labels else logits[:, 0]
        return {m: float(METRICS[m](gold, predicted)) for m in self.metrics}

    def majority_baseline(self, split: Split) -> float:
        gold, metric = self.gold[split.name], METRICS[self.metric]
        constants = (np.full_like(gold, number) for number in range(len(self.labels)))
        return max((float(metric(gold, answer)) for answer in constants), default=0.0)

    def gold_and_predicted(
        self, split: Split, outputs: Sequence[np.ndarray]
    ) -> tuple[Sequence, Sequence]:
        logits, gold = self._logits(split, outputs), self.gold[split.name]
        if not self.labels:
            return gold.tolist(), self._scores(logits)
        names = np.array(self.labels)
        return names[gold].tolist(), names[logits.argmax(axis=1)].tolist()

    def write_predictions(
        self, split: Split, outputs: Sequence[np.ndarray], folder: pathlib.Path
    ) -> pathlib.Path:
        logits = self._logits(split, outputs)
        if self.labels:
            answers = [self.labels[number] for number in logits.argmax(axis=1)]
        else:
            answers = [round(score, 6) for score in self._scores(logits)]
        if name := self.data_set.submissions.get(split.name):
            write_table(folder / name, _submission(answers))
        rows = [{"index": i, "prediction": answer} for i, answer in enumerate(answers)]
        if self.labels:
            names = [f"P({label})" for label in self.labels]
            probabilities = np.round(scipy.special.softmax(logits, axis=1), 6)
            for row, values in zip(rows, probabilities.tolist(), strict=True):
                row |= zip(names, values, strict=True)
        suffix = self.examples[split.name][0].path.suffix
        suffix = suffix if suffix in (".csv", ".jsonl") else ".tsv"
        path = folder / f"predictions_{split.name}{suffix}"
        write_table(path, rows)
        return path

    def serve(self, model: keras.Model) -> dict[str, serving.Signature]:
        """The signatures of the exported model, for N texts or pairs.

        serving_default  text [N], or text_a, text_b [N] -> label [N] string and
                         probabilities [N, C] float32 in the order of the labels; or
                         score [N] float32
        ids              token_ids, segment_ids, padding_mask [N, S] -> logits [N, C]
        classify         or regress: the same answers for tf.Examples
        """

        def answer(*texts: tf.Tensor) -> dict[str, tf.Tensor]:
            logits = self._logits_of(model, *texts)  # [N, C]
            if not self.labels:
                return {"score": logits[:, 0] * self.deviation + self.mean}
            return {
                "label": tf.gather(tf.constant(self.labels), tf.argmax(logits, axis=1)),
                "probabilities": tf.nn.softmax(logits),
            }

        if self.data_set.text_b:

            @tf.function(
                input_signature=[
                    serving.string_input("text_a"),
                    serving.string_input("text_b"),
                ]
            )
            def serving_default(text_a, text_b):
                return answer(text_a, text_b)
        else:

            @tf.function(input_signature=[serving.string_input("text")])
            def serving_default(text):
                return answer(text)

        if self.labels:
            examples = {
                "classify": serving.classify_signature(serving_default, self.labels)
            }
        else:
            examples = {"regress": serving.regress_signature(serving_default)}
        ids = serving.ids_signature(model)
        return {"serving_default": serving_default, "ids": ids, **examples}

    def _logits_of(self, model: keras.Model, *texts: tf.Tensor) -> tf.Tensor:
        """The graph from N texts or pairs to logits [N, C]."""
        inputs = self.preprocess(*texts)
        if not self.in_windows:
            return model(inputs, training=False)
        logits = inputs.map(
            lambda windows: model(windows.inputs(), training=False),
            tf.TensorSpec([None, len(self.labels) or 1]),
        )
        if self.options.long_text == "window_max":
            return tf.math.segment_max(logits, inputs.row)
        return tf.math.segment_mean(logits, inputs.row)

    # --- Reading -----------------------------------------------------------------

    def _find(self, split: str) -> Sequence[pathlib.Path]:
        """Returns the files of a split; none for a test set that is not there."""
        folder = pathlib.Path(self.options.data_dir)
        alternatives = self.data_set.files[split]
        for names in alternatives:
            paths = [folder / name for name in names]
            if all(path.is_file() for path in paths):
                return paths
        if self.options.task and split not in ("train", "dev"):
            return []
        wanted = " or ".join(" and ".join(names) for names in alternatives)
        raise ValueError(
            f"The {split} set is missing: there is no {wanted} in {folder.absolute()}."
        )

    def _read(self, split: str, paths: Sequence[pathlib.Path]) -> list[Example]:
        data, examples = self.data_set, []
        is_test = split.startswith("test")
        for path in paths:
            # All test sets of GLUE have a header.
            table = Table(path, () if is_test else data.columns)
            columns = [data.text_a, data.text_b] if data.text_b else [data.text_a]
            if not is_test or data.label in table.columns:
                columns.append(data.label)
            table.require(columns, "--text_a, --text_b and --label, or by --task")
            skip = data.skip_bad_rows and split == "train"
            for line, values in table.rows(columns, skip_malformed=skip):
                row = dict(zip(columns, values, strict=True))
                texts = row[data.text_a], row.get(data.text_b, "")
                examples.append(Example(path, line, *texts, row.get(data.label)))
        if not examples:
            raise ValueError(f"{paths[0]} has a header but no rows.")
        return examples

    def _gold(self, examples: Sequence[Example]) -> np.ndarray | None:
        """Class numbers or scores [N]; None where there are no labels."""
        if examples[0].label is None:
            return None
        if not self.labels:
            return np.array([_score(example) for example in examples], np.float32)
        numbers = {label: number for number, label in enumerate(self.labels)}
        for example in examples:
            if example.label not in numbers:
                raise ValueError(
                    f"{example.path}, line {example.line}: the label "
                    f"{example.label!r} does not occur in the training data, which "
                    f"have: {', '.join(self.labels)}."
                )
        return np.array([numbers[example.label] for example in examples], np.int32)


def _submission(answers: Sequence[str | float]) -> list[dict[str, Any]]:
    """What the server of GLUE takes: an index, and a class or a score in its range."""
    if isinstance(answers[0], float):
        answers = np.clip(answers, *glue.SCORES).tolist()
    return [{"index": i, "prediction": answer} for i, answer in enumerate(answers)]


def _glue(options: Classification.Config) -> DataSet:
    if options.task not in GLUE:
        raise ValueError(
            f"--task must be one of {', '.join(GLUE)}. Received: task={options.task!r}"
        )
    given = [
        f"--{name}"
        for name in ("train_file", "dev_file", "text_a", "text_b", "label")
        if getattr(options, name)
    ]
    if given or options.problem != "auto":
        raise ValueError(
            f"--task={options.task} says its files and columns itself; leave out "
            f"{', '.join(given) or '--problem'}."
        )
    data_set = GLUE[options.task]
    if options.test_file:
        test_file = str(pathlib.Path(options.test_file).absolute())
        files = {**data_set.files, "test": [[test_file]]}
        data_set = dataclasses.replace(data_set, files=files, submissions={})
    return data_set


def _own_data(options: Classification.Config) -> DataSet:
    for name in ("train_file", "dev_file", "text_a", "label"):
        if not getattr(options, name):
            raise ValueError(
                f"--{name} is missing. Data of one's own need --train_file, "
                "--dev_file, --text_a and --label; GLUE's --task and --data_dir."
            )
    if options.data_dir:
        raise ValueError("--data_dir goes with --task; leave it out.")
    regression = options.problem == "regression"
    splits = {
        "train": options.train_file,
        "dev": options.dev_file,
        "test": options.test_file,
    }
    return DataSet(
        text_a=options.text_a,
        text_b=options.text_b,
        label=options.label,
        metrics=("spearman", "pearson") if regression else ("accuracy", "macro_f1"),
        problem="regression" if regression else "classification",
        files={split: [[file]] for split, file in splits.items() if file},
    )


def _label_names(examples: Sequence[Example]) -> tuple[str, ...]:
    for example in examples:
        if not example.label:
            raise ValueError(
                f"{example.path}, line {example.line}: the label is empty."
            )
    names = {example.label for example in examples}
    if len(names) == 1:
        raise ValueError(
            f"{examples[0].path}: every label is {examples[0].label!r}; a classifier "
            "needs two."
        )
    are_numbers = all(name.isdecimal() for name in names)
    return tuple(sorted(names, key=int if are_numbers else None))


def _mean_and_deviation(examples: Sequence[Example]) -> tuple[float, float]:
    scores = [_score(example) for example in examples]
    if min(scores) == max(scores):
        raise ValueError(
            f"{examples[0].path}: every score is {scores[0]}; nothing can be learned."
        )
    return float(np.mean(scores)), float(np.std(scores))


def _score(example: Example) -> float:
    try:
        score = float(example.label)
        if math.isfinite(score):
            return score
    except ValueError:
        pass
    raise ValueError(
        f"{example.path}, line {example.line}: a score must be a finite number. "
        f"Received: {example.label!r}"
    )


def main(*grid: Classification.Config) -> None:
    """Fine-tunes once for each of the options, see `finetune.main`."""
    finetune.main(Classification, *grid)


if __name__ == "__main__":
    cli.run(main, Classification.Config)
