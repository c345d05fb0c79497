"""What is wrong now and stays so until somebody mends it, as opposed to faults, which have happened."""

from collections.abc import Iterator
from dataclasses import dataclass

from vramscope.supervisor.driver_probe import ALL
from vramscope.supervisor.state import RunState
from vramscope.units import printable


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """`what` is wrong, in a few words; `detail` why, in lines of text; `effect` what that means meanwhile."""

    what: str
    detail: str
    effect: str


def troubles(state: RunState) -> Iterator[Trouble]:
    """Every trouble of this moment; none where all is well."""
    if state.reload.problem:
        effect = "the plan of before goes on; mend the file, it is read again when it changes"
        yield Trouble(what="the plan file cannot be used", detail=state.reload.problem, effect=effect)
    if state.web_config_problem:
        effect = "the web configuration of before stays in force"
        yield Trouble(what="the web configuration is refused", detail=state.web_config_problem, effect=effect)
    if state.journal is not None and state.journal.reason:
        lost = state.journal.dropped
        effect = f"{lost:,} events are lost for the journal" if lost else "events wait, and none is lost yet"
        yield Trouble(what="the journal is not written", detail=state.journal.reason, effect=effect)
    for reason, devices in _silent(state).items():
        effect = "its figures are those of PyTorch alone, or absent"
        yield Trouble(what=f"the driver does not answer about {', '.join(devices)}", detail=reason, effect=effect)


def _silent(state: RunState) -> dict[str, list[str]]:
    """Reason to the devices that the driver does not tell of for it."""
    found: dict[str, list[str]] = {}
    for device, reason in state.driver_errors.items():
        if device not in state.driver:
            found.setdefault(printable(reason), []).append("any device" if device == ALL else device)
    return found
