# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import dataclasses
import json
import re
import shlex
import shutil
import sys

import numpy as np
import pytest

from bert_tf import cli, training
from bert_tf.checkpoints import open_checkpoint
from bert_tf.data import Records
from bert_tf.modeling import BertBackbone, BertPretrainer
from bert_tf.text import AddedToken, TokenizerRules, Vocabulary
from bert_tf.training import (
    PretrainConfig,
    TrainingLoop,
    open_phases,
    pretrain,
    pretraining,
)
from bert_tf.training.pretraining import masked_batches, read_history
from bert_tf.training.tensorflow_devices import TensorFlowSteps
from tests.toy.checkpoints import assert_equal
from tests.toy.interruption import at_step, kill, terminate
from tests.toy.models import model_directory
from tests.toy.records import write_records


@pytest.fixture(scope="module")
def options(tmp_path_factory, vocabulary, random_encoder):
    """Options of an encoder with one layer and dropout.

    The pairs are learnable: one letter per position, others in random next segments.
    """
    folder = tmp_path_factory.mktemp("pretrain")
    first, follows, random = range(5, 11), range(11, 17), range(17, 23)
    rows = [([2, *first, 3, *follows, 3], 8, 0), ([2, *first, 3, *random, 3], 8, 1)]
    write_records(folder / "records", vocabulary, rows * 128)
    write_records(folder / "records", vocabulary, rows * 16, split="validation")
    encoder = {"num_layers": 1, "dropout": 0.1, "attention_dropout": 0.1}
    return PretrainConfig(
        records=str(folder / "records"),
        output=str(folder / "whole"),
        size=random_encoder(folder, **encoder)["size"],
        dropout=0.05,
        batch_size=16,
        steps=60,
        warmup_steps=10,
        learning_rate=1e-2,
        validate_every=25,
    )


@pytest.fixture(scope="module")
def two_phases(options, tmp_path_factory, vocabulary):
    """Options: rows of 16 tokens, then packed rows of 32 tokens."""
    long = tmp_path_factory.mktemp("phases") / "long"
    first, second = list(range(5, 11)), list(range(11, 17))
    rows = [([2, *first, 3, *second, 3], 8, 0)] * 128
    for split in ("train", "validation"):
        write_records(long, vocabulary, rows, split=split, length=32, pairs_per_row=2)
    return dataclasses.replace(
        options,
        records=f"{options.records},{long}",
        steps=(50, 10),
        batch_size=(16, 8),
        learning_rate=(1e-2, 5e-3),
        warmup_steps=(10, 2),
    )


@pytest.fixture(scope="module")
def trained(two_phases):
    """The model directory and the metrics of an uninterrupted training."""
    metrics = pretrain(two_phases)
    return open_checkpoint(two_phases.output), metrics


def run(options, output, **changes):
    """Trains with changed options, and returns the metrics."""
    return pretrain(dataclasses.replace(options, output=str(output), **changes))


def test_learns_and_writes_model_directory(trained):
    directory, metrics = trained
    history = read_history(directory.path)
    assert [row["step"] for row in history] == [25, 50, 60]
    assert history[1]["loss"] < 0.7 * history[0]["loss"]
    assert history[1]["val_mlm_accuracy"] > 3 / 18  # Letters in the first records.
    # Of the next step.
    rates = [row["learning_rate"] for row in history]
    np.testing.assert_allclose(rates, [1e-2 * 25 / 41, 0, 0], rtol=1e-5)
    # A quarter of each row is padding.
    tokens = np.cumsum([25 * 16 * 12, 25 * 16 * 12, 10 * 8 * 24])
    assert [row["tokens"] for row in history] == tokens.tolist()
    assert all(row["gradient_norm"] > 0 for row in history)
    assert json.loads((directory.path / "metrics.json").read_text()) == metrics
    assert list((directory.path / "logs").rglob("events.*"))
    losses = metrics["val_mlm_loss"] + metrics["val_nsp_loss"]
    assert metrics["val_loss"] == pytest.approx(losses, rel=1e-5)
    assert directory.head == {"kind": "pretrainer"}
    architecture = directory.architecture
    assert (architecture.dropout, architecture.attention_dropout) == (0.05, 0.05)


