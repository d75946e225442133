# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of bert_tf.data.preparation: from text files to records and manifest.

Token k of document i is the word "d<i>t<k>", so that tokens in records can be traced.
"""

import collections
import dataclasses
import itertools
import json
import os
import pathlib
import random
from typing import NamedTuple

import pytest
import tensorflow as tf

from bert_tf import storage
from bert_tf.data import CorpusConfig, preparation, prepare_corpus, pretrain_dataset
from bert_tf.text import Vocabulary

NUM_DOCUMENTS = 40
LONGEST_DOCUMENT = 150
VOCABULARY = Vocabulary(
    (
        *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
        *(f"d{i}t{k}" for i in range(NUM_DOCUMENTS) for k in range(LONGEST_DOCUMENT)),
    )
)


@pytest.fixture
def options(tmp_path) -> CorpusConfig:
    """Forty documents in three files, records of 32 tokens, one process."""
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
    (tmp_path / "text").mkdir()
    for name, chosen in (("a", documents[:5]), ("b", documents[5:6])):
        (tmp_path / "text" / name).write_text("\n".join(chosen))
    (tmp_path / "text" / "c").write_text("\r\n".join(documents[6:]))
    VOCABULARY.write(tmp_path / "vocabulary")
    return CorpusConfig(
        input=f"{tmp_path}/text/*",
        vocabulary=str(tmp_path / "vocabulary"),
        output=str(tmp_path / "records"),
        max_sequence_length=32,
        short_sequence_probability=0.4,
        held_out_share=0.1,
        num_workers=1,
    )


class Record(NamedTuple):
    first: list[tuple[int, int]]  # (document, position) of each token.
    second: list[tuple[int, int]]
    is_random_next: int
    length: int


def origins(token_ids: list[int]) -> list[tuple[int, int]]:
    """Returns the document of each token and its position in the document."""
    words = [VOCABULARY.tokens[i].removeprefix("d").split("t") for i in token_ids]
    return [(int(document), int(position)) for document, position in words]


def read_rows(options: CorpusConfig, split: str = "train") -> list[list[Record]]:
    files = sorted(pathlib.Path(options.output).glob(f"{split}-*.tfrecord"))
    rows = []
    for serialized in tf.data.TFRecordDataset([str(f) for f in files]):
        example = tf.train.Example.FromString(serialized.numpy())
        features = {
            name: list(feature.int64_list.value)
            for name, feature in example.features.feature.items()
        }
        token_ids = features.pop("token_ids")
        row = []
        for cut, label, length in zip(
            features.pop("first_segment_length"),
            features.pop("is_random_next"),
            features.pop("pair_length"),
            strict=True,
        ):
            ids, token_ids = token_ids[:length], token_ids[length:]
            special = (ids[0], ids[cut - 1], ids[-1])
            assert special == (VOCABULARY.cls_id, VOCABULARY.sep_id, VOCABULARY.sep_id)
            first, second = origins(ids[1 : cut - 1]), origins(ids[cut:-1])
            row.append(Record(first, second, label, length))
        assert not token_ids
        assert not features
        rows.append(row)
    return rows


def read(options: CorpusConfig, split: str = "train") -> list[Record]:
    return [record for row in read_rows(options, split) for record in row]


def manifest(options: CorpusConfig) -> dict:
    return json.loads((pathlib.Path(options.output) / "manifest.json").read_text())


# --- Contents of the records -----------------------------------------------------


def test_is_random_next_is_1_for_another_document(options):
    prepare_corpus(options)
    found = read(options) + read(options, "validation")
    assert len(found) > 100
    for first, second, is_random_next, length in found:
        assert 5 <= length <= 32
        for segment in (first, second):
            (document, start), *_ = segment
            run = [(document, start + i) for i in range(len(segment))]
            assert segment == run, "consecutive tokens of one document"
        if is_random_next:
            assert first[0][0] != second[0][0], "another document"
        else:
            assert first[0][0] == second[0][0]
            assert first[-1][1] < second[0][1]
    assert {record.is_random_next for record in found} == {0, 1}


def test_held_out_documents_are_not_in_training_records(options):
    prepare_corpus(options)

    def documents(split):
        return {
            segment[0][0]
            for record in read(options, split)
            for segment in (record.first, record.second)
        }

    train, validation = documents("train"), documents("validation")
    assert (len(train), len(validation)) == (36, 4)
    assert not train & validation
    assert train | validation == set(range(NUM_DOCUMENTS))


def test_random_segments_come_from_all_documents(options):
    """A random segment can begin with any sentence of the block."""
    begins = collections.Counter()
    for seed in range(8):
        chosen = dataclasses.replace(
            options, seed=seed, output=f"{options.output}{seed}", held_out_share=0.0
        )
        prepare_corpus(chosen)
        begins.update(r.second[0] for r in read(chosen) if r.is_random_next)
    assert {document for document, _ in begins} == set(range(NUM_DOCUMENTS))
    assert len(begins) > begins.total() / 2


def test_records_are_in_random_order(options):
    prepare_corpus(options)
    documents = [record.first[0][0] for record in read(options)]
    assert documents != sorted(documents)
    neighbors = sum(a == b for a, b in itertools.pairwise(documents))
    assert neighbors < len(documents) / 5


@pytest.mark.parametrize(("characters", "batch"), [(1, 1), (3000, 30)])
def test_blocks_and_batches_keep_all_documents(options, monkeypatch, characters, batch):
    monkeypatch.setattr("bert_tf.data.documents._BLOCK_CHARACTERS", characters)
    monkeypatch.setattr("bert_tf.data.records._BATCH_SENTENCES", batch)
    prepare_corpus(options)
    found = read(options) + read(options, "validation")
    assert {record.first[0][0] for record in found} == set(range(NUM_DOCUMENTS))
    for record in found:  # Each block has two documents.
        assert record.is_random_next == (record.first[0][0] != record.second[0][0])


def test_sentences_and_documents_without_tokens_are_dropped(options, tmp_path):
    """An accent alone is no token."""
    lines = [f"d{i}t{k}\n" for i in range(12) for k in range(9)]
    text = "".join(lines) + "\u0301\n\n" + "\u0301\n\n" + "d20t0\nd20t1\n"
    (tmp_path / "accents").write_text("\u0301\n" + text)
    options = dataclasses.replace(options, input=str(tmp_path / "accents"))
    prepare_corpus(options)
    content = manifest(options)
    assert (content["documents"], content["sentences"]) == (2, 12 * 9 + 2)
    assert content["tokens"] == 12 * 9 + 2
    assert read(options)


def test_casing_follows_the_option(options, tmp_path):
    (tmp_path / "cased").write_text("D0t0\nd0t1\n\nd1t0\nd1t1\n\n")
    options = dataclasses.replace(
        options, input=str(tmp_path / "cased"), document_separator="blank_line"
    )
    for lowercase, share in ((True, 0), (False, 0.25)):
        output = f"{options.output}{lowercase}"
        chosen = dataclasses.replace(options, lowercase=lowercase, output=output)
        assert prepare_corpus(chosen)["unknown_share"] == share


def test_manifest_matches_the_records(options):
    prepare_corpus(options)
    train, validation = read(options), read(options, "validation")
    both = train + validation
    content = manifest(options)
    texts = [pathlib.Path(path).read_text() for path in content["sources"]]
    assert content["documents"] == NUM_DOCUMENTS
    assert content["tokens"] == sum(len(text.split()) for text in texts)
    assert content["sentences"] == sum(
        sum(1 for line in text.split("\n") if line) for text in texts
    )
    assert content["unknown_share"] == 0
    assert (content["train_documents"], content["validation_documents"]) == (36, 4)
    assert (content["train_pairs"], content["validation_pairs"]) == (
        len(train),
        len(validation),
    )
    random_next = sum(record.is_random_next for record in both)
    assert content["random_next_share"] == random_next / len(both)
    tokens = sum(record.length for record in both)
    rows = {split: read_rows(options, split) for split in ("train", "validation")}
    counts = {split: len(rows[split]) for split in rows}
    assert counts == {split: content[f"{split}_rows"] for split in rows}
    slots = 32 * sum(counts.values())
    assert content["padding_share"] == pytest.approx(1 - tokens / slots)
    assert content["padding_share_unpacked"] == pytest.approx(
        1 - tokens / 32 / len(both)
    )
    largest = max(len(row) for split in rows for row in rows[split])
    assert content["pairs_per_row"] == largest > 1
    assert content["max_sequence_length"] == 32
    assert content["lowercase"] is True
    assert content["vocabulary_fingerprint"] == VOCABULARY.fingerprint
    assert [source["documents"] for source in content["sources"].values()] == [5, 1, 34]
    assert content["warnings"] == []
    copied = Vocabulary.from_file(pathlib.Path(options.output) / "vocab.txt")
    assert copied == VOCABULARY


def test_packing_changes_rows_but_not_pairs(options, tmp_path):
    prepare_corpus(options)
    alone = dataclasses.replace(options, output=str(tmp_path / "alone"), pack=False)
    prepare_corpus(alone)
    assert {len(row) for row in read_rows(alone)} == {1}
    assert manifest(alone)["pairs_per_row"] == 1
    assert sorted(read(alone)) == sorted(read(options))
    assert manifest(options)["padding_share"] < manifest(alone)["padding_share"]


# --- Reproducible records --------------------------------------------------------


def contents(options: CorpusConfig) -> dict[str, bytes]:
    files = pathlib.Path(options.output).glob("*.tfrecord")
    return {file.name: file.read_bytes() for file in files}


@pytest.fixture
def three_parts(options, monkeypatch) -> CorpusConfig:
    """Options of three parts: the first ends inside of the second file."""
    size = sum(os.path.getsize(path) for path in storage.expand_globs(options.input))
    monkeypatch.setattr(preparation, "_PART_BYTES", size // 3)
    return options


def test_parts_together_have_all_documents(three_parts):
    prepare_corpus(three_parts)
    assert sorted(contents(three_parts)) == [
        f"{split}-0000{i}-of-00003.tfrecord"
        for split in ("train", "validation")
        for i in range(3)
    ]
    found = read(three_parts) + read(three_parts, "validation")
    assert {record.first[0][0] for record in found} == set(range(NUM_DOCUMENTS))
    assert len(found) == sum(
        manifest(three_parts)[f"{split}_pairs"] for split in ("train", "validation")
    )


@pytest.mark.slow
def test_records_do_not_depend_on_the_number_of_workers(three_parts):
    prepare_corpus(three_parts)
    output = three_parts.output + "2"
    other = dataclasses.replace(three_parts, output=output, num_workers=2)
    prepare_corpus(other)
    assert contents(other) == contents(three_parts)


def test_remote_paths(options, tmp_path):
    """Uses `ram://` in place of `gs://`."""
    prepare_corpus(options)
    place = "ram://corpus_test"
    for path in [*pathlib.Path(tmp_path / "text").iterdir(), tmp_path / "vocabulary"]:
        storage.write_text(f"{place}/{path.name}", path.read_text())
    remote = dataclasses.replace(
        options,
        input=f"{place}/[abc]",
        vocabulary=f"{place}/vocabulary",
        output=f"{place}/records",
    )
    prepare_corpus(remote)
    made = [name for name in contents(options) if name.startswith("train")]
    for name in made:
        with storage.open_file(f"{place}/records/{name}", "rb") as file:
            assert file.read() == contents(options)[name]
    assert not storage.glob(f"{place}/records/part-*")
    x, *_ = next(iter(pretrain_dataset(remote.output, batch_size=4)))
    assert x["token_ids"].shape == (4, 32)
    prepare_corpus(remote)  # Already complete.


def test_seed_determines_records(options):
    prepare_corpus(options)
    for name, seed in (("same", options.seed), ("other", 1)):
        again = dataclasses.replace(options, output=options.output + name, seed=seed)
        prepare_corpus(again)
        assert (contents(again) == contents(options)) == (name == "same")


def test_documents_and_seeds_have_separate_random_streams(options, tmp_path):
    equal = ["".join(f"d{i}t{k}\n" for k in range(60)) for i in range(20)]
    (tmp_path / "equal").write_text("\n".join(equal))
    cuts = []
    for seed in (0, 1):
        chosen = dataclasses.replace(
            options, seed=seed, output=f"{options.output}{seed}",
            input=str(tmp_path / "equal"), held_out_share=0.0,
        )  # fmt: skip
        prepare_corpus(chosen)
        positions = {i: set() for i in range(20)}
        for record in read(chosen):
            positions[record.first[0][0]].add(record.first[-1][1])
        cuts += map(frozenset, positions.values())
    assert len(set(cuts)) == 40


def test_records_of_two_lengths_hold_out_the_same_documents(options):
    prepare_corpus(options)
    long = dataclasses.replace(
        options, output=options.output + "64", max_sequence_length=64
    )
    prepare_corpus(long)
    assert 32 < max(record.length for record in read(long)) <= 64
    assert {record.first[0][0] for record in read(long, "validation")} == {
        record.first[0][0] for record in read(options, "validation")
    }


def test_interrupted_run_resumes(three_parts, monkeypatch):
    whole = dataclasses.replace(three_parts, output=three_parts.output + "whole")
    prepare_corpus(whole)
    written = []
    write_part = preparation.write_part

    def interrupted(part):
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(part.path)
        return write_part(part)

    monkeypatch.setattr(preparation, "write_part", interrupted)
    with pytest.raises(KeyboardInterrupt):
        prepare_corpus(three_parts)
    assert not (pathlib.Path(three_parts.output) / "manifest.json").exists()
    monkeypatch.setattr(
        preparation,
        "write_part",
        lambda part: written.append(part.path) or write_part(part),
    )
    prepare_corpus(three_parts)
    assert len(written) == len(set(written)) == 3
    assert contents(three_parts) == contents(whole)
    assert {**manifest(three_parts), "seconds": 0} == {**manifest(whole), "seconds": 0}


def test_complete_run_is_not_repeated(options, capsys):
    made = prepare_corpus(options)
    before = contents(options)
    assert "is already complete" not in capsys.readouterr().out
    assert prepare_corpus(options) == made == manifest(options)
    assert "is already complete" in capsys.readouterr().out
    assert contents(options) == before


# --- Errors and warnings ---------------------------------------------------------


def test_other_settings_require_another_output(options):
    prepare_corpus(options)
    with pytest.raises(
        ValueError,
        match=r"max_sequence_length was 32, now 64\. Use another --output",
    ):
        prepare_corpus(dataclasses.replace(options, max_sequence_length=64))
    # The number of processes may change.
    prepare_corpus(dataclasses.replace(options, num_workers=2))


def test_records_without_settings_are_not_overwritten(options):
    output = pathlib.Path(options.output)
    output.mkdir()
    (output / "train-00000-of-00009.tfrecord").touch()
    with pytest.raises(
        ValueError, match=r"train-00000-of-00009\.tfrecord exists, but no set"
    ):
        prepare_corpus(options)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "requires at least two documents. Got 0 in 1 files"),
        ("\n\n", "requires at least two documents. Got 0"),
        ("d0t0\n\nd0t1\n\nd0t2\n", r"Got 1 in 1 files .*_separator=blank_line"),
        ("d0t0\nd0t1\n\nd1t0\nd1t1\n\nd2t0\nd2t1\n", None),
    ],
)
def test_two_documents_are_required(options, tmp_path, text, message):
    (tmp_path / "few").write_text(text)
    options = dataclasses.replace(options, input=str(tmp_path / "few"))
    if message:
        with pytest.raises(ValueError, match=message):
            prepare_corpus(options)
        assert not (pathlib.Path(options.output) / "manifest.json").exists()
    else:
        prepare_corpus(options)
        assert {record.first[0][0] for record in read(options)} == {0, 1, 2}


def test_few_documents_are_not_held_out(options, tmp_path, caplog):
    (tmp_path / "few").write_text("d0t0\nd0t1\n\nd1t0\nd1t1\n\n" * 4)
    few = dataclasses.replace(options, input=str(tmp_path / "few"), held_out_share=1e-9)
    prepare_corpus(few)
    assert (
        "No documents are held out for validation, because there are only 8"
        in caplog.text
    )
    assert manifest(few)["validation_documents"] == 0
    assert not read(few, "validation")


def test_at_least_two_of_many_documents_are_held_out(options):
    prepare_corpus(dataclasses.replace(options, held_out_share=1e-9))
    assert manifest(options)["validation_documents"] == 2
    assert read(options, "validation")


def test_warnings_are_printed_and_in_manifest(options, tmp_path, capsys):
    (tmp_path / "text" / "empty.txt").write_text("\n\n")
    prepare_corpus(options)
    (warning,) = manifest(options)["warnings"]
    assert warning.startswith("1 of 4 files contain no document: ")
    assert warning.endswith("empty.txt")
    assert f"warning: {warning}\n" in capsys.readouterr().out


@pytest.mark.parametrize("word", ["Paris", "é", "##aÉ", "한국", "が", "Việt", "ﬁN"])
def test_lowercasing_that_loses_tokens_is_refused(options, tmp_path, word):
    (tmp_path / "vocabulary").write_text(
        "\n".join([*VOCABULARY.tokens[:100], word, "[unused1]", "<S>"])
    )
    with pytest.raises(ValueError, match=rf"{word[-2:]}\. Pass --lowercase=false"):
        prepare_corpus(options)
    prepare_corpus(dataclasses.replace(options, lowercase=False))


@pytest.mark.parametrize("word", ["paris", "straße", "##ø", "中", "[Unused1]", "<S>"])
def test_lowercasing_is_printed_with_its_reason(options, tmp_path, word, capsys):
    (tmp_path / "vocabulary").write_text("\n".join([*VOCABULARY.tokens, word]))
    prepare_corpus(options)
    printed = capsys.readouterr().out
    assert "The text is lowercased, without accents (--lowercase=True). Ass" in printed


def test_errors_name_the_input(options, tmp_path):
    with pytest.raises(ValueError, match="No file matches the pattern"):
        prepare_corpus(dataclasses.replace(options, input=f"{tmp_path}/none*"))
    with pytest.raises(ValueError, match="none does not exist"):
        prepare_corpus(dataclasses.replace(options, vocabulary=f"{tmp_path}/none"))
    (tmp_path / "text" / "latin").write_bytes(b"One.\nTw\xf6.\n")
    with pytest.raises(ValueError, match="latin, line 2: not UTF-8"):
        prepare_corpus(options)
    (tmp_path / "text" / "latin").unlink()
    prepare_corpus(options)
    (tmp_path / "vocabulary").write_text("[PAD]\n[UNK]\n[CLS]\n[MASK]\n")
    with pytest.raises(ValueError, match=r"vocabulary.*\[SEP\]"):
        prepare_corpus(options)


def test_output_directory_below_a_file_raises(options, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        prepare_corpus(
            dataclasses.replace(options, output=str(tmp_path / "file" / "x"))
        )
