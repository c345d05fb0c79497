"""The main job at full size: the demo plan on the simulated device, watched by a real Prometheus."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.daemon import Daemon, wait_for
from tests.prometheus import Prometheus, free_port

DEMO = Path(__file__).parents[2] / "deploy/plans/demo.yaml"

PARAMETERS = 494_032_768
PARAMETER_BYTES = 988_065_536
ALLOCATED = 996_322_304
RESERVED = 1_040_187_392
USED = 1_158_676_480
TOTAL = 12_884_901_888


# While the plan waits, the model is on the device and nothing changes.
AT_REST = 'vramscope_step_running{kind="wait"} == 1 and on() vramscope_model_state{state="device"} == 1'


@pytest.fixture
def demo(start: Callable[..., Daemon]) -> Daemon:
    if shutil.which("prometheus") is None:
        pytest.skip("Prometheus is not installed: apt-get install prometheus")
    return start(DEMO, "--device", "simulated")


@pytest.fixture
def prometheus(demo: Daemon, tmp_path: Path) -> Iterator[Prometheus]:
    server = Prometheus(tmp_path, demo.url.removeprefix("http://"), free_port())
    yield server
    server.stop()


@pytest.mark.timeout(300)
def test_demo_plan_shows_the_published_picture_to_prometheus(demo: Daemon, prometheus: Prometheus) -> None:
    at = wait_for("Prometheus seeing the model on the device", lambda: prometheus.moment(AT_REST), 120)
    assert prometheus.value("sum(vramscope_model_parameters)", at) == PARAMETERS
    assert prometheus.value("sum(vramscope_model_parameter_bytes)", at) == PARAMETER_BYTES
    assert prometheus.value('vramscope_torch_allocated_bytes{device="cuda:0"}', at) == ALLOCATED
    assert prometheus.value('vramscope_torch_reserved_bytes{device="cuda:0"}', at) == RESERVED
    assert prometheus.value('vramscope_nvml_process_used_bytes{device="cuda:0"}', at) == USED
    assert prometheus.value('vramscope_forecast_allocated_bytes{device="cuda:0"}', at) == ALLOCATED
    assert prometheus.value('vramscope_forecast_reserved_bytes{device="cuda:0"}', at) == RESERVED
    assert prometheus.value("sum(vramscope_ledger_bytes)", at) == TOTAL
    by_component = prometheus.query("sum by (component) (vramscope_model_parameters)", at)
    assert {labels["component"] for labels, _ in by_component} == {"embedding", "attention", "mlp", "norm"}
    assert sum(value for _, value in by_component) == PARAMETERS
    assert prometheus.value('count(vramscope_device_info{backend="simulated"})', at) == 1
    assert prometheus.value('vramscope_tokens{model="qwen"}', at)
    _promtool_accepts(demo.get("/metrics"))

    wait_for("the plan's end", lambda: demo.status()["plan"]["outcome"], 120)
    three = 'vramscope_cycles_total{outcome="succeeded"} == 3'
    at = wait_for("Prometheus seeing three good cycles", lambda: prometheus.moment(three))
    assert prometheus.value('vramscope_torch_allocated_bytes{device="cuda:0"}', at) == 0
    assert prometheus.value('vramscope_torch_reserved_bytes{device="cuda:0"}', at) == 0
    assert prometheus.query("vramscope_model_parameters", at) == []
    assert prometheus.value("sum(vramscope_ledger_bytes)", at) == TOTAL
    assert prometheus.value("avg_over_time(up[5m])", at) > 0.8, "a busy machine may be late now and then"
    assert prometheus.value("min(min_over_time(vramscope_collector_success[5m]))", at) == 1

    _was_foreseen_all_the_time(prometheus, at)

    rows = demo.status()["results"]
    assert [row["cycle"] for row in rows] == [1, 2, 3]
    assert {row["on_device"]["allocated_bytes"] for row in rows} == {ALLOCATED}
    assert demo.process.poll() is None, "the daemon must go on serving after the last cycle"
    assert demo.stop() == 0
    assert "494,032,768" in demo.output
    assert "simulated" in demo.output


def _was_foreseen_all_the_time(prometheus: Prometheus, at: float) -> None:
    """Measured was forecast after every step of every cycle, though the checkpoint was not there at the start."""
    errors = "vramscope_forecast_error_bytes[5m]"
    assert prometheus.value(f"count(last_over_time({errors}))", at) == 2  # allocated and reserved
    assert prometheus.value(f"min(count_over_time({errors}))", at) >= 5
    assert prometheus.value(f"max(max_over_time({errors}))", at) == 0
    assert prometheus.value(f"min(min_over_time({errors}))", at) == 0
    assert prometheus.value('vramscope_forecast_allocated_bytes{device="cuda:0"}', at) == 0
    assert prometheus.value('vramscope_forecast_reserved_bytes{device="cuda:0"}', at) == 0


def _promtool_accepts(page: str) -> None:
    checked = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
