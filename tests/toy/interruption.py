# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Trainings that end at some step."""

import os
import signal
from collections.abc import Callable
from typing import Any


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def kill() -> None:
    """Ends the training without a state."""
    raise InterruptedError


def at_step(step: int, function: Callable, act: Callable = terminate) -> Callable:
    """Wraps a function of a training loop, or of its model.

    `act` is called first if `step` steps are finished.
    """

    def wrapped(owner: Any, *arguments: Any, **options: Any) -> Any:
        if int(getattr(owner, "model", owner).optimizer.iterations) == step:
            act()
        return function(owner, *arguments, **options)

    return wrapped
