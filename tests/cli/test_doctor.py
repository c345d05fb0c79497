import json

import pytest
import torch

from vramscope.cli import main

ORDER = ["problem", "warning", "note", "ok"]


@pytest.fixture
def environment(monkeypatch, tmp_path):
    monkeypatch.setenv("VRAMSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.mark.usefixtures("environment")
def test_the_json_has_a_row_for_each_check_and_the_exit_code_follows_it(capsys):
    code = main(["doctor", "--format", "json", "--device", "simulated"])
    told = json.loads(capsys.readouterr().out)
    assert {"driver", "nvml", "torch_build", "hub_cache", "wifi_power_save"} <= {row["check"] for row in told["checks"]}
    assert all({"check", "title", "state", "found", "advice", "seconds"} == row.keys() for row in told["checks"])
    assert told["would_run"] == (code == 0) == all(row["state"] != "problem" for row in told["checks"])


@pytest.mark.usefixtures("environment")
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_run_that_insists_on_cuda_is_stopped_where_there_is_none(capsys):
    assert main(["doctor", "--device", "cuda"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("problem CUDA start: torch sees no CUDA device") for line in lines)
    assert lines[-1].endswith(": a run would not start")


@pytest.mark.usefixtures("environment")
def test_plain_lines_can_be_searched(capsys):
    main(["doctor"])
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith((*ORDER, " ")) for line in lines[:-1])
    assert any(line.startswith("ok      torch: torch 2.") for line in lines)
