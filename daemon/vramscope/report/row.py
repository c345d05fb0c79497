"""A row of the results table: what one model took, and gave back, in one cycle."""

from dataclasses import asdict, dataclass
from typing import Any

from vramscope.events import Outcome
from vramscope.memory.differences import Difference
from vramscope.memory.leftovers import leftovers
from vramscope.memory.residue import Residue


@dataclass(frozen=True, kw_only=True)
class Station:
    """What torch's allocator held on the model's device at one point of the model's way, for all models together."""

    allocated_bytes: int
    reserved_bytes: int


@dataclass(frozen=True, kw_only=True)
class ResultRow:
    """One model in one cycle. What is not known (yet) is None.

    `outcome` is that of the model's own steps, `cycle_outcome` that of the cycle; both are None while the cycle runs.
    `device` is where the model went last, or, where `was_on_device` is false, the only one there is; all figures of a
    device are of that one. `earlier_devices` are others that the model was on before. A station is None where
    the cycle has not come by, or does not come by; its figures are totals of the device, all models together.
    `forecast` is what was foreseen for `on_device`. `device_used_bytes` is what the driver counts for the worker while
    the model is there, `ledger` is who held which bytes of the device then, and `differences` say why its figures
    differ. `lives` says where its tensors were then, None where all were on the device. `resident_bytes` is the
    worker's RAM after the load, `theoretical_bytes` is parameters times the size of their type. `move_seconds` and
    `move_back_seconds` are sums of the moves to devices, and to RAM, that succeeded. A residue is what the model left
    behind.
    """

    model: str
    cycle: int
    backend: str | None = None
    device: str | None = None
    device_name: str | None = None
    was_on_device: bool = False
    earlier_devices: tuple[str, ...] = ()
    lives: str | None = None
    parameters: int | None = None
    dtype: str | None = None
    theoretical_bytes: int | None = None
    file_bytes: int | None = None
    before: Station | None = None
    on_host: Station | None = None
    on_device: Station | None = None
    after_unload: Station | None = None
    after_release: Station | None = None
    forecast: Station | None = None
    device_used_bytes: int | None = None
    resident_bytes: int | None = None
    load_seconds: float | None = None
    move_seconds: float | None = None
    move_back_seconds: float | None = None
    outcome: Outcome | None = None
    cycle_outcome: Outcome | None = None
    ledger: dict[str, int] | None = None
    differences: tuple[Difference, ...] = ()
    residue_after_unload: Residue | None = None
    residue_after_release: Residue | None = None

    @property
    def whereabouts(self) -> str:
        """Where the model was: the device or the bytes in each place, and devices before, or that it was on none."""
        if not self.was_on_device:
            return f"never on {self.device}" if self.device else "on no device"
        before = f", before on {', '.join(self.earlier_devices)} (not shown)" if self.earlier_devices else ""
        return (self.lives or f"on {self.device}") + before

    @property
    def stations(self) -> tuple[Station | None, ...]:
        """The stations in the order of a model's way."""
        return (self.before, self.on_host, self.on_device, self.after_unload, self.after_release)

    @property
    def residue(self) -> Residue | None:
        """What the model left behind, by the last look at it."""
        return self.residue_after_release or self.residue_after_unload

    def left_bytes(self, residue: Residue | None) -> int | None:
        """Bytes of a residue on the row's device; None where it was not measured."""
        places = residue.places if residue else ()
        return next((place.nbytes for place in places if place.where == self.device), None)

    def as_json(self) -> dict[str, Any]:
        """Return the row as JSON values; a station is an object."""
        row = asdict(self)
        for name in ("residue_after_unload", "residue_after_release"):
            residue: Residue | None = getattr(self, name)
            row[name] = None if residue is None else [place.as_json() for place in leftovers(residue)]
        return row | {"differences": [each.as_json() for each in self.differences]}
