# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of bert_tf.data.corpus: from text files to records, manifest and summary.

Token k of document i is the word "d<i>t<k>", so that tokens in records can be traced.
"""

import dataclasses
import itertools
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time
from typing import NamedTuple

import pytest
import tensorflow as tf

from bert_tf import corpus as command
from bert_tf import storage
from bert_tf.data import CorpusConfig, Records, corpus, documents, prepare_corpus
from bert_tf.data.corpus import content_share
from bert_tf.text import Tokenizer, Vocabulary

NUM_DOCUMENTS = 40
LONGEST_DOCUMENT = 150
SPLITS = ("train", "validation")
NAMES = ("token_ids", "pair_length", "first_segment_length", "is_random_next")
VOCABULARY = Vocabulary(
    (
        *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
        *(f"d{i}t{k}" for i in range(NUM_DOCUMENTS) for k in range(LONGEST_DOCUMENT)),
    )
)


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> CorpusConfig:
    """Forty documents in three files, records of 32 tokens, one process."""
    folder = tmp_path_factory.mktemp("source")
    rng = random.Random(0)
    documents = []
    for i in range(NUM_DOCUMENTS):
        words = [f"d{i}t{k}" for k in range(rng.randint(30, LONGEST_DOCUMENT))]
        lines = []
        while words:
            length = rng.randint(1, 12)
            lines.append(" ".join(words[:length]))
            words = words[length:]
        documents.append("\n".join(lines) + "\n")
    (folder / "text").mkdir()
    for name, chosen in (("a", documents[:5]), ("b", documents[5:6])):
        (folder / "text" / name).write_text("\n".join(chosen))
    (folder / "text" / "c").write_text("\r\n".join(documents[6:]))
    VOCABULARY.write(folder / "vocabulary")
    return CorpusConfig(
        input=f"{folder}/text/*",
        vocabulary=str(folder / "vocabulary"),
        output=str(folder / "records"),
        max_sequence_length=32,
        short_sequence_probability=0.4,
        held_out_share=0.1,
        num_workers=1,
    )


@pytest.fixture(scope="module")
def written(source) -> CorpusConfig:
    """Options whose records exist."""
    prepare_corpus(source)
    return source


@pytest.fixture
def options(source, tmp_path) -> CorpusConfig:
    """The same options with an empty output directory."""
    return dataclasses.replace(source, output=str(tmp_path / "records"))


class Record(NamedTuple):
    first: list[tuple[int, int]]  # (document, position) of each token.
    second: list[tuple[int, int]]
    is_random_next: int
    length: int


def is_labelled(record: Record) -> bool:
    """Returns whether the label says if the segments are of different documents."""
    return record.is_random_next == (record.first[0][0] != record.second[0][0])


def origins(token_ids: list[int]) -> list[tuple[int, int]]:
    """Returns the document of each token and its position in the document."""
    words = [VOCABULARY.tokens[i].removeprefix("d").split("t") for i in token_ids]
    return [(int(document), int(position)) for document, position in words]


def read_rows(options: CorpusConfig, split: str) -> list[list[Record]]:
    files = sorted(pathlib.Path(options.output).glob(f"{split}-*.tfrecord"))
    rows = []
    for serialized in tf.data.TFRecordDataset([str(f) for f in files]):
        features = tf.train.Example.FromString(serialized.numpy()).features.feature
        tokens, *columns = (features[name].int64_list.value for name in NAMES)
        tokens, row = iter(tokens), []
        for length, cut, label in zip(*columns, strict=True):
            ids = list(itertools.islice(tokens, length))
            special = (ids[0], ids[cut - 1], ids[-1])  # The last two may be one.
            assert special == (VOCABULARY.cls_id, VOCABULARY.sep_id, VOCABULARY.sep_id)
            first, second = origins(ids[1 : cut - 1]), origins(ids[cut:-1])
            row.append(Record(first, second, label, length))
        assert not [*tokens]
        rows.append(row)
    return rows


def read(options: CorpusConfig, *splits: str) -> list[Record]:
    rows = (row for split in splits or SPLITS for row in read_rows(options, split))
    return list(itertools.chain.from_iterable(rows))


def sources(records: list[Record]) -> set[int]:
    return {segment[0][0] for r in records for segment in (r.first, r.second)}


def manifest(options: CorpusConfig) -> dict:
    return json.loads((pathlib.Path(options.output) / "manifest.json").read_text())


def contents(options: CorpusConfig) -> dict[str, bytes]:
    files = pathlib.Path(options.output).glob("*.tfrecord")
    return {file.name: file.read_bytes() for file in files}


def prepare(options: CorpusConfig, text: str = "", **changes) -> CorpusConfig:
    """Writes records of a text, or of `options.input`, to a new directory."""
    output = f"{options.output}-{len(os.listdir(os.path.dirname(options.output)))}"
    if text:
        pathlib.Path(f"{output}.txt").write_text(text)
        changes["input"] = f"{output}.txt"
    changed = dataclasses.replace(options, **{"output": output, **changes})
    prepare_corpus(changed)
    return changed


# --- Contents of the records -----------------------------------------------------


def test_is_random_next_is_1_for_another_document(written):
    found = read(written)
    assert len(found) > 100
    assert all(is_labelled(record) for record in found)
    for first, second, is_random_next, length in found:
        assert 5 <= length <= 32
        for segment in (first, second):
            (document, start), *_ = segment
            run = [(document, start + i) for i in range(len(segment))]
            assert segment == run, "consecutive tokens of one document"
        assert is_random_next or first[-1][1] < second[0][1]
    assert {record.is_random_next for record in found} == {0, 1}


def test_held_out_documents_are_not_in_training_records(written):
    train, validation = (sources(read(written, split)) for split in SPLITS)
    assert (len(train), len(validation)) == (36, 4)
    assert not train & validation
    longer = prepare(written, max_sequence_length=64)
    assert 32 < max(record.length for record in read(longer)) <= 64
    assert sources(read(longer, "validation")) == validation


def test_validation_input_replaces_held_out_documents(written, capsys):
    folder = os.path.dirname(written.input)
    chosen = prepare(written, validation_input=f"{folder}/a")
    found = [sources(read(chosen, split)) for split in SPLITS]
    assert found == [set(range(5, NUM_DOCUMENTS)), set(range(5))]
    assert f"warning: {folder}/a is not text to learn. It is" in capsys.readouterr().out
    assert sorted(contents(chosen)) == [
        "train-00000-of-00002.tfrecord",
        "validation-00001-of-00002.tfrecord",
    ]
    # A single validation document has random segments of training documents.
    for changes in ({"validation_input": f"{folder}/b"}, {"held_out_share": 1e-9}):
        pairs = read(prepare(written, **changes), "validation")
        assert len({first[0][0] for first, *_ in pairs}) == 1
        assert {pair.is_random_next for pair in pairs} == {0, 1}
        assert all(is_labelled(pair) for pair in pairs)


def test_segments_without_next_sentence_prediction(written):
    chosen = prepare(written, next_sentence_prediction=False, held_out_share=0.0)
    found = read(chosen)
    assert {(len(r.second), r.is_random_next) for r in found} == {(0, -1)}
    tokens = [token for record in found for token in record.first]
    assert len(tokens) == len(set(tokens)) == manifest(chosen)["tokens"]
    x, _, weights = next(iter(Records(chosen.output).dataset(batch_size=4)))
    assert not x["segment_ids"].numpy().any()
    assert not weights["nsp"].numpy().any()
    # One document of one sentence is enough.
    alone = prepare(written, "d0t0 d0t1", next_sentence_prediction=False)
    assert read(alone) == [Record([(0, 0), (0, 1)], [], -1, 4)]
    (warning,) = manifest(alone)["warnings"]
    assert warning.startswith("No documents are held out for validation: there are 1.")
    assert manifest(alone)["validation_documents"] == 0


def test_few_tokens_of_long_lines_are_lost(options):
    lines = "\n\n".join(" ".join(f"d{i}t{k}" for k in range(140)) for i in range(9))
    for length in (32, 64):
        chosen = prepare(options, lines, max_sequence_length=length, held_out_share=0.0)
        own = (r.first + r.second * (1 - r.is_random_next) for r in read(chosen))
        used = list(itertools.chain.from_iterable(own))
        assert len(used) == len(set(used)) > 0.95 * 9 * 140


def test_document_that_fills_a_part_has_random_segments_of_others(three_parts):
    """NVIDIA/DeepLearningExamples#421"""
    large = "".join(f"d0t{k % LONGEST_DOCUMENT}\n" for k in range(2500))
    small = "".join(f"\nd{i}t0 d{i}t1\nd{i}t2\n" for i in range(1, NUM_DOCUMENTS))
    found = read(prepare(three_parts, large + small), "train")
    pairs = [r for r in found if r.is_random_next and r.first[0][0] == 0]
    assert len(pairs) > 50
    assert 0 not in {second[0][0] for _, second, *_ in pairs}
    held_out = sources(read(prepare(three_parts, large + small), "validation"))
    assert not held_out & {second[0][0] for _, second, *_ in pairs}


