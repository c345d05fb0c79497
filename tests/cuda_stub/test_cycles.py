"""Cycles of loads, moves and unloads on the real allocator, on devices that are sometimes too small: forecast and
measurement agree after every step, and everything comes back.
"""

import random
from pathlib import Path

import pytest

pytestmark = [pytest.mark.cuda_stub, pytest.mark.timeout(180)]

REPOSITORY = Path(__file__).parents[2]
MIB = 1 << 20
TOTAL_MIB, DRIVER_MIB, CONTEXT_MIB = 12288, 20, 113
# What another process leaves of the device in most tests, beside the driver's own and our context.
ROOM_MIB = 107
CYCLES = 40
PARTS = (
    "part_of([(0, 0)], [])",
    "part_of([(0, 1)], ['embedding'])",
    "part_of([(1, 1)], ['norm'])",
    "part_of([], ['attention', 'mlp'])",
)
IMPORTS = """
from pathlib import Path
from vramscope.anatomy.parts import part_of
import broken_move, streamed_load
from checkpoint_zoo import stock
from side_by_side import MONITOR, SideBySide
"""


@pytest.fixture(scope="module")
def stocked(shared_machine, tmp_path_factory):
    """A process that has a device beside its forecast, and the names of the models that both know."""
    shared_machine.configure(total_mib=TOTAL_MIB, reserved_mib=DRIVER_MIB, context_mib=CONTEXT_MIB)
    console = shared_machine.console(PYTHONPATH=str(REPOSITORY))
    console.run(IMPORTS)
    folder = str(tmp_path_factory.mktemp("checkpoints"))
    names = console.run(f"side = SideBySide()\nstock(side, Path({folder!r}))")
    return console, names


@pytest.fixture
def both(shared_machine, stocked):
    """The same, with nothing on the device, and copies that move no bytes."""
    shared_machine.configure(data="discard")
    leave_room(shared_machine, ROOM_MIB)
    console, names = stocked
    assert console.run("side.do('release')")["measured"]["reserved_bytes"] == 0
    return console, names


def leave_room(machine, mib):
    """Have another process hold all of the device but this much."""
    machine.configure(baseline_mib=TOTAL_MIB - DRIVER_MIB - CONTEXT_MIB - mib)


class Cycle:
    """One cycle of one or two models; every step is compared as it is done."""

    def __init__(self, console, chance):
        self._console = console
        self._chance = chance
        self.misfits = 0

    def run(self, names):
        loaded = [name for name in names if self._enter(name)]
        for name in loaded:
            if self._chance.random() < 0.5:
                self._do("move", name, "cpu")
                self._do("move", name, "cuda:0")
        for name in self._chance.sample(loaded, len(loaded)):
            row = self._do("unload", name)
        if loaded:
            assert row["measured"]["allocated_bytes"] == 0
        if self._chance.random() < 0.5:
            assert self._do("release")["measured"]["reserved_bytes"] == 0

    def _enter(self, name):
        """Bring a model to the device, straight or by way of the host; whether it is loaded in the end."""
        if self._chance.random() < 0.5:
            _, fits = self._do("load", name, "cuda:0")["fits"]
            return fits
        self._do("load", name, "cpu")
        self._do("move", name, "cuda:0")
        return True

    def run_parts(self, name):
        """Load a part of a model to the device, let parts come and go, and give all of it back."""
        fits = self._do("load", name, "cuda:0", self._chance.choice(PARTS))["fits"][1]
        for _ in range(6 if fits else 0):
            part = self._chance.choice((*PARTS, "None"))
            self._do("move", name, self._chance.choice(("cpu", "cuda:0")), part)
        if fits:
            assert self._do("unload", name)["measured"]["allocated_bytes"] == 0

    def _do(self, action, model="", to="cpu", part="None"):
        row = self._console.run(f"side.do({action!r}, {model!r}, {to!r}, {part})")
        foreseen, happened = row["fits"]
        assert foreseen == happened, (action, model, to, row)
        assert row["measured"] == row["forecast"], (action, model, to, row)
        self.misfits += not happened
        return row


