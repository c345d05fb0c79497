"""Models, cards and plans in a few words. Sizes are MiB where a name does not say otherwise."""

from collections.abc import Mapping, Sequence

from vramscope.forecast.order import ModelOrder, TensorPlace
from vramscope.forecast.predict import DeviceBudget, DeviceLevels, Levels, Predictor
from vramscope.forecast.walk import Ground, PlanForecast, forecast_plan
from vramscope.plan.kinds import Action, Effect
from vramscope.plan.parse import parse_plan
from vramscope.plan.schema import Plan
from vramscope.steps._catalog import step_kinds

MIB = 1 << 20
CARD = "cuda:0"


def model(
    *sizes: float, buffers: Sequence[float] = (), direct: Sequence[int] = (), dtype: str = "float16"
) -> ModelOrder:
    """A model by the sizes of its tensors in the order of a move; `direct` is that of a load straight to a device."""
    parameters = [
        TensorPlace(name=f"weight.{index}", nbytes=int(size * MIB), halves=dtype == "float32")
        for index, size in enumerate(sizes)
    ]
    rest = [
        TensorPlace(name=f"buffer.{index}", nbytes=int(size * MIB), is_buffer=True)
        for index, size in enumerate(buffers)
    ]
    tensors = (*parameters, *rest)
    return ModelOrder(dtype=dtype, tensors=tensors, direct=tuple(direct or range(len(tensors))), exact=True, basis="")


def card(total: float, context: float = 0, other: float = 0) -> DeviceBudget:
    return DeviceBudget(total_bytes=int(total * MIB), context_bytes=int(context * MIB), other_bytes=int(other * MIB))


def ground(total: float, **models: ModelOrder) -> Ground:
    """Some models, and one card of `total` MiB without a context."""
    return Ground(orders=models, budgets={CARD: card(total)})


def plan_of(steps: str, models: Sequence[str], repeat: str = "1") -> Plan:
    """A plan with these steps; the models are named and nothing more."""
    named = ", ".join(f"{name}: {{source: 'synthetic:tiny'}}" for name in models)
    text = f"version: 1\nmodels: {{{named}}}\nrepeat: {repeat}\nsteps:\n{steps}"
    return parse_plan(text.encode(), "plan.yaml", step_kinds())


def forecast(steps: str, on: Ground, repeat: str = "1", cycles: int | None = None) -> PlanForecast:
    """The forecast of a plan as the command makes it: `cycles`, or as many as the plan says."""
    plan = plan_of(steps, list(on.orders), repeat)
    return forecast_plan(plan, on, plan.repeat if cycles is None else cycles)


def load(name: str, to: str = "cpu") -> Effect:
    return Effect(action=Action.LOAD, model=name, to=to)


def move(name: str, to: str = CARD) -> Effect:
    return Effect(action=Action.MOVE, model=name, to=to)


def unload(name: str) -> Effect:
    return Effect(action=Action.UNLOAD, model=name)


RELEASE = Effect(action=Action.RELEASE)


def after(predictor: Predictor, *effects: Effect) -> DeviceLevels:
    """What the one card holds after some steps."""
    for effect in effects:
        predictor.apply(effect)
    return predictor.levels().devices[CARD]


def mib(levels: DeviceLevels | Levels | Mapping[str, DeviceLevels], device: str = CARD) -> tuple[float, float, float]:
    """Allocated, reserved and used."""
    devices = levels.devices if isinstance(levels, Levels) else levels
    found = devices if isinstance(devices, DeviceLevels) else devices[device]
    return found.allocated_bytes / MIB, found.reserved_bytes / MIB, found.used_bytes / MIB
