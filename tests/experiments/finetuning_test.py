# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The commands for fine-tuning, on toys, in processes of their own."""

import json
import subprocess
import sys

import pytest

from bert_tf import client, serving
from bert_tf.data import read_table, write_table


def run(module, *arguments, **flags):
    flags = [f"--{name}={value}" for name, value in flags.items()]
    command = [sys.executable, "-m", module, *arguments, *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    return done.stdout


@pytest.mark.slow
def test_searches_then_exports_an_ensemble(tmp_path, random_encoder):
    rows = [
        {"text": f"the {word}", "label": label}
        for word, label in [("cat", "yes"), ("mat", "no")] * 16
    ]
    write_table(tmp_path / "rows.csv", rows)
    flags = dict.fromkeys(
        ("train_file", "dev_file", "test_file"), tmp_path / "rows.csv"
    )
    flags |= random_encoder(tmp_path) | {"text_a": "text", "label": "label"}
    flags |= {"max_sequence_length": 16, "epochs": 2, "batch_size": 8}
    output, rates = tmp_path / "search", {"learning_rate": "3e-2,1e-2"}
    for _ in range(2):  # The second time, it finds the runs.
        text = run(
            "experiments.search",
            "tasks.classification",
            output=output,
            **flags,
            **rates,
        )
    assert f"The best model is in {output}." in text
    assert "training examples" not in text
    assert len(read_table(output / "search.csv")) == 2
    assert (output / "search.svg").exists()
    predictions = read_table(output / "predictions_test.tsv")
    assert len(predictions) == 32

    other, mean = tmp_path / "other", tmp_path / "mean"
    run("tasks.classification", output=other, learning_rate=1e-2, **flags)
    export = tmp_path / "saved/mean"
    run("experiments.ensemble", models=f"{output},{other}", output=mean, export=export)
    metrics = json.loads((mean / "metrics.json").read_text())
    assert len(metrics["test"]) == 3
    expected = read_table(mean / "predictions_test.tsv")
    with serving.DevServer({"mean": export}) as server:
        texts = [row["text"] for row in expected]
        answers = client.predict({"text": texts}, "mean", address=server.address)
    probabilities = [float(row["P(yes)"]) for row in expected]
    found = answers["probabilities"][:, 1].tolist()
    assert found == pytest.approx(probabilities, abs=2e-6)
