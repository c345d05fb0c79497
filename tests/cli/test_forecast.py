"""`vramscope forecast` as a user runs it, against a cache that one run has filled."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

MIB = 1 << 20
DEMO = Path(__file__).parents[2] / "deploy/plans/demo.yaml"
# meta-llama/Meta-Llama-3-70B: 70,553,706,496 parameters, 141 GB in bfloat16.
LLAMA_70B = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "bos_token_id": 128000,
    "eos_token_id": 128001,
    "hidden_act": "silu",
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "max_position_embeddings": 8192,
    "model_type": "llama",
    "num_attention_heads": 64,
    "num_hidden_layers": 80,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05,
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 128256,
}
PARAMETERS_70B = 70_553_706_496
# The published picture of the demo's model on the device: parameters, allocated, reserved, used; and its peak.
MOVED = ["942.3 MiB", "950.2 MiB", "992.0 MiB", "1,105.0 MiB"]
PEAK = "1,158,676,480 bytes used (1,105.0 MiB), 996,322,304 allocated and 1,040,187,392 reserved"
# Together some 12.2 GiB in float32, which is more than the 12 GiB that a card has without its context.
THREE = """\
version: 1
name: three
models:
  first: {source: synthetic:qwen2.5-1.5b, dtype: float32}
  second: {source: synthetic:llama-3.2-1b, dtype: float32}
  third: {source: synthetic:qwen2.5-0.5b, dtype: float32}
  qwen: {source: synthetic:qwen2.5-0.5b, dtype: float16}
steps:
  - load: {model: first, to: cuda:0}
  - load: second
  - move: second
  - load: {model: third, to: cuda:0}
  - unload: first
"""
GONE = "version: 1\nname: gone\nmodels: {m: {source: /no/such/model}}\nsteps: [{load: m}, {move: m}]\n"


@dataclass
class Ended:
    """A run that is over: what it said, and how many processes it took, each worker is one more."""

    code: int
    out: str
    err: str
    processes: int

    @property
    def lines(self):
        return self.out.splitlines()

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A directory with the plans, and with the cache after one forecast of each model."""
    directory = tmp_path_factory.mktemp("home")
    (directory / "three.yaml").write_text(THREE)
    (directory / "gone.yaml").write_text(GONE)
    forecast(directory, "three.yaml", "--device", "simulated")
    return directory


# Each interpreter that starts leaves a mark.
COUNTING = "import os\nwith open(os.environ['STARTS'], 'a') as starts:\n    starts.write('.')\n"


