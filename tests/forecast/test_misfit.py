"""The first step that does not fit: its name and line, by how much, and what would help, each only if it is true."""

from dataclasses import replace

import pytest
from tests.forecast.sketch import CARD, MIB, card, forecast, ground, mib, model, plan_of

from vramscope.forecast.predict import DeviceBudget
from vramscope.forecast.walk import Ground, forecast_plan
from vramscope.memory.allocator import AllocatorSettings

RELEASE = "a `release` step before it gives the allocator's cache back, and it fits"
RELEASE_LATER = "with a `release` step at the end of the plan, so that no cycle finds an older one's cache, it fits"


def to_card(*names):
    return "".join(f"- load: {{model: {name}, to: cuda:0}}\n" for name in names)


def larger(on, nbytes):
    budgets = {name: replace(budget, total_bytes=budget.total_bytes + nbytes) for name, budget in on.budgets.items()}
    return replace(on, budgets=budgets)


def moved(name):
    return f"with model {name!r} moved to cpu before it, it fits"


def halved(name):
    return f"with dtype float16 or bfloat16 for model {name!r}, it fits"


# The third of three models, one that meets the split cache of another, one whose first tensor already is too much.
TIGHT = {
    "three models": (to_card("a", "b", "c"), ground(100, a=model(30), b=model(41, 3), c=model(25, 0.5))),
    "a split cache": (to_card("a") + "- unload: a\n" + to_card("b"), ground(100, a=model(60), b=model(3, 70))),
    "far too large": (to_card("a"), ground(10, a=model(7000, 0.3, 30))),
    "a context": (to_card("a"), Ground(orders={"a": model(3)}, budgets={CARD: card(9, 113)})),
    "two times the model": ("- load: a\n- move: a\n" + to_card("b"), ground(61, a=model(30.5), b=model(30.5))),
    "others": (to_card("a"), Ground(orders={"a": model(31)}, budgets={CARD: card(100, 1, 77)})),
    "odd bytes": (to_card("a"), Ground(orders={"a": model(31)}, budgets={CARD: DeviceBudget(
        total_bytes=20 * MIB + 17, context_bytes=MIB - 3)})),
}  # fmt: skip


@pytest.mark.parametrize("name", TIGHT)
def test_the_shortfall_is_the_least_that_helps(name):
    steps, on = TIGHT[name]
    misfit = forecast(steps, on).first_misfit
    assert misfit.shortfall_bytes > 0
    assert forecast(steps, larger(on, misfit.shortfall_bytes)).first_misfit is None
    still = forecast(steps, larger(on, misfit.shortfall_bytes - 2 * MIB)).first_misfit
    assert (still.step, still.shortfall_bytes) == (misfit.step, 2 * MIB)


def test_the_first_misfit_is_named_with_its_line_and_nothing_is_said_of_what_follows():
    found = forecast(to_card("a", "b") + "- unload: a\n- release\n", ground(100, a=model(60), b=model(50)))
    misfit = found.first_misfit
    assert (misfit.cycle, misfit.step, misfit.line, misfit.device) == (1, "load b", 6, CARD)
    assert misfit.shortfall_bytes == 10 * MIB
    assert misfit.message.startswith(f"out of memory: a request of {50 * MIB} bytes")
    assert [(row.step, row.fits) for row in found.steps] == [
        ("load a", True),
        ("load b", False),
        ("unload a", None),
        ("release", None),
    ]
    assert [row.levels is None for row in found.steps] == [False, True, True, True]
    assert mib(found.steps[0].levels) == (60, 60, 60)
    assert (found.cycles_walked, found.period) == (1, 0)


def test_a_misfit_inside_a_block_ends_it_and_every_block_around_it():
    turn = "[{move: a}, {move: {model: a, to: cpu}}]"
    steps = f"""\
- load: a
- repeat:
    times: 9
    steps:
      - repeat: {{times: 9, steps: {turn}}}
      - release
- unload: a
"""
    found = forecast(steps, ground(10, a=model(12)), "forever")
    assert [row.fits for row in found.steps] == [True, False, None, None, None]
    assert found.first_misfit.line == 9