@pytest.mark.parametrize("share", [0.01, 0.1, 0.34, 0.5])
def test_share_of_held_out_documents(written, tmp_path, share):
    """google-research/bert#380, #906"""

    def held_out(texts, seed):
        path = tmp_path / "text.txt"
        path.write_text("\n\n".join(texts))
        options = {"input": str(path), "document_separator": "blank_line"}
        options = dataclasses.replace(written, seed=seed, **options)
        files = documents.list_texts(options)
        ranges, limit = corpus._scan(files, share, options)
        found = ranges[0].paragraphs()
        return {text for (text,) in found if content_share([text], seed) <= limit}

    for size in (2, 3, 6, 9, 10, 40, 3000):
        texts = [f"Document {i}." for i in range(size)]
        for seed in range(10 if size < 100 else 1):
            found = held_out(texts, seed)
            expected = share * size
            if expected >= 0.5 and size > 2:
                assert expected / 2 <= len(found) <= max(1, 1.5 * expected)
            else:
                assert (size >= 10) <= len(found) <= 1
            assert len(found) <= size - 2
            # Copies are held out together.
            assert held_out([*texts, *texts], seed) == found
    more = held_out([*texts, *(f"Another {i}." for i in range(500))], seed)
    assert more & set(texts) == found


def test_random_segments_begin_with_any_sentence_of_all_documents(options):
    many = prepare(options, max_sequence_length=8, held_out_share=0.0)
    begins = [record.second[0] for record in read(many) if record.is_random_next]
    assert {document for document, _ in begins} == set(range(NUM_DOCUMENTS))
    assert len(set(begins)) > len(begins) / 2


