"""Why two figures for the same memory differ, in plain sentences: from the model's files out to the whole device.

Each figure contains the one before it: parameters and buffers, what PyTorch was asked for, allocated, reserved, what
the driver counts for this process, what is in use on the device, and the device's total. Where two figures are equal
there is nothing to explain; where the later one is smaller, the sentence says that they do not fit together.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from vramscope.memory import ledger
from vramscope.memory.snapshot import MEASURED, NAMESPACE, AllocatorMemory, DeviceSnapshot, DriverMemory, ModelSnapshot
from vramscope.units import format_count, format_exactly

SIMULATED = "simulated"
MODELS_EXPLAINED = 3
_HEADER = "they begin with a header that lists the tensors"

PARAMETERS, FILES, TENSORS = "parameter_bytes", "file_bytes", "tensor_bytes"
REQUESTED, ALLOCATED, RESERVED = "requested_bytes", "allocated_bytes", "reserved_bytes"
PROCESS, USED, TOTAL = "process_used_bytes", "used_bytes", "total_bytes"

_SOURCES = {
    NAMESPACE: " It lists this process under the number that it has outside of its container.",
    MEASURED: " The driver does not tell it here: the context is what opening it added to the device's use.",
}


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One figure less another one, and why. `nbytes` is `end` less `start`, None where it cannot be known.

    `owner` is the ledger's owner of these bytes, None where they are on no device or where they tell that two figures
    do not fit together.
    """

    start: str
    end: str
    nbytes: int | None
    owner: str | None
    text: str

    def as_json(self) -> dict[str, Any]:
        return {"from": self.start, "to": self.end, "bytes": self.nbytes, "owner": self.owner, "text": self.text}


def differences(
    device: DeviceSnapshot, driver: DriverMemory | None, models: tuple[ModelSnapshot, ...]
) -> tuple[Difference, ...]:
    """What explains one device's figures, from the inside to the outside; at most a dozen.

    As for the ledger, device and driver must have been looked at between two changes of this process's memory.
    """
    is_simulated = device.backend == SIMULATED
    account = _Account(
        device=device,
        driver=driver or DriverMemory(),
        models=tuple(model for model in models if any(model.bytes_on(device.device))),
        torch="the simulated allocator of PyTorch" if is_simulated else "PyTorch",
        teller="the simulated driver" if is_simulated else "the driver (NVML, nvidia-smi)",
        is_simulated=is_simulated,
    )
    return (*_of_files(account), *_of_allocator(account), *_of_process(account), *_of_device(account))


@dataclass(frozen=True, kw_only=True)
class _Account:
    """One device's figures, and how its allocator and its driver are called."""

    device: DeviceSnapshot
    driver: DriverMemory
    models: tuple[ModelSnapshot, ...]
    torch: str
    teller: str
    is_simulated: bool

    @property
    def memory(self) -> AllocatorMemory:
        return self.device.allocator

    @property
    def own(self) -> int | None:
        """Bytes of this process on the device. Without a context it is on no list, and uses nothing."""
        used = self.driver.process_used_bytes
        return 0 if used is None and not self.device.is_open else used


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def _of_files(account: _Account) -> Iterator[Difference]:
    for model in account.models[:MODELS_EXPLAINED]:
        if model.file_bytes and model.parameters and model.file_bytes != model.parameter_bytes:
            yield _of_file(model, model.file_bytes, account.device.device)


def _of_file(model: ModelSnapshot, file_bytes: int, device: str) -> Difference:
    count, nbytes = model.parameters, model.parameter_bytes
    each = f"{nbytes // count} bytes" if nbytes % count == 0 else f"{nbytes / count:.2f} bytes on average"
    rest = file_bytes - nbytes
    text = (
        f"The parameters of {model.model} take {format_exactly(nbytes)}: {format_count(count)} times {each}"
        f"{_of_part(model, device)}. "
        f"Its files are {format_exactly(abs(rest))} {'larger' if rest > 0 else 'smaller'}: "
        f"{'; '.join(_reasons_of_file(model, file_bytes)) or _HEADER}."
    )
    return Difference(start=PARAMETERS, end=FILES, nbytes=rest, owner=None, text=text)


def _of_part(model: ModelSnapshot, device: str) -> str:
    """A clause that says how much of a model in several places is here."""
    return "" if len(model.places) == 1 else f", of which {format_exactly(model.bytes_on(device)[0])} are on {device}"


