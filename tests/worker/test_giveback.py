"""What an unload leaves, on every kind of device that this process has."""

import gc

import pytest
import torch
from tests.devices.contract import MIB, RIGS
from tests.loading.modules import IDENTITY, Bag, parameter
from tests.loading.monitor import RecordingMonitor

from vramscope.devices.simulated import SimulatedCard, SimulatedDevice
from vramscope.loading.resident import ResidentModel
from vramscope.memory.residue import HOST
from vramscope.worker.giveback import GiveBack

LEAKED = 64 * MIB


class Bench:
    """Models on one device, and what they leave behind."""

    def __init__(self, device):
        self.device = device
        self.models = {}
        self.give_back = GiveBack({device.name: device}, self.models)

    def load(self, name, elements=MIB):
        self.give_back.before_load(name)
        self.models[name] = ResidentModel(IDENTITY, Bag(weight=parameter(elements), small=parameter(3)))

    def move(self, name, device):
        self.models[name].move(device, RecordingMonitor())
        self.give_back.note_step(name)

    def unload(self, name):
        self.models.pop(name).unload()
        return self.places(name)

    def release(self, name):
        self.device.empty_cache()
        return self.places(name)

    def places(self, name):
        (residue,) = self.give_back.measure([name], "unload").residues
        return {place.where: place for place in residue.places}


@pytest.fixture(params=RIGS)
def rig(request):
    rig = RIGS[request.param]()
    yield rig
    rig.close()


@pytest.fixture
def bench(rig):
    return Bench(rig.devices[0])


def test_after_unload_the_cache_is_left_and_after_release_nothing(bench):
    name = bench.device.name
    bench.load("m")
    bench.move("m", bench.device)
    left = bench.unload("m")[name]
    assert left.nbytes == left.causes["allocator_cache"] > 0
    assert left.main_cause == "allocator_cache"
    assert bench.release("m")[name].nbytes == 0


def test_a_tensor_that_is_still_there_is_found_and_those_of_other_models_are_not(bench):
    name = bench.device.name
    bench.load("stays")
    bench.move("stays", bench.device)
    bench.load("goes")
    bench.move("goes", bench.device)
    leaked = bench.device.upload(torch.zeros(LEAKED, dtype=torch.uint8))
    bench.unload("goes")
    place = bench.release("goes")[name]
    assert place.causes["live_tensors"] == place.nbytes == 67_108_864
    assert place.main_cause == "live_tensors"
    assert [(each.label, each.count) for each in place.live] == [("10 to 100 MiB", 1)]

    bench.device.release(leaked)
    del leaked
    bench.load("again")  # the leak is gone, and no later load is blamed for it
    bench.unload("again")
    bench.unload("stays")
    assert {model: bench.release(model)[name].nbytes for model in ("stays", "again")} == {"stays": 0, "again": 0}


def test_a_tensor_that_is_left_in_ram_is_found(bench):
    bench.load("m")
    leaked = torch.ones(LEAKED, dtype=torch.uint8)
    place = bench.unload("m")[HOST]
    assert place.causes["live_tensors"] == 67_108_864
    del leaked
    gc.collect()
    assert bench.places("m")[HOST].causes["live_tensors"] == 0


def test_only_the_model_that_left_a_tensor_is_blamed_for_it(bench):
    name = bench.device.name
    for order in (("leaks", "sound"), ("sound", "leaks")):
        for model in ("sound", "leaks"):
            bench.load(model)
            bench.move(model, bench.device)
        on_host, found = torch.ones(LEAKED, dtype=torch.uint8), {}
        for model in order:
            if model == "leaks":
                leaked = bench.device.upload(on_host)
            found[model] = bench.unload(model)
        for places in (found, {model: bench.release(model) for model in order}):
            assert {model: places[model][name].causes["live_tensors"] for model in order} == {
                "leaks": LEAKED,
                "sound": 0,
            }
        bench.device.release(leaked)
        del leaked, on_host


def test_a_tensor_that_came_with_a_move_is_its_models_though_another_one_is_unloaded_first(bench):
    name = bench.device.name
    bench.load("leaks")
    bench.load("sound")
    leaked = bench.device.upload(torch.zeros(LEAKED, dtype=torch.uint8))
    bench.move("leaks", bench.device)
    causes = {model: bench.unload(model)[name].causes["live_tensors"] for model in ("sound", "leaks")}
    assert causes == {"sound": 0, "leaks": LEAKED}
    bench.device.release(leaked)


def test_tensors_that_hold_no_memory_themselves_are_passed_over(bench):
    class Wrapping(torch.Tensor):
        @staticmethod
        def __new__(cls, inner):
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

        @classmethod
        def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
            raise NotImplementedError

    bench.load("m")
    odd = Wrapping(torch.ones(4)), torch.nn.UninitializedParameter()
    assert bench.unload("m")[HOST].causes["live_tensors"] == 0
    del odd


class Untold(SimulatedDevice):
    """A device whose allocator does not tell its blocks apart, as torch's cudaMallocAsync backend."""

    def live(self):
        return None


def test_where_blocks_are_not_told_apart_what_is_left_is_known_in_all():
    bench = Bench(Untold("cuda:0", SimulatedCard(capacity_bytes=1024 * MIB, context_bytes=MIB)))
    bench.load("m")
    bench.move("m", bench.device)
    bench.device.upload(torch.zeros(LEAKED, dtype=torch.uint8))
    bench.unload("m")
    place = bench.release("m")["cuda:0"]
    assert (place.nbytes, place.main_cause, place.live) == (LEAKED, "live_tensors", ())
    assert place.level_bytes == LEAKED + MIB


def test_a_model_that_is_loaded_or_was_never_loaded_has_no_residue(bench):
    bench.load("m")
    assert bench.give_back.measure(["m", "other"], "unload").residues == ()
    bench.unload("m")


def test_after_a_failure_only_what_went_without_an_unload_is_measured(bench):
    bench.load("unloaded")
    bench.unload("unloaded")
    bench.load("failed")
    bench.models.pop("failed").unload()
    assert [(each.model, each.after) for each in bench.give_back.measure_rest().residues] == [("failed", "reset")]
    assert bench.give_back.measure_rest().residues == ()
    again = bench.give_back.measure_again().residues
    assert [(each.model, each.after) for each in again] == [("unloaded", "release"), ("failed", "release")]