def test_records_are_in_random_order(written):
    order = [record.first[0][0] for record in read(written, "train")]
    neighbors = sum(a == b for a, b in itertools.pairwise(order))
    assert neighbors < len(order) / 5


def test_blocks_and_batches_keep_all_documents(options, monkeypatch):
    monkeypatch.setattr("bert_tf.data.corpus._BLOCK_CHARACTERS", 1)
    monkeypatch.setattr("bert_tf.data.corpus._BATCH_SENTENCES", 9)
    text = "\n".join("".join(f"d{i}t{k} d{i}t0\n" for k in range(9)) for i in range(6))
    found = read(prepare(options, text))  # Each block has two documents.
    assert {record.first[0][0] for record in found} == set(range(6))
    assert all(is_labelled(record) for record in found)


def test_sentences_and_documents_without_tokens_are_dropped(options):
    """An accent alone is no token."""
    lines = "".join(f"d{i}t{k}\n" for i in range(12) for k in range(9))
    text = f"\u0301\n{lines}\u0301\n\n\u0301\n\nd20t0\nd20t1\n"
    content = manifest(prepare(options, text))
    assert (content["documents"], content["tokens"]) == (2, 12 * 9 + 2)


def test_casing_follows_the_option(options):
    text = "D0t0\nd0t1\n\nd1t0\nd1t1\n\n"
    for lowercase, share in ((True, 0), (False, 0.25)):
        changes = {"lowercase": lowercase, "document_separator": "blank_line"}
        assert manifest(prepare(options, text, **changes))["unknown_share"] == share