def forecast(directory, *arguments, **environment):
    counting, starts = directory / "counting", directory / "starts"
    counting.mkdir(exist_ok=True)
    (counting / "sitecustomize.py").write_text(COUNTING)
    starts.write_text("")
    path = os.pathsep.join([str(counting), *filter(None, [os.environ.get("PYTHONPATH")])])
    ended = subprocess.run(
        [sys.executable, "-m", "vramscope", "forecast", *map(str, arguments)],
        cwd=directory,
        env={
            **os.environ,
            "VRAMSCOPE_CACHE": str(directory / "cache"),
            "PYTHONPATH": path,
            "STARTS": str(starts),
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr, len(starts.read_text()))


def test_the_demo_plan_as_a_table(home):
    ended = forecast(home, DEMO)
    assert (ended.code, ended.err) == (0, "")
    assert ended.lines[0] == "simulated device cuda:0: 12,288.0 MiB, context 113.0 MiB, others hold 0.0 MiB"
    assert ended.lines[1].rstrip() == "Forecast of qwen-cycle"
    rows = [[cell.strip() for cell in line.strip("│ ").split("│")] for line in ended.lines if line.startswith("│")]
    assert len(rows) == 16
    assert rows[2] == ["1", "19", "move qwen to cuda:0", "0.0 MiB", "cuda:0", *MOVED]
    assert rows[15] == ["2", "24", "release", "0.0 MiB", "cuda:0", "0.0 MiB", "0.0 MiB", "0.0 MiB", "113.0 MiB"]
    assert ended.lines[-2:] == [
        "the plan runs 3 cycles; from cycle 3 on every cycle is as cycle 2",
        f"peak on cuda:0: {PEAK}, after 'move qwen to cuda:0'",
    ]


def test_the_demo_plan_as_json(home):
    ended = forecast(home, DEMO, "--format", "json", "--cycles", 1)
    assert (ended.code, ended.err) == (0, "")
    found = ended.json
    steps = found.pop("steps")
    assert found == {
        "plan": "qwen-cycle",
        "backend": "simulated",
        "first_misfit": None,
        "cycles": 1,
        "period": 0,
        "notes": [],
    }
    assert len(steps) == 8
    assert steps[2] == {
        "cycle": 1,
        "step": "move qwen to cuda:0",
        "kind": "move",
        "model": "qwen",
        "line": 19,
        "fits": True,
        "host_bytes": 0,
        "devices": {
            "cuda:0": {
                "parameter_bytes": 988_065_536,
                "buffer_bytes": 256,
                "allocated_bytes": 996_322_304,
                "reserved_bytes": 1_040_187_392,
                "used_bytes": 1_158_676_480,
            }
        },
    }
    assert steps[1]["host_bytes"] == 988_065_792


def test_from_the_cache_no_worker_is_needed(home):
    assert forecast(home, DEMO).processes == 1


def test_the_first_model_that_does_not_fit_is_told_with_its_line_and_what_would_help(home):
    ended = forecast(home, "three.yaml")
    assert ended.code == 1
    told = next(index for index, line in enumerate(ended.lines) if line.startswith("three.yaml:"))
    misfit = forecast(home, "three.yaml", "--format", "json").json["first_misfit"]
    shortfall = misfit["shortfall_bytes"]
    assert 0 < shortfall < 1024 * MIB
    needed = f"{shortfall:,} bytes ({shortfall / MIB:,.1f} MiB) more are needed"
    assert ended.lines[told:] == [
        f"three.yaml:12: step 'load third' does not fit on cuda:0 in cycle 1: {needed}",
        "  with model 'first' moved to cpu before it, it fits",
        "  with model 'second' moved to cpu before it, it fits",
        "  with dtype float16 or bfloat16 for model 'third', it fits",
    ]
    assert "does not fit" in ended.out
    assert "not reached" in ended.out

    capacity = 12 * 1024 * MIB + shortfall
    assert forecast(home, "three.yaml", "--capacity", f"cuda:0={capacity}").code == 0
    assert forecast(home, "three.yaml", "--capacity", f"cuda:0={capacity - 2 * MIB}").code == 1


def test_a_misfit_in_json(home):
    ended = forecast(home, "three.yaml", "--format", "json", "--capacity", "cuda:0=9GiB")
    found = ended.json
    assert ended.code == 1
    assert [step["fits"] for step in found["steps"]] == [True, True, False, None, None]
    assert found["steps"][2]["devices"] == {}
    assert found["steps"][2]["host_bytes"] is None
    misfit = found["first_misfit"]
    assert {key: misfit[key] for key in ("cycle", "step", "line", "device")} == {
        "cycle": 1,
        "step": "move second to cuda:0",
        "line": 11,
        "device": "cuda:0",
    }
    assert misfit["message"].startswith("out of memory: ")
    assert misfit["remedies"]


def test_a_model_that_cannot_be_read_is_told_and_the_rest_is_not_guessed(home):
    ended = forecast(home, "gone.yaml", "--device", "simulated")
    assert (ended.code, ended.err) == (1, "")
    assert "note: model 'm': '/no/such/model': no such file or directory" in ended.out
    assert "note: step 'load m' (line 4): nothing is known about model 'm'; other models' figures" in ended.out


AWAY = """\
version: 1
name: away
models:
  away: {source: org/name, download: if-missing}
  tiny: {source: "synthetic:tiny"}
steps:
  - load: away
  - load: {model: tiny, to: cuda:0}
  - unload: away
  - unload: tiny
"""


def test_of_a_model_that_is_not_downloaded_it_says_how_to_get_it_and_tells_the_others(home, tmp_path):
    (home / "away.yaml").write_text(AWAY)
    hub = {"HF_HUB_CACHE": str(tmp_path / "hub")}
    ended = forecast(home, "away.yaml", "--device", "simulated", **hub)
    assert (ended.code, ended.err) == (1, "")
    rows = [[cell.strip() for cell in line.strip("│ ").split("│")] for line in ended.lines if line.startswith("│")]
    assert [row[4] for row in rows] == ["not known", "cuda:0", "not known", "cuda:0"]
    for sentence in (
        "'away': org/name: not in the hub cache",
        "(fetch it with `hf download org/name`)",
        "note: model 'away': a run of this plan downloads it; a forecast downloads nothing",
        "its config is enough for a forecast: `hf download org/name config.json`, and --from-config",
    ):
        assert sentence in ended.out

    snapshot = tmp_path / "hub/models--org--name/snapshots/abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(
        json.dumps(
            {**LLAMA_70B, "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128, "vocab_size": 1000}
        )
    )
    (home / "away.yaml").write_text(AWAY.replace("download", "revision: abc, download"))
    ended = forecast(home, "away.yaml", "--device", "simulated", "--from-config", **hub)
    assert ended.code == 0
    assert "not known" not in ended.out


def test_an_allocator_that_is_not_modelled_is_told(home):
    ended = forecast(home, DEMO, PYTORCH_ALLOC_CONF="expandable_segments:True")
    assert ended.code == 0
    assert ended.lines[-1] == (
        "note: torch's allocator is configured with expandable_segments:True, which is not modelled: "
        "no figure is a promise"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cycles", "0"], "vramscope: --cycles: expected 1 or more, got 0\n"),
        (["--capacity", "12GiB"], "vramscope: --capacity: '12GiB' is not DEVICE=SIZE"),
        (["--context", "many"], "vramscope: --context: "),
        (["--from-confg"], "usage: "),
    ],
)
def test_misuse_is_told_on_standard_error(home, arguments, message):
    ended = forecast(home, DEMO, *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(message)


def test_a_plan_that_is_wrong_is_told_as_check_tells_it(home):
    (home / "wrong.yaml").write_text("version: 1\nmodels: {}\nsteps: [{lod: m}]\n")
    ended = forecast(home, "wrong.yaml")
    assert (ended.code, ended.out) == (1, "")
    assert "wrong.yaml:3:" in ended.err
    assert 'did you mean "load"?' in ended.err


def test_a_large_model_is_forecast_from_its_config_alone(tmp_path):
    (tmp_path / "llama-70b").mkdir()
    (tmp_path / "llama-70b/config.json").write_text(json.dumps(LLAMA_70B))
    models = "models: {llama: {source: ./llama-70b}}"
    (tmp_path / "plan.yaml").write_text(
        f"version: 1\nname: large\n{models}\nsteps: [load: {{model: llama, to: cuda:0}}]\n"
    )
    options = ("plan.yaml", "--from-config", "--capacity", "cuda:0=160GiB", "--format", "json")
    cold, warm = forecast(tmp_path, *options), forecast(tmp_path, *options)
    assert (cold.code, cold.err) == (0, "")
    assert cold.processes == 2
    assert warm.out == cold.out
    assert warm.processes == 1
    (step,) = cold.json["steps"]
    held = step["devices"]["cuda:0"]
    assert held["parameter_bytes"] == 2 * PARAMETERS_70B
    assert held["parameter_bytes"] + held["buffer_bytes"] <= held["allocated_bytes"] <= held["reserved_bytes"]
    assert cold.json["notes"] == [
        "model 'llama': without its files, a load straight to a device is taken to be in the order of a move"
    ]
    without = forecast(tmp_path, *(option for option in options if option != "--from-config"))
    assert without.code == 1
    assert "llama-70b" in without.json["notes"][0]
