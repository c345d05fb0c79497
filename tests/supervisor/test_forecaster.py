"""The forecast beside a run: events of the run in, what was foreseen and how far off it was out."""

from dataclasses import dataclass, field, replace

import pytest
from tests.forecast.sketch import CARD, MIB, mib, model, plan_of

from vramscope.events import Event, Outcome, StepEnded, StepStarted, WorkerExited
from vramscope.memory.configuration import read_configuration
from vramscope.memory.snapshot import (
    AllocatorMemory,
    DeviceFacts,
    DeviceSnapshot,
    DriverMemory,
    DriverSampled,
    MemorySampled,
    WorkerReady,
)
from vramscope.plan.schema import named_steps
from vramscope.settings import SimulationSettings
from vramscope.supervisor.current import CurrentPlan
from vramscope.supervisor.forecaster import ForecastCompared, Forecaster, ForecastLost, ForecastMade, ModelsDescribed

from ..picture import model_on  # noqa: TID252 - tests are not packages

STEPS = (
    "- load: a\n- move: a\n- move: {model: a, to: cpu}\n- unload: a\n- release\n- wait: 1s\n- load: b\n- unload: b\n"
)
MODELS = {"a": model(12), "b": model(3)}
ALLOCATED, RESERVED = (CARD, "allocated"), (CARD, "reserved")


@dataclass
class Stage:
    """A forecaster over a plan for one device of `capacity` MiB, and what it published."""

    capacity: int = 100
    environment: dict = field(default_factory=dict)
    backend: str = "simulated"
    steps: str = STEPS
    told: list = field(default_factory=list)

    def __post_init__(self):
        self.plan = plan_of(self.steps, ["a", "b"])
        simulation = SimulationSettings(context_bytes=5 * MIB)
        self.forecaster = Forecaster(
            CurrentPlan(self.plan), read_configuration(self.environment), simulation, self.told.append
        )

    def tell(self, *events: Event):
        """Tell the events, and return what was published meanwhile."""
        before = len(self.told)
        for event in events:
            self.forecaster.on_event(event)
        return self.told[before:]

    def begin(self, orders=MODELS):
        facts = DeviceFacts(device=CARD, backend=self.backend, name="", total_bytes=self.capacity * MIB)
        ready = WorkerReady(
            at=1.0, pid=7, backend=self.backend, reason="", versions={}, devices=(facts,), import_seconds=1.0
        )
        described = ModelsDescribed(at=1.0, orders=dict(orders), problems={})
        return self.tell(ready, sampled(0, 0), described)

    def step(self, name, sample, outcome=Outcome.SUCCEEDED):
        """One step of the plan from its start to its end."""
        step = next(each for each in named_steps(self.plan.steps) if each.name == name)
        who = {"step": name, "kind": step.kind, "model": step.effect.model, "cycle": 1}
        return self.tell(
            StepStarted(at=2.0, line=step.line, **who), sample, StepEnded(at=3.0, outcome=outcome, seconds=1.0, **who)
        )


def sampled(allocated, reserved, *names, at=2.5):
    """What the worker holds: MiB on the device, and the models that are loaded anywhere."""
    memory = AllocatorMemory(allocated_bytes=allocated * MIB, reserved_bytes=reserved * MIB)
    device = DeviceSnapshot(device=CARD, backend="simulated", allocator=memory)
    return MemorySampled(at=at, devices=(device,), models=tuple(model_on("cpu", name) for name in names))


@pytest.fixture
def stage():
    made = Stage()
    assert made.begin() == []
    return made


def test_each_step_is_foreseen_at_its_start_and_compared_at_its_end(stage):
    story = [
        ("load a", sampled(0, 0, "a"), (0, 0, 0)),
        ("move a to cuda:0", sampled(12, 12, "a"), (12, 12, 17)),
        ("move a to cpu", sampled(0, 12, "a"), (0, 12, 17)),
        ("unload a", sampled(0, 12), (0, 12, 17)),
        ("release", sampled(0, 0), (0, 0, 5)),
        ("wait", sampled(0, 0), (0, 0, 5)),
    ]
    for name, sample, levels in story:
        made, compared = stage.step(name, sample)
        assert (type(made), made.step, made.at, mib(made.devices)) == (ForecastMade, name, 2.0, levels)
        assert compared == ForecastCompared(at=3.0, step=name, error_bytes={ALLOCATED: 0, RESERVED: 0}, cause="")


