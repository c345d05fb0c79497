"""Forecasts a whole plan: a row per step, cycles and blocks included, as far as anything still changes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from vramscope.errors import PartError
from vramscope.forecast.order import ModelOrder
from vramscope.forecast.predict import DeviceBudget, Levels, MisfitError, Predictor, UnknownModelError
from vramscope.memory.allocator import AllocatorSettings
from vramscope.memory.physical import GRANULARITY_BYTES
from vramscope.memory.snapshot import HOST
from vramscope.plan.kinds import Action, Effect
from vramscope.plan.schema import Plan, Repeat, Step

# A block or a plan whose passes have not begun to come again after so many is followed no further.
PASSES_LIMIT = 50
TOO_LARGE_BYTES = 1 << 50
RELEASE = Effect(action=Action.RELEASE)


@dataclass(frozen=True, kw_only=True)
class StepForecast:
    """One step in one cycle. `levels` is None for a step that is not reached; `fits` None where nothing can be said.

    That is so for every step of a model of which nothing is known; other steps are told as if it were not there.
    """

    cycle: int
    step: str
    kind: str
    model: str
    line: int
    fits: bool | None
    levels: Levels | None


@dataclass(frozen=True, kw_only=True)
class Misfit:
    """The first step that does not fit: by how many bytes of device memory, and what would help.

    `shortfall_bytes` is None where more memory would not help: there is no such device, or a limit is set on it.
    `device` is None for a step that fails on any device, since its model does not have the part that it names.
    """

    cycle: int
    step: str
    line: int
    device: str | None
    shortfall_bytes: int | None
    message: str
    remedies: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class PlanForecast:
    """The rows of a plan, for `cycles_walked` cycles.

    After them the last `period` cycles come again and again; 0 where the walk ended before that could be seen.
    """

    steps: tuple[StepForecast, ...]
    first_misfit: Misfit | None
    cycles_walked: int
    period: int
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Ground:
    """What a forecast starts from."""

    orders: Mapping[str, ModelOrder]
    budgets: Mapping[str, DeviceBudget]
    settings: AllocatorSettings = field(default_factory=AllocatorSettings)

    def predictor(self) -> Predictor:
        return Predictor(self.orders, self.budgets, self.settings)


def forecast_plan(plan: Plan, ground: Ground, cycles: int | None) -> PlanForecast:
    """Walk `cycles` cycles (None: until they come again), up to the first step that does not fit."""
    walk = _Walk(plan, ground)
    passes = _Passes(walk)
    limit = PASSES_LIMIT if cycles is None else min(cycles, PASSES_LIMIT)
    while passes.walked < limit and passes.goes_on():
        walk.cycle(passes.walked)
    if passes.walked == PASSES_LIMIT and cycles != PASSES_LIMIT and not walk.is_over:
        walk.notes.append(f"after {PASSES_LIMIT} cycles none has come again; what later cycles take is not known")
    return PlanForecast(
        steps=tuple(walk.rows),
        first_misfit=walk.misfit,
        cycles_walked=passes.walked,
        period=passes.period,
        notes=tuple(dict.fromkeys(walk.notes)),
    )


class _Passes:
    """Counts passes through the same steps, until a pass would begin where an earlier one began."""

    def __init__(self, walk: "_Walk") -> None:
        self._walk = walk
        self._seen: dict[object, int] = {}
        self.walked = 0
        self.period = 0

    def goes_on(self) -> bool:
        """Count one more pass, unless the plan's walk has ended or all that would come is known."""
        if self._walk.is_over:
            return False
        before = self._walk.predictor.signature()
        if before in self._seen:
            self.period = self.walked - self._seen[before]
            return False
        self._seen[before] = self.walked
        self.walked += 1
        return True


