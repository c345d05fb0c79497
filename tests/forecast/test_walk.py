"""A whole plan: cycles and blocks until they come again, and the first step that does not fit with what would help."""

import random
import time
from dataclasses import replace

import pytest
from tests.forecast.sketch import CARD, MIB, card, forecast, ground, mib, model, plan_of

from vramscope.forecast.order import ModelOrder
from vramscope.forecast.predict import Predictor
from vramscope.forecast.walk import PASSES_LIMIT, Ground, forecast_plan
from vramscope.memory.allocator import AllocatorSettings
from vramscope.plan.schema import walk

CYCLE = "- load: a\n- move: a\n- move: {model: a, to: cpu}\n- unload: a\n"


def turns(names, spare):
    """Steps after which each model of one size is where the one before it was, and the last where the first was."""
    text, hole = f"- unload: {names[0]}\n- load: {{model: {spare}, to: cuda:0}}\n", names[0]
    for name in names[1:]:
        text += f"- unload: {name}\n- load: {{model: {hole}, to: cuda:0}}\n"
        hole = name
    return f"{text}- unload: {spare}\n- load: {{model: {hole}, to: cuda:0}}\n"


def block(times, steps):
    inside = "".join(f"    {line}\n" for line in steps.splitlines())
    return f"- repeat:\n    times: {times}\n    steps:\n{inside}"


def loaded(*names):
    return "".join(f"- load: {{model: {name}, to: cuda:0}}\n" for name in names)


def rows(found):
    return [(row.cycle, row.step, row.line, row.fits, mib(row.levels) if row.levels else None) for row in found.steps]


def by_hand(plan, on, cycles):
    """The levels after every step, each step of each pass of each cycle walked."""
    predictor, levels = on.predictor(), []
    for _ in range(cycles):
        for step in walk(plan.steps):
            predictor.apply(step.effect)
            levels.append(predictor.levels())
    return levels


def test_a_row_a_step_with_its_line_and_what_each_device_holds():
    found = forecast(CYCLE, ground(100, a=model(12)))
    assert rows(found) == [
        (1, "load a", 5, True, (0, 0, 0)),
        (1, "move a to cuda:0", 6, True, (12, 12, 12)),
        (1, "move a to cpu", 7, True, (0, 12, 12)),
        (1, "unload a", 8, True, (0, 12, 12)),
    ]
    assert [row.levels.host_bytes // MIB for row in found.steps] == [12, 0, 12, 0]
    assert (found.first_misfit, found.cycles_walked, found.period, found.notes) == (None, 1, 0, ())


def test_cycles_are_walked_until_they_come_again():
    for repeat in ("forever", "1000000000"):
        found = forecast(CYCLE, ground(100, a=model(12)), repeat)
        assert (found.cycles_walked, found.period) == (2, 1)
        assert [row.cycle for row in found.steps] == [1] * 4 + [2] * 4


def test_so_many_cycles_as_are_asked_for():
    found = forecast(CYCLE, ground(100, a=model(12)), "forever", cycles=1)
    assert (found.cycles_walked, found.period) == (1, 0)
    assert forecast(CYCLE, ground(100, a=model(12)), "3", cycles=2).cycles_walked == 2


@pytest.mark.parametrize("times", [1, 2, 3, 4, 5, 6, 10**9 + 1, 10**9 + 2, 10**9 + 3])
def test_a_block_whose_passes_come_in_turns_ends_where_all_its_passes_lead(times):
    """Three places: with `a` at the last one, what it leaves behind joins the rest of the segment."""
    on = ground(100, a=model(2), b=model(2), c=model(2), spare=model(2), large=model(15))
    steps = loaded("a", "b", "c") + block(times, turns("abc", "spare")) + "- unload: a\n" + loaded("large")
    same = loaded("a", "b", "c") + block(times % 3 + 3, turns("abc", "spare")) + "- unload: a\n" + loaded("large")
    assert forecast(steps, on).steps[-1].levels == by_hand(plan_of(same, on.orders), on, 1)[-1]


def test_blocks_that_run_a_billion_times_cost_nothing():
    on = ground(100, a=model(12), b=model(3))
    inner = block(10**9, "- move: a\n- move: {model: a, to: cpu}\n")
    steps = "- load: a\n" + block(10**9, inner + loaded("b") + "- unload: b\n") + "- unload: a\n"
    began = time.process_time()
    found = forecast(steps, on, "1000000000")
    assert time.process_time() - began < 1
    assert (found.cycles_walked, found.period) == (2, 1)
    assert mib(found.steps[-1].levels) == (0, 32, 32)


def test_cycles_that_come_in_turns_are_told_with_their_period():
    on = ground(100, a=model(2), b=model(2), spare=model(2))
    # Half a turn a cycle: the plan may not leave models loaded, so the block holds what stays.
    found = forecast(loaded("a", "b") + block(7, turns("ab", "spare")) + "- unload: a\n- unload: b\n", on, "forever")
    assert (found.cycles_walked, found.period) == (2, 1)


def test_what_does_not_come_again_within_reason_is_followed_so_far_and_no_further():
    """Seven places in one pool and eight in the other: the same picture again after 56 passes."""
    large, small = [f"l{n}" for n in range(7)], [f"s{n}" for n in range(8)]
    models = {name: model(2) for name in [*large, "l"]} | {name: model(0.125) for name in [*small, "s"]}
    passes = turns(large, "l") + turns(small, "s")
    found = forecast(loaded(*large, *small) + block(1000, passes), ground(100, **models))
    assert found.notes == (f"after {PASSES_LIMIT} passes a block has not come to rest; it is followed no further",)
    assert len(found.steps) == 15 + PASSES_LIMIT * len(passes.splitlines())
