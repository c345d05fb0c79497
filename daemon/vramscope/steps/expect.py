"""Fails unless a device's memory is within bounds.

    - expect: {torch_allocated: {below: 1GiB}}
    - expect: {device: cuda:1, torch_reserved: {equals: 0}, device_used: {above: 100MiB, below: 2GiB}}

Quantities, all of one device (`device`, else the plan's), in bytes:

- `torch_allocated`, `torch_reserved`, `torch_requested`: what PyTorch's allocator has given to tensors, has taken from
  the driver, and was asked for
- `parameter_bytes`, `buffer_bytes`: the parameters and buffers of the models that are loaded, each storage counted once
- `device_used`, `process_used`: what the driver says is used by everybody, and by this process

A bound has `below`, `above` (neither includes its own value) or both, or `equals`. A quantity that is unknown on the
device fails the step, because it was not measured.
"""

from collections.abc import Iterator
from typing import Self

from pydantic import model_validator

from vramscope.errors import ExpectationError
from vramscope.memory.snapshot import DeviceSnapshot, MemorySampled
from vramscope.plan.fields import Bytes, DeviceName
from vramscope.plan.kinds import Fields
from vramscope.steps._frame import Facts, Kind, StepContext
from vramscope.units import format_bytes, format_count


class Bound(Fields):
    """The values that a quantity may have."""

    below: Bytes | None = None
    above: Bytes | None = None
    equals: Bytes | None = None

    @model_validator(mode="after")
    def _possible(self) -> Self:
        given = [word for word, nbytes in self if nbytes is not None]
        if not given or (self.equals is not None and len(given) > 1):
            raise ValueError("expected below, above, both of these, or equals; got " + (" and ".join(given) or "none"))
        if self.below is not None and self.below <= (self.above if self.above is not None else -1) + 1:
            raise ValueError("expected bounds with a value between them, got none")
        return self


class ExpectFields(Fields):
    """Which device, and a bound for each quantity that matters."""

    device: DeviceName | None = None
    torch_allocated: Bound | None = None
    torch_reserved: Bound | None = None
    torch_requested: Bound | None = None
    parameter_bytes: Bound | None = None
    buffer_bytes: Bound | None = None
    device_used: Bound | None = None
    process_used: Bound | None = None

    @model_validator(mode="after")
    def _some(self) -> Self:
        if not self.bounds():
            quantities = [name for name in type(self).model_fields if name != "device"]
            raise ValueError(f"expected a bound for at least one of {', '.join(quantities)}; got none")
        return self

    def bounds(self) -> dict[str, Bound]:
        """The bounds that are given, by quantity."""
        return {name: value for name, value in self if isinstance(value, Bound)}


def _run(context: StepContext, fields: ExpectFields) -> Facts:
    device = fields.device or context.default_device
    measured = _measure(context.memory(), device)
    missed = [
        f"{quantity} on {device} {miss}"
        for quantity, bound in fields.bounds().items()
        for miss in _misses(measured.get(quantity), bound)
    ]
    if missed:
        raise ExpectationError("; ".join(missed))
    return {quantity: measured[quantity] for quantity in fields.bounds()}


def _measure(memory: MemorySampled, device: str) -> dict[str, int | None]:
    """Every quantity that is known for `device`."""
    found = next((snapshot for snapshot in memory.devices if snapshot.device == device), None)
    if found is None and device != "cpu":
        return {}
    tensors = [model.bytes_on(device) for model in memory.models]
    measured: dict[str, int | None] = {
        "parameter_bytes": sum(parameters for parameters, _ in tensors),
        "buffer_bytes": sum(buffers for _, buffers in tensors),
    }
    return measured | (_measure_device(found) if found else {})


def _measure_device(device: DeviceSnapshot) -> dict[str, int | None]:
    """What allocator and driver say."""
    driver = device.driver
    return {
        "torch_allocated": device.allocator.allocated_bytes,
        "torch_reserved": device.allocator.reserved_bytes,
        "torch_requested": device.allocator.requested_bytes,
        "device_used": driver.used_bytes if driver else None,
        "process_used": driver.process_used_bytes if driver else None,
    }


def _misses(measured: int | None, bound: Bound) -> Iterator[str]:
    """How a measurement misses its bound, in words that follow the quantity's name."""
    for word, nbytes in bound:
        if nbytes is None:
            continue
        wanted = f"expected {'exactly' if word == 'equals' else word} {_exactly(nbytes)}"
        if measured is None:
            yield f"is unknown, {wanted}"
        elif (word == "below" and measured >= nbytes) or (word == "equals" and measured > nbytes):
            yield f"is {_exactly(measured)}, {wanted}: {_gap(measured - nbytes)} too many"
        elif (word == "above" and measured <= nbytes) or (word == "equals" and measured < nbytes):
            yield f"is {_exactly(measured)}, {wanted}: {_gap(nbytes - measured)} too few"


def _exactly(nbytes: int) -> str:
    """A size that can be read, and compared to the byte."""
    return format_bytes(nbytes) if nbytes < 1024 else f"{format_bytes(nbytes)} ({format_count(nbytes)} bytes)"  # noqa: PLR2004


def _gap(nbytes: int) -> str:
    return f"{format_count(nbytes)} {'byte' if nbytes == 1 else 'bytes'}"


STEP = Kind(name="expect", fields=ExpectFields, run=_run, example="expect: {torch_allocated: {below: 1GiB}}")
