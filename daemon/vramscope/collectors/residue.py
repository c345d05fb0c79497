"""The residue: what models left behind after their last unload, why, and whether it grows."""

from collections.abc import Iterable

from prometheus_client.core import Metric

from vramscope.collectors._frame import CollectorFactory, Sources, gauge
from vramscope.memory.residue import PlaceResidue, trend

PLACE = ("model", "where")


class ResidueMetrics:
    """vramscope_residue_*; last results, which stay while the plan names the model."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def collect(self) -> Iterable[Metric]:
        state, models = self._sources.state(), self._sources.model_names()
        places = [
            ((model, place.where), place)
            for model, residue in sorted(state.residues.items())
            if model in models
            for place in residue.places
        ]
        yield gauge(
            "vramscope_residue_bytes",
            "Memory that the worker held after the model's last unload beyond the level before its load, in bytes, by "
            "place (a device, or host: the worker's RAM and swap); other models' tensors are not counted.",
            PLACE,
            [(labels, place.nbytes) for labels, place in places],
        )
        yield from _causes(places)
        yield gauge(
            "vramscope_residue_growth_bytes",
            "Bytes by which what the worker holds beside models and cache grows from one unload to the next, over the "
            "last 20 (a least-squares slope); absent for the first few, and above 0 for a leak.",
            PLACE,
            [(labels, trend(levels)) for labels, levels in sorted(state.levels.items()) if labels[0] in models],
        )


def _causes(places: list[tuple[tuple[str, str], PlaceResidue]]) -> Iterable[Metric]:
    yield gauge(
        "vramscope_residue_cause_bytes",
        "The residue by cause, in bytes: live_tensors, allocator_cache, context_growth, and on the host process; "
        "other_processes and outside_allocator grew meanwhile and are no part of the residue.",
        (*PLACE, "cause"),
        [((*labels, cause), nbytes) for labels, place in places for cause, nbytes in place.causes.items()],
    )
    yield gauge(
        "vramscope_residue_live_tensor_bytes",
        "Tensors that the model's unload left behind, in bytes, by the size that one of them has.",
        (*PLACE, "size"),
        [((*labels, each.label), each.nbytes) for labels, place in places for each in place.live],
    )


COLLECTOR = CollectorFactory(name="residue", create=ResidueMetrics)
