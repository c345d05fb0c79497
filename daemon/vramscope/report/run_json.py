"""A run as JSON values. Unknown is null or left out; sizes are bytes, durations seconds, times seconds of the epoch."""

from typing import Any

from vramscope.memory.leftovers import leftovers
from vramscope.report.run import ReadRun
from vramscope.report.story import Foreseen, StepTimes
from vramscope.report.thinned import Spread


def run_json(run: ReadRun) -> dict[str, Any]:
    """Everything that a report shows, but the points of its charts."""
    story, state = run.story, run.story.store.state
    return {
        "journal": str(run.path),
        "run": story.number,
        "runs": run.runs,
        "began_at": story.began,
        "last_at": story.last_at,
        "plan": {
            "name": state.plan.name,
            "path": state.plan.path,
            "sha256": state.plan.sha256,
            "outcome": state.plan.outcome,
        },
        "backend": state.worker.backend,
        "reason": state.worker.reason,
        "versions": {name: text for name, text in story.versions.items() if text},
        "devices": {each.device: {"name": each.name, "total_bytes": each.total_bytes} for each in state.worker.devices},
        "cycles_started": story.cycles_started,
        "cycles": dict(story.cycles),
        "cycle_seconds": _spread(story.cycle_seconds),
        "worker_restarts": dict(story.restarts),
        "results": [row.as_json() for row in story.results.rows()],
        "steps": [_step(each) for each in story.steps.values()],
        "peaks": {device: peak.nbytes for device, peak in story.peaks.items()},
        "forecast": [_foreseen(each) for each in story.foreseen.values()],
        "residue": [
            {"model": model, "where": where, "cycles": [{"cycle": cycle, "bytes": nbytes} for cycle, nbytes in series]}
            for (model, where), series in story.residues.items()
        ],
        "left_behind": {
            model: [left.as_json() for left in leftovers(residue)] for model, residue in state.residues.items()
        },
        "faults": [{"at": each.at, "what": each.what, "detail": each.detail} for each in state.faults],
        "notes": list(run.notes),
    }


def _spread(spread: Spread) -> dict[str, float | int] | None:
    median = spread.median
    if median is None:
        return None
    return {"count": spread.count, "median": median, "least": spread.least, "most": spread.most}


def _step(step: StepTimes) -> dict[str, Any]:
    phases = {
        name: {"seconds": _spread(spread), "bytes": step.nbytes.get(name)} for name, spread in step.phases.items()
    }
    runs = dict(step.runs)
    return {
        "step": step.step,
        "kind": step.kind,
        "model": step.model,
        "runs": runs,
        "seconds": _spread(step.seconds),
        "phases": phases,
    }


def _foreseen(each: Foreseen) -> dict[str, Any]:
    return {
        "step": each.step,
        "device": each.device,
        "forecast_bytes": each.forecast,
        "measured_bytes": each.measured,
        "compared": each.compared,
        "largest_error_bytes": each.largest_error_bytes,
        "cause": each.cause,
    }
