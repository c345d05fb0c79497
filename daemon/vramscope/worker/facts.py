"""What a step tells about a model beside its bytes: the part that it was about, and what it left behind."""

from vramscope.anatomy.parts import Part
from vramscope.loading.resident import ResidentModel
from vramscope.memory.residue import ResidueMeasured
from vramscope.memory.snapshot import Residency
from vramscope.steps._frame import Facts


def part_facts(resident: ResidentModel, part: Part | None) -> Facts:
    """Which part a step was about, and where the model lives after it where that is more than one place."""
    snapshot = resident.snapshot()
    return {
        **({} if part is None else {"part": str(part)}),
        **({"lives": snapshot.whereabouts} if snapshot.residency is Residency.MIXED else {}),
    }


def residue_facts(measured: ResidueMeasured) -> Facts:
    """What one model left behind, for the event of its unload."""
    return {
        fact: value
        for residue in measured.residues
        for place in residue.places
        for fact, value in (
            (f"residue_{place.where}_bytes", place.nbytes),
            *(((f"residue_{place.where}_cause", place.main_cause),) if place.nbytes else ()),
        )
    }
