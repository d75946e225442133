# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
NO_SCORE = -1e9
