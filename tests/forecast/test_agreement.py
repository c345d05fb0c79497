"""The promise: what is forecast before anything is loaded is what is measured after every step, to the byte.

Random plans with three models of different architectures are run as the worker runs them, on simulated cards that are
so small that some steps run out of memory; a predictor, which knows the models' orders and nothing else, walks beside.
"""

import gc
import random
from collections import Counter
from dataclasses import dataclass

import pytest
from tests.forecast.chance import PARTS, Scope, random_steps
from tests.forecast.sketch import MIB, card, plan_of
from tests.loading.checkpoints import save_checkpoint

from vramscope.devices.simulated import SimulatedCard, SimulatedDevice
from vramscope.errors import OutOfMemoryError
from vramscope.forecast.predict import MisfitError, Predictor
from vramscope.loading.assemble import quiet_transformers
from vramscope.memory.snapshot import MIXED
from vramscope.plan.kinds import Action
from vramscope.plan.schema import ModelSpec, walk
from vramscope.settings import WorkerSettings
from vramscope.steps._catalog import step_kinds
from vramscope.worker.bench import Bench, StepBench
from vramscope.worker.protocol import RunStep
from vramscope.worker.reporter import Reporter

KINDS = step_kinds()
DTYPES = ("float16", "bfloat16", "float32")
CYCLES = 3
CONTEXT = 3
# From a tenth of a MiB to some 50 MiB; fused experts, tied ends, float32 among 16 bits, biases, buffers.
CHECKPOINTS = {
    "llama": {"hidden_size": 384, "vocab_size": 12_000, "intermediate_size": 1400},
    "gpt2": {"n_embd": 256, "vocab_size": 16_000},
    "mixtral": {"hidden_size": 192, "intermediate_size": 512, "vocab_size": 4000},
    "t5": {"d_model": 256, "d_ff": 1100, "vocab_size": 8000},
    "phi": {"hidden_size": 512, "intermediate_size": 2600, "vocab_size": 3000},
    "bert": {"hidden_size": 192, "vocab_size": 12_000, "intermediate_size": 2200},
    "qwen2": {},
}


@pytest.fixture(scope="module")
def directories(tmp_path_factory):
    quiet_transformers()
    made = {
        name: save_checkpoint(name, tmp_path_factory.mktemp(name), **changes) for name, changes in CHECKPOINTS.items()
    }
    gc.collect()
    gc.freeze()  # as in the worker: each unload collects, and what is imported need not be looked at again
    yield made
    gc.unfreeze()


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    cache = tmp_path_factory.mktemp("cache")
    return WorkerSettings(cache=cache, hub_cache=cache / "hub")


