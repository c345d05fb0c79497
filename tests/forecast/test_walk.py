"""A whole plan: cycles and blocks until they come again, and the first step that does not fit with what would help."""

import random
import time
from dataclasses import replace

import pytest
from tests.forecast.chance import block, random_steps
from tests.forecast.sketch import CARD, MIB, forecast, ground, mib, model, plan_of

from vramscope.forecast.predict import MisfitError
from vramscope.forecast.walk import PASSES_LIMIT, forecast_plan
from vramscope.plan.schema import walk

CYCLE = "- load: a\n- move: a\n- move: {model: a, to: cpu}\n- unload: a\n"


def turns(names, spare):
    """Steps after which each model of one size is where the one before it was, and the last where the first was."""
    text, hole = f"- unload: {names[0]}\n- load: {{model: {spare}, to: cuda:0}}\n", names[0]
    for name in names[1:]:
        text += f"- unload: {name}\n- load: {{model: {hole}, to: cuda:0}}\n"
        hole = name
    return f"{text}- unload: {spare}\n- load: {{model: {hole}, to: cuda:0}}\n"


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
    steps = "- load: a\n" + block(10**9, loaded("b") + inner + "- unload: b\n") + "- unload: a\n"
    began = time.process_time()
    found = forecast(steps, on, "1000000000")
    assert time.process_time() - began < 1
    assert (found.cycles_walked, found.period) == (2, 1)
    assert mib(found.steps[-1].levels) == (0, 20, 20)


def test_cycles_that_come_in_turns_are_told_with_their_period():
    """What the first model leaves in the cache, the second one splits, or makes the allocator give back, in turns."""
    on = ground(60, a=model(8, 11, 11, 12.5), b=model(1, 1, 1))
    steps = loaded("a") + "- unload: a\n" + loaded("b") + "- unload: b\n"
    found = forecast(steps, on, "forever")
    assert (found.cycles_walked, found.period) == (4, 2)
    expected = by_hand(plan_of(steps, on.orders), on, 12)
    assert [row.levels for row in found.steps] == expected[:16]
    assert expected[8:16] * 2 == expected[16:32] == expected[32:]
    assert expected[8:12] != expected[12:16]


def test_what_does_not_come_again_within_reason_is_followed_so_far_and_no_further():
    """Seven places in one pool and eight in the other: the same picture again after 56 passes."""
    large, small = [f"l{n}" for n in range(7)], [f"s{n}" for n in range(8)]
    models = {name: model(2) for name in [*large, "l"]} | {name: model(0.125) for name in [*small, "s"]}
    passes = turns(large, "l") + turns(small, "s")
    found = forecast(loaded(*large, *small) + block(1000, passes), ground(100, **models))
    assert found.notes == (f"after {PASSES_LIMIT} passes a block has not come to rest; it is followed no further",)
    assert len(found.steps) == 15 + PASSES_LIMIT * len(passes.splitlines())


def by_hand_to_the_misfit(plan, on, cycles):
    """Cycle and step to the levels after its last pass, up to the first step that does not fit, and which that is."""
    predictor, levels = on.predictor(), {}
    for cycle in range(1, cycles + 1):
        for step in walk(plan.steps):
            try:
                predictor.apply(step.effect)
            except MisfitError:
                return levels, (cycle, step.name)
            levels[cycle, step.name] = predictor.levels()
    return levels, None


@pytest.mark.parametrize("seed", range(60))
def test_a_forecast_is_what_walking_every_pass_of_every_cycle_gives(seed):
    """Random plans of three models, with blocks inside blocks, on cards that are just large enough, or are not."""
    chance = random.Random(seed)  # noqa: S311 - chance, no secret
    sizes = (0.1, 0.5, 1, 1.4, 2, 3, 8, 9.9, 10, 12.5, 19, 21)
    on = ground(chance.choice((50, 70, 90)), **{name: model(*chance.choices(sizes, k=3)) for name in "abc"})
    cycles = chance.randint(1, 6)
    plan = plan_of(random_steps(chance, dict.fromkeys("abc", "")), on.orders, str(cycles))
    found = forecast_plan(plan, on, cycles)
    levels, misfit = by_hand_to_the_misfit(plan, on, cycles)
    told = {(row.cycle, row.step): row.levels for row in found.steps if row.levels}
    assert (found.first_misfit and (found.first_misfit.cycle, found.first_misfit.step)) == misfit
    for (cycle, step), expected in levels.items():
        assert told[as_told(cycle, found), step] == expected or (cycle, step) not in told


def as_told(cycle, found):
    """The cycle among those that were walked which is as this one."""
    late = cycle - found.cycles_walked
    return cycle if late <= 0 else found.cycles_walked - (-late % found.period)


def layered(*sizes):
    """A model whose tensors are one layer each."""
    held = model(*sizes)
    tensors = tuple(
        replace(each, name=f"layers.{index}.mlp.weight", halves=False) for index, each in enumerate(held.tensors)
    )
    return replace(held, tensors=tensors)


def test_a_part_is_walked_tensor_by_tensor_and_the_rest_stays_in_ram():
    steps = "- load: {model: a, to: cuda:0, layers: 0}\n- move: {model: a, layers: 1-2}\n- move: {model: a, to: cpu}\n"
    rows = forecast(steps, ground(100, a=layered(10, 20, 30))).steps
    assert [(row.levels.host_bytes, row.levels.devices[CARD].parameter_bytes) for row in rows] == [
        (50 * MIB, 10 * MIB),
        (0, 60 * MIB),
        (60 * MIB, 0),
    ]


def test_a_part_that_does_not_fit_is_no_reason_to_move_its_own_model_away():
    steps = "- load: {model: a, to: cuda:0, layers: 0}\n- move: {model: a, layers: 1}\n"
    misfit = forecast(steps, ground(40, a=layered(20, 30))).first_misfit
    assert misfit.device == CARD
    assert not any("moved to cpu" in each for each in misfit.remedies)


def test_a_part_that_the_model_does_not_have_fails_the_step_on_any_device():
    found = forecast("- load: a\n- move: {model: a, layers: 1-9}\n- unload: a\n", ground(40, a=layered(1, 2)))
    assert [row.fits for row in found.steps] == [True, False, None]
    assert (found.first_misfit.device, found.first_misfit.shortfall_bytes) == (None, None)
    assert found.first_misfit.message == "the model has no layer 2: it has layers 0-1"


def test_nothing_is_said_of_a_part_where_the_names_of_tensors_are_a_guess():
    guessed = replace(layered(1), exact=False, basis="a guess")
    found = forecast("- load: a\n- move: {model: a, layers: 5}\n", ground(40, a=guessed))
    assert [row.fits for row in found.steps] == [True, None]
    assert "nothing is said from there on" in found.notes[-1]
