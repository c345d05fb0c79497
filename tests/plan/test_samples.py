"""Each plan file of the samples is read, or refused with its place."""

import time
import tracemalloc

import pytest
from tests.plan.samples import (
    ACCEPTED,
    BOMB,
    HEAD,
    REFUSED,
    SIZES,
    WRONG_CYCLES,
    WRONG_DURATIONS,
    WRONG_SIZES,
    WRONG_TEXTS,
)

from vramscope.plan.parse import load_plan
from vramscope.plan.problems import PlanError
from vramscope.plan.schema import walk
from vramscope.steps._catalog import step_kinds

STEP_KINDS = step_kinds()


@pytest.fixture
def load(tmp_path):
    """Read a plan from a file, as the commands do."""

    def read(content):
        path = tmp_path / "plan.yaml"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return load_plan(path, STEP_KINDS)

    return read


@pytest.fixture
def first_problem(load, tmp_path):
    def read(content):
        with pytest.raises(PlanError) as caught:
            load(content)
        return str(caught.value).splitlines()[0].removeprefix(f"{tmp_path}/plan.yaml:")

    return read


@pytest.mark.parametrize("case", ACCEPTED, ids=ascii)
def test_a_good_file_is_read(load, case):
    text, steps = ACCEPTED[case]
    assert len(load(text).steps) == steps


@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_file_is_refused_with_its_place(first_problem, case):
    content, message = REFUSED[case]
    assert first_problem(content) == message


@pytest.mark.parametrize("value", WRONG_DURATIONS, ids=ascii)
def test_what_is_no_duration_is_refused_when_the_plan_is_read(first_problem, value):
    assert first_problem(f"{HEAD}steps:\n  - wait: {value}\n") == WRONG_DURATIONS[value]


@pytest.mark.parametrize("value", WRONG_TEXTS)
def test_a_text_that_yaml_reads_as_something_else_is_refused(first_problem, value):
    assert first_problem(f"{HEAD}steps:\n  - tokenize: {{model: m, text: {value}}}\n") == WRONG_TEXTS[value]


@pytest.mark.parametrize("value", WRONG_CYCLES)
def test_what_is_no_number_of_cycles_is_refused(first_problem, value):
    assert first_problem(f"{HEAD}repeat: {value}\nsteps: [release]\n") == WRONG_CYCLES[value]


@pytest.mark.parametrize("value", WRONG_SIZES)
def test_what_is_no_size_is_refused(first_problem, value):
    plan = f"{HEAD}steps:\n  - expect: {{device_used: {{below: {value}}}}}\n"
    assert first_problem(plan) == WRONG_SIZES[value]


@pytest.mark.parametrize("value", SIZES)
def test_sizes_are_decimal_or_binary_as_their_unit_says(load, value):
    plan = load(f"{HEAD}steps:\n  - expect: {{device_used: {{below: {value}}}}}\n")
    assert plan.steps[0].fields.device_used.below == SIZES[value]


def test_a_bomb_of_aliases_costs_next_to_nothing(load):
    tracemalloc.start()
    began = time.process_time()
    try:
        with pytest.raises(PlanError):
            load(f"{BOMB}steps: *i\n")
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
        assert time.process_time() - began < 1
    finally:
        tracemalloc.stop()


def test_a_tag_runs_nothing(load, tmp_path):
    with pytest.raises(PlanError):
        load(f'steps: !!python/object/apply:os.system ["touch {tmp_path}/ran"]\n')
    assert not (tmp_path / "ran").exists()


def test_a_trillion_repetitions_are_walked_one_by_one(load):
    inner = "{repeat: {times: 1000000000000, steps: [release]}}"
    plan = load(f"version: 1\nsteps: [{{repeat: {{times: 1000000000000, steps: [{inner}]}}}}]\n")
    tracemalloc.start()
    try:
        steps = walk(plan.steps)
        assert [next(steps).kind for _ in range(1000)] == ["release"] * 1000
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
