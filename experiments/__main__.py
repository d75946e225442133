# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""`python -m experiments` lists the experiments."""

import pathlib

from bert_tf import cli

print(cli.command_list(__package__, pathlib.Path(__file__).parent))
