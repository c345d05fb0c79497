"""What a person reads before starting a plan."""

import io

import pytest
from rich.console import Console
from tests.forecast.sketch import CARD, card, ground, model, plan_of

from vramscope.forecast.walk import Ground, forecast_plan
from vramscope.report.forecast_table import print_forecast
from vramscope.supervisor.survey import Survey

CYCLE = "- load: a\n- move: a\n- move: {model: a, to: cpu}\n- unload: a\n"


def shown(steps, on, repeat="1", *, cycles=None, notes=(), **options):
    plan = plan_of(steps, list(on.orders), repeat)
    found = forecast_plan(plan, on, plan.repeat if cycles is None else cycles)
    backend = options.pop("backend", "simulated")
    known = Survey(backend=backend, orders=dict(on.orders), problems={}, budgets=dict(on.budgets))
    stream = io.StringIO()
    print_forecast(plan, known, found, notes, Console(file=stream, color_system=None, **options))
    return stream.getvalue()


def rows_of(text):
    return [[cell.strip() for cell in line[1:-1].split("│")] for line in text.splitlines() if line.startswith("│")]


def test_the_device_comes_first_and_says_whether_it_is_simulated():
    on = Ground(orders={"a": model(12)}, budgets={CARD: card(100, 5, 7)})
    facts = "cuda:0: 100.0 MiB, context 5.0 MiB, others hold 7.0 MiB"
    assert shown(CYCLE, on).splitlines()[0] == f"simulated device {facts}"
    assert shown(CYCLE, on, backend="cuda").splitlines()[0] == f"device {facts}"


def test_each_step_is_a_row_with_cycle_line_ram_and_the_devices_figures():
    on = Ground(orders={"a": model(12, 0.5)}, budgets={CARD: card(100, 5)})
    assert rows_of(shown(CYCLE, on)) == [
        ["1", "5", "load a", "12.5 MiB", "cuda:0", "0.0 MiB", "0.0 MiB", "0.0 MiB", "0.0 MiB"],
        ["1", "6", "move a to cuda:0", "0.0 MiB", "cuda:0", "12.5 MiB", "12.5 MiB", "14.0 MiB", "19.0 MiB"],
        ["1", "7", "move a to cpu", "12.5 MiB", "cuda:0", "0.0 MiB", "0.0 MiB", "14.0 MiB", "19.0 MiB"],
        ["1", "8", "unload a", "0.0 MiB", "cuda:0", "0.0 MiB", "0.0 MiB", "14.0 MiB", "19.0 MiB"],
    ]


def test_a_second_device_is_a_line_below_the_first():
    on = Ground(orders={"a": model(12)}, budgets={"cuda:0": card(100), "cuda:1": card(50)})
    text = shown("- load: {model: a, to: cuda:1}\n", on)
    assert rows_of(text) == [
        ["1", "5", "load a", "0.0 MiB", "cuda:0", "0.0 MiB", "0.0 MiB", "0.0 MiB", "0.0 MiB"],
        ["", "", "", "", "cuda:1", "12.0 MiB", "12.0 MiB", "12.0 MiB", "12.0 MiB"],
    ]
    held = "12,582,912 bytes used (12.0 MiB), 12,582,912 allocated and 12,582,912 reserved"
    assert text.splitlines()[-2:] == [
        "peak on cuda:0: 0 bytes used (0.0 MiB), 0 allocated and 0 reserved, after 'load a'",
        f"peak on cuda:1: {held}, after 'load a'",
    ]


@pytest.mark.parametrize(
    ("repeat", "cycles", "line"),
    [
        ("1", None, "the plan runs 1 cycle; 1 cycle shown"),
        ("2", None, "the plan runs 2 cycles; 2 cycles shown"),
        ("3", None, "the plan runs 3 cycles; from cycle 3 on every cycle is as cycle 2"),
        ("forever", 10, "the plan runs forever; from cycle 3 on every cycle is as cycle 2"),
        ("forever", 1, "the plan runs forever; 1 cycle shown"),
    ],
)
def test_it_says_what_holds_for_the_cycles_that_are_not_shown(repeat, cycles, line):
    assert line in shown(CYCLE, ground(100, a=model(12)), repeat, cycles=cycles).splitlines()


