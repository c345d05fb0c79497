"""Plans that tests write as text."""

from collections.abc import Callable

import pytest

from vramscope.plan.parse import parse_plan
from vramscope.plan.problems import PlanError
from vramscope.plan.schema import Plan
from vramscope.steps._catalog import step_kinds

KINDS = step_kinds()


@pytest.fixture
def parse() -> Callable[[str | bytes], Plan]:
    """Read a plan's text as if it stood in plan.yaml."""

    def read(text: str | bytes) -> Plan:
        return parse_plan(text.encode() if isinstance(text, str) else text, "plan.yaml", KINDS)

    return read


@pytest.fixture
def problems(parse) -> Callable[[str | bytes], list[str]]:
    """The lines that a bad plan prints."""

    def read(text: str | bytes) -> list[str]:
        with pytest.raises(PlanError) as caught:
            parse(text)
        return str(caught.value).splitlines()

    return read


@pytest.fixture
def step_problems(problems) -> Callable[[str], list[str]]:
    """What is wrong with steps, each `line:column: …`; line 4 is the first, and there are models qwen and llama."""

    def read(steps: str) -> list[str]:
        head = "version: 1\nmodels: {qwen: {source: synthetic:tiny}, llama: {source: synthetic:tiny}}\nsteps:\n"
        return [line.removeprefix("plan.yaml:") for line in problems(head + steps)]

    return read