def test_hooks_change_model_and_records_and_see_each_evaluation(options, tmp_path):
    class Pretrainer(BertPretrainer):
        def compile(self, *arguments, **values):
            super().compile(
                *arguments, **values | {"loss_weights": {"mlm": 0, "nsp": 0}}
            )

    class OneRow(Records):
        def dataset(self, *arguments, batch_size, **values):
            return super().dataset(*arguments, batch_size=1, **values)

    seen = []
    pretrain(
        dataclasses.replace(
            options, output=str(tmp_path), steps=3, warmup_steps=0, validate_every=2
        ),
        build=Pretrainer,
        records_class=OneRow,
        after_evaluation=lambda row, model: seen.append((row, type(model))),
    )
    assert [x for x, _ in seen] == read_history(tmp_path)
    assert [(x["step"], x["loss"], y) for x, y in seen] == [
        (step, 0, Pretrainer) for step in (2, 3)
    ]


def test_report_has_results_examples_and_the_command(trained, two_phases):
    directory, metrics = trained
    report = (directory.path / "report.md").read_text(encoding="utf-8")
    headings = ["Held-out text", "Training", "Masked tokens", "Next steps"]
    assert re.findall("^## (.*)", report, re.MULTILINE) == headings
    for name in ("val_mlm_accuracy", "bigram_accuracy", "unigram_accuracy"):
        assert f" | {metrics[name]:.1%} |" in report, name
    assert f"| weights | {4090:,} |" in report
    line, *following = re.findall(r"^python -m \w+\.\w+ (.*)", report, re.MULTILINE)
    assert cli.parse(PretrainConfig, shlex.split(line)) == two_phases
    assert len(following) == 3
    # The second segment has one token at each position.
    shown = re.findall(r"^\| .*\*\*\[\?\]\*\*.* \| (\S+) \| (\S+) \d+%, ", report, re.M)
    assert len(shown) > 2
    assert any(label == best for label, best in shown)
    assert (directory.path / "report.svg").read_text().count('id="axes_') == 2


def weights(path):
    return open_checkpoint(path).load_model(BertPretrainer).get_weights()


def test_history_without_states_is_not_overwritten(trained, two_phases, tmp_path):
    copy = shutil.copytree(trained[0].path, tmp_path / "copy")
    shutil.rmtree(copy / "training_state")
    with pytest.raises(ValueError, match="has a history of 60 steps but no training"):
        run(two_phases, copy)
    assert read_history(copy) == read_history(trained[0].path)


@pytest.mark.slow
def test_damaged_record_is_named(options, tmp_path):
    records = shutil.copytree(options.records, tmp_path / "records")
    file = records / "train-00000-of-00001.tfrecord"
    content = bytearray(file.read_bytes())
    content[1000] ^= 1
    file.write_bytes(content)
    message = rf"^{file} is damaged: .* Remove .* and rerun"
    with pytest.raises(ValueError, match=message):
        run(options, tmp_path / "model", records=str(records))


@pytest.mark.slow
def test_resume_is_bit_equal_after_signals_and_a_kill(
    trained, two_phases, tmp_path, monkeypatch, capsys
):
    output, states = tmp_path / "interrupted", tmp_path / "interrupted/training_state"
    # Within an epoch, in an evaluation, between two states of the second phase.
    for step, act, name in (
        (7, terminate, "check_signals"),
        (25, terminate, "evaluate"),
        (55, kill, "check_signals"),
    ):
        with monkeypatch.context() as patch:
            method = at_step(step, getattr(TrainingLoop, name), act)
            patch.setattr(TrainingLoop, name, method)
            with pytest.raises((SystemExit, InterruptedError)) as ended:
                run(two_phases, output)
        if act == terminate:
            assert ended.value.code == 0
            line = f"Stopped by SIGTERM. Step {step} is saved in {states}. Rerun the"
            assert line in capsys.readouterr().out
            assert (states / f"ckpt-{step}.npz").exists()
    run(two_phases, output)
    assert_equal(weights(output), weights(trained[0].path))
    histories = map(read_history, (trained[0].path, output))
    for a, b in zip(*histories, strict=True):
        for name in a.keys() - {"tokens_per_second"}:
            assert b[name] == pytest.approx(a[name], rel=1e-6), name