def test_cycles_that_come_in_turns_are_not_said_to_be_all_alike():
    on = ground(60, a=model(8, 11, 11, 12.5), b=model(1, 1, 1))
    steps = "".join(f"- load: {{model: {name}, to: cuda:0}}\n- unload: {name}\n" for name in "ab")
    line = "the plan runs forever; from cycle 5 on cycles 3 to 4 come again and again"
    assert line in shown(steps, on, "forever", cycles=20).splitlines()


def test_a_misfit_is_a_line_with_file_and_line_its_remedies_and_a_mark_in_its_row():
    on = ground(100, a=model(60), b=model(50))
    text = shown("- load: {model: a, to: cuda:0}\n- load: {model: b, to: cuda:0}\n- unload: a\n", on)
    assert [row[4] for row in rows_of(text)] == ["cuda:0", "does not fit", "not reached"]
    assert [row[5] for row in rows_of(text)] == ["60.0 MiB", "-", "-"]
    assert text.splitlines()[-2:] == [
        "plan.yaml:6: step 'load b' does not fit on cuda:0 in cycle 1: 10,485,760 bytes (10.0 MiB) more are needed",
        "  with model 'a' moved to cpu before it, it fits",
    ]
    assert "the plan runs 1 cycle; 1 cycle shown" in text


@pytest.mark.parametrize(
    ("backend", "there_is"),
    [("simulated", "cuda:0; --capacity cuda:7=SIZE adds it"), ("cuda", "cuda:0")],
)
def test_a_device_that_is_not_there_is_told_with_those_that_are(backend, there_is):
    text = shown("- load: {model: a, to: cuda:7}\n", ground(100, a=model(1)), backend=backend)
    line = f"plan.yaml:5: step 'load a' fails in cycle 1: there is no device cuda:7 (there is {there_is})"
    assert text.splitlines()[-1] == line
    assert [row[4] for row in rows_of(text)] == ["fails"]
    assert "peak on cuda:0: -" in text.splitlines()


def test_notes_come_last_and_names_are_text_and_no_markup():
    on = ground(100, a=model(12))
    steps = "- {load: a, name: '[bold]x[/bold]'}\n"
    text = shown(steps, on, notes=["[red]first[/red]", "second"], force_terminal=True, width=150)
    assert text.splitlines()[-2:] == ["note: [red]first[/red]", "note: second"]
    assert "[bold]x[/bold]" in text


def test_a_terminal_that_is_too_narrow_for_the_table_gets_lines():
    on = ground(100, a=model(60), b=model(50))
    steps = "- load: {model: a, to: cuda:0}\n- load: {model: b, to: cuda:0}\n"
    text = shown(steps, on, force_terminal=True, width=60)
    assert "│" not in text
    assert text.splitlines()[1:5] == [
        "Forecast of plan",
        "cycle 1, line 5: load a: RAM 0.0 MiB",
        "  cuda:0: parameters 60.0 MiB, allocated 60.0 MiB, reserved 60.0 MiB, used 60.0 MiB",
        "cycle 1, line 6: load b: does not fit",
    ]


def test_what_is_no_terminal_gets_the_table_whatever_its_width():
    on = ground(100, a=model(12))
    assert rows_of(shown(CYCLE, on, width=40)) == rows_of(shown(CYCLE, on, width=300))
    assert max(map(len, shown(CYCLE, on, width=40).splitlines())) <= 120


@pytest.mark.parametrize("width", [60, 200])
def test_a_part_that_does_not_exist_is_not_said_to_be_too_large(width):
    steps = "- load: a\n- move: {model: a, layers: 7}\n- unload: a\n"
    text = shown(steps, ground(100, a=model(12)), width=width)
    assert "no such part" in text
    assert "does not fit" not in text
    assert "the model has no layer 7: it has " in text
