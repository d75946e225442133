# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Downstream tasks. Each module is one task and a command; none imports another."""

import bert_tf as bert_tf  # Handles Ctrl-C during the imports of a task.
