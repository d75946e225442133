# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The families that can be read, trained and written."""

from collections.abc import Mapping

from bert_tf.families import bert, distilbert, electra
from bert_tf.families.family import Family

FAMILIES: Mapping[str, Family] = {
    module.FAMILY.name.lower(): module.FAMILY for module in (bert, distilbert, electra)
}
"""By the `model_type` in config.json."""
