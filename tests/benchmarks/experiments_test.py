# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import dataclasses
import json
import math
import pathlib

import pytest
from matplotlib.figure import Figure

from benchmarks import ablations, experiment_report, experiments
from benchmarks.experiments import ExperimentConfig
from benchmarks.paper import EVALUATIONS, SCALES, Column, Experiment, Row
from benchmarks.paper import experiments as all_experiments
from bert_tf import finetuning
from bert_tf.training import PretrainConfig
from tests.toy.records import write_records

TOY = Experiment(
    "Toys",
    "table 0",
    rows=(
        Row("BERT"),
        Row("LTR", {"next_sentence_weight": 0.0}, encoder="left_to_right"),
        Row("early", share=1 / EVALUATIONS, against="LTR"),
    ),
    columns=(
        Column("", "perplexity", (4.0, 8.0, 4.0)),
        Column("MNLI", "MNLI", (80.0, 70.0, 75.0)),
        Column("QNLI", "QNLI", (80.0, 70.0, 75.0)),
    ),
    claim="Toys are toys.",
)


@pytest.fixture
def options(tmp_path, monkeypatch):
    """A table of letters as MNLI, and no data for QNLI."""
    monkeypatch.setattr(experiments, "experiments", lambda scale: {"masking": TOY})
    rows = ["text\tlabel", *(f"{'ab'[i % 2]}\t{i % 2}" for i in range(40))]
    (tmp_path / "letters.tsv").write_text("\n".join(rows) + "\n")
    task = {
        "name": "Letters",
        "kind": "classification",
        "train_file": str(tmp_path / "letters.tsv"),
        "dev_file": str(tmp_path / "letters.tsv"),
        "text_a": "text",
        "label": "label",
        "max_sequence_length": 8,
        "epochs": 1,
    }
    (tmp_path / "tasks.json").write_text(json.dumps({"MNLI": task}))
    return ExperimentConfig(
        experiment="masking",
        records=str(tmp_path / "records"),
        tasks=str(tmp_path / "tasks.json"),
        output=str(tmp_path / "out"),
        steps=10,
        seeds=2,
    )


class FakeTraining:
    """Replaces pre-training and fine-tuning: writes metrics, records the calls."""

    def __init__(self, monkeypatch):
        self.pretrained: list[PretrainConfig] = []
        self.fine_tuned: list[tuple[str, int]] = []
        self.interrupt_after = math.inf
        monkeypatch.setattr("bert_tf.training.pretrain", self.pretrain)
        monkeypatch.setattr(finetuning, "fine_tune", self.fine_tune)

    def pretrain(self, options, *, keep_all, **hooks):
        assert keep_all
        self.pretrained.append((options, hooks.get("backbone_class")))
        loss = 3.0 if hooks else 2.0
        self._write(options.output, {"done": True})
        history = (
            f"step,val_mlm_loss\n{options.validate_every},2.5\n{options.steps},{loss}\n"
        )
        pathlib.Path(options.output, "history.csv").write_text(history)

    def fine_tune(self, task_class, options, backbone_class):
        if len(self.fine_tuned) == self.interrupt_after:
            raise KeyboardInterrupt
        self.fine_tuned.append((options.init_from, options.seed))
        score = 0.5 if "left_to_right" in options.init_from else 0.7
        score += 0.001 * options.seed
        training = {"score": score, "majority_baseline": 0.5}
        self._write(options.output, {"training": training})

    @staticmethod
    def _write(folder, metrics):
        pathlib.Path(folder).mkdir(parents=True)
        (pathlib.Path(folder) / "metrics.json").write_text(json.dumps(metrics))


@pytest.fixture
def training(monkeypatch):
    return FakeTraining(monkeypatch)


def test_interrupted_experiments_resume_without_repeating_runs(options, training):
    training.interrupt_after = 3
    with pytest.raises(KeyboardInterrupt):
        experiments.main(options)
    training.interrupt_after = math.inf
    experiments.main(options)
    experiments.main(options)
    # The first and the last row share a run.
    (base, _), (left, backbone_class) = training.pretrained
    assert backbone_class is ablations.LeftToRightBackbone
    assert left.next_sentence_weight == 0
    assert (base.steps, base.warmup_steps, base.validate_every) == (10, 0, 2)
    started = [
        (str(pathlib.Path(path).relative_to(options.output)), seed)
        for path, seed in training.fine_tuned
    ]
    base, left = (pathlib.Path(o.output).name for o, _ in training.pretrained)
    models = (f"pretrain/{base}", f"pretrain/{left}", f"pretrain/{base}/steps/2")
    assert started == [(model, seed) for model in models for seed in (0, 1)]


