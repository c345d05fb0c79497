"""Copies between pinned host memory and a CUDA device, beside whatever the processor does meanwhile."""

import contextlib
from collections.abc import Iterator

import torch

from vramscope.devices.cuda_call import call
from vramscope.devices.pinned import PinnedMemory
from vramscope.devices.protocol import DeviceTensor, bytes_of


class CudaTransfer:
    """Copies on one stream beside the default one, in the order in which they are started.

    Tensors are allocated on the default stream, as Module.to() does, and the copies run on another one. Two waits make
    that safe without torch's record_stream, which would delay when blocks are free again: `begin` lets the copies wait
    for what the default stream still does with memory that was freed, and `finish` and `close` wait for all copies
    before anybody uses a tensor, or gives its block back.
    """

    def __init__(self, device: torch.device, stream: torch.cuda.Stream, pinned: PinnedMemory) -> None:
        self._device = device
        self._name = str(device)
        self._stream = stream
        self._pinned = pinned

    def begin(self) -> None:
        """Have the copies come after what the default stream does so far."""
        default = torch.cuda.default_stream(self._device)
        call(f"waiting for {self._name}", self._stream.wait_stream, default)

    @property
    def memory(self) -> torch.Tensor:
        return self._pinned.memory

    def room(self, like: torch.Tensor) -> DeviceTensor:
        what = f"copying {like.nbytes} bytes to {self._name}"
        return DeviceTensor(call(what, _empty_like, like, self._device))

    def send(self, source: torch.Tensor, held: DeviceTensor, start: int) -> None:
        call(f"copying {len(source)} bytes to {self._name}", self._send, source, held.tensor, start)

    def fetch(self, held: DeviceTensor, start: int, into: torch.Tensor) -> None:
        call(f"copying {len(into)} bytes from {self._name}", self._fetch, held.tensor, start, into)

    def mark(self) -> "CudaMark":
        return CudaMark(call(f"marking copies of {self._name}", self._stream.record_event), self._name)

    def finish(self) -> None:
        call(f"waiting for {self._name}", self._stream.synchronize)

    def close(self) -> None:
        """Wait for what is in flight and give the pinned memory back; only then blocks may be freed.

        Where waiting fails the context is broken, which the call that failed before has said, and nothing is in flight.
        """
        with contextlib.suppress(RuntimeError):
            self._stream.synchronize()
        self._pinned.close()

    @contextlib.contextmanager
    def _on_stream(self) -> Iterator[None]:
        # The device first: torch.cuda.stream() puts the current stream back by cudaSetDevice, which opens a context on
        # the current device, if that is another one.
        with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            yield

    def _send(self, source: torch.Tensor, target: torch.Tensor, start: int) -> None:
        with self._on_stream():
            bytes_of(target)[start : start + len(source)].copy_(source, non_blocking=True)

    def _fetch(self, source: torch.Tensor, start: int, into: torch.Tensor) -> None:
        with self._on_stream():
            into.copy_(bytes_of(source)[start : start + len(into)], non_blocking=True)


class CudaMark:
    """A moment in the order of the copies (an event)."""

    def __init__(self, event: torch.cuda.Event, name: str) -> None:
        self._event = event
        self._name = name

    def wait(self) -> None:
        call(f"waiting for {self._name}", self._event.synchronize)


def _empty_like(like: torch.Tensor, device: torch.device) -> torch.Tensor:
    """What `like.to(device)` allocates: without gaps, and with the same order of dimensions in memory."""
    return torch.empty_like(like, device=device)
