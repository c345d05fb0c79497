"""Whatever stands where in a plan: it is read, or every problem has its place; never another exception."""

import json

from hypothesis import given
from hypothesis import strategies as st

from vramscope.plan.head import ModelFields, PlanFields
from vramscope.plan.parse import parse_plan
from vramscope.plan.problems import PlanError
from vramscope.plan.sequence import BLOCK, RepeatFields, StepOptions
from vramscope.steps._catalog import step_kinds

KINDS = step_kinds()
KEYS = sorted(
    {BLOCK, "m", "x-a", "stepz", *KINDS}
    | {key for kind in KINDS.values() for key in kind.fields.model_fields}
    | {key for fields in (PlanFields, ModelFields, RepeatFields, StepOptions) for key in fields.model_fields}
)
WORDS = (
    "m",
    "cpu",
    "cuda:0",
    "cuda:9",
    "forever",
    "stop",
    "float16",
    "synthetic:tiny",
    "1GiB",
    "30s",
    "-1s",
    "1e3",
    "",
)
SCALARS = (
    st.sampled_from([*WORDS, *KEYS])
    | st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats()
    | st.text(st.characters(codec="utf-8"), max_size=5)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=12,
)
GOOD_STEPS = [{"load": "m"}, {"move": "m"}, {"unload": "m"}, {"wait": "1s"}, "release", {"tokenize": {"model": "m"}}]
STEPS = st.lists(
    st.sampled_from(GOOD_STEPS) | st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=3) | SCALARS,
    max_size=6,
)
PLANS = st.fixed_dictionaries(
    {"version": st.just(1) | VALUES, "models": st.just({"m": {"source": "synthetic:tiny"}}) | VALUES, "steps": STEPS},
    optional={
        key: VALUES for key in (*PlanFields.model_fields, "x-a", "stepz") if key not in ("version", "models", "steps")
    },
)


@given(PLANS)
def test_a_random_plan_is_read_or_all_its_problems_have_their_place(plan):
    _plan_or_problems(json.dumps(plan, ensure_ascii=False).encode())


@given(VALUES)
def test_any_value_is_no_plan_or_all_its_problems_have_their_place(value):
    _plan_or_problems(json.dumps(value).encode())


def _plan_or_problems(content):
    problems = ()
    try:
        assert parse_plan(content, "plan.yaml", KINDS).steps
    except PlanError as error:
        problems = error.problems
    for problem in problems:
        assert problem.line >= 1
        assert problem.column >= 1
        assert len(str(problem).splitlines()) == 1
