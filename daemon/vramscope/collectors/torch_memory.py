"""What torch's caching allocator holds on each device; see torch.cuda.memory_stats for its terms."""

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, Metric

from vramscope.collectors._frame import CollectorFactory, Sources, gauge

BYTES = {
    "allocated": "VRAM that PyTorch's tensors take now, in bytes (torch.cuda.memory_allocated).",
    "reserved": "VRAM that PyTorch has taken from the driver, in use or kept for reuse, in bytes.",
    "requested": "VRAM that tensors asked for, in bytes, before PyTorch rounded each request up.",
    "inactive_split": "Unused VRAM in bytes that PyTorch cannot give back, as a tensor lives in the same segment.",
    "allocated_peak": "The most VRAM that PyTorch's tensors took since the current or last step began, in bytes.",
}
COUNTS = {
    "alloc_retries": "How often PyTorch had to empty its cache to find room for a tensor.",
    "ooms": "How often PyTorch found no room on the device for a tensor (out of memory).",
}


class TorchMemory:
    """vramscope_torch_*; absent while there is no worker."""

    def __init__(self, sources: Sources) -> None:
        self._state = sources.state

    def collect(self) -> Iterable[Metric]:
        devices = {each.device: each.allocator for each in self._state().devices}
        for what, documentation in BYTES.items():
            yield gauge(
                f"vramscope_torch_{what}_bytes",
                documentation,
                ["device"],
                [((device,), getattr(memory, f"{what}_bytes")) for device, memory in devices.items()],
            )
        for what, documentation in COUNTS.items():
            counter = CounterMetricFamily(f"vramscope_torch_{what}", documentation, labels=["device"])
            for device, memory in devices.items():
                counter.add_metric([device], getattr(memory, what))
            yield counter


COLLECTOR = CollectorFactory(name="torch_memory", create=TorchMemory)
