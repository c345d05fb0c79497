import io
from dataclasses import replace

from rich.console import Console

from vramscope.events import Outcome
from vramscope.memory.residue import PlaceResidue, Residue
from vramscope.report.results import ResultsBuilder
from vramscope.report.row import ResultRow
from vramscope.report.table import print_results

from ..picture import back_and_gone, until_on_device  # noqa: TID252 - tests are not packages


def rows():
    builder = ResultsBuilder()
    for event in (*until_on_device(), *back_and_gone()):
        builder.on_event(event)
    return builder.rows()


def shown(table, *, terminal, width=120):
    stream = io.StringIO()
    print_results(table, Console(file=stream, width=width, force_terminal=terminal, color_system=None))
    return stream.getvalue()


def test_a_terminal_gets_a_table_of_120_columns_with_mib_and_exact_bytes():
    text = shown(rows(), terminal=True)
    assert max(len(line) for line in text.splitlines()) <= 120
    for figure in ("950.2 MiB", "996,322,304", "992.0 MiB", "1,040,187,392", "1,105.0 MiB", "1,158,676,480"):
        assert figure in text
    for figure in ("494,032,768", "float16", "942.3 MiB", "988,065,536", "1.25 s", "125 ms", "succeeded"):
        assert figure in text
    assert "simulated device cuda:0" in text.splitlines()[0]


def test_anything_else_gets_plain_lines():
    text = shown(rows(), terminal=False)
    assert text.splitlines()[0] == "Results on simulated device cuda:0, simulated 12 GiB"
    assert "  in RAM: allocated 0.0 MiB (0), reserved 0.0 MiB (0), worker RAM 1,528.8 MiB" in text.splitlines()
    assert "  on device: allocated 950.2 MiB (996,322,304)" in text
    assert "driver 1,105.0 MiB (1,158,676,480)" in text
    assert max(len(line) for line in text.splitlines() if " why: " not in line) <= 130
    assert not set("│┃━─█") & set(text)


def test_a_real_device_is_not_called_simulated():
    real = [replace(row, backend="cuda", device_name="NVIDIA GeForce RTX 3060") for row in rows()]
    assert shown(real, terminal=False).splitlines()[0] == "Results on device cuda:0, NVIDIA GeForce RTX 3060"


def test_what_is_unknown_is_a_dash_and_never_zero():
    for terminal in (True, False):
        text = shown([ResultRow(model="qwen", cycle=1)], terminal=terminal)
        assert "qwen" in text
        assert "running" in text
        assert "0.0 MiB" not in text


def test_names_are_text_and_no_markup():
    assert "[bold]x[/bold]" in shown([ResultRow(model="[bold]x[/bold]", cycle=1)], terminal=True)


def test_no_rows_is_no_table():
    assert shown([], terminal=True) == ""


def test_a_terminal_that_is_too_narrow_for_the_table_gets_the_lines():
    bare = [replace(row, ledger=None) for row in rows()]
    assert shown(bare, terminal=True, width=80) == shown(bare, terminal=False)


def test_the_ledger_follows_the_rows():
    for terminal in (True, False):
        text = shown(rows(), terminal=terminal)
        assert text.index("Results on") < text.index("Where every byte of simulated device cuda:0 was")


def test_a_row_says_what_the_model_left_behind_on_its_device():
    place = PlaceResidue(where="cuda:0", causes={"allocator_cache": 2 << 20}, level_bytes=0)
    host = PlaceResidue(where="host", causes={"process": 5 << 20}, level_bytes=0)
    residue = Residue(model="qwen", after="unload", places=(place, host))
    clean = Residue(model="qwen", after="release", places=(replace(place, causes={"allocator_cache": 0}), host))
    left = [replace(row, residue_after_unload=residue, residue_after_release=clean) for row in rows()]
    text = shown(left, terminal=False)
    assert (
        "after unload: allocated 0.0 MiB (0), reserved 992.0 MiB (1,040,187,392), left behind 2.0 MiB (2,097," in text
    )
    assert "after release: allocated 0.0 MiB (0), reserved 0.0 MiB (0), left behind 0.0 MiB (0)" in text
    assert "2,097,152" in shown(left, terminal=True)
    assert "left behind -" in shown(rows(), terminal=False), "not measured"


def test_figures_of_the_device_are_called_totals():
    for terminal in (True, False):
        assert "allocated and reserved are totals of the device, all models on it together" in shown(
            rows(), terminal=terminal
        )
    assert "device total" in shown(rows(), terminal=True)


def test_the_heading_names_each_device_and_a_row_says_whether_its_model_was_there():
    (row,) = rows()
    other = replace(row, model="other", device="cuda:1", device_name="simulated 8 GiB", was_on_device=False)
    lines = shown([row, other], terminal=False).splitlines()
    assert lines[0] == (
        "Results on simulated device cuda:0, simulated 12 GiB; simulated device cuda:1, simulated 8 GiB"
    )
    assert "qwen cycle 1: 494,032,768 parameters float16, on cuda:0, succeeded" in lines
    assert "other cycle 1: 494,032,768 parameters float16, never on cuda:1, succeeded" in lines


def test_a_row_says_which_other_devices_its_model_was_on():
    moved = [replace(row, earlier_devices=("cuda:1", "cuda:2")) for row in rows()]
    assert "on cuda:0, before on cuda:1, cuda:2 (not shown), succeeded" in shown(moved, terminal=False)
    assert "before on" in shown(moved, terminal=True)


def test_what_is_left_after_a_failed_cycle_is_told_in_words():
    place = PlaceResidue(where="cuda:0", causes={"allocator_cache": 0}, level_bytes=0)
    reset = Residue(model="qwen", after="reset", places=(place,))
    text = shown([replace(row, residue_after_unload=reset) for row in rows()], terminal=False)
    assert "qwen, cycle 1, after the clean-up of its failed cycle, cuda:0: gave everything back" in text


def test_a_cycle_that_failed_for_another_reason_is_told_apart():
    (row,) = rows()
    assert "on cuda:0, succeeded, cycle failed\n" in shown([replace(row, cycle_outcome=Outcome.FAILED)], terminal=False)


def test_of_many_rows_the_last_are_shown():
    text = shown([replace(rows()[0], cycle=cycle) for cycle in range(1, 31)], terminal=False)
    assert ", the last 10 rows of 30" in text.splitlines()[0]
    assert "qwen cycle 20:" not in text
    assert "qwen cycle 21:" in text
