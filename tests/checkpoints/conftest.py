# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

from collections.abc import Iterator

import pytest
import tensorflow as tf


@pytest.fixture(autouse=True)
def eager_functions() -> Iterator[None]:
    """Runs graph functions eagerly: most are called once, and tracing takes longer."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)
