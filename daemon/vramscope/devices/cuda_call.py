"""Calls into torch's CUDA build whose errors become ours."""

from collections.abc import Callable
from typing import TypeVar

import torch

from vramscope.errors import OutOfMemoryError, StepError, StickyDeviceError, reason_of

Result = TypeVar("Result")

# cudaErrorMemoryAllocation: the one CUDA error after which the context still works.
MEMORY_ALLOCATION = 2


def call(what: str, function: Callable[..., Result], *arguments: object) -> Result:
    """Call into torch; an error of torch becomes one of ours, and is not kept as its context.

    A kept traceback would hold the frames of the failed copy, and with them the tensors that should be freed
    (https://github.com/pytorch/pytorch/issues/27600).
    """
    try:
        return function(*arguments)
    except RuntimeError as error:
        failure = _translated(error, what)
    try:
        raise failure
    finally:
        del failure


def _translated(error: BaseException, what: str) -> StepError:
    """The error of our tree that says what a torch error means."""
    if isinstance(error, torch.OutOfMemoryError) or getattr(error, "error_code", None) == MEMORY_ALLOCATION:
        return OutOfMemoryError(f"out of memory: {what}: {reason_of(error)}")
    if isinstance(error, torch.AcceleratorError):
        return StickyDeviceError(
            f"CUDA failed and stays failed in this process: {what}: {reason_of(error)}", hint="the worker is restarted"
        )
    return StepError(f"{what}: {reason_of(error)}")
