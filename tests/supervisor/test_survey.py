"""What a forecast starts from: asked of a worker once, then known without starting any process."""

import asyncio
import json
import sys
from collections.abc import Iterator

import pytest

from vramscope.forecast.predict import DeviceBudget
from vramscope.plan.parse import parse_plan
from vramscope.settings import DeviceMode, SimulationSettings, WorkerSettings
from vramscope.steps._catalog import step_kinds
from vramscope.supervisor.survey import Survey, survey

MIB = 1 << 20


class Processes:
    """Counts the processes that this one starts, as the interpreter itself tells it."""

    def __init__(self) -> None:
        self.started = 0

    def hear(self, event: str, _arguments: tuple[object, ...]) -> None:
        if event in ("subprocess.Popen", "os.fork", "os.posix_spawn"):
            self.started += 1


_COUNTING: list[Processes] = []


def _hear(event: str, arguments: tuple[object, ...]) -> None:
    for processes in _COUNTING:
        processes.hear(event, arguments)


sys.addaudithook(_hear)  # there is no way to take one away again, so it is one for all tests


@pytest.fixture
def processes() -> Iterator[Processes]:
    _COUNTING.append(Processes())
    yield _COUNTING[0]
    _COUNTING.clear()


@pytest.fixture
def settings(tmp_path):
    simulation = SimulationSettings(
        capacity_bytes={"cuda:0": 900 * MIB, "cuda:1": 500 * MIB}, context_bytes=7 * MIB, other_bytes=3 * MIB
    )
    return WorkerSettings(
        device_mode=DeviceMode.SIMULATED, simulation=simulation, cache=tmp_path / "cache", hub_cache=tmp_path / "hub"
    )


def look(models: str, settings: WorkerSettings, *, from_config: bool = False) -> Survey:
    text = f"version: 1\nmodels: {models}\nsteps: [{{wait: 1s}}]\n"
    plan = parse_plan(text.encode(), "plan.yaml", step_kinds())
    return asyncio.run(survey(plan, settings, from_config=from_config))


def unreadable(directory):
    """Directories with configs of which no model can be made; only the last two need transformers to find that out."""
    llama = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
    texts = {
        "none": None,
        "torn": '{"model_type":',
        "empty": "{}",
        "strange": '{"model_type": "strange"}',
        "broken": json.dumps({**llama, "num_hidden_layers": "two"}),
    }
    for name, text in texts.items():
        (directory / name).mkdir(parents=True)
        if text is not None:
            (directory / name / "config.json").write_text(text)
    return {name: directory / name for name in texts}


def test_cold_it_asks_one_worker_and_then_none(tmp_path, settings, processes):
    places = unreadable(tmp_path / "models")
    named = ", ".join(f"{name}: {{source: '{path}'}}" for name, path in places.items())
    known = "half: {source: 'synthetic:tiny', dtype: float16}, whole: {source: 'synthetic:tiny', dtype: float32}"
    cold = look(f"{{{known}, {named}}}", settings, from_config=True)
    assert processes.started == 1
    assert sorted(cold.orders) == ["half", "whole"]
    assert cold.orders["half"].parameter_bytes * 2 == cold.orders["whole"].parameter_bytes
    assert (cold.orders["half"].exact, cold.orders["half"].dtype) == (True, "float16")
    assert not (settings.cache / "tiny-v1").exists(), "nothing is made or loaded for a forecast"
    assert sorted(cold.problems) == sorted(places)
    for problem in cold.problems.values():
        assert "config.json" in problem
        assert "\n" not in problem

    warm = look(f"{{{known}}}", settings)
    assert processes.started == 1
    assert (warm.orders, warm.problems) == (cold.orders, {})
    assert (warm.backend, warm.budgets, warm.notes) == (cold.backend, cold.budgets, ())


def test_simulated_devices_are_as_the_settings_say(settings, processes):
    found = look("{}", settings)
    assert found.backend == "simulated"
    assert found.budgets == {
        "cuda:0": DeviceBudget(total_bytes=900 * MIB, context_bytes=7 * MIB, other_bytes=3 * MIB),
        "cuda:1": DeviceBudget(total_bytes=500 * MIB, context_bytes=7 * MIB, other_bytes=3 * MIB),
    }
    assert processes.started == 0


def test_a_model_that_cannot_be_read_is_a_problem_and_no_reason_to_start_a_worker(tmp_path, settings, processes):
    (tmp_path / "cut.safetensors").write_bytes(b"\x10")
    sources = {"gone": "/no/such/model", "hub": "org/none", "cut": tmp_path / "cut.safetensors", "long": "x" * 5000}
    models = "{" + ", ".join(f"{name}: {{source: '{source}'}}" for name, source in sources.items()) + "}"
    for from_config in (False, True):
        found = look(models, settings, from_config=from_config)
        assert (sorted(found.problems), found.orders) == (sorted(sources), {})
    assert processes.started == 0
