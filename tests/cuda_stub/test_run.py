"""The demo plan at full size on CUDA, by the daemon that a user starts: the published figures of an RTX 3060."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cuda_stub.watched_daemon import watched

pytestmark = pytest.mark.cuda_stub

PLANS = Path(__file__).parents[2] / "deploy/plans"
MIB = 1 << 20

PARAMETERS = 494_032_768
PARAMETER_BYTES = 988_065_536
BUFFER_BYTES = 256
ALLOCATED = 996_322_304
RESERVED = 1_040_187_392
USED = 1_158_676_480
CONTEXT = 113 * MIB
TOTAL = 12_288 * MIB
ON_DEVICE = {
    "parameters": PARAMETER_BYTES,
    "buffers": BUFFER_BYTES,
    "allocator_rounding": ALLOCATED - PARAMETER_BYTES - BUFFER_BYTES,
    "allocator_cache": RESERVED - ALLOCATED,
    "cuda_context": CONTEXT,
    "other_processes": 0,
    "driver_reserved": 0,
    "free": TOTAL - USED,
}


@pytest.fixture(scope="module")
def rtx_3060(shared_machine):
    shared_machine.configure(total_mib=12288, context_mib=113, data="discard")
    return shared_machine


@pytest.fixture(autouse=True)
def _mended(rtx_3060):
    yield
    rtx_3060.mend()
    rtx_3060.configure(baseline_mib=0)


@pytest.fixture(scope="module")
def demo_plan(tmp_path_factory):
    """The demo plan with less to wait for."""
    text = (PLANS / "demo.yaml").read_text()
    for old, new in (("wait: 3s ", "wait: 1500ms "), ("repeat: 3\n", "repeat: 2\n")):
        assert text.count(old) == 1
        text = text.replace(old, new)
    path = tmp_path_factory.mktemp("plan") / "demo.yaml"
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def demo(rtx_3060, demo_plan, checkpoint_cache):
    """The daemon after its last cycle, still serving, with all that it was seen to say."""
    with watched([str(demo_plan), "--device", "cuda"], checkpoint_cache, rtx_3060.env()) as daemon:
        daemon.wait_until("the plan's end", lambda _: daemon.status()["plan"]["outcome"], 100)
        daemon.wait_until("a look at the driver after it", lambda scrape: scrape.total("vramscope_nvml_used_bytes"))
        yield daemon


def waiting(daemon):
    """The scrapes while the model was on the device and nothing moved."""
    found = [scrape for scrape in daemon.scrapes if scrape.is_running("wait")]
    assert len(found) > 5
    return found


def test_every_cycle_succeeds(demo):
    assert demo.total("vramscope_cycles_total", outcome="succeeded") == 2
    assert demo.total("vramscope_cycles_total") == 2
    assert demo.status()["faults"] == []


@pytest.mark.parametrize(
    ("metric", "value"),
    [
        ("vramscope_model_parameters", PARAMETERS),
        ("vramscope_model_parameter_bytes", PARAMETER_BYTES),
        ("vramscope_model_buffer_bytes", BUFFER_BYTES),
        ("vramscope_torch_allocated_bytes", ALLOCATED),
        ("vramscope_torch_reserved_bytes", RESERVED),
        ("vramscope_forecast_allocated_bytes", ALLOCATED),
        ("vramscope_forecast_reserved_bytes", RESERVED),
        ("vramscope_nvml_process_used_bytes", USED),
        ("vramscope_nvml_used_bytes", USED),
        ("vramscope_nvml_total_bytes", TOTAL),
    ],
)
def test_figures_on_the_device_are_the_published_ones(demo, metric, value):
    assert {scrape.total(metric, device="cuda:0") for scrape in waiting(demo)} == {value}


def test_every_byte_of_the_device_has_the_right_owner(demo):
    assert [scrape.owners() for scrape in waiting(demo)] == [ON_DEVICE] * len(waiting(demo))


def test_ledger_adds_up_in_every_scrape_and_nobody_owns_less_than_nothing(demo):
    ledgers = [owners for scrape in demo.scrapes if (owners := scrape.owners())]
    assert len(ledgers) > 30
    assert {sum(owners.values()) for owners in ledgers} == {TOTAL}
    assert [owners for owners in ledgers if min(owners.values()) < 0] == []
    assert {owners.get("cuda_context") for owners in ledgers} <= {0, CONTEXT}


def test_forecast_is_never_off_by_a_byte(demo):
    errors = [scrape.samples.get("vramscope_forecast_error_bytes", {}) for scrape in demo.scrapes]
    assert sum(map(bool, errors)) > 30
    assert {value for series in errors for value in series.values()} == {0}
    assert not demo.status()["forecast_lost"]


def test_after_the_last_release_only_the_context_is_left(demo):
    last = demo.scrapes[-1]
    assert [last.total(f"vramscope_torch_{quantity}_bytes") for quantity in ("allocated", "reserved")] == [0, 0]
    assert last.total("vramscope_nvml_process_used_bytes") == CONTEXT
    assert last.owners() == {**dict.fromkeys(ON_DEVICE, 0), "cuda_context": CONTEXT, "free": TOTAL - CONTEXT}


def test_it_is_called_a_device_and_nowhere_simulated(demo):
    assert demo.total("vramscope_device_info", backend="cuda", name="Stub GeForce RTX 3060") == 1
    assert demo.total("vramscope_worker_info", backend="cuda") == 1
    assert "device cuda:0: Stub GeForce RTX 3060, 12.00 GiB (asked for by --device cuda)" in demo.output
    assert "Results on device cuda:0, Stub GeForce RTX 3060" in demo.output
    assert "allocated 950.2 MiB (996,322,304), reserved 992.0 MiB (1,040,187,392)" in demo.output
    assert "1,105.0 MiB (1,158,676,480)" in demo.output
    assert "simulated" not in demo.output
    assert "simulated" not in demo.get("/status")


# The last of those that look at the demo's daemon.
def test_the_end_of_the_daemon_gives_the_context_back(demo, rtx_3060):
    scrapes = demo.scrapes
    assert demo.end() == 0
    assert demo.refusals == []
    assert max(scrape.seconds for scrape in scrapes) < 1
    assert rtx_3060.used_mib() == [0]


def test_auto_takes_cuda_says_why_and_runs_every_kind_of_step(rtx_3060, checkpoint_cache):
    plan = PLANS / "tiny.yaml"
    command = [sys.executable, "-m", "vramscope", "run", str(plan), "--once", "--listen", "127.0.0.1:0"]
    done = subprocess.run(
        command,
        env=rtx_3060.env(VRAMSCOPE_CACHE=str(checkpoint_cache)),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "device cuda:0: Stub GeForce RTX 3060, 12.00 GiB (torch sees 1 CUDA device(s))" in done.stdout
    assert done.stderr == ""


class Forecast:
    """`vramscope forecast` on CUDA, with a cache of its own that held nothing before the first call."""

    def __init__(self, machine, plan, cache):
        self._machine, self._plan, self.cache = machine, plan, cache
        self.first = self()

    def __call__(self):
        command = [sys.executable, "-m", "vramscope", "forecast", str(self._plan), "--device", "cuda"]
        environment = self._machine.env(VRAMSCOPE_CACHE=str(self.cache))
        command += ["--format", "json"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode in {0, 1}, done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def forecast(rtx_3060, demo_plan, tmp_path_factory):
    return Forecast(rtx_3060, demo_plan, tmp_path_factory.mktemp("cache"))


def test_forecast_needs_no_checkpoint_to_be_right(forecast):
    assert (forecast.first["backend"], forecast.first["first_misfit"], forecast.first["notes"]) == ("cuda", None, [])
    on_device = next(step for step in forecast.first["steps"] if step["kind"] == "wait")["devices"]["cuda:0"]
    assert on_device == {
        "parameter_bytes": PARAMETER_BYTES,
        "buffer_bytes": BUFFER_BYTES,
        "allocated_bytes": ALLOCATED,
        "reserved_bytes": RESERVED,
        "used_bytes": USED,
    }
    assert [entry for entry in forecast.cache.iterdir() if entry.name.startswith("qwen")] == []


def test_forecast_measures_the_context_once_and_then_needs_no_worker(rtx_3060, forecast):
    rtx_3060.fail("cuda*", 999)  # a worker could do nothing now
    assert forecast() == forecast.first


def test_forecast_counts_what_others_hold_now(rtx_3060, forecast):
    rtx_3060.configure(baseline_mib=(TOTAL - USED) // MIB)
    fits = forecast()
    assert fits["first_misfit"] is None
    assert fits["steps"][2]["devices"]["cuda:0"]["used_bytes"] == TOTAL
    rtx_3060.configure(baseline_mib=(TOTAL - USED) // MIB + 1)
    tight = forecast()
    assert tight["first_misfit"]["step"] == "move qwen to cuda:0"
    assert tight["first_misfit"]["shortfall_bytes"] == 2 * MIB  # the driver gives out pages of 2 MiB