@dataclass
class Duet:
    """One random plan, with the bench that runs it and the predictor that foretells it."""

    seed: int
    directories: dict
    settings: WorkerSettings
    parts: tuple = ()

    def __post_init__(self):
        chance = random.Random(self.seed)  # noqa: S311 - chance, no secret
        names = chance.sample(list(CHECKPOINTS), 3)
        self.cards = ("cuda:0", "cuda:1") if self.seed % 3 == 0 else ("cuda:0",)
        steps = random_steps(chance, dict.fromkeys(names, ""), 0, 18, Scope(self.cards, self.parts))
        self.plan = plan_of(steps, names)
        specs = {
            name: ModelSpec(name=name, source=str(self.directories[name]), dtype=chance.choice(DTYPES))
            for name in names
        }
        devices = dict.fromkeys(self.cards)  # filled in below: how large they are depends on what the bench describes
        bench = Bench(self.settings, devices)
        bench.specs = specs
        self.orders = {name: bench.describe(name, from_config=False) for name in names}
        # Room for the largest model and part of the others.
        sizes = sorted(order.nbytes for order in self.orders.values())
        self.capacity = int(sizes[2] * 1.1 + sizes[1] * chance.choice((0.1, 0.5, 0.9))) // MIB + CONTEXT + 4
        simulated = SimulatedCard(capacity_bytes=self.capacity * MIB, context_bytes=CONTEXT * MIB)
        devices.update({name: SimulatedDevice(name, simulated) for name in self.cards})
        self.bench = bench
        self.predictor = Predictor(self.orders, dict.fromkeys(self.cards, card(self.capacity, CONTEXT)))
        self.misfits = Counter()

    def play(self):
        """Run the plan's cycles; a step that does not fit ends its cycle, with everything unloaded."""
        for _ in range(CYCLES):
            for step in walk(self.plan.steps):
                foreseen, happened = self.foresee(step), self.run(step)
                assert happened == foreseen, f"{step.name} (line {step.line})"
                self.compare(step)
                if not happened:
                    self.bench.unload_all()
                    self.predictor.unload_all()
                    self.compare(step)
                    break

    def foresee(self, step):
        try:
            self.predictor.apply(step.effect)
        except MisfitError as error:
            self.misfits[error.device] += 1
            return False
        return True

    def run(self, step):
        command = RunStep(run=1, step=step.name, kind=step.kind, model=step.effect.model, fields={})
        context = StepBench(self.bench, Reporter(command, lambda _message: None))
        try:
            KINDS[step.kind].run(context, step.fields)
        except OutOfMemoryError:
            return False
        return True

    def compare(self, step):
        levels = self.predictor.levels()
        sample = self.bench.memory()
        for held in sample.devices:
            foreseen = levels.devices[held.device]
            assert held.allocator.ooms == self.misfits[held.device]
            on_it = [model.bytes_on(held.device) for model in sample.models]
            assert (
                held.allocator.allocated_bytes,
                held.allocator.reserved_bytes,
                held.driver.used_bytes,
                sum(parameters for parameters, _ in on_it),
                sum(buffers for _, buffers in on_it),
            ) == (
                foreseen.allocated_bytes,
                foreseen.reserved_bytes,
                foreseen.used_bytes,
                foreseen.parameter_bytes,
                foreseen.buffer_bytes,
            ), f"{step.name} (line {step.line}) on {held.device}"
        on_host = [model.bytes_on("cpu") for model in sample.models]
        assert sum(map(sum, on_host)) == levels.host_bytes
        assert sorted(self.bench.models) == sorted(name for name, _ in self.predictor.placed())


@pytest.mark.parametrize("seed", range(10))
def test_forecast_and_measurement_are_equal_after_every_step(seed, directories, settings):
    Duet(seed, directories, settings).play()


@pytest.mark.parametrize("seed", range(12))
def test_forecast_and_measurement_are_equal_where_parts_of_models_move(seed, directories, settings):
    Duet(seed, directories, settings, PARTS).play()


@pytest.mark.parametrize("parts", [(), PARTS], ids=["whole models", "parts"])
def test_the_plans_are_worth_their_time(directories, settings, parts):
    """They run out of memory in moves and in loads straight to a card, and each plan holds several segments."""
    ended, reserved, mixed = Counter(), [], 0
    for seed in range(12):
        duet = Duet(seed, directories, settings, parts)
        assert all(order.exact for order in duet.orders.values())
        for _ in range(CYCLES):
            for step in walk(duet.plan.steps):
                fits = duet.foresee(step)
                mixed += MIXED in dict(duet.predictor.placed()).values()
                reserved.append(max(levels.reserved_bytes for levels in duet.predictor.levels().devices.values()))
                if not fits:
                    ended[step.effect.action] += 1
                    ended["part"] += step.effect.part is not None
                    duet.predictor.unload_all()
                    break
            else:
                ended["fits"] += 1
    assert min(ended[Action.LOAD], ended[Action.MOVE], ended["fits"]) >= 3
    assert max(reserved) >= 48 * MIB
    assert (ended["part"] >= 3, mixed >= 100) == (bool(parts), bool(parts))
