# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import contextlib
import dataclasses
import json
import os
import re
import shlex
import shutil
import signal
from xml.etree import ElementTree

import numpy as np
import pytest

from bert_tf import cli
from bert_tf.checkpoints import open_checkpoint
from bert_tf.modeling import BertBackbone, BertPretrainer
from bert_tf.text import AddedToken, TokenizerRules, Vocabulary
from bert_tf.training import (
    Devices,
    PretrainConfig,
    TrainingLoop,
    create_optimizer,
    pretrain,
    pretraining,
    read_history,
    tensorflow_devices,
)
from bert_tf.training.pretraining import masked_batches
from tests.toy.models import model_directory
from tests.toy.records import write_records


@pytest.fixture(scope="module")
def records(tmp_path_factory, vocabulary):
    """Learnable pairs: one letter per position, others in random next segments."""
    folder = tmp_path_factory.mktemp("pretrain") / "records"
    first, follows, random = range(5, 11), range(11, 17), range(17, 23)
    rows = [([2, *first, 3, *follows, 3], 8, 0), ([2, *first, 3, *random, 3], 8, 1)]
    write_records(folder, vocabulary, rows * 128)
    write_records(folder, vocabulary, rows * 16, split="validation")
    return folder


@pytest.fixture(scope="module")
def size(tmp_path_factory, random_encoder):
    """Returns `--size` of a one-layer encoder with dropout."""
    folder = tmp_path_factory.mktemp("config")
    encoder = random_encoder(folder, num_layers=1, dropout=0.1, attention_dropout=0.1)
    return encoder["size"]