@pytest.mark.slow
def test_metrics_are_read_once_in_several_steps(
    trained, two_phases, tmp_path, monkeypatch
):
    """As on accelerators."""
    monkeypatch.setattr(training.Devices, "steps_per_call", 20)
    counts, run_steps = [], TensorFlowSteps.run

    def counted(self, iterator, count):
        counts.append(count)
        return run_steps(self, iterator, count)

    monkeypatch.setattr(TensorFlowSteps, "run", counted)
    run(two_phases, tmp_path)
    assert counts == [20, 5, 20, 5, 10]
    histories = map(read_history, (trained[0].path, tmp_path))
    for one, other in zip(*histories, strict=True):
        for name in ("loss", "val_loss", "gradient_norm", "gradient_norm_max"):
            assert one[name] == pytest.approx(other[name], rel=1e-3), name


@pytest.mark.slow
def test_lamb_with_float16_and_less_memory_on_two_devices(options, tmp_path):
    changes = {"optimizer": "lamb", "decay": "polynomial", "strategy": "mirrored"}
    changes |= {"precision": "mixed_float16", "micro_batch_size": 4, "recompute": True}
    metrics = run(options, tmp_path, save_every=0.0, steps=30, **changes)
    assert metrics["val_mlm_accuracy"] > 1.5 * metrics["unigram_accuracy"]
    # A state after each step; the last two are kept.
    states = (tmp_path / "training_state").glob("*.npz")
    assert {path.name for path in states} == {"ckpt-29.npz", "ckpt-30.npz"}


@pytest.mark.usefixtures("eagerly")
def test_embeddings_of_muon_are_scaled_and_outputs_stay(options, tmp_path, monkeypatch):
    changes = {"optimizer": "muon", "steps": 2, "warmup_steps": 1, "validate_every": 2}
    batch = next(iter(masked_batches(options, 1, open_phases(options)[0])))[0]
    outputs, scale_embeddings = [], pretraining.scale_embeddings

    def scale(model, weights):
        scaled = scale_embeddings(model, weights)
        outputs.append(model.predict_on_batch(batch))
        for variable in model.weights:
            variable.assign(scaled[variable.path])
        outputs.append(model.predict_on_batch(batch))
        for variable in model.weights:
            variable.assign(weights[variable.path])
        return scaled

    monkeypatch.setattr(pretraining, "scale_embeddings", scale)
    run(options, tmp_path, keep_checkpoints=1, **changes)
    assert_equal(*outputs[:2])
    for path in (tmp_path, tmp_path / "checkpoints/step-2"):
        written = open_checkpoint(path).read_weights()
        tokens = written["embeddings/token_embedding/embeddings"]
        assert 0.5**0.5 < np.sqrt(np.mean(tokens**2)) / 0.02 < 2**0.5


def test_embeddings_are_scaled_without_segments(one_layer):
    config = dataclasses.replace(one_layer, model_type="distilbert", num_segments=0)
    model = BertPretrainer(BertBackbone(config))
    weights = {v.path: np.full(v.shape, 0.16, np.float32) for v in model.weights}
    scaled = pretraining.scale_embeddings(model, weights)
    changed = {path for path in weights if scaled[path] is not weights[path]}
    for path in ("embeddings/token_embedding", "embeddings/position_embedding"):
        np.testing.assert_allclose(scaled[f"{path}/embeddings"], 0.02, rtol=1e-6)
    assert len(changed) == 4


def test_a_killed_run_writes_its_history_and_copies_later(options, tmp_path):
    def stop(*arguments):
        sys.exit(1)

    changes = {"steps": 4, "warmup_steps": 1, "validate_every": 2}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pretraining, "keep_checkpoints", stop)
        with pytest.raises(SystemExit):
            run(options, tmp_path, keep_checkpoints=2, **changes)
    assert not (tmp_path / "checkpoints").exists()
    run(options, tmp_path, keep_checkpoints=2, **changes)
    found = {path.name for path in (tmp_path / "checkpoints").iterdir()}
    assert found == {"step-2", "step-4"}
    # Later positions are not trained.
    model = open_checkpoint(tmp_path / "checkpoints/step-4")
    assert model.max_sequence_length == 16 < model.architecture.max_sequence_length
    assert [row["step"] for row in read_history(tmp_path)] == [2, 4]