def test_forty_cycles_of_different_models_are_foreseen_to_the_byte(shared_machine, both):
    console, names = both
    chance = random.Random(21)  # noqa: S311 - the same cycles each time
    misfits = 0
    for _ in range(CYCLES):
        held = console.run("side.device.snapshot().allocator.reserved_bytes") // MIB
        leave_room(shared_machine, max(held, chance.choice((ROOM_MIB, 77, 47, 17))))
        cycle = Cycle(console, chance)
        cycle.run(chance.sample(names, chance.choice((1, 1, 2))))
        misfits += cycle.misfits
    console.run("side.do('release')")
    assert 5 <= misfits <= CYCLES, "the device has to be too small now and then, and large enough as a rule"
    assert console.run("side.driver().process_used_bytes") == CONTEXT_MIB * MIB


def test_cycles_of_parts_of_models_are_foreseen_to_the_byte(shared_machine, both):
    console, names = both
    chance = random.Random(22)  # noqa: S311 - the same cycles each time
    misfits = 0
    for _ in range(CYCLES):
        held = console.run("side.device.snapshot().allocator.reserved_bytes") // MIB
        leave_room(shared_machine, max(held, chance.choice((ROOM_MIB, 37, 17))))
        cycle = Cycle(console, chance)
        cycle.run_parts(chance.choice(names))
        misfits += cycle.misfits
    console.run("side.do('release')")
    assert misfits >= 5, "the device has to be too small now and then"
    assert console.run("side.driver().process_used_bytes") == CONTEXT_MIB * MIB


def test_out_of_memory_halfway_gives_everything_back_at_once(shared_machine, both):
    console, _ = both
    console.run("keeper = side.load('phi float16', side.device)")
    leave_room(shared_machine, 40)
    found = console.run("broken_move.break_move(side, 'llama bfloat16')")
    copies, alive = found["copies"]
    assert copies > 10, "the move failed halfway"
    assert alive == 0
    before, after = found["allocated"]
    assert 0 < before == after
    assert found["requested"][0] == found["requested"][1]
    assert (found["place"], found["ooms"]) == ("cpu", 1)
    assert "out of memory" in found["error"]
    assert (found["linked"], found["held_by_frames"]) == ([None, None], [])

    console.run("smaller = side.load('t5 float16', None); smaller.move(side.device, MONITOR).nbytes")
    assert console.run("smaller.device_name") == "cuda:0"
    console.run("smaller.unload(); keeper.unload()")
    assert console.run("side.device.snapshot().allocator.allocated_bytes") == 0


def test_streamed_weights_are_bit_for_bit_those_of_a_load_to_the_host(shared_machine, both):
    console, names = both
    shared_machine.configure(data="real")
    for name in names:
        found = console.run(f"streamed_load.compare(side, {name!r})")
        on_device, on_host = found["tensors"]
        assert (on_device, found["places"], found["different"]) == (on_host, ["cuda:0"], []), name
        assert found["zeros"] < on_host / 2, "weights of zeros would be equal whatever was copied"


def test_streaming_a_full_size_model_takes_what_was_foreseen_and_no_copy_in_ram(shared_machine, both, checkpoint_cache):
    console, _ = both
    leave_room(shared_machine, 2000)
    console.run(f"streamed_load.stock_full_size(side, Path({str(checkpoint_cache)!r}))")
    full_size = "streamed_load.FULL_SIZE"
    row = console.run(f"side.do('load', {full_size}, 'cuda:0')")
    assert row["measured"] == row["forecast"]
    assert row["measured"]["parameter_bytes"] == 988_065_536
    console.run(f"side.do('unload', {full_size}); side.do('release')")

    straight, by_host = (
        console.run(f"streamed_load.ram_of_load(side, {full_size}, straight={straight})") for straight in (True, False)
    )
    assert by_host["after"] > by_host["nbytes"] == 988_065_792, "or the measurement would show nothing"
    assert straight["peak"] < by_host["nbytes"] / 2
    assert straight["after"] < 32 * MIB
