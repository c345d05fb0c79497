"""The static check: follows where each model lives through the steps, and names the first step that cannot work.

After a step that cannot work the check goes on as if it had worked, so that one mistake is told once. A block is
followed once, whatever its `times`: after its first pass every model that it touches is where the block leaves it, so a
later pass can fail only at the first step that touches a model, and that step is judged a second time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vramscope.plan.kinds import Action
from vramscope.plan.schema import Repeat, Step

GAP = ""  # the kind of a step that could not be read: after it nothing is known about any model

SEVERAL = "several"  # which parts are where only the model's tensors tell: a run, or a forecast
_TOUCHING = {Action.LOAD, Action.MOVE, Action.UNLOAD}


@dataclass(frozen=True)
class Finding:
    """A step that cannot work, and why."""

    step: Step
    message: str


@dataclass(frozen=True)
class _Place:
    """Where a model is, and the step that brought it there; no device is absent, SEVERAL is not all on one."""

    device: str
    since: Step

    def __str__(self) -> str:
        return "in parts on several devices" if self.device == SEVERAL else f"on {self.device}"


def check_residency(steps: Sequence[Step | Repeat], *, repeats: bool) -> list[Finding]:
    """Every step that cannot work. `repeats` says that the plan runs more than once."""
    check = _Check()
    check.follow(steps)
    return [*check.findings, *(check.left_over() if repeats else ())]


class _Check:
    """The state of the check: `places` has the models whose place is known."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self._places: dict[str, _Place] = {}
        self._lost = False
        self._judged: set[str] = set()

    def follow(self, steps: Sequence[Step | Repeat]) -> dict[str, Step]:
        """Follow the steps; return the first step that touches each model."""
        first: dict[str, Step] = {}
        for step in steps:
            if isinstance(step, Repeat):
                inside = self.follow(step.steps)
                if step.times > 1:
                    for touching in inside.values():
                        self._judge(touching, " (when the block repeats)")
                first = inside | first
            elif step.kind == GAP:
                self._places.clear()
                self._lost = True
            elif step.effect.action is Action.RESTART:
                self._judge_restart(step)
            elif step.effect.action in _TOUCHING:
                self._judge(step, "")
                self._places[step.effect.model] = _Place(self._device_after(step), step)
                first.setdefault(step.effect.model, step)
        return first

    def _device_after(self, step: Step) -> str:
        """Where a step leaves its model; a part that goes where all of it is leaves it there."""
        effect, before = step.effect, self._places.get(step.effect.model)
        if effect.action is Action.UNLOAD:
            return ""
        stays = effect.part is None or (before is not None and before.device == effect.to)
        return effect.to if stays else SEVERAL

    def left_over(self) -> Iterator[Finding]:
        """Models that are still loaded after the last step."""
        for model, place in self._places.items():
            if place.device and place.since.where not in self._judged:
                yield Finding(
                    place.since,
                    f'model "{model}" is still {place} when the plan ends, and the plan repeats: '
                    f'add "- unload: {model}"',
                )

    def _judge(self, step: Step, when: str) -> None:
        """Find out whether `step` can work with its model where it is."""
        model = step.effect.model
        place = self._places.get(model)
        if place is None and self._lost:
            return
        message = _refusal(step, place)
        if message and step.where not in self._judged:
            self._judged.add(step.where)
            self.findings.append(Finding(step, message + when))

    def _judge_restart(self, step: Step) -> None:
        loaded = next(((model, place) for model, place in self._places.items() if place.device), None)
        if loaded is not None and step.where not in self._judged:
            model, place = loaded
            self._judged.add(step.where)
            message = f'expected every model to be unloaded, but "{model}" is {place} since line '
            self.findings.append(Finding(step, f"{message}{place.since.line}"))


def _refusal(step: Step, place: _Place | None) -> str:
    """Why a step cannot work with its model at `place` (None: never loaded), or nothing."""
    action, model, to = step.effect.action, step.effect.model, step.effect.to
    if place is None or not place.device:
        since = "it was never loaded" if place is None else f"it is unloaded since line {place.since.line}"
        return "" if action is Action.LOAD else f'expected model "{model}" to be loaded, but {since}'
    if action is Action.LOAD:
        return f'expected model "{model}" not to be loaded, but it is {place} since line {place.since.line}'
    if action is Action.MOVE and to == place.device:
        return f'expected model "{model}" on another device, but it is on {to} since line {place.since.line}'
    return ""