def test_evaluation_has_the_batches_of_memory(options):
    (phase,) = open_phases(dataclasses.replace(options, micro_batch_size=4))
    options = dataclasses.replace(options, micro_batch_size=4)
    batch = next(iter(masked_batches(options, 2, phase, split="validation")))
    assert len(batch[0]["token_ids"]) == 8


def test_pooler_without_pairs_does_not_decay(options, tmp_path, vocabulary, one_layer):
    source = model_directory(tmp_path / "source", one_layer, vocabulary)
    source.save_weights(BertPretrainer(BertBackbone(one_layer)))
    changes = {"next_sentence_prediction": False, "optimizer": "lamb", "size": ""}
    changes |= {"init_from": str(source.path), "steps": 2, "warmup_steps": 0}
    run(options, tmp_path / "new", validate_every=2, **changes)
    weights = [
        open_checkpoint(x).read_weights() for x in (source.path, tmp_path / "new")
    ]
    same = {
        name for name, x in weights[0].items() if np.array_equal(x, weights[1][name])
    }
    assert {"pooler/kernel", "nsp/kernel"} <= same
    assert "embeddings/token_embedding/embeddings" not in same


def test_finished_run_is_not_trained_again(trained, two_phases, tmp_path, vocabulary):
    """Records are compared by content."""
    directory, metrics = trained
    first, second = two_phases.records.split(",")
    moved = shutil.copytree(first, tmp_path / "moved")
    options = dataclasses.replace(two_phases, records=f"{moved},{second}")
    before = weights(directory.path)
    assert pretrain(options) == metrics
    assert_equal(weights(directory.path), before)
    with pytest.raises(ValueError, match=r"dropout: 0\.05 before, 0\.0 now"):
        pretrain(dataclasses.replace(options, dropout=0.0))
    # Of the same sizes, with other tokens.
    rows = [([2, *range(5, 11), 3, *range(17, 23), 3], 8, 0)] * 256
    write_records(moved, vocabulary, rows)
    message = r"records_content: \['256 rows of 16 tokens, \w+', .* before, \['256 rows"
    with pytest.raises(ValueError, match=message):
        pretrain(options)


@pytest.mark.usefixtures("eagerly")
def test_longer_training_of_a_finished_one(trained, two_phases, tmp_path, capsys):
    copy = shutil.copytree(trained[0].path, tmp_path / "copy")
    run(two_phases, copy, steps=(50, 12))
    line = "Training to step 62 instead of 60, with the learning rates of the longer"
    assert line in capsys.readouterr().out
    history = read_history(copy)
    assert [row["step"] for row in history] == [25, 50, 60, 62]
    assert open_checkpoint(copy).options["steps"] == [50, 12]
    for fewer in ((50, 11), (49, 13)):
        with pytest.raises(ValueError, match="--steps must have the same numbers as"):
            run(two_phases, copy, steps=fewer)


def test_checkpoints_of_the_last_and_the_best_evaluation(
    tmp_path, tiny_config, vocabulary
):
    directory = model_directory(tmp_path / "m", tiny_config, vocabulary)
    model, history = BertPretrainer(BertBackbone(tiny_config)), []
    for step, loss in enumerate((3.0, 1.0, 2.0, 2.5, 2.5), start=1):
        model.mlm_head.bias.assign(np.full(vocabulary.size, step))
        directory.save_weights(model)
        history.append({"step": float(step), "val_loss": loss})
        for _ in range(2):  # Again after a kill.
            pretraining.keep_checkpoints(directory, history, 2)
    folders = list((tmp_path / "m/checkpoints").iterdir())
    assert {path.name for path in folders} == {"step-2", "step-4", "step-5"}
    for path in folders:
        bias = open_checkpoint(path).load_model(BertPretrainer).mlm_head.bias
        assert path.name == f"step-{bias[0]:.0f}"


# --- Phases ----------------------------------------------------------------------