def test_rows_of_a_table(options, training):
    experiments.main(dataclasses.replace(options, rows="3,1"))
    assert len(training.pretrained) == 1
    text = pathlib.Path(options.output, "masking.md").read_text()
    assert "LTR" not in text
    assert text.index("| early | 12.2 | 4.0 |") < text.index("| BERT | 7.4 | 4.0 |")
    assert "perplexity, BERT against early: -0.50 nats (paper +0.00)" in text


@pytest.mark.parametrize("rows", ["0", "4", "-1", "1,", "BERT"])
def test_invalid_rows(options, rows):
    with pytest.raises(ValueError, match=rf"from 1 to 3\. Received: '{rows}'"):
        experiments.main(dataclasses.replace(options, rows=rows))
    with pytest.raises(ValueError, match="needs one --experiment"):
        experiments.main(dataclasses.replace(options, experiment="all", rows=rows))


@pytest.mark.slow
def test_runs_with_other_options_are_separate(options, training):
    experiments.main(options)
    experiments.main(dataclasses.replace(options, steps=20, seeds=1))
    assert len(training.pretrained) == 4
    assert len(training.fine_tuned) == 6 + 3
    experiments.main(dataclasses.replace(options, seeds=3))
    assert len(training.pretrained) == 4
    assert [seed for _, seed in training.fine_tuned[9:]] == [2, 2, 2]


def test_report_compares_with_the_paper(options, training, capsys):
    experiments.main(options)
    text = pathlib.Path(options.output, "masking.md").read_text()
    assert text in capsys.readouterr().out
    assert "| | perplexity | paper | Letters for MNLI | paper |\n" in text
    assert "| BERT | 7.4 | 4.0 | 70.0 ± 0.1 | 80.0 |\n" in text
    assert "| LTR | 20.1 | 8.0 | 50.0 ± 0.1 | 70.0 |\n" in text
    assert "| *majority baseline* | | | 50.0 | |\n" in text
    assert "QNLI" not in text  # Its data set is missing.
    assert "| early | 12.2 | 4.0 | 70.0 ± 0.1 | 75.0 |\n" in text
    _, as_in_the_paper = text.split("**Same direction as in the paper:**")
    assert "**" not in as_in_the_paper
    assert "perplexity, early against LTR: -0.50 nats (paper -0.69)" in as_in_the_paper
    # e^3 against e^2, and 8 against 4.
    assert "perplexity, LTR against BERT: +1.00 nats (paper +0.69)" in as_in_the_paper
    assert "MNLI, LTR against BERT: -20.0 (paper -10.0)" in as_in_the_paper
    assert "MNLI, early against LTR: +20.0 (paper +5.0)" in as_in_the_paper
    plot = pathlib.Path(options.output, "masking.png")
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_plot_shows_differences_from_the_first_row(monkeypatch, tmp_path):
    figures = []
    save = Figure.savefig
    monkeypatch.setattr(
        Figure,
        "savefig",
        lambda self, *a, **k: figures.append(self) or save(self, *a, **k),
    )
    scores = {
        (r, c): [80.0 - 10 * r, 82.0 - 10 * r] for r in range(3) for c in range(3)
    }
    scores |= {(r, 0): [math.exp(r)] for r in range(3)}
    experiment_report.plot(TOY, scores, {}, tmp_path / "plot.png")
    (figure,) = figures
    for axes, ours, papers in zip(
        figure.axes,
        ([0, 1, 2], [0, -10, -20], [0, -10, -20]),
        ([0, math.log(2), 0], [0, -10, -5], [0, -10, -5]),
        strict=True,
    ):
        found = {line.get_label(): line.get_xdata() for line in axes.lines}
        assert found["paper"] == pytest.approx(papers)
        (bars,) = axes.containers
        assert bars.lines[0].get_xdata() == pytest.approx(ours)


