import io

import pytest
from rich.console import Console

from vramscope.events import Outcome, StepEnded, WorkerExited
from vramscope.report.live import Narrator

from ..picture import back_and_gone, running, step, until_on_device  # noqa: TID252 - tests are not packages

URL = "http://127.0.0.1:10089/"


def narrated(*stories, terminal=False):
    stream = io.StringIO()
    narrator = Narrator(Console(file=stream, width=100, force_terminal=terminal, color_system=None), (URL,))
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
    assert "  load qwen done in 1.25 s, 942.3 MiB at 753.8 MiB/s" in lines
    assert "    resolve: 250 ms" in lines
    assert "    read: 1.00 s, 942.3 MiB at 942.3 MiB/s" in lines
    assert "  to the card (move qwen) done in 125 ms, 942.3 MiB at 7.36 GiB/s" in lines
    assert "  tokenize qwen done in 500 ms, 15 tokens" in lines


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
    assert "471.1/942.3 MiB" in text
    assert "\x1b[?25h" in text, "the cursor is shown again"
    assert "move qwen done in 2.00 s" in text.splitlines()[-1]


@pytest.mark.parametrize("terminal", [True, False])
def test_names_are_text_and_no_markup(terminal):
    assert "[bold]x[/bold]" in narrated(step(1.0, "wait", 1.0, name="[bold]x[/bold]", model=""), terminal=terminal)
