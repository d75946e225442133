# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The experiments of the BERT paper. Each module is a command; all share `runs` and
`report`."""

import bert_tf as bert_tf  # Handles Ctrl-C during the imports of an experiment.