@pytest.fixture(scope="module")
def options(records, size, tmp_path_factory):
    return PretrainConfig(
        records=str(records),
        output=str(tmp_path_factory.mktemp("models") / "whole"),
        size=size,
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


def test_report_has_results_examples_and_the_command(trained, two_phases):
    directory, metrics = trained
    report = (directory.path / "report.md").read_text(encoding="utf-8")
    headings = re.findall("^## (.*)", report, re.MULTILINE)
    assert headings == [
        "Held-out text",
        "Training",
        "Masked tokens",
        "More training",
        "Next steps",
    ]
    for name in ("val_mlm_accuracy", "bigram_accuracy", "unigram_accuracy"):
        assert f" | {metrics[name]:.1%} |\n" in report, name
    assert f"| weights | {4090:,} |" in report
    line, *following = re.findall(r"^python -m \w+\.\w+ (.*)", report, re.MULTILINE)
    assert cli.parse(PretrainConfig, shlex.split(line)) == two_phases
    assert len(following) == 3
    # The second segment has one token at each position.
    shown = re.findall(r"^\| .*\*\*\[\?\]\*\*.* \| (\S+) \| (\S+) \d+%, ", report, re.M)
    assert len(shown) > 2
    assert any(label == best for label, best in shown)
    picture = ElementTree.parse(directory.path / "report.svg")
    panels = [x.get("id") for x in picture.iter() if "axes_" in x.get("id", "")]
    assert panels == ["axes_1", "axes_2"]


class _Killed(Exception):
    pass


def kill():
    raise _Killed


def terminate():
    os.kill(os.getpid(), signal.SIGTERM)


@contextlib.contextmanager
def act_at(step, act, method="check_signals"):
    """Calls `act` before a method of the loop at some step."""
    original = getattr(TrainingLoop, method)

    def replacement(self, *arguments):
        if self.step == step:
            act()
        return original(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainingLoop, method, replacement)
        yield


def assert_same_weights(*paths):
    models = [open_checkpoint(path).load_model(BertPretrainer) for path in paths]
    for a, b in zip(*(model.get_weights() for model in models), strict=True):
        np.testing.assert_array_equal(a, b)


def test_history_without_states_is_not_overwritten(trained, two_phases, tmp_path):
    copy = shutil.copytree(trained[0].path, tmp_path / "copy")
    shutil.rmtree(copy / "training_state")
    with pytest.raises(ValueError, match="has a history of 60 steps but no training"):
        pretrain(dataclasses.replace(two_phases, output=str(copy)))
    assert read_history(copy) == read_history(trained[0].path)


@pytest.mark.slow
def test_damaged_record_is_named(options, tmp_path):
    records = shutil.copytree(options.records, tmp_path / "records")
    file = records / "train-00000-of-00001.tfrecord"
    content = bytearray(file.read_bytes())
    content[1000] ^= 1
    file.write_bytes(content)
    changed = dataclasses.replace(
        options, records=str(records), output=str(tmp_path / "model")
    )
    with pytest.raises(
        ValueError, match=rf"^{file} is damaged: .* Remove .* and rerun"
    ):
        pretrain(changed)


@pytest.mark.slow
def test_resume_is_bit_equal_after_signals_and_a_kill(
    trained, two_phases, tmp_path, capsys
):
    options = dataclasses.replace(two_phases, output=str(tmp_path / "interrupted"))
    states = tmp_path / "interrupted/training_state"
    # Within an epoch, in an evaluation, between two states of the second phase.
    for step, act, method in (
        (7, terminate, "check_signals"),
        (25, terminate, "evaluate"),
        (55, kill, "check_signals"),
    ):
        raised = pytest.raises(SystemExit if act == terminate else _Killed)
        with act_at(step, act, method), raised as ended:
            pretrain(options)
        if act == terminate:
            assert ended.value.code == 0
            line = f"Stopped by SIGTERM. Step {step} is saved in {states}. Rerun the"
            assert line in capsys.readouterr().out
            assert (states / f"ckpt-{step}.npz").exists()
    pretrain(options)
    assert_same_weights(trained[0].path, options.output)
    histories = read_history(trained[0].path), read_history(options.output)
    for a, b in zip(*histories, strict=True):
        for name in a.keys() - {"tokens_per_second"}:
            assert b[name] == pytest.approx(a[name], rel=1e-6), name


@pytest.mark.slow
def test_metrics_are_read_once_in_several_steps(
    trained, two_phases, tmp_path, monkeypatch
):
    """As on accelerators."""
    monkeypatch.setattr(Devices, "steps_per_call", 20)
    counts, run = [], tensorflow_devices.TensorFlowSteps.run

    def counted(self, iterator, count):
        counts.append(count)
        return run(self, iterator, count)

    monkeypatch.setattr(tensorflow_devices.TensorFlowSteps, "run", counted)
    pretrain(dataclasses.replace(two_phases, output=str(tmp_path / "model")))
    assert counts == [20, 5, 20, 5, 10]
    for one, other in zip(
        read_history(trained[0].path), read_history(tmp_path / "model")
    ):
        for name in ("loss", "val_loss", "gradient_norm", "gradient_norm_max"):
            assert one[name] == pytest.approx(other[name], rel=1e-3), name


@pytest.mark.slow
def test_lamb_with_float16_and_less_memory_on_two_devices(options, tmp_path):
    options = dataclasses.replace(
        options,
        output=str(tmp_path / "half"),
        optimizer="lamb",
        decay="polynomial",
        precision="mixed_float16",
        strategy="mirrored",
        micro_batch_size=4,
        recompute=True,
        save_every=0.0,
        steps=30,
    )
    metrics = pretrain(options)
    assert metrics["val_mlm_accuracy"] > 1.5 * metrics["unigram_accuracy"]
    # A state after each step; the last two are kept.
    states = (tmp_path / "half/training_state").glob("*.npz")
    assert {path.name for path in states} == {"ckpt-29.npz", "ckpt-30.npz"}


@pytest.mark.usefixtures("eagerly")
def test_embeddings_of_muon_are_scaled_and_outputs_stay(options, tmp_path, monkeypatch):
    changes = {"optimizer": "muon", "steps": 2, "warmup_steps": 1, "validate_every": 2}
    run = dataclasses.replace(options, output=str(tmp_path), **changes)
    batch = next(iter(pretraining.masked_batches(run, 1, run.phases()[0])))[0]
    outputs = []

    def scale(model, scale_embeddings=pretraining.scale_embeddings):
        outputs.append(model.predict_on_batch(batch))
        scale_embeddings(model)
        outputs.append(model.predict_on_batch(batch))

    monkeypatch.setattr(pretraining, "scale_embeddings", scale)
    pretrain(run)
    for name in ("mlm", "nsp"):
        np.testing.assert_array_equal(outputs[0][name], outputs[1][name])
    written = open_checkpoint(tmp_path).read_weights()
    tokens = written["embeddings/token_embedding/embeddings"]
    assert 0.5**0.5 < np.sqrt(np.mean(tokens**2)) / 0.02 < 2**0.5


def test_finished_run_is_not_trained_again(trained, two_phases):
    before = trained[0].load_model(BertPretrainer).get_weights()
    assert pretrain(two_phases) == trained[1]
    after = trained[0].load_model(BertPretrainer).get_weights()
    for a, b in zip(before, after, strict=True):
        np.testing.assert_array_equal(a, b)
    changed = dataclasses.replace(two_phases, dropout=0.0)
    with pytest.raises(ValueError, match=r"dropout: 0\.05 before, 0\.0 now"):
        pretrain(changed)


def test_resuming_compares_the_content_of_the_records(
    trained, two_phases, tmp_path, vocabulary
):
    first, second = two_phases.records.split(",")
    moved = shutil.copytree(first, tmp_path / "moved")
    run = dataclasses.replace(two_phases, records=f"{moved},{second}")
    assert pretrain(run) == trained[1]
    # Of the same sizes, with other tokens.
    rows = [([2, *range(5, 11), 3, *range(17, 23), 3], 8, 0)] * 256
    write_records(moved, vocabulary, rows)
    message = r"records_content: \['256 rows of 16 tokens, \w+', .* before, \['256 rows"
    with pytest.raises(ValueError, match=message):
        pretrain(run)


def test_longer_training_of_a_finished_one(trained, two_phases, tmp_path, capsys):
    copy = shutil.copytree(trained[0].path, tmp_path / "copy")
    run = dataclasses.replace(two_phases, output=str(copy), steps=(50, 12))
    pretrain(run)
    line = "Training to step 62 instead of 60, with the learning rates of the longer"
    assert line in capsys.readouterr().out
    history = read_history(copy)
    assert [row["step"] for row in history] == [25, 50, 60, 62]
    assert open_checkpoint(copy).options["steps"] == [50, 12]
    for fewer in ((50, 11), (49, 13)):
        with pytest.raises(ValueError, match="--steps must have the same numbers as"):
            pretrain(dataclasses.replace(run, steps=fewer))


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


def test_masking_rates_of_phases_and_of_validation(two_phases):
    options = dataclasses.replace(two_phases, mask_selection_rate=(0.5, 0.25))
    first, second = options.phases()
    predicted = []
    for phase, split in ((first, "train"), (second, "train"), (first, "validation")):
        _, _, weights = next(iter(masked_batches(options, 1, phase, split=split)))
        predicted.append(set(np.count_nonzero(weights["mlm"], axis=1)))
    # Half of 15 tokens, a quarter of each of two pairs of 15 tokens, and, as in the
    # paper, 15 % of 15 tokens.
    assert predicted == [{8}, {8}, {2}]


def test_phases_with_the_same_records_continue_in_them(options):
    repeated = f"{options.records},{options.records}"
    run = dataclasses.replace(
        options, records=repeated, steps=(3, 2), warmup_steps=1, batch_size=4
    )
    first, second = run.phases()
    expected, _, _ = next(iter(masked_batches(run, 1, first, first_step=3)))
    found, _, _ = next(iter(masked_batches(run, 1, second)))
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)


