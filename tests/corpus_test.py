# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of bert_tf.corpus. See data/preparation_test.py for the records."""

from bert_tf import corpus


def test_summary(tmp_path, vocabulary, capsys):
    for i in range(20):
        (tmp_path / f"{i}.txt").write_text("The cat sat.\nOn a mat.\n" * 9)
    vocabulary.write(tmp_path / "vocab")
    options = corpus.CorpusConfig(
        input=f"{tmp_path}/*.txt",
        vocabulary=f"{tmp_path}/vocab",
        output=f"{tmp_path}/records",
        document_separator="file",
        max_sequence_length=16,
        num_workers=1,
    )
    corpus.main(options)
    summary = capsys.readouterr().out.rstrip().split("\n")[-1]
    assert summary.startswith(f"{tmp_path}/records: ")
    assert "Text: 20 documents with 1,440 tokens, 0.00% [UNK]." in summary
    corpus.main(options)
    assert capsys.readouterr().out.rstrip().endswith(summary)
