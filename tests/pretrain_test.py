# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

from bert_tf import pretrain
from bert_tf.training import PretrainConfig


def test_last_line_has_the_metrics(monkeypatch, capsys):
    metrics = {"step": 60.0, "val_mlm_accuracy": 0.5}
    metrics |= {"unigram_accuracy": 0.125, "bigram_accuracy": 0.25}
    metrics |= {"val_nsp_accuracy": 0.75}
    monkeypatch.setattr("bert_tf.training.pretrain", lambda options: metrics)
    pretrain.main(PretrainConfig(records="records", output="models/mini"))
    assert capsys.readouterr().out.partition("...\n")[2] == (
        "Finished step 60. Held-out MLM accuracy 50.00%, NSP accuracy 75.00% (most "
        "frequent token: 12.50%, after the previous one: 25.00%). Model: models/mini. "
        "Curves, examples and the next commands: models/mini/report.md\n"
    )