def test_optimizer_has_the_dtypes_of_the_precision(options):
    for precision, dtype in (("float16", "float32"), ("bfloat16", "bfloat16")):
        changed = {"optimizer": "muon", "precision": f"mixed_{precision}"}
        changed = dataclasses.replace(options, **changed)
        optimizer = create_optimizer(changed, changed.phases()[0].schedule)
        assert optimizer.orthogonalization_dtype == dtype
        assert optimizer.dynamic_loss_scale == (precision == "float16")


@pytest.mark.slow
def test_every_token_is_predicted_without_next_sentence(options, tmp_path):
    options = dataclasses.replace(
        options,
        output=str(tmp_path / "all"),
        next_sentence_prediction=False,
        mask_selection_rate=1.0,
    )
    metrics = pretrain(options)
    assert metrics["val_loss"] == pytest.approx(metrics["val_mlm_loss"], abs=1e-6)
    directory = open_checkpoint(options.output)
    assert directory.head == {
        "kind": "pretrainer",
        "newly_initialized": ["pooler", "nsp"],
    }

    # Another run starts from its weights.
    further = dataclasses.replace(
        options,
        output=str(tmp_path / "further"),
        init_from=options.output,
        size="",
        steps=2,
        warmup_steps=1,
        learning_rate=0.0,
    )
    again = pretrain(further)
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
        changed = dataclasses.replace(options, init_from=str(source))
        with pytest.raises(ValueError, match=f"has another {kind} than"):
            pretrain(changed)


