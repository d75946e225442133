# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of run_jobs_with_beam: same records as with processes of one machine."""

import dataclasses
import pathlib
import sys

import pytest

from bert_tf.data import CorpusConfig, preparation, prepare_corpus
from bert_tf.data.jobs import run_jobs_with_beam


@pytest.fixture
def options(tmp_path, monkeypatch) -> CorpusConfig:
    """Sixty documents in three files, so that there are three jobs."""
    monkeypatch.setattr(preparation, "_PART_BYTES", 8000)
    (tmp_path / "text").mkdir()
    for i in range(3):
        documents = [
            "\n".join(f"The {'cat' * (k % 3 + 1)} {j} sat {k}." for k in range(j + 2))
            for j in range(20 * i, 20 * i + 20)
        ]
        (tmp_path / "text" / str(i)).write_text("\n\n".join(documents))
    tokens = [*"0123456789", "the", "cat", "##cat", "sat", "."]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    digits = [f"##{digit}" for digit in range(10)]
    (tmp_path / "vocab.txt").write_text("\n".join([*special, *tokens, *digits]))
    return CorpusConfig(
        input=f"{tmp_path}/text/*",
        vocabulary=f"{tmp_path}/vocab.txt",
        output=f"{tmp_path}/records",
        max_sequence_length=32,
        held_out_share=0.1,
        num_workers=1,
    )


def test_beam_writes_equal_records(options):
    pytest.importorskip("apache_beam", reason="Apache Beam is not installed")
    prepare_corpus(options)
    with_beam = dataclasses.replace(
        options, output=options.output + "-beam", runner="DirectRunner"
    )
    prepare_corpus(with_beam)
    found = {}
    for folder in (options.output, with_beam.output):
        files = sorted(pathlib.Path(folder).rglob("*"))
        found[folder] = {
            file.relative_to(folder): file.read_bytes()
            for file in files
            if file.suffix in (".tfrecord", ".txt")
        }
    assert found[with_beam.output] == found[options.output]
    # Shards for training and validation, and the vocabulary.
    assert len(found[options.output]) == 5 + 5 + 1


def test_errors_in_text_are_raised_through_beam(options, tmp_path):
    pytest.importorskip("apache_beam", reason="Apache Beam is not installed")
    (tmp_path / "text" / "latin").write_bytes(b"One.\nTw\xf6.\n")
    with pytest.raises(ValueError, match="latin, line 2: not UTF-8"):
        prepare_corpus(dataclasses.replace(options, runner="DirectRunner"))


def test_missing_beam_raises_value_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    with pytest.raises(
        ValueError, match="--runner=FlinkRunner requires Apache Beam: pip"
    ):
        run_jobs_with_beam(print, [], "FlinkRunner", "")