class _Walk:
    """One forecast in the making."""

    def __init__(self, plan: Plan, ground: Ground) -> None:
        self._plan = plan
        self._ground = ground
        self._done: list[Effect] = []
        self._cycle_ends: list[int] = []  # how much was done when each cycle was over
        self.predictor = ground.predictor()
        self.rows: list[StepForecast] = []
        self.misfit: Misfit | None = None
        self.is_over = False
        self.notes: list[str] = []

    def cycle(self, number: int) -> None:
        for step in self._steps(self._plan.steps):
            self.rows.append(self._row(number, step))
        self._cycle_ends.append(len(self._done))

    def _steps(self, steps: tuple[Step | Repeat, ...]) -> Iterator[Step]:
        """The steps in order; a block is walked until its passes come again, and then as often as is left over."""
        for step in steps:
            if isinstance(step, Step):
                yield step
                continue
            passes = _Passes(self)
            while passes.walked < min(step.times, PASSES_LIMIT) and passes.goes_on():
                yield from self._steps(step.steps)
            if passes.period:
                for _ in range((step.times - passes.walked) % passes.period):
                    yield from self._steps(step.steps)
            elif passes.walked < step.times and not self.is_over:
                self.notes.append(
                    f"after {PASSES_LIMIT} passes a block has not come to rest; it is followed no further"
                )

    def _row(self, cycle: int, step: Step) -> StepForecast:
        fits: bool | None = None
        if not self.is_over:
            fits = self._try(cycle, step)
        return StepForecast(
            cycle=cycle,
            step=step.name,
            kind=step.kind,
            model=step.effect.model,
            line=step.line,
            fits=fits,
            levels=self.predictor.levels() if fits else None,
        )

    def _try(self, cycle: int, step: Step) -> bool | None:
        model = step.effect.model
        if step.effect.action is not Action.NOTHING and model and model not in self._ground.orders:
            if step.effect.action is Action.LOAD:
                told = f"step {step.name!r} (line {step.line}): nothing is known about model {model!r}"
                self.notes.append(f"{told}; other models' figures are as if it were not there")
            return None
        try:
            self.predictor.apply(step.effect)
        except (MisfitError, PartError) as error:
            self.is_over = True
            self.misfit = self._describe(cycle, step, error)
            return False
        except UnknownModelError as error:
            self.is_over = True
            self.notes.append(f"step {step.name!r} (line {step.line}): {error}; nothing is said from there on")
            return None
        self._done.append(step.effect)
        return True

    def _describe(self, cycle: int, step: Step, error: MisfitError | PartError) -> Misfit:
        device = error.device if isinstance(error, MisfitError) else None
        known = device in self._ground.budgets
        return Misfit(
            cycle=cycle,
            step=step.name,
            line=step.line,
            device=device,
            shortfall_bytes=self._shortfall(device, step.effect) if device is not None and known else None,
            message=str(error),
            remedies=tuple(self._remedies(step.effect)) if known else (),
        )

    def _shortfall(self, device: str, effect: Effect) -> int | None:
        """The least memory that the device lacks for the step: found by trying, since a fuller device reuses more."""
        low, high = 0, 1
        while not self._would_fit(effect, extra={device: high * GRANULARITY_BYTES}):
            low, high = high, high * 2
            if high * GRANULARITY_BYTES > TOO_LARGE_BYTES:
                return None
        while high - low > 1:
            middle = (low + high) // 2
            if self._would_fit(effect, extra={device: middle * GRANULARITY_BYTES}):
                high = middle
            else:
                low = middle
        return high * GRANULARITY_BYTES

    def _remedies(self, effect: Effect) -> Iterator[str]:
        if self._would_fit(effect, done=[*self._done, RELEASE]):
            yield "a `release` step before it gives the allocator's cache back, and it fits"
        elif self._cycle_ends and self._would_fit(effect, done=self._done_with_releases()):
            yield "with a `release` step at the end of the plan, so that no cycle finds an older one's cache, it fits"
        for other, device in self.predictor.placed():
            away = Effect(action=Action.MOVE, model=other, to=HOST)
            if device != HOST and other != effect.model and self._would_fit(effect, done=[*self._done, away]):
                yield f"with model {other!r} moved to cpu before it, it fits"
        halved = _halved(self._ground.orders, effect.model)
        if halved != self._ground.orders and self._would_fit(effect, orders=halved):
            yield f"with dtype float16 or bfloat16 for model {effect.model!r}, it fits"

    def _done_with_releases(self) -> list[Effect]:
        done: list[Effect] = []
        for first, last in pairwise([0, *self._cycle_ends, len(self._done)]):
            done += [*self._done[first:last], RELEASE]
        return done[:-1]

    def _would_fit(
        self,
        effect: Effect,
        *,
        extra: Mapping[str, int] | None = None,
        done: Sequence[Effect] | None = None,
        orders: Mapping[str, ModelOrder] | None = None,
    ) -> bool:
        """Whether a step fits after all that was done, or after other steps, on larger devices or with other models."""
        budgets = {
            name: replace(budget, total_bytes=budget.total_bytes + (extra or {}).get(name, 0))
            for name, budget in self._ground.budgets.items()
        }
        predictor = Predictor(orders or self._ground.orders, budgets, self._ground.settings)
        try:
            for each in (*(done or self._done), effect):
                predictor.apply(each)
        except MisfitError:
            return False
        return True


def _halved(orders: Mapping[str, ModelOrder], model: str) -> dict[str, ModelOrder]:
    """The orders with one model in a 16-bit dtype, as far as it would be."""
    tensors = tuple(
        replace(tensor, nbytes=tensor.nbytes // 2, halves=False) if tensor.halves else tensor
        for tensor in orders[model].tensors
    )
    return {**orders, model: replace(orders[model], tensors=tensors)}
