# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Downstream tasks. Each module is one task and a command; none imports another."""
