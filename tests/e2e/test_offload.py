"""The plan of a model in parts, with the tiny model in place of the large one."""

import re
from collections.abc import Callable
from pathlib import Path

from tests.daemon import Daemon, wait_for

OFFLOAD = Path(__file__).parents[2] / "deploy/plans/offload.yaml"
DEVICES = ("--device", "simulated", "--capacity", "cuda:1=12GiB")


def smaller() -> str:
    """The same steps for the tiny model, whose two layers are halved as the 24 of the large one are."""
    text = OFFLOAD.read_text(encoding="utf-8")
    for old, new in (("qwen2.5-0.5b", "tiny"), ("12-23", "1"), ("0-11", "0"), ("wait: 2s", "wait: 300ms")):
        assert old in text
        text = text.replace(old, new)
    return text


def test_the_plan_of_a_model_in_parts_comes_through_as_it_was_foreseen(
    start: Callable[..., Daemon], write_plan: Callable[[str], Path]
) -> None:
    daemon = start(write_plan(smaller()), *DEVICES)
    status = wait_for("the plan's end", lambda: (now := daemon.status())["plan"]["outcome"] and now)
    assert status["plan"]["outcome"] == "succeeded", daemon.output
    assert status["faults"] == []
    assert status["models"] == []
    (row,) = status["results"]
    assert (row["device"], row["earlier_devices"], row["lives"]) == ("cuda:1", ["cuda:0"], None)
    assert row["move_seconds"] > 0
    assert row["forecast"] == row["on_device"]
    gone = {"allocated_bytes": 0, "reserved_bytes": 0}
    assert row["after_release"] == gone
    assert [{key: device["allocator"][key] for key in gone} for device in status["devices"]] == [gone, gone]
    errors = daemon.samples()["vramscope_forecast_error_bytes"]
    assert (len(errors), set(errors.values())) == (4, {0})
    places = r"mixed: [\d.]+ \wi?B cpu, [\d.]+ \wi?B cuda:0"
    assert re.search(rf"load qwen done in .*, {places}", daemon.output)
    assert daemon.stop() == 0
