"""The run as JSON, for the live page and for scripts. Keys are only ever added; what is not known is null.

    version, now, started_at, uptime_seconds
    plan      null, or name, sha256, path, cycles (null: forever), cycle, cycle_running, outcome (null while it runs),
              next_cycle_at (null but between two cycles), last_cycle_seconds, last_success_at
    reload    problem (null: the plan file was good when it was last read), succeeded_at
    web_config_problem  null without a web configuration, empty while it is good, else why the one before is in force
    journal   null without a journal, or problem (null: it is written), events_written, events_dropped
    troubles  [what, detail, effect], what an operator should mend now: a plan that could not be read again, a web
              configuration that is refused, a journal that cannot be written, a driver that does not answer
    worker    up, pid, backend (cuda, simulated or null), reason, versions {package: version}
    devices   [device, backend, name, uuid, pci_bus_id, total_bytes, allocator {..._bytes, alloc_retries, ooms},
              driver {total_bytes, used_bytes, free_bytes, reserved_bytes, process_used_bytes,
              process_used_source}, driver_error, used_high_water_bytes (of the last minute), ledger {owner: bytes},
              owners [owner, name, meaning, bytes] (the ledger in the order of a bar),
              differences [from, to, bytes, owner, text] (why two figures differ), forecast {allocated_bytes,
              reserved_bytes, allocated_error_bytes, reserved_error_bytes}]; allocator, driver, driver_error, ledger,
              owners and forecast may be null
    other_devices  [device, name, uuid, total_bytes, used_bytes, driver_error], what NVML lists and the worker has not
    forecast_lost  null, or why nothing is forecast
    models    [model, state, architecture, dtype, quantization, revision, parameters, parameter_bytes, file_bytes,
              file_elements, context_window_tokens, places [device, parameter_bytes, buffer_bytes],
              groups [component, dtype, device, parameters, nbytes]]
    residues  [model, after (unload, release or reset), places [where, bytes, text, growth_bytes, causes [cause, bytes,
              own, text]]], what each model left behind last; growth_bytes is that from one unload to the next, or null
    running   null, or step, kind, model, line, started_at, elapsed_seconds, target_seconds (null but for a wait),
              phase, bytes_done, bytes_total, progress_ratio
    steps     [step, kind, model, outcome, seconds, ended_at, error, facts {}], the last run of each, oldest first
    phases    [model, kind, phase, seconds, nbytes], of the last run of each kind for each model
    faults    [at, what, detail], oldest first
    results   the results table, a row per model and cycle; before, on_host, on_device, after_unload and after_release
              are totals of the device, {allocated_bytes, reserved_bytes} or null; outcome is that of the model's own
              steps, cycle_outcome that of the cycle; device is where the model went last, earlier_devices are where it
              was before, lives is where it was in parts, or null; ledger and residues as they were in that cycle

Times are seconds since the epoch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from vramscope import __version__
from vramscope.events import JournalSampled
from vramscope.memory.differences import differences
from vramscope.memory.leftovers import leftovers
from vramscope.memory.owners import shares
from vramscope.memory.residue import Residue, trend
from vramscope.memory.snapshot import DeviceFacts, DeviceSnapshot, ModelSnapshot
from vramscope.supervisor.forecaster import ALLOCATED, RESERVED
from vramscope.supervisor.state import Account, PlanState, RunningStep, RunState, WorkerState
from vramscope.web.troubles import troubles


def status(
    state: RunState,
    now: float,
    results: Sequence[Mapping[str, Any]],
    targets: Mapping[str, float] = MappingProxyType({}),
) -> dict[str, Any]:
    """Everything that is known at `now`, in the shape that the module's docstring gives.

    `targets` maps a step of the plan to the seconds that it is meant to take.
    """
    return {
        "version": __version__,
        "now": now,
        "started_at": state.started_at,
        "uptime_seconds": now - state.started_at,
        "plan": _plan(state.plan),
        "reload": {"problem": state.reload.problem or None, "succeeded_at": state.reload.succeeded_at},
        "web_config_problem": state.web_config_problem,
        "journal": _journal(state.journal),
        "troubles": [asdict(trouble) for trouble in troubles(state)],
        "worker": _worker(state.worker),
        "devices": _devices(state),
        "other_devices": _other_devices(state),
        "forecast_lost": state.forecast_lost or None,
        "models": [_model(model) for model in state.models],
        "residues": [_residue(residue, state) for residue in state.residues.values()],
        "running": _running(state.running, now, targets),
        "steps": [asdict(step) for step in sorted(state.last_steps.values(), key=lambda step: step.ended_at)],
        "phases": [asdict(phase) for phase in state.last_phases.values()],
        "faults": [asdict(fault) for fault in state.faults],
        "results": [{key: value for key, value in row.items() if key != "differences"} for row in results],
    }


def _plan(plan: PlanState) -> dict[str, Any] | None:
    return asdict(plan) if plan.name else None


def _journal(journal: JournalSampled | None) -> dict[str, Any] | None:
    if journal is None:
        return None
    return {
        "problem": journal.reason or None,
        "events_written": journal.written,
        "events_dropped": journal.dropped,
    }


def _worker(worker: WorkerState) -> dict[str, Any]:
    return {
        "up": worker.up,
        "pid": worker.pid,
        "backend": worker.backend or None,
        "reason": worker.reason or None,
        "versions": dict(worker.versions),
    }


def _devices(state: RunState) -> list[dict[str, Any]]:
    """Every device that the worker has told about or holds memory on, with what is known about it now."""
    facts = {each.device: each for each in state.worker.devices}
    held = {each.device: each for each in state.devices}
    return [_device(name, facts.get(name), held.get(name), state) for name in dict.fromkeys([*facts, *held])]


def _device(name: str, facts: DeviceFacts | None, held: DeviceSnapshot | None, state: RunState) -> dict[str, Any]:
    driver = state.driver.get(name)
    total = driver.total_bytes if driver else None
    known = facts or held
    account = state.accounts.get(name)
    owners = account.ledger() if account else None
    return {
        "device": name,
        "backend": known.backend if known else None,
        "name": facts.name if facts else None,
        "uuid": (facts.uuid or None) if facts else None,
        "pci_bus_id": (facts.pci_bus_id or None) if facts else None,
        "total_bytes": total if total is not None or facts is None else facts.total_bytes,
        "allocator": asdict(held.allocator) if held else None,
        "driver": asdict(driver) if driver else None,
        "driver_error": state.driver_errors.get(name),
        "used_high_water_bytes": state.driver_high_water_bytes.get(name),
        "ledger": owners,
        "owners": None if owners is None else _owners(owners),
        "differences": _differences(account, held, state.models),
        "forecast": _forecast(name, state),
    }


def _other_devices(state: RunState) -> list[dict[str, Any]]:
    own = {each.device for each in state.worker.devices} | {each.device for each in state.devices}
    known = own | {card.device for card in state.cards}
    # What is wrong with NVML as a whole stands under a name of its own.
    failing = [DeviceFacts(device=name, backend="nvml", name="") for name in state.driver_errors if name not in known]
    return [_other_device(card, state) for card in (*state.cards, *failing) if card.device not in own]


def _other_device(card: DeviceFacts, state: RunState) -> dict[str, Any]:
    driver = state.driver.get(card.device)
    return {
        "device": card.device,
        "name": card.name,
        "uuid": card.uuid or None,
        "total_bytes": card.total_bytes if driver is None else driver.total_bytes,
        "used_bytes": driver.used_bytes if driver else None,
        "driver_error": state.driver_errors.get(card.device),
    }


def _owners(ledger: Mapping[str, int]) -> list[dict[str, Any]]:
    return [
        {"owner": each.owner.owner, "name": each.owner.name, "meaning": each.owner.meaning, "bytes": each.nbytes}
        for each in shares(ledger)
    ]


def _differences(
    account: Account | None, held: DeviceSnapshot | None, models: tuple[ModelSnapshot, ...]
) -> list[dict[str, Any]]:
    """What the last account explains; without one, what the allocator alone does."""
    if account is not None:
        told = differences(account.device, account.driver, account.models)
    else:
        told = differences(held, None, models) if held else ()
    return [each.as_json() for each in told]


def _residue(residue: Residue, state: RunState) -> dict[str, Any]:
    places = [
        {**each.as_json(), "growth_bytes": trend(state.levels.get((residue.model, each.where), ()))}
        for each in leftovers(residue)
    ]
    return {"model": residue.model, "after": residue.after, "places": places}


def _forecast(device: str, state: RunState) -> dict[str, Any] | None:
    levels = state.forecast.get(device)
    if levels is None:
        return None
    return {
        "allocated_bytes": levels.allocated_bytes,
        "reserved_bytes": levels.reserved_bytes,
        "allocated_error_bytes": state.forecast_error_bytes.get((device, ALLOCATED)),
        "reserved_error_bytes": state.forecast_error_bytes.get((device, RESERVED)),
    }


def _model(model: ModelSnapshot) -> dict[str, Any]:
    held = [(place, *model.bytes_on(place)) for place in model.places]
    return {
        "model": model.model,
        "state": model.residency.value,
        "architecture": model.architecture,
        "dtype": model.dtype,
        "quantization": model.quantization or None,
        "revision": model.revision or None,
        "parameters": model.parameters,
        "parameter_bytes": model.parameter_bytes,
        "file_bytes": model.file_bytes,
        "file_elements": model.file_elements,
        "context_window_tokens": model.context_window_tokens,
        "places": [{"device": place, "parameter_bytes": own, "buffer_bytes": buffers} for place, own, buffers in held],
        "groups": [asdict(group) for group in model.groups],
    }


def _running(running: RunningStep | None, now: float, targets: Mapping[str, float]) -> dict[str, Any] | None:
    if running is None:
        return None
    return {
        **asdict(running),
        "elapsed_seconds": max(0.0, now - running.started_at),
        "target_seconds": targets.get(running.step),
        "progress_ratio": running.bytes_done / running.bytes_total if running.bytes_total else None,
    }
