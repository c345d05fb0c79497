"""Forecasts a whole plan: a row per step, cycles and blocks included, as far as anything still changes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from vramscope.forecast.order import ModelOrder
from vramscope.forecast.predict import HOST, DeviceBudget, Levels, MisfitError, Predictor, UnknownModelError
from vramscope.memory.allocator import AllocatorSettings
from vramscope.memory.physical import GRANULARITY_BYTES
from vramscope.plan.kinds import Action, Effect
from vramscope.plan.schema import Plan, Repeat, Step

# A block or a cycle that has not come to rest after so many passes is followed no further.
PASSES_LIMIT = 50
TOO_LARGE_BYTES = 1 << 50


@dataclass(frozen=True, kw_only=True)
class StepForecast:
    """One step in one cycle. `levels` is None for a step that is not reached; `fits` None where nothing can be said."""

    cycle: int
    step: str
    kind: str
    model: str
    line: int
    fits: bool | None
    levels: Levels | None


@dataclass(frozen=True, kw_only=True)
class Misfit:
    """The first step that does not fit: by how many bytes of device memory, and what would help."""

    cycle: int
    step: str
    line: int
    device: str
    shortfall_bytes: int
    message: str
    remedies: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class PlanForecast:
    """The rows of a plan. `cycles_walked` is how many cycles it took until a cycle left everything as it found it."""

    steps: tuple[StepForecast, ...]
    first_misfit: Misfit | None
    cycles_walked: int
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
    """Walk `cycles` cycles (None: until nothing changes any more), up to the first step that does not fit."""
    walk = _Walk(plan, ground)
    walked = 0
    seen: set[object] = set()
    limit = PASSES_LIMIT if cycles is None else min(cycles, PASSES_LIMIT)
    while walked < limit and walk.ended is None:
        before = walk.predictor.signature()
        if before in seen:
            break
        seen.add(before)
        walked += 1
        walk.cycle(walked)
    return PlanForecast(
        steps=tuple(walk.rows), first_misfit=walk.misfit, cycles_walked=walked, notes=tuple(dict.fromkeys(walk.notes))
    )


class _Walk:
    """One forecast in the making."""

    def __init__(self, plan: Plan, ground: Ground) -> None:
        self._plan = plan
        self._ground = ground
        self._done: list[Effect] = []
        self.predictor = ground.predictor()
        self.rows: list[StepForecast] = []
        self.misfit: Misfit | None = None
        self.ended: bool | None = None
        self.notes: list[str] = []

    def cycle(self, number: int) -> None:
        for step in self._steps(self._plan.steps):
            self.rows.append(self._row(number, step))

    def _steps(self, steps: tuple[Step | Repeat, ...]) -> Iterator[Step]:
        """The steps in order; a block is walked until it comes to rest, since every later pass is the same."""
        for step in steps:
            if isinstance(step, Step):
                yield step
                continue
            seen: set[object] = set()
            for _ in range(min(step.times, PASSES_LIMIT)):
                before = self.predictor.signature()
                if self.ended is not None or before in seen:
                    break
                seen.add(before)
                yield from self._steps(step.steps)

    def _row(self, cycle: int, step: Step) -> StepForecast:
        fits: bool | None = None
        if self.ended is None:
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
        try:
            self.predictor.apply(step.effect)
        except MisfitError as error:
            self.ended = False
            self.misfit = self._describe(cycle, step, error)
            return False
        except UnknownModelError as error:
            self.ended = True
            self.notes.append(f"step {step.name!r} (line {step.line}): {error}; nothing is said from there on")
            return None
        self._done.append(step.effect)
        return True

    def _describe(self, cycle: int, step: Step, error: MisfitError) -> Misfit:
        known = error.device in self._ground.budgets
        return Misfit(
            cycle=cycle,
            step=step.name,
            line=step.line,
            device=error.device,
            shortfall_bytes=self._shortfall(error.device, step.effect) if known else 0,
            message=str(error),
            remedies=tuple(self._remedies(step.effect)) if known else (),
        )

    def _shortfall(self, device: str, effect: Effect) -> int:
        """The least memory that the device lacks for the step: found by trying, since a fuller device reuses more."""
        total = self._ground.budgets[device].total_bytes
        low, high = 0, 1
        while not self._would_fit(effect, extra={device: high * GRANULARITY_BYTES}):
            low, high = high, high * 2
            if high * GRANULARITY_BYTES > TOO_LARGE_BYTES:
                return TOO_LARGE_BYTES - total
        while high - low > 1:
            middle = (low + high) // 2
            if self._would_fit(effect, extra={device: middle * GRANULARITY_BYTES}):
                high = middle
            else:
                low = middle
        return high * GRANULARITY_BYTES

    def _remedies(self, effect: Effect) -> Iterator[str]:
        if self._would_fit(effect, before=Effect(action=Action.RELEASE)):
            yield "a `release` step before it gives the allocator's cache back, and it fits"
        for other, device in self.predictor.placed():
            if device != HOST and self._would_fit(effect, before=Effect(action=Action.MOVE, model=other, to=HOST)):
                yield f"with model {other!r} moved to cpu before it, it fits"
        if self._ground.orders[effect.model].dtype == "float32":
            halved = _halved(self._ground.orders, effect.model)
            if self._would_fit(effect, orders=halved):
                yield f"with dtype float16 or bfloat16 for model {effect.model!r}, it fits"

    def _would_fit(
        self,
        effect: Effect,
        *,
        extra: Mapping[str, int] | None = None,
        before: Effect | None = None,
        orders: Mapping[str, ModelOrder] | None = None,
    ) -> bool:
        """Whether everything up to and with the step fits, on larger devices or with other models."""
        budgets = {
            name: replace(budget, total_bytes=budget.total_bytes + (extra or {}).get(name, 0))
            for name, budget in self._ground.budgets.items()
        }
        predictor = Predictor(orders or self._ground.orders, budgets, self._ground.settings)
        try:
            for done in (*self._done, *([before] if before else []), effect):
                predictor.apply(done)
        except MisfitError:
            return False
        return True


def _halved(orders: Mapping[str, ModelOrder], model: str) -> dict[str, ModelOrder]:
    """The orders with the parameters of one model in half their bytes."""
    tensors = tuple(
        tensor if tensor.is_buffer else replace(tensor, nbytes=tensor.nbytes // 2) for tensor in orders[model].tensors
    )
    return {**orders, model: replace(orders[model], tensors=tensors)}
