"""The contract of every step kind, whichever kinds there are."""

import contextlib
import importlib
import re

import pytest

from vramscope import steps
from vramscope.discovery import discover
from vramscope.errors import StepCancelledError
from vramscope.plan.kinds import Action, Effect
from vramscope.plan.parse import parse_plan
from vramscope.plan.problems import PlanError
from vramscope.plan.sequence import BLOCK, StepOptions
from vramscope.steps._catalog import step_kinds
from vramscope.steps._frame import Kind

KINDS = step_kinds()
HEAD = "version: 1\nmodels: {qwen: {source: synthetic:tiny}}\nsteps:\n"


def parse_step(line, before=""):
    """The step of a plan that has only this one after what is before it."""
    return parse_plan(f"{HEAD}{before}{line}\n".encode(), "plan.yaml", KINDS).steps[-1]


def parse_somewhere(line):
    """A step, with its model where the step needs it: absent, in system RAM, or on a device."""
    for before in ("", "- load: qwen\n"):
        with contextlib.suppress(PlanError):
            return parse_step(line, before)
    return parse_step(line, "- load: {model: qwen, to: cuda:0}\n")


def documentation(kind_name):
    return importlib.import_module(f"vramscope.steps.{kind_name}").__doc__


def examples(kind_name):
    """The steps that the documentation of a kind shows."""
    return re.findall(r"^    (- .*)$", documentation(kind_name), re.MULTILINE)


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


def test_the_kinds_are_the_files_of_the_room():
    assert set(KINDS) == set(discover(steps, "STEP", Kind))
    assert {"load", "move", "unload", "tokenize", "wait", "expect", "release"} <= set(KINDS)


def test_no_kind_has_the_name_of_something_else_in_a_step():
    assert not set(KINDS) & {BLOCK, *StepOptions.model_fields}


def test_a_kind_is_documented_with_steps_that_parse(kind):
    shown = examples(kind.name)
    assert shown
    for example in shown:
        step = parse_somewhere(example)
        assert step.kind == kind.name


def test_every_field_of_a_kind_is_documented(kind):
    text = documentation(kind.name)
    assert [name for name in kind.fields.model_fields if name != kind.scalar and name not in text] == []


def test_the_example_of_a_kind_parses(kind):
    step = parse_somewhere(f"- {kind.example}")
    assert step.kind == kind.name
    assert isinstance(step.fields, kind.fields)


def test_the_scalar_of_a_kind_is_one_of_its_fields_and_the_only_required_one(kind):
    required = {name for name, info in kind.fields.model_fields.items() if info.is_required()}
    if kind.scalar is not None:
        assert kind.scalar in kind.fields.model_fields
        assert required <= {kind.scalar}


def test_an_unknown_field_of_a_kind_is_refused(kind):
    with pytest.raises(PlanError) as caught:
        parse_step(f"- {kind.name}: {{colour: red}}")
    messages = [problem.message for problem in caught.value.problems]
    listed = ", ".join(kind.fields.model_fields)
    assert f'unknown key "colour"{f" (known: {listed})" if listed else ""}' in messages


def test_a_parsed_kind_never_changes(kind):
    step = parse_somewhere(f"- {kind.example}")
    assert step.fields.model_config["frozen"] is True


def test_the_effect_of_a_kind_says_where_its_model_goes(kind):
    step = parse_somewhere(f"- {kind.example}")
    assert isinstance(step.effect, Effect)
    assert bool(step.effect.to) is (step.effect.action in {Action.LOAD, Action.MOVE})
    if step.effect.action in {Action.LOAD, Action.MOVE, Action.UNLOAD}:
        assert step.effect.model == "qwen"


def ready(kind, make_context, **state):
    """A context in which the example of a kind can run."""
    places = {"qwen": "cpu"} if kind.name in {"move", "unload"} else {}
    return make_context(places=places, **state)


def test_a_kind_runs_and_returns_facts(kind, make_context):
    step = parse_somewhere(f"- {kind.example}")
    facts = kind.run(ready(kind, make_context), step.fields)
    assert all(isinstance(name, str) and isinstance(fact, str | int | float | None) for name, fact in facts.items())


def test_a_cancelled_kind_stops_and_changes_nothing(kind, make_context):
    step = parse_somewhere(f"- {kind.example}")
    context = ready(kind, make_context, cancel_in=0)
    before = dict(context.places)
    with pytest.raises(StepCancelledError):
        kind.run(context, step.fields)
    assert (context.places, context.now) == (before, 0.0)
