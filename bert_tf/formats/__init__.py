# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of others: one module per format, each a table of names.

`names` is what they share. `bert_tf.convert` opens and writes them all.
"""