def test_phases_are_consecutive(two_phases, vocabulary):
    first, second = open_phases(two_phases)
    assert f"{first.records.path},{second.records.path}" == two_phases.records
    assert (first.first_step, first.end) == (0, 50)
    assert (second.first_step, second.end) == (50, 60)
    assert (first.batch_size, second.batch_size) == (16, 8)
    assert first.records.vocabulary == second.records.vocabulary == vocabulary
    assert first.schedule == training.WarmupDecay(1e-2, 10, 50)
    assert second.schedule == training.WarmupDecay(5e-3, 2, 10, first_step=50)
    one = dataclasses.replace(two_phases, learning_rate=0.1, warmup_steps=3)
    assert {p.schedule for p in open_phases(one)} == {training.WarmupDecay(0.1, 3, 60)}
    default = dataclasses.replace(one, steps=(300, 199), warmup_steps=None)
    assert {p.schedule for p in open_phases(default)} == {
        training.WarmupDecay(0.1, 4, 499)
    }


def test_masking_rates_of_phases_and_of_validation(two_phases):
    options = dataclasses.replace(two_phases, mask_selection_rate=(0.5, 0.25))
    first, second = open_phases(options)
    predicted = []
    for phase, split in ((first, "train"), (second, "train"), (first, "validation")):
        _, _, weights = next(iter(masked_batches(options, 1, phase, split=split)))
        predicted.append(set(np.count_nonzero(weights["mlm"], axis=1)))
    # Half of 15 tokens, a quarter of each of two pairs of 15 tokens, and, as in the
    # paper, 15 % of 15 tokens.
    assert predicted == [{8}, {8}, {2}]


def test_phases_with_the_same_records_continue_in_them(options):
    repeated = f"{options.records},{options.records}"
    changes = {"steps": (3, 2), "warmup_steps": 1, "batch_size": 4}
    options = dataclasses.replace(options, records=repeated, **changes)
    first, second = open_phases(options)
    expected, _, _ = next(iter(masked_batches(options, 1, first, first_step=3)))
    found, _, _ = next(iter(masked_batches(options, 1, second)))
    assert_equal(found, expected)


def test_optimizer_has_the_dtypes_of_the_precision(options):
    for precision, dtype in (("float16", "float32"), ("bfloat16", "bfloat16")):
        changed = {"optimizer": "muon", "precision": f"mixed_{precision}"}
        changed = dataclasses.replace(options, **changed)
        optimizer = training.create_optimizer(changed, open_phases(changed)[0].schedule)
        assert optimizer.orthogonalization_dtype == dtype
        assert optimizer.dynamic_loss_scale == (precision == "float16")


@pytest.mark.slow
def test_every_token_is_predicted_without_next_sentence(options, tmp_path):
    all_tokens = {"next_sentence_prediction": False, "mask_selection_rate": 1.0}
    metrics = run(options, tmp_path / "all", **all_tokens)
    assert metrics["val_loss"] == pytest.approx(metrics["val_mlm_loss"], abs=1e-6)
    new = open_checkpoint(tmp_path / "all").head["newly_initialized"]
    assert new == ["pooler", "nsp"]
    # Another run starts from its weights.
    further = {"init_from": str(tmp_path / "all"), "size": "", **all_tokens}
    further |= {"steps": 2, "warmup_steps": 1, "learning_rate": 0.0}
    again = run(options, tmp_path / "further", **further)
    assert again["val_mlm_accuracy"] == metrics["val_mlm_accuracy"]


def test_init_from_with_other_vocabulary_or_tokenizer_raises(
    options, tmp_path, tiny_config, vocabulary
):
    """As in huggingface/transformers#3823. Uncased models of dbmdz keep accents."""
    other = {"vocabulary": Vocabulary((*vocabulary.tokens[:-1], "dog"))}
    accents = {"rules": TokenizerRules(strip_accents=False)}
    added = {"rules": TokenizerRules(added_tokens=(AddedToken("##s"),))}
    for number, change in enumerate((other, {"lowercase": False}, accents, added)):
        source = tmp_path / str(number)
        kind = "vocabulary" if change is other else "tokenizer"
        model_directory(source, tiny_config, **{"vocabulary": vocabulary} | change)
        with pytest.raises(ValueError, match=f"has another {kind} than"):
            run(options, tmp_path / "new", init_from=str(source))