def _reasons_of_file(model: ModelSnapshot, file_bytes: int) -> Iterator[str]:
    """What sets the files apart. The size of their header is not known here, so averages tell the types apart."""
    stored, count = model.file_elements, model.parameters
    if not stored:
        return
    in_file, in_memory = file_bytes / stored, model.parameter_bytes / count
    if abs(in_file - in_memory) > in_memory / 4:
        yield (
            f"they store {in_file:.2f} bytes for each number and memory has {in_memory:.2f}, "
            "so the type is another one or the header weighs much"
        )
    if stored > count:
        yield (
            f"they store {format_count(stored - count)} numbers more, which are tied weights stored twice, buffers, "
            "or tensors that the model does not use"
        )
    elif stored < count:
        yield (
            f"they store {format_count(count - stored)} numbers fewer, "
            "which the model makes itself or which are stored packed"
        )
    if file_bytes > model.parameter_bytes:
        yield _HEADER


def _of_allocator(account: _Account) -> Iterator[Difference]:
    tensors, memory = sum(sum(model.bytes_on(account.device.device)) for model in account.models), account.memory
    # Where the allocator does not tell what it was asked for, all of the difference is put down to its blocks.
    requested = memory.requested_bytes or (tensors if memory.allocated_bytes else 0)
    if requested != tensors:
        yield _of_unknown_tensors(account, tensors, requested)
    if memory.allocated_bytes > requested:
        yield _of_rounding(account, tensors, requested)
    if memory.reserved_bytes > memory.allocated_bytes:
        yield _of_cache(account)


def _of_unknown_tensors(account: _Account, tensors: int, requested: int) -> Difference:
    rest = requested - tensors
    if rest > 0:
        text = (
            f"{account.torch} was asked for {format_exactly(rest)} more than the loaded models' tensors take: tensors "
            "that no model owns, such as work space of a library or what an unload left behind."
        )
    else:
        text = (
            f"the loaded models' tensors add up to {format_exactly(-rest)} more than {account.torch} was asked for: "
            "some of them share memory, or got theirs from elsewhere."
        )
    owner = ledger.ALLOCATOR_ROUNDING if rest > 0 else None
    return Difference(start=TENSORS, end=REQUESTED, nbytes=rest, owner=owner, text=_sentence(text))


def _of_rounding(account: _Account, tensors: int, requested: int) -> Difference:
    allocated = account.memory.allocated_bytes
    rest = allocated - requested
    text = (
        f"{account.torch} has allocated {format_exactly(allocated)}, {format_exactly(rest)} more than the tensors in "
        f"it need{_for_each(account, rest) if requested == tensors else ''}: a tensor gets a block of whole 512 bytes, "
        "and a small rest of a larger block is handed out with it."
    )
    return Difference(
        start=REQUESTED, end=ALLOCATED, nbytes=rest, owner=ledger.ALLOCATOR_ROUNDING, text=_sentence(text)
    )


def _for_each(account: _Account, rest: int) -> str:
    """A clause with the mean for one tensor; empty where their number is not known, as of a model in several places."""
    counts = [model.tensors if len(model.places) == 1 else None for model in account.models]
    tensors = sum(count or 0 for count in counts)
    if not tensors or None in counts:
        return ""
    return f", {rest / tensors:,.0f} bytes for each of {format_count(tensors)} tensors on average"


def _of_cache(account: _Account) -> Difference:
    memory = account.memory
    cached = memory.reserved_bytes - memory.allocated_bytes
    loose = max(0, cached - memory.inactive_split_bytes)
    if loose == cached:
        given = "The step release gives all of it back."
    elif loose:
        given = (
            f"The step release gives {format_exactly(loose)} of it back; "
            "the rest shares a segment with a tensor that is still there."
        )
    else:
        given = "The step release gives none of it back: it all shares segments with tensors that are still there."
    text = (
        f"{account.torch} has reserved {format_exactly(memory.reserved_bytes)}, {format_exactly(cached)} more than it "
        f"has allocated: free blocks, which it keeps as a cache for the next tensor. {given}"
    )
    return Difference(start=ALLOCATED, end=RESERVED, nbytes=cached, owner=ledger.ALLOCATOR_CACHE, text=_sentence(text))