@pytest.mark.slow
def test_init_from_with_fewer_tokens(options, tmp_path, tiny_config):
    tokens = Vocabulary.from_file(f"{options.records}/vocab.txt").tokens
    config = dataclasses.replace(tiny_config, vocabulary_size=len(tokens) - 1)
    before = model_directory(tmp_path / "before", config, Vocabulary(tokens[:-1]))
    before.save_weights(BertPretrainer(BertBackbone(config)))
    further = {"init_from": str(before.path), "size": "", "steps": 1}
    further |= {"learning_rate": 0.0, "warmup_steps": 0, "output": str(tmp_path / "a")}
    pretrain(dataclasses.replace(options, **further))
    after = open_checkpoint(further["output"]).read_weights()
    for name, values in before.read_weights().items():
        np.testing.assert_array_equal(after[name][: len(values)], values)


@pytest.mark.slow
def test_divergence_raises_and_keeps_weights(options, tmp_path):
    options = dataclasses.replace(
        options,
        output=str(tmp_path / "diverged"),
        learning_rate=1e30,
        warmup_steps=0,
        validate_every=1,
    )
    with pytest.raises(ValueError, match="not finite"):
        pretrain(options)
    directory = open_checkpoint(options.output)
    for weight in directory.load_model(BertPretrainer).get_weights():
        assert np.isfinite(weight).all()
    # The first step produced the weights that the second one failed with.
    (saved_step,) = (row["step"] for row in read_history(directory.path))
    assert saved_step == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"records": "nowhere"}, r"nowhere has no manifest\.json"),
        ({"batch_size": 3, "strategy": "mirrored"}, "use --batch_size=4"),
        ({"micro_batch_size": 3}, "micro_batch_size=3, rows=16"),
        (
            {"warmup_steps": 60},
            "`warmup_steps` must be at least 0 and below .* steps=60",
        ),
        ({"init_from": "nowhere"}, "no checkpoint folder nowhere"),
        ({"size": "mini"}, "trained weights. Omit --size and pass .* size='mini'"),
        ({"initialization": "corpus"}, "pass --initialization=normal"),
        ({"strategy": "tpu"}, "--strategy=tpu"),
    ],
)
def test_invalid_options_raise_before_writing(
    trained, options, tmp_path, change, message
):
    if {"size", "initialization"} & change.keys():
        change = {"init_from": str(trained[0].path), **change}
    changed = dataclasses.replace(options, output=str(tmp_path / "new"), **change)
    with pytest.raises(ValueError, match=message):
        pretrain(changed)
    assert not (tmp_path / "new").exists()


def test_records_longer_than_the_model_raise(options, tmp_path):
    records = shutil.copytree(options.records, tmp_path / "records")
    manifest = json.loads((records / "manifest.json").read_text())
    long = json.dumps(manifest | {"max_sequence_length": 64})
    (records / "manifest.json").write_text(long)
    with pytest.raises(ValueError, match="sequences of 64 tokens"):
        pretrain(dataclasses.replace(options, records=str(records)))
