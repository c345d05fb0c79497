"""The ledger: who owns each byte of a device."""

from collections.abc import Iterable

from prometheus_client.core import Metric

from vramscope.collectors._frame import CollectorFactory, Sources, gauge


class Ledger:
    """vramscope_ledger_bytes; absent for a device whose total is not known."""

    def __init__(self, sources: Sources) -> None:
        self._state = sources.state

    def collect(self) -> Iterable[Metric]:
        owners = {device: account.ledger() or {} for device, account in sorted(self._state().accounts.items())}
        yield gauge(
            "vramscope_ledger_bytes",
            "VRAM by owner, in bytes; every byte has one owner, so a device's owners add up to its total.",
            ["device", "owner"],
            [((device, owner), nbytes) for device, parts in owners.items() for owner, nbytes in parts.items()],
        )


COLLECTOR = CollectorFactory(name="ledger", create=Ledger)
