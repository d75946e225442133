# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""`python -m bert_tf` lists the commands."""

import pathlib

from bert_tf import cli

print(cli.command_list("bert_tf", pathlib.Path(__file__).parent))
print("Tasks of fine-tuning: python -m tasks (installed: python -m bert_tf.tasks)")