def test_manifest_matches_the_records(written):
    content = manifest(written)
    texts = [pathlib.Path(p).read_text() for p in storage.expand_globs(written.input)]
    found = {split: read(written, split) for split in SPLITS}
    rows = {split: read_rows(written, split) for split in SPLITS}
    both = read(written)
    tokens = sum(record.length for record in both)
    slots = 32 * sum(map(len, rows.values()))
    expected = {
        "documents": NUM_DOCUMENTS,
        "tokens": sum(len(text.split()) for text in texts),
        "unknown_share": 0,
        "train_documents": 36,
        "validation_documents": 4,
        **{f"{split}_pairs": len(found[split]) for split in SPLITS},
        **{f"{split}_rows": len(rows[split]) for split in SPLITS},
        "padding_share": pytest.approx(1 - tokens / slots),
        "padding_share_unpacked": pytest.approx(1 - tokens / 32 / len(both)),
        "pairs_per_row": max(len(row) for split in SPLITS for row in rows[split]),
        "max_sequence_length": 32,
        "lowercase": True,
        "vocabulary_fingerprint": VOCABULARY.fingerprint,
        "warnings": [],
        "record_files": {name: len(data) for name, data in contents(written).items()},
    }
    assert {name: content[name] for name in expected} == expected
    assert content["pairs_per_row"] > 1
    copied = Vocabulary.from_file(pathlib.Path(written.output) / "vocab.txt")
    assert copied == VOCABULARY


def test_rows_without_packing_have_one_pair(written):
    alone = prepare(written, pack=False)
    assert {len(row) for row in read_rows(alone, "train")} == {1}
    assert sorted(read(alone, "train")) == sorted(read(written, "train"))


# --- Reproducible records --------------------------------------------------------


@pytest.fixture
def three_parts(options, monkeypatch) -> CorpusConfig:
    """Options of three parts: the first ends inside of the second file."""
    size = sum(os.path.getsize(path) for path in storage.expand_globs(options.input))
    monkeypatch.setattr(documents, "_PART_BYTES", size // 3)
    return options


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"num_workers": 2}, marks=pytest.mark.slow),
        pytest.param({"runner": "DirectRunner"}),
    ],
)
def test_records_do_not_depend_on_the_runner(three_parts, changes):
    if "runner" in changes:
        pytest.importorskip("apache_beam", reason="Apache Beam is not installed")
    assert contents(prepare(three_parts, **changes)) == contents(prepare(three_parts))


@pytest.mark.slow
def test_dask_writes_equal_records_although_a_worker_is_killed(options, monkeypatch):
    pytest.importorskip("apache_beam", reason="Apache Beam is not installed")
    distributed = pytest.importorskip("distributed", reason="Dask is not installed")
    monkeypatch.setattr(documents, "_PART_BYTES", 2000)
    expected = contents(prepare(options))
    assert len(expected) > 10
    on_dask = dataclasses.replace(options, runner="DaskRunner")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None
    ) as cluster:
        killed = cluster.workers[0].pid

        def kill() -> None:
            while not list(pathlib.Path(on_dask.output).glob("part-*.json")):
                time.sleep(0.01)
            os.kill(killed, signal.SIGKILL)

        thread = threading.Thread(target=kill, daemon=True)
        thread.start()
        address = f"--dask_client_address={cluster.scheduler_address}"
        prepare_corpus(dataclasses.replace(on_dask, beam_options=address))
        thread.join(10)
        assert cluster.workers[0].pid != killed
    assert contents(on_dask) == expected


