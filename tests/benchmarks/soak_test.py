# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import re

import pytest

from benchmarks import soak
from tests.toy import checkpoints as toy


@pytest.mark.slow
def test_soak_counts_requests_and_swaps(tmp_path, vocabulary, capsys):
    toy.write_hugging_face(tmp_path / "model", vocabulary, max_position_embeddings=16)
    options = soak.SoakConfig(
        model=str(tmp_path / "model"), minutes=0.2, swap_seconds=1.0
    )
    soak.main(options)
    output = capsys.readouterr().out
    valid, malformed, swaps = re.findall(r"\| 0.2 \| (\S+) \| (\S+) \| (\d+) ", output)[
        -1
    ]
    assert int(valid.replace(",", "")) > 10
    assert int(malformed.replace(",", "")) > 10
    assert int(swaps) > 1
    assert "Exit status 0" in output


def test_growth_is_found():
    flat = [{"MB": 500.0, "threads": 40, "files": 30}] * 10
    soak._check_growth(flat)
    with pytest.raises(RuntimeError, match="MB grew from 500 to 600"):
        soak._check_growth([*flat[:9], flat[0] | {"MB": 600.0}])
