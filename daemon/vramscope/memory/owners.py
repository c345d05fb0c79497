"""The owners of the ledger for people: their order on a bar, their names, and what each of them is."""

from collections.abc import Mapping
from dataclasses import dataclass

from vramscope.memory import ledger


@dataclass(frozen=True, kw_only=True)
class Owner:
    """One owner of bytes. `owner` is its key in the ledger, `name` is what people read."""

    owner: str
    name: str
    meaning: str


@dataclass(frozen=True, kw_only=True)
class Share:
    """What one owner holds of a device, in bytes."""

    owner: Owner
    nbytes: int


# From the inside to the outside: the first three add up to what PyTorch has allocated, the first four to what it has
# reserved, all but the last two to what is in use. So a mark on a bar is as far from its start as its bytes say.
OWNERS = (
    Owner(owner=ledger.PARAMETERS, name="parameters", meaning="the weights of the loaded models"),
    Owner(owner=ledger.BUFFERS, name="buffers", meaning="the models' other tensors, which are not trained"),
    Owner(
        owner=ledger.ALLOCATOR_ROUNDING,
        name="allocator rounding",
        meaning="blocks are larger than the tensors in them; tensors that no model owns are here, too",
    ),
    Owner(
        owner=ledger.ALLOCATOR_CACHE,
        name="allocator cache",
        meaning="free blocks that PyTorch keeps for the next tensor",
    ),
    Owner(owner=ledger.CUDA_CONTEXT, name="CUDA context", meaning="code and state of CUDA for this process"),
    Owner(owner=ledger.OTHER_PROCESSES, name="other processes", meaning="everybody else on this device"),
    Owner(
        owner=ledger.OUTSIDE_ALLOCATOR,
        name="context and others",
        meaning="CUDA context and other processes, which the driver does not tell apart here",
    ),
    Owner(owner=ledger.FREE, name="free", meaning="nobody has it"),
    Owner(owner=ledger.DRIVER_RESERVED, name="driver reserved", meaning="the driver keeps it for itself"),
)


def shares(owners: Mapping[str, int]) -> tuple[Share, ...]:
    """A ledger in the order of a bar. An owner that has no name here comes last, under its key."""
    known = {each.owner: each for each in OWNERS}
    unknown = [Owner(owner=key, name=key.replace("_", " "), meaning="") for key in owners if key not in known]
    return tuple(Share(owner=each, nbytes=owners[each.owner]) for each in (*OWNERS, *unknown) if each.owner in owners)
