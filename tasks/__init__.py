# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The downstream tasks: one file is one task, and none imports another."""