def test_what_fits_once_may_not_fit_again():
    """The second cycle finds the cache of the first, and the small tensors sit in the segment of the large one."""
    steps = to_card("a", "b") + "- unload: b\n- unload: a\n"
    on = ground(62, a=model(5, 9.5, 11), b=model(30))
    misfit = forecast(steps, on, "forever").first_misfit
    assert (misfit.cycle, misfit.step) == (2, "load b")
    assert RELEASE_LATER in misfit.remedies
    assert RELEASE not in misfit.remedies
    assert forecast(steps + "- release\n", on, "forever").first_misfit is None
    assert forecast(to_card("a") + "- release\n" + to_card("b") + "- unload: b\n- unload: a\n", on, "2").first_misfit


def test_a_release_before_it_is_offered_where_the_cache_is_in_the_way():
    steps, on = TIGHT["a split cache"]
    assert forecast(steps, on).first_misfit.remedies == (RELEASE,)
    assert forecast(to_card("a") + "- unload: a\n- release\n" + to_card("b"), on).first_misfit is None


def test_moving_another_model_is_offered_for_each_that_makes_room():
    steps, on = TIGHT["three models"]
    misfit = forecast(steps, on).first_misfit
    assert misfit.step == "load c"
    assert misfit.remedies == (moved("a"), moved("b"))
    for name in "ab":
        away = f"- move: {{model: {name}, to: cpu}}\n"
        assert forecast(to_card("a", "b") + away + to_card("c"), on).first_misfit is None


def test_a_model_too_small_to_make_room_or_on_the_host_already_is_not_offered():
    on = ground(100, a=model(5), b=model(60), c=model(70), d=model(90))
    assert forecast("- load: d\n" + to_card("a", "b", "c"), on).first_misfit.remedies == (moved("b"),)


def test_half_the_bytes_are_offered_to_a_model_in_float32():
    on = ground(100, a=model(60, 60, dtype="float32"))
    assert forecast(to_card("a"), on).first_misfit.remedies == (halved("a"),)
    assert forecast(to_card("a"), ground(100, a=model(30, 30))).first_misfit is None
    assert forecast(to_card("a"), ground(100, a=model(60, 60))).first_misfit.remedies == ()


def test_half_the_bytes_are_not_offered_where_they_are_too_many_still():
    on = ground(100, a=model(130, 130, dtype="float32"))
    assert forecast(to_card("a"), on).first_misfit.remedies == ()


def test_tensors_that_stay_as_they_are_in_16_bits_are_not_counted_as_halved():
    wide = model(60, 60, buffers=(1,), dtype="float32")
    kept = replace(wide, tensors=(*wide.tensors[:1], replace(wide.tensors[1], halves=False), *wide.tensors[2:]))
    assert forecast(to_card("a"), ground(80, a=wide)).first_misfit.remedies == (halved("a"),)
    assert forecast(to_card("a"), ground(80, a=kept)).first_misfit.remedies == ()


def test_a_device_that_is_not_there_lacks_no_bytes():
    found = forecast("- load: {model: a, to: cuda:3}\n", ground(100, a=model(1)))
    misfit = found.first_misfit
    assert (misfit.device, misfit.shortfall_bytes, misfit.remedies) == ("cuda:3", None, ())
    assert misfit.message == "there is no device cuda:3"


def test_a_limit_that_no_memory_lifts_has_no_shortfall():
    on = replace(ground(100, a=model(1)), settings=AllocatorSettings(memory_fraction=0.0))
    assert forecast(to_card("a"), on).first_misfit.shortfall_bytes is None


def test_a_fraction_of_the_memory_counts_as_the_limit_that_it_is():
    on = replace(ground(100, a=model(60)), settings=AllocatorSettings(memory_fraction=0.5))
    assert forecast(to_card("a"), on).first_misfit.shortfall_bytes == 20 * MIB


def test_steps_of_a_model_that_nobody_knows_say_nothing_and_the_others_are_told_without_it():
    on = ground(100, known=model(12))
    steps = to_card("known", "unknown") + "- unload: known\n- unload: unknown\n"
    found = forecast_plan(plan_of(steps, ["known", "unknown"], "forever"), on, None)
    assert [(row.fits, row.levels is None) for row in found.steps][:4] == [(True, False), (None, True)] * 2
    alone = forecast_plan(plan_of(to_card("known") + "- unload: known\n", ["known"], "forever"), on, None)
    assert [row.levels for row in found.steps if row.levels] == [row.levels for row in alone.steps]
    assert (found.first_misfit, found.cycles_walked, found.period) == (None, alone.cycles_walked, alone.period)
    reason = "nothing is known about model 'unknown'"
    assert found.notes == (
        f"step 'load unknown' (line 6): {reason}; other models' figures are as if it were not there",
    )