def test_dupe_factor_adds_other_pairs_of_the_same_documents(written):
    chosen = prepare(written, dupe_factor=2)
    once, twice = read(written, "train"), read(chosen, "train")
    more = twice[len(once) :]
    assert twice == once + more
    assert sources(more) == sources(once)
    assert sum(record in once for record in more) < len(once) / 10
    assert read(chosen, "validation") == read(written, "validation")
    for name in ("documents", "tokens", "train_documents"):
        assert manifest(chosen)[name] == manifest(written)[name]


def test_seed_determines_records(written):
    assert contents(prepare(written)) == contents(written)
    assert contents(prepare(written, seed=1)) != contents(written)


def test_interrupted_run_resumes(three_parts, monkeypatch):
    whole = prepare(three_parts)
    assert sorted(contents(whole)) == [
        f"{split}-0000{i}-of-00003.tfrecord" for split in SPLITS for i in range(3)
    ]
    found = read(whole)
    assert {record.first[0][0] for record in found} == set(range(NUM_DOCUMENTS))
    assert len(found) == sum(manifest(whole)[f"{split}_pairs"] for split in SPLITS)
    written = []
    write_part = corpus.write_part

    def interrupted(options, vocabulary, part):
        written.append(part.index)
        if len(written) == 3:
            raise KeyboardInterrupt
        return write_part(options, vocabulary, part)

    monkeypatch.setattr(corpus, "write_part", interrupted)
    with pytest.raises(KeyboardInterrupt):
        prepare_corpus(three_parts)
    assert not (pathlib.Path(three_parts.output) / "manifest.json").exists()
    prepare_corpus(three_parts)
    assert written == [0, 1, 2, 2]
    assert contents(three_parts) == contents(whole)
    assert {**manifest(three_parts), "seconds": 0} == {**manifest(whole), "seconds": 0}
    names = {*os.listdir(three_parts.output)} - {*contents(whole)}
    assert names == {"manifest.json", "settings.json", "vocab.txt", ".lock"}


def test_complete_run_is_not_repeated(written, capsys):
    before = contents(written)
    command.main(written)
    *_, note, summary = capsys.readouterr().out.rstrip().split("\n")
    assert note == f"{written.output} is already complete."
    assert summary.startswith(f"{written.output}: {len(read(written, 'train'))} train")
    assert "Text: 40 documents with 611 sentences and 3,772 tokens" in summary
    assert contents(written) == before


def test_directory_in_use_is_refused(options):
    storage.make_directory(options.output)
    in_use = pytest.raises(ValueError, match="in use by")
    with storage.exclusive(options.output), in_use:
        prepare_corpus(options)


def test_ctrl_c_ends_the_command_with_one_line(options):
    flags = [f"--{n}={getattr(options, n)}" for n in ("input", "vocabulary", "output")]
    with subprocess.Popen(
        [sys.executable, "-m", "bert_tf.corpus", *flags],
        cwd=pathlib.Path(__file__).parents[2],
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.stderr.read().strip() == "Interrupted."
    assert process.returncode == 130


# --- Errors and warnings ---------------------------------------------------------


@pytest.mark.parametrize("name", ["manifest.json", "config.json", "vocab.txt"])
def test_folder_of_something_else_is_kept(options, name):
    path = pathlib.Path(options.output) / name
    path.parent.mkdir(parents=True)
    path.write_text("[UNK]\n[CLS]\n[SEP]\n[PAD]\nother\n")
    before = path.read_bytes()
    with pytest.raises(ValueError, match="has other files"):
        prepare_corpus(options)
    assert {*os.listdir(path.parent)} - {".lock"} == {name}
    assert path.read_bytes() == before


def test_other_settings_require_another_output(written):
    message = "max_sequence_length: 32 before, 64 now\n.* choose another --output"
    with pytest.raises(ValueError, match=message):
        prepare_corpus(dataclasses.replace(written, max_sequence_length=64))
    # The number of processes may change.
    prepare_corpus(dataclasses.replace(written, num_workers=2))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n\n", "requires at least two documents that differ. Got 0 in 1 files: a bl"),
        ("d0t0\nd0t1\nd0t2\n", r"Got 1 in 1 files: .*_separator=line$"),
        ("d0t0\nd0t1\n%\n" * 9, r"Got 1 in 1 files: .*_separator=blank_line$"),
    ],
)
def test_two_documents_are_required(options, text, message):
    with pytest.raises(ValueError, match=message):
        prepare(options, text)
    assert not list(pathlib.Path(options.output).parent.glob("*/manifest.json"))