def _of_process(account: _Account) -> Iterator[Difference]:
    driver, reserved, own = account.driver, account.memory.reserved_bytes, account.own
    if not account.device.is_open and own == 0:
        text = "This process has opened no CUDA context on this device yet, so it uses nothing there."
        yield Difference(start=RESERVED, end=PROCESS, nbytes=0, owner=ledger.CUDA_CONTEXT, text=text)
    elif own is not None and own != reserved:
        yield _of_context(account, own)
    if driver.used_bytes is None:
        unknown = "so what lies outside of PyTorch's allocator" if own is None else "so what other processes use"
        text = f"{account.teller} does not tell how much of this device is in use, {unknown} is not known."
        yield Difference(start=RESERVED, end=USED, nbytes=None, owner=None, text=_sentence(text))
    elif own is None:
        yield from _of_outside(account)


def _of_outside(account: _Account) -> Iterator[Difference]:
    used, reserved = account.driver.used_bytes or 0, account.memory.reserved_bytes
    untold = f"{account.teller} does not tell here what this process uses"
    if used > reserved:
        text = (
            f"the device has {format_exactly(used)} in use, {format_exactly(used - reserved)} more than PyTorch has "
            f"reserved. {_sentence(untold)}, so its CUDA context and other processes cannot be told apart."
        )
        yield Difference(
            start=RESERVED, end=USED, nbytes=used - reserved, owner=ledger.OUTSIDE_ALLOCATOR, text=_sentence(text)
        )
    elif used < reserved:
        yield _misfit(RESERVED, USED, used - reserved, "PyTorch has reserved", "is in use on the device")


def _of_context(account: _Account, own: int) -> Difference:
    rest = own - account.memory.reserved_bytes
    if rest < 0:
        return _misfit(RESERVED, PROCESS, rest, "PyTorch has reserved", "this process uses by the driver's account")
    source = account.driver.process_used_source
    if account.is_simulated:
        why = "the CUDA context, whose size is a setting of the simulation (--context)"
    else:
        why = "the CUDA context, which is the code and the state that CUDA needs for this process"
    said = "this process uses" if source == MEASURED else f"{account.teller} says that this process uses"
    text = (
        f"{said} {format_exactly(own)} of this device, {format_exactly(rest)} more than PyTorch has reserved: {why}."
        f"{'' if account.is_simulated else _SOURCES.get(source, '')}"
    )
    return Difference(start=RESERVED, end=PROCESS, nbytes=rest, owner=ledger.CUDA_CONTEXT, text=_sentence(text))


def _of_device(account: _Account) -> Iterator[Difference]:
    driver, own = account.driver, account.own
    used, total, reserved = driver.used_bytes, driver.total_bytes, driver.reserved_bytes or 0
    if used is not None and own is not None and used != own:
        yield _of_others(account, used, own)
    if reserved > 0:
        text = f"{account.teller} keeps {format_exactly(reserved)} of this device for itself, beside what is in use."
        yield Difference(start=USED, end=TOTAL, nbytes=reserved, owner=ledger.DRIVER_RESERVED, text=_sentence(text))
    if used is not None and total is not None:
        yield _of_free(used, reserved, total)


def _of_others(account: _Account, used: int, own: int) -> Difference:
    rest = used - own
    if rest < 0:
        return _misfit(PROCESS, USED, rest, "this process uses", "is in use on the device")
    if account.is_simulated:
        why = "other processes, a setting of the simulation (--other-use)"
    elif account.driver.reserved_bytes is None:
        why = "other processes, and what this driver keeps for itself and does not tell apart"
    else:
        why = "other processes, and what the driver counts for none"
    more = f"{format_exactly(rest)} more than this process uses" if own else "none of it by this process"
    text = f"The device has {format_exactly(used)} in use, {more}: {why}."
    return Difference(start=PROCESS, end=USED, nbytes=rest, owner=ledger.OTHER_PROCESSES, text=text)


def _of_free(used: int, reserved: int, total: int) -> Difference:
    rest = total - used - reserved
    if rest < 0:
        return _misfit(USED, TOTAL, rest, "is in use or kept by the driver", "the device has")
    text = f"{format_exactly(rest)} of {format_exactly(total)} are free." if rest else "Nothing of the device is free."
    return Difference(start=USED, end=TOTAL, nbytes=rest, owner=ledger.FREE, text=text)


def _misfit(start: str, end: str, nbytes: int, inner: str, outer: str) -> Difference:
    """Say that an outer figure is below the inner one, which cannot be at one moment."""
    text = (
        f"What {inner} is {format_exactly(-nbytes)} more than what {outer}, which cannot both be right: "
        "the two were not told for the same moment, or one of them leaves something out."
    )
    return Difference(start=start, end=end, nbytes=nbytes, owner=None, text=text)
