"""What a forecast starts from: asked of a worker once, then known without starting any process."""

import asyncio
import json
import sys
from collections.abc import Iterator

import pytest
import torch
from safetensors.torch import save_file

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
    """Directories with models of which nothing can be known, and what is said of each."""
    texts = {"none": None, "torn": '{"model_type":', "strange": '{"model_type": "strange"}', "empty": "{}"}
    for name, text in texts.items():
        (directory / name).mkdir(parents=True)
        if text is not None:
            (directory / name / "config.json").write_text(text)
    save_file({"w": torch.ones(4, 3).half()}, directory / "strange/model.safetensors")
    return {name: directory / name for name in texts}


def test_cold_it_asks_one_worker_and_then_none(tmp_path, settings, processes):
    places = unreadable(tmp_path / "models")
    named = ", ".join(f"{name}: {{source: '{path}'}}" for name, path in places.items())
    models = f"{{half: {{source: 'synthetic:tiny', dtype: float16}}, whole: {{source: 'synthetic:tiny', dtype: float32}}, {named}}}"
    cold = look(models, settings)
    assert processes.started == 1
    assert sorted(cold.orders) == ["half", "strange", "whole"]
    assert cold.orders["half"].parameter_bytes * 2 == cold.orders["whole"].parameter_bytes
    assert (cold.orders["half"].exact, cold.orders["half"].dtype) == (True, "float16")
    assert not (settings.cache / "tiny-v1").exists(), "nothing is made or loaded for a forecast"

    guess = cold.orders["strange"]
    assert (guess.exact, guess.nbytes) == (False, 24)
    assert "cannot be built" in guess.basis
    assert sorted(cold.problems) == ["empty", "none", "torn"]
    for name, problem in cold.problems.items():
        assert str(places[name]) in problem
        assert "\n" not in problem

    known = "{half: {source: 'synthetic:tiny', dtype: float16}, whole: {source: 'synthetic:tiny', dtype: float32}}"
    warm = look(known, settings)
    assert processes.started == 1
    assert warm.orders == {name: cold.orders[name] for name in ("half", "whole")}
    assert warm.problems == {}
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


def test_a_config_alone_that_cannot_be_built_is_a_problem(tmp_path, settings):
    for name, change in {"unknown": {"model_type": "strange"}, "broken": {"num_hidden_layers": "two"}}.items():
        (tmp_path / name).mkdir()
        config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **change}
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    models = "{" + ", ".join(f"{name}: {{source: '{tmp_path / name}'}}" for name in ("unknown", "broken")) + "}"
    found = look(models, settings, from_config=True)
    assert (sorted(found.problems), found.orders) == (["broken", "unknown"], {})
    assert all("config.json" in problem for problem in found.problems.values())
