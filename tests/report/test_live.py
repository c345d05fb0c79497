import io

import pytest
from rich.console import Console

from vramscope.events import CycleEnded, CycleStarted, Outcome, PlanStarted, StepEnded, WorkerExited, WorkerStarted
from vramscope.report.live import Narrator
from vramscope.settings import DeviceMode

from ..picture import READY, back_and_gone, running, step, until_on_device  # noqa: TID252 - tests are not packages

URL = "http://127.0.0.1:10089/"


STARTED = [
    PlanStarted(at=1.0, plan="qwen-cycle", sha256="ab" * 32, path="demo.yaml", cycles=3),
    CycleStarted(at=1.0, cycle=1),
    WorkerStarted(at=1.0, pid=17),
]


def narrated(*stories, terminal=False, mode=DeviceMode.SIMULATED):
    stream = io.StringIO()
    narrator = Narrator(Console(file=stream, width=100, force_terminal=terminal, color_system=None), (URL,), mode)
    for story in stories:
        for event in story:
            narrator.on_event(event)
    narrator.close()
    return stream.getvalue()


def test_it_begins_with_where_to_look_the_device_and_why_it_was_chosen():
    text = narrated(until_on_device())
    assert f"look at {URL} (metrics: {URL}metrics)" in text
    assert "simulated device cuda:0: simulated 12 GiB" in text
    assert "torch 2.13.0+cpu is built without CUDA" in text
    assert "plan qwen-cycle (demo.yaml), 3 cycles" in text


def test_each_step_is_a_line_at_its_start_and_one_with_time_bytes_and_rate_at_its_end():
    lines = narrated(until_on_device()).splitlines()
    assert "  load qwen ..." in lines
    assert "  load qwen done in 1.25 s, 942.3 MiB at 942.3 MiB/s (read)" in lines
    assert "    resolve: 250 ms" in lines
    assert "    read: 1.00 s, 942.3 MiB at 942.3 MiB/s" in lines
    assert "  to the card (move qwen) done in 125 ms, 942.3 MiB at 7,538.3 MiB/s (copy)" in lines
    assert "    copy: 125 ms, 942.3 MiB at 7,538.3 MiB/s (set by --bandwidth, not measured)" in lines
    assert "  tokenize qwen done in 500 ms, 15 tokens" in lines


@pytest.mark.parametrize(
    ("share", "said"),
    [(0.0, "cold: 0 %"), (0.5, "partly warm: 50 %"), (1.0, "warm: 100 %")],
)
def test_a_load_says_whether_its_files_were_in_ram_already(share, said):
    text = narrated(step(1.0, "load", 2.0, facts={"page_cache_share": share}))
    assert f"load qwen done in 2.00 s, {said} of its files cached\n" in text
    assert "cached" not in narrated(step(1.0, "load", 2.0, facts={"page_cache_share": None}))


def test_the_end_is_told():
    lines = narrated(until_on_device(), back_and_gone()).splitlines()
    assert lines[-2:] == ["cycle 1 succeeded in 18.0 s", "plan succeeded"]


def test_a_failure_says_why():
    text = narrated(step(1.0, "load", 2.0, outcome=Outcome.TIMED_OUT, error="still reading"))
    assert "load qwen timed out in 2.00 s: still reading" in text


def test_only_an_unasked_end_of_the_worker_is_news():
    ended = {"at": 1.0, "pid": 1, "reason": "signal"}
    text = narrated(
        [WorkerExited(detail="killed by SIGKILL", expected=False, **ended)],
        [WorkerExited(detail="was told to end", expected=True, **ended)],
    )
    assert text == "worker: killed by SIGKILL\n"


def test_a_terminal_gets_a_bar_with_bytes_that_is_gone_afterwards():
    end = StepEnded(
        at=1.0, step="move qwen", kind="move", model="qwen", cycle=1, outcome=Outcome.SUCCEEDED, seconds=2.0
    )
    text = narrated(running(), [end], terminal=True)
    assert "471.1 of 942.3 MiB" in text
    assert "\x1b[?25h" in text, "the cursor is shown again"
    assert "move qwen done in 2.00 s" in text.splitlines()[-1]


@pytest.mark.parametrize("terminal", [True, False])
def test_names_are_text_and_no_markup(terminal):
    assert "[bold]x[/bold]" in narrated(step(1.0, "wait", 1.0, name="[bold]x[/bold]", model=""), terminal=terminal)


def test_where_to_look_is_told_when_there_is_a_worker_to_look_at():
    starting = "starting the worker (imports torch) ...\n"
    assert narrated(STARTED) == starting
    text = narrated(STARTED, [READY])
    assert text.startswith(f"{starting}plan qwen-cycle (demo.yaml), 3 cycles\nlook at {URL}")


def test_a_run_that_could_not_start_says_nothing_of_a_cycle():
    end = CycleEnded(at=2.0, cycle=1, outcome=Outcome.CANCELLED, seconds=1.0)
    assert narrated(STARTED, [end]) == "starting the worker (imports torch) ...\n"


def test_a_simulation_that_nobody_asked_for_is_a_warning_told_once():
    text = narrated(STARTED, [READY, READY], mode=DeviceMode.AUTO)
    assert text.count("WARNING: no GPU is used, because torch 2.13.0+cpu is built without CUDA") == 1
    assert "WARNING" not in narrated(STARTED, [READY])


@pytest.mark.parametrize(
    ("name", "told"), [("move m to cuda:0", "move m to cuda:0"), ("wait #2", "wait #2"), ("nap", "nap (wait)")]
)
def test_what_a_step_does_is_told_where_its_name_does_not_begin_with_it(name, told):
    kind = "move" if name.startswith("move") else "wait"
    line = narrated(step(1.0, kind, 1.0, name=name, model="m" if kind == "move" else "")).splitlines()[-1]
    assert line == f"  {told} done in 1.00 s"


def test_a_step_that_failed_has_no_rate():
    text = narrated(step(1.0, "load", 2.0, phases=[("read", 1.0, 5 << 20)], outcome=Outcome.FAILED, error="no"))
    assert "  load qwen failed in 2.00 s: no\n" in text


def test_a_rate_is_over_the_phases_that_handle_bytes():
    text = narrated(step(1.0, "load", 9.0, phases=[("import", 8.0, None), ("read", 0.5, 5 << 20)]))
    assert "load qwen done in 9.00 s, 5.0 MiB at 10.0 MiB/s (read)\n" in text


def test_a_dumb_terminal_gets_plain_lines(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    text = narrated(until_on_device(), running(), terminal=True)
    assert "  load qwen ...\n" in text
    assert "\x1b" not in text


def test_a_terminal_says_what_goes_on_while_no_bytes_are_counted():
    text = narrated(STARTED, list(running())[:2], terminal=True)
    assert "starting the worker (imports torch)" in text
    assert "move qwen: copy" in text