def test_warnings_are_printed_and_in_manifest(options, capsys):
    changes = {"document_separator": "blank_line", "held_out_share": 0.0}
    chosen = prepare(options, "d0t0\n\nd1t0\n", **changes)
    (warning,) = manifest(chosen)["warnings"]
    assert warning.startswith("100.0% of the documents have 1 sentence, whose pairs")
    printed = capsys.readouterr().out
    assert f"warning: {warning}\n" in printed
    assert "The text is lowercased, without accents (--lowercase=True). Ass" in printed


def test_lowercasing_that_strips_vowel_signs_is_reported(options, tmp_path, capsys):
    """google-research/bert#138, huggingface/tokenizers#572"""
    tokens = [*VOCABULARY.tokens[:25], *"कखगघ"]
    (tmp_path / "vocabulary").write_text("\n".join(tokens))
    prepare_corpus(dataclasses.replace(options, vocabulary=f"{tmp_path}/vocabulary"))
    assert "--lowercase strips vowel signs" in capsys.readouterr().out


def test_lowercasing_that_loses_tokens_is_refused(options, tmp_path):
    (tmp_path / "vocabulary").write_text("\n".join([*VOCABULARY.tokens[:100], "Việt"]))
    changed = dataclasses.replace(options, vocabulary=f"{tmp_path}/vocabulary")
    with pytest.raises(ValueError, match=r"Việt\. Pass --lowercase=false"):
        prepare_corpus(changed)
    prepare_corpus(dataclasses.replace(changed, lowercase=False))


# --- Problems in the text --------------------------------------------------------


@pytest.fixture
def count(vocabulary):
    def count(documents: list[list[str]]) -> dict[str, int]:
        ids, lengths = corpus._tokenize(Tokenizer(vocabulary), documents)
        return corpus.count_problems(documents, ids, lengths, vocabulary)

    return count


def test_counts(count):
    documents = [["The cat.", "\u0301", "The mat."], ["\u0301"], ["The cat."], ["猫"]]
    assert count(documents) == {
        "documents": 3,
        "sentences": 4,
        "tokens": 3 + 3 + 3 + 1,
        "unknown": 1,
        "garbled": 0,
        "repeated": 3,
        "one_sentence": 2,
    }


def test_good_text_has_no_warnings(count):
    words = ["« Déjà vu » à Âge d’or.", "NÃO é ação – ok…", "Łódź “é”."]
    assert count([words])["garbled"] == 0
    good = [[f"The cat {letter} sat.", f"A mat {letter}."] for letter in "abcdef"]
    assert corpus.text_warnings(count(good)) == []


@pytest.mark.parametrize(
    ("documents", "warning"),
    [
        ([["猫坐在垫子上。", "狗也在。"]], "100.0% of the tokens are [UNK]"),
        ([["The cat."], ["The mat."], ["a", "b"]], "66.7% of the documents have 1 sen"),
        ([["The cat Ã©.", "The mat."]], "50.0% of the sentences contain text like"),
        ([["The catâ€™s.", "a"]], "50.0% of the sentences contain text like"),
        ([["The cat \ufffd.", "a"]], "50.0% of the sentences contain text like"),
        ([["the", "mat"], ["the", "cat"]], "25.0% of the tokens are in sentences"),
    ],
)
def test_warnings(count, documents, warning):
    found = corpus.text_warnings(count(documents))
    assert [w for w in found if w.startswith(warning)]