def test_the_error_is_measured_minus_foreseen_and_comes_with_a_cause(stage):
    stage.step("load a", sampled(0, 0, "a"))
    _, compared = stage.step("move a to cuda:0", sampled(13, 20, "a"))
    assert compared.error_bytes == {ALLOCATED: 1 * MIB, RESERVED: 8 * MIB}
    assert compared.cause.startswith("this release of torch allocates by other rules")


def test_a_guessed_order_is_the_cause_if_there_is_one():
    stage = Stage()
    stage.begin({"a": model(12), "b": replace(model(3), exact=False, basis="nobody knows it")})
    stage.step("load a", sampled(0, 0, "a"))
    _, compared = stage.step("move a to cuda:0", sampled(12, 20, "a"))
    assert compared.cause == "the order of tensors of b is a guess: nobody knows it"


def test_running_out_of_memory_as_foreseen_is_no_error_and_the_clean_up_is_followed():
    stage = Stage(capacity=10)
    stage.begin()
    stage.step("load a", sampled(0, 0, "a"))
    made, compared, cleaned = stage.step("move a to cuda:0", sampled(0, 0, "a"), Outcome.FAILED)
    assert mib(cleaned.devices) == (0, 0, 5)
    assert mib(made.devices) == (0, 0, 5)
    assert (compared.error_bytes, compared.cause) == ({ALLOCATED: 0, RESERVED: 0}, "")
    made, _ = stage.step("load a", sampled(0, 0, "a"))
    assert mib(made.devices) == (0, 0, 5)


@pytest.mark.parametrize(
    ("capacity", "outcome", "reason"),
    [
        (100, Outcome.FAILED, "step 'move a to cuda:0' failed where the forecast said that it works"),
        (100, Outcome.TIMED_OUT, "step 'move a to cuda:0' timed_out where the forecast said that it works"),
        (10, Outcome.SUCCEEDED, "step 'move a to cuda:0' succeeded where the forecast said no room for it"),
    ],
)
def test_a_step_that_ends_otherwise_than_foreseen_loses_the_forecast(capacity, outcome, reason):
    stage = Stage(capacity=capacity)
    stage.begin()
    stage.step("load a", sampled(0, 0, "a"))
    _, lost = stage.step("move a to cuda:0", sampled(12, 12, "a"), outcome)
    assert lost == ForecastLost(at=3.0, reason=reason)
    assert stage.step("move a to cpu", sampled(0, 12, "a")) == []
    assert stage.step("unload a", sampled(0, 12)) == []


def test_a_lost_forecast_finds_itself_when_the_worker_is_empty(stage):
    stage.step("load a", sampled(0, 0, "a"))
    stage.step("move a to cuda:0", sampled(12, 12, "a"), Outcome.FAILED)
    assert stage.step("wait", sampled(0, 12)) == []
    stage.step("release", sampled(0, 0))
    assert compared_zero(stage.step("load a", sampled(0, 0, "a")))
    assert compared_zero(stage.step("move a to cuda:0", sampled(12, 12, "a")))


def test_a_forecast_that_foresaw_a_misfit_in_vain_finds_itself_as_well():
    stage = Stage(capacity=10)
    stage.begin()
    stage.step("load a", sampled(0, 0, "a"))
    stage.step("move a to cuda:0", sampled(12, 12, "a"))
    stage.step("move a to cpu", sampled(0, 12, "a"))
    stage.step("unload a", sampled(0, 12))
    assert not any(isinstance(event, ForecastLost) for event in stage.step("release", sampled(0, 0)))
    assert compared_zero(stage.step("load b", sampled(0, 0, "b")))


def compared_zero(told):
    return [type(event) for event in told] == [ForecastMade, ForecastCompared] and not any(told[1].error_bytes.values())


@pytest.mark.parametrize(
    ("name", "before"),
    [("wait", []), ("load a", []), ("unload a", ["load a"])],
)
def test_a_failure_that_touches_no_device_does_not_lose_the_forecast(stage, name, before):
    for earlier in before:
        stage.step(earlier, sampled(0, 0, "a"))
    made, cleaned = stage.step(name, sampled(0, 0), Outcome.FAILED)
    assert isinstance(made, ForecastMade)
    assert isinstance(cleaned, ForecastMade)
    assert mib(cleaned.devices)[0] == 0
    assert compared_zero(stage.step("load a", sampled(0, 0, "a")))
    assert compared_zero(stage.step("move a to cuda:0", sampled(12, 12, "a")))


