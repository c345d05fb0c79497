"""A plan that downloads its model, from a stand-in of the hub, beside everything else that a run shows."""

import json
from pathlib import Path

import pytest
from tests.daemon import wait_for
from tests.loading.checkpoints import save_checkpoint
from tests.loading.hub_server import Drop, HubServer, serving

TOKEN = "hf_secretsecretsecret"  # noqa: S105 - nobody's
PLAN = """\
version: 1
models: {qwen: {source: org/name}}
repeat: 1
steps:
  - fetch: qwen
  - load: qwen
  - move: {model: qwen, to: cuda:0}
  - unload: qwen
"""


@pytest.fixture
def hub(tmp_path, monkeypatch):
    with serving(HubServer()) as server:
        server.add("org/name", save_checkpoint("qwen2", tmp_path / "model", vocab_size=60_000))
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        yield server


def steps(daemon):
    return {step["step"]: step for step in daemon.status()["steps"]}


def test_a_download_is_a_step_of_its_own_and_the_load_after_it_is_forecast(hub, start, write_plan):
    hub.drops = [Drop(after_bytes=3 << 19)]
    daemon = start(write_plan(PLAN), "--device", "simulated", "--log-level", "info", "--log-format", "json")
    wait_for("the end", lambda: daemon.status()["plan"]["outcome"] or None)
    told = steps(daemon)
    assert [step["outcome"] for step in told.values()] == ["succeeded"] * 4
    assert told["fetch qwen"]["facts"]["downloaded_bytes"] > 3_000_000
    assert told["load qwen"]["facts"]["page_cache_share"] == pytest.approx(1.0, abs=0.5)
    assert "downloaded_bytes" not in told["load qwen"]["facts"]
    phases = daemon.samples()["vramscope_phase_bytes"]
    downloaded = {dict(labels)["kind"]: value for labels, value in phases.items() if ("phase", "download") in labels}
    assert set(downloaded) == {"fetch"}
    assert downloaded["fetch"] > 3_000_000
    error = daemon.samples()["vramscope_forecast_error_bytes"]
    assert set(error.values()) == {0.0}
    assert TOKEN not in daemon.output + json.dumps(daemon.status())
    assert f"Bearer {TOKEN}" in hub.tokens


def test_a_fetch_that_takes_too_long_fails_and_the_next_cycle_goes_on_behind_it(hub, start, write_plan, tmp_path):
    hub.stalls_after_bytes = 3 << 19
    plan = PLAN.replace("- fetch: qwen", "- {fetch: qwen, timeout: 8s}").replace("repeat: 1", "repeat: forever")
    daemon = start(write_plan(plan), "--device", "simulated")

    def parts() -> list[Path]:
        return [path for path in tmp_path.glob("hub/*/blobs/*.incomplete") if path.stat().st_size >= 1 << 20]

    wait_for("a part of the weights", parts)
    wait_for("a fetch that ran out of time", lambda: "timed out" in daemon.output)
    hub.stalls_after_bytes = None
    wait_for("a load", lambda: steps(daemon).get("load qwen", {}).get("outcome") == "succeeded")
    assert any(asked for asked in hub.asked("model.safetensors"))  # a range: not from the start


def test_a_fetch_that_runs_out_of_time_while_it_tries_again_tells_why(hub, start, write_plan):
    hub.refusals["org/name"] = 429, {"Retry-After": "30"}
    plan = PLAN.replace("- fetch: qwen", "- {fetch: qwen, timeout: 5s}").replace("repeat: 1", "repeat: forever")
    daemon = start(write_plan(plan), "--device", "simulated")
    told = "not done after its timeout of 5 s; last failure: org/name: the hub wants fewer requests (HTTP 429)"
    wait_for("the reason", lambda: told in (steps(daemon).get("fetch qwen", {}).get("error") or ""))


def test_without_an_address_of_the_hub_a_download_is_refused_by_name_and_all_else_runs(
    hub, start, write_plan, monkeypatch
):
    """huggingface_hub itself cannot be imported with such an HF_ENDPOINT."""
    monkeypatch.setenv("HF_ENDPOINT", "http://[::bad")
    models = "{qwen: {source: org/name}, tiny: {source: 'synthetic:tiny'}}"
    plan = f"version: 1\nmodels: {models}\nsteps: [{{load: tiny}}, {{fetch: qwen}}]\n"
    daemon = start(write_plan(plan), "--device", "simulated")
    wait_for("the end", lambda: daemon.status()["plan"]["outcome"] or None)
    told = steps(daemon)
    assert told["load tiny"]["outcome"] == "succeeded"
    assert "HF_ENDPOINT=http://[::bad is no address" in told["fetch qwen"]["error"]
    assert hub.requests == []