@pytest.mark.parametrize(
    ("mine", "theirs", "verdict"),
    [
        ((70.0, 71.0, 72.0), (60.0, 61.0, 62.0), "Opposite direction to the paper"),
        ((60.0, 61.0, 62.0), (70.0, 71.0, 72.0), "Same direction as in the paper"),
        ((60.0, 71.0, 80.0), (62.0, 70.0, 75.0), "Not significant"),
        ((70.0, math.nan), (60.0, math.nan), "Opposite direction to the paper"),
        ((70.0, 70.0), (70.0, 70.0), "Not significant"),
    ],
)
def test_verdicts(mine, theirs, verdict):
    experiment = dataclasses.replace(TOY, rows=TOY.rows[:2], columns=TOY.columns[1:2])
    scores = {(0, 0): theirs, (1, 0): mine}
    (difference,) = experiment_report.differences(experiment, scores)
    assert difference.verdict == verdict


@pytest.mark.slow
def test_diverged_runs_are_excluded_from_means(options, training, monkeypatch):
    works = training.fine_tune

    def fine_tune(task_class, run, backbone_class):
        if run.seed == 1 and "left" in run.init_from:
            raise finetuning.DivergedError("not finite")
        works(task_class, run, backbone_class)

    monkeypatch.setattr(finetuning, "fine_tune", fine_tune)
    experiments.main(options)
    text = pathlib.Path(options.output, "masking.md").read_text()
    assert "| 50.0, 1 diverged | 70.0 |\n" in text


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ("{", "not a JSON file"),
        ('{"MNLI": {"kind": "poetry"}}', "MNLI: the kind must be one of classif.*poet"),
        (
            '{"MNLI": {"kind": "tagging", "label": "x"}}',
            "MNLI: python -m tasks.tagging has no option label",
        ),
    ],
)
def test_invalid_task_files_raise(options, tmp_path, tasks, message):
    (tmp_path / "tasks.json").write_text(tasks)
    with pytest.raises(ValueError, match=message):
        experiments.main(options)


@pytest.mark.parametrize("scale", SCALES)
def test_experiments_are_consistent(scale):
    """Options exist, columns have one number per row, reference rows exist."""
    known = {field.name for field in dataclasses.fields(PretrainConfig)}
    for name, experiment in all_experiments(SCALES[scale]).items():
        names = [row.name for row in experiment.rows]
        assert len(set(names)) == len(names), name
        for row in experiment.rows:
            assert row.pretrain.keys() <= known, name
            assert row.encoder in ablations.ENCODERS, name
            assert not row.against or row.against in names, name
        for column in experiment.columns:
            assert len(column.paper) in (0, len(names)), name
    base = SCALES[scale].pretrain["size"]
    assert base in SCALES[scale].sizes


@pytest.mark.slow
def test_toy_experiment_end_to_end(options, monkeypatch, vocabulary):
    rows = [([2, 5, 6, 7, 3, 11, 12, 3], 5, i % 2) for i in range(64)]
    records = pathlib.Path(options.records)
    write_records(records, vocabulary, rows)
    write_records(records, vocabulary, rows, split="validation")
    scale = dataclasses.replace(
        SCALES["small"], pretrain={**SCALES["small"].pretrain, "size": "1/16/2"}
    )
    bilstm = Row(
        "+ BiLSTM", TOY.rows[1].pretrain, encoder="left_to_right_bilstm", against="LTR"
    )
    columns = [dataclasses.replace(column, paper=()) for column in TOY.columns]
    toy = dataclasses.replace(TOY, rows=(*TOY.rows, bilstm), columns=columns)
    monkeypatch.setattr(experiments, "experiments", lambda scale: {"masking": toy})
    monkeypatch.setitem(SCALES, "small", scale)
    experiments.main(dataclasses.replace(options, steps=5, seeds=1))
    folder = pathlib.Path(options.output)
    assert len(list(folder.glob("pretrain/*/metrics.json"))) == 2
    assert len(list(folder.glob("finetune/**/metrics.json"))) == 4
    assert not list(folder.glob("finetune/**/model.weights.h5"))
    assert "| + BiLSTM |" in (folder / "masking.md").read_text()
