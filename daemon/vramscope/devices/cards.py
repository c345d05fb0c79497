"""What NVML lists, as plain values: a GPU, or one MIG instance of a GPU. All sizes are bytes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# What the name of a device that torch does not use begins with; NVML's index follows.
PREFIX = "nvml:"


@dataclass(frozen=True, kw_only=True)
class Versions:
    """What the driver says of itself. `cuda` is the newest CUDA version that it runs, 12040 for 12.4."""

    driver: str = ""
    cuda: int | None = None

    @property
    def cuda_text(self) -> str:
        return "unknown" if self.cuda is None else f"{self.cuda // 1000}.{self.cuda % 1000 // 10}"


@dataclass(frozen=True, kw_only=True)
class Card:
    """One device of NVML. Unknown texts are empty. `problem` says why NVML gives no handle for it, with NVML's code.

    `index` is NVML's: "3", and "3:0" for the first MIG instance of GPU 3, as NVIDIA's container toolkit writes it
    (https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html).
    """

    index: str
    uuid: str = ""
    name: str = ""
    pci_bus_id: str = ""
    is_partitioned: bool = False
    gpu_instance: int | None = None
    compute_instance: int | None = None
    problem: str = ""
    problem_code: int | None = None

    @property
    def device(self) -> str:
        """The device's name where torch has none for it."""
        return f"{PREFIX}{self.index}"

    @property
    def gpu(self) -> str:
        """The index of the GPU that this is, or is an instance of."""
        return self.index.partition(":")[0]

    @property
    def is_instance(self) -> bool:
        return ":" in self.index


def instances_of(card: Card, cards: Iterable[Card]) -> tuple[Card, ...]:
    """The MIG instances of a GPU."""
    return tuple(each for each in cards if each.is_instance and each.gpu == card.index)


def without_partitioned(cards: Sequence[Card]) -> tuple[Card, ...]:
    """The devices that hold memory each for itself: a GPU's MIG instances stand in its place."""
    parents = {card.gpu for card in cards if card.is_instance}
    return tuple(card for card in cards if card.is_instance or card.index not in parents)