@pytest.mark.usefixtures("eagerly")
def test_new_head_on_a_frozen_encoder_and_records_without_pairs(
    options, tmp_path, tiny_config, vocabulary, capsys
):
    source = model_directory(tmp_path / "encoder", tiny_config, vocabulary)
    source.save_weights(BertBackbone(tiny_config))
    shutil.copytree(options.records, tmp_path / "records")
    manifest = tmp_path / "records/manifest.json"
    text = manifest.read_text().removesuffix("}")
    manifest.write_text(text + ', "next_sentence_prediction": false}')
    changes = {"records": str(tmp_path / "records"), "init_from": str(source.path)}
    changes |= {"size": "", "steps": 2, "warmup_steps": 0, "freeze_encoder": True}
    metrics = run(options, tmp_path / "new", **changes)
    after = open_checkpoint(tmp_path / "new").read_weights()
    for name, values in source.read_weights().items():
        np.testing.assert_array_equal(after[name], values)
    assert "nsp/kernel" not in after
    printed = capsys.readouterr().out
    assert "Newly initialized layers: mlm." in printed
    report = (tmp_path / "new/report.md").read_text()
    shown = f"{metrics['val_mlm_accuracy']:.1%} | {metrics['val_mlm_loss']:.3f}"
    assert f"| masked tokens, this model | {shown} |" in report
    before = re.search(r"masked tokens, before \| [\d.]+% \| ([\d.]+)", report)
    assert float(before[1]) > metrics["val_mlm_loss"]
    for text in (printed, report, *metrics):
        assert not re.search("nsp|NSP accuracy|next sentence", text)
    assert "BERT mini" not in report  # Results of models with random weights.


@pytest.mark.slow
def test_init_from_with_fewer_tokens(options, tmp_path, tiny_config):
    tokens = Vocabulary.from_file(f"{options.records}/vocab.txt").tokens
    config = dataclasses.replace(tiny_config, vocabulary_size=len(tokens) - 1)
    before = model_directory(tmp_path / "before", config, Vocabulary(tokens[:-1]))
    before.save_weights(BertPretrainer(BertBackbone(config)))
    further = {"init_from": str(before.path), "size": "", "steps": 1}
    further |= {"learning_rate": 0.0, "warmup_steps": 0}
    run(options, tmp_path / "after", **further)
    after = open_checkpoint(tmp_path / "after").read_weights()
    for name, values in before.read_weights().items():
        np.testing.assert_array_equal(after[name][: len(values)], values)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"records": "nowhere"}, r"nowhere has no manifest\.json"),
        ({"warmup_steps": (1, 2)}, "--warmup_steps must have one number for each"),
        ({"batch_size": 3, "strategy": "mirrored"}, "use --batch_size=4"),
        ({"micro_batch_size": 3}, "micro_batch_size=3, rows=16"),
        ({"warmup_steps": 60}, "`warmup_steps` must be at least 0 and .* steps=60"),
        ({"init_from": "nowhere"}, "no checkpoint folder nowhere"),
        ({"size": "mini"}, "trained weights. Omit --size and pass .* size='mini'"),
        ({"initialization": "corpus"}, "pass --initialization=normal"),
        ({"mask_selection_rate": 0.0}, "`mask_selection_rate` must be above 0"),
        ({"mask_token_rate": 0.9, "random_token_rate": 0.2}, "their sum at most 1"),
        ({"strategy": "tpu"}, "--strategy=tpu"),
    ],
)
def test_invalid_options_raise_before_writing(
    trained, options, tmp_path, change, message
):
    if {"size", "initialization"} & change.keys():
        change = {"init_from": str(trained[0].path), **change}
    with pytest.raises(ValueError, match=message):
        run(options, tmp_path / "new", **change)
    assert not (tmp_path / "new").exists()


def test_records_longer_than_the_model_raise(options, random_encoder, tmp_path):
    size = random_encoder(tmp_path, max_sequence_length=8)["size"]
    with pytest.raises(ValueError, match="sequences of 16 tokens"):
        run(options, tmp_path / "new", size=size)