def test_an_allocator_that_is_not_modelled_is_said_once_and_nothing_is_foreseen():
    stage = Stage(environment={"PYTORCH_ALLOC_CONF": "expandable_segments:True"})
    (lost,) = stage.begin()
    assert lost.reason == (
        "the allocator is configured with expandable_segments:True, which the forecast does not follow"
    )
    assert stage.step("load a", sampled(0, 0, "a")) == []
    assert stage.step("unload a", sampled(0, 0)) == []


def test_settings_of_the_allocator_are_followed():
    """With splits off, 3 MiB do not go into what 30 MiB left in the cache."""
    steps = "- load: {model: a, to: cuda:0}\n- unload: a\n- load: {model: b, to: cuda:0}\n"
    for text, reserved in (("", 30), ("max_split_size_mb:25", 50)):
        stage = Stage(environment={"PYTORCH_ALLOC_CONF": text}, steps=steps)
        stage.begin({"a": model(30), "b": model(3)})
        stage.step("load a", sampled(30, 30, "a"))
        stage.step("unload a", sampled(0, 30))
        made, _ = stage.step("load b", sampled(3, reserved, "b"))
        assert mib(made.devices)[1] == reserved


def test_a_model_that_could_not_be_described_loses_the_forecast_where_it_is_used():
    stage = Stage()
    stage.begin({"a": model(12)})
    assert compared_zero(stage.step("load a", sampled(0, 0, "a")))
    (lost,) = stage.step("load b", sampled(0, 0, "a", "b"))
    assert lost.reason == "nothing is known about model 'b'"


def test_a_model_that_has_come_meanwhile_is_foreseen_from_then_on():
    """Also beside another that is loaded: what that one holds is not forgotten."""
    stage = Stage()
    stage.begin({"a": model(12)})
    stage.step("load a", sampled(0, 0, "a"))
    stage.step("move a to cuda:0", sampled(12, 12, "a"))
    assert stage.tell(ModelsDescribed(at=2.9, orders={"b": model(3)}, problems={})) == []
    assert compared_zero(stage.step("load b", sampled(12, 12, "a", "b")))


def test_a_lost_forecast_does_not_begin_anew_beside_a_loaded_model():
    stage = Stage()
    stage.begin({"a": model(12)})
    stage.step("load b", sampled(0, 0, "b"))
    assert stage.tell(ModelsDescribed(at=2.9, orders={"b": model(3)}, problems={})) == []
    assert stage.step("load a", sampled(0, 0, "a", "b")) == []


def test_with_its_worker_the_forecast_ends_and_begins_with_the_next_one(stage):
    stage.step("load a", sampled(0, 0, "a"))
    stage.tell(WorkerExited(at=4.0, pid=7, reason="signal", detail="", expected=False))
    assert stage.step("move a to cuda:0", sampled(0, 0, "a"), Outcome.FAILED) == []
    stage.begin()
    assert compared_zero(stage.step("load a", sampled(0, 0, "a")))


def driver_says(used, at):
    memory = DriverMemory(total_bytes=100 * MIB, used_bytes=used * MIB)
    return DriverSampled(at=at, pid=7, devices={CARD: memory})


def test_what_others_hold_of_a_real_device_is_what_the_driver_says():
    real = Stage(backend="cuda")
    real.begin()
    real.step("load a", sampled(0, 0, "a", at=2.5))
    real.tell(driver_says(95, at=2.6))
    made, compared, _ = real.step("move a to cuda:0", sampled(0, 0, "a"), Outcome.FAILED)
    assert mib(made.devices) == (0, 0, 95)
    assert compared.cause == ""


def test_a_look_at_the_driver_that_is_of_another_moment_does_not_count():
    real = Stage(backend="cuda")
    real.begin()
    real.step("load a", sampled(0, 0, "a", at=2.5))
    real.tell(driver_says(95, at=2.4))
    started = StepStarted(at=2.6, step="wait", kind="load", model="", cycle=1, line=1, changes_memory=True)
    real.tell(started, driver_says(95, at=2.7))
    made, _ = real.step("move a to cuda:0", sampled(12, 12, "a"))
    assert mib(made.devices) == (12, 12, 12)
