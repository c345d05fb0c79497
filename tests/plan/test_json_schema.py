"""The schema that editors use: what the parser takes passes it, and it names what most mistakes get wrong."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from vramscope.cli.schema import text
from vramscope.plan.json_schema import DIALECT
from vramscope.plan.nodes import read_document
from vramscope.plan.parse import parse_plan
from vramscope.plan.sequence import BLOCK
from vramscope.steps._catalog import documentation, step_kinds
from vramscope.units import parse_bytes, parse_seconds

PLANS = Path(__file__).parents[2] / "deploy" / "plans"
SCHEMA = json.loads(text())
KINDS = step_kinds()
VALIDATOR = Draft202012Validator(SCHEMA)
HEAD = "version: 1\nmodels: {m: {source: synthetic:tiny}}\n"


def is_valid(plan):
    """Whether an editor underlines nothing in this text."""
    return VALIDATOR.is_valid(read_document(plan.encode(), "plan.yaml").value)


def part(name):
    """The validator of one field, with the plan's definitions."""
    return Draft202012Validator(name | {"$defs": SCHEMA["$defs"]})


def test_it_is_a_schema_of_the_dialect_that_it_says():
    assert SCHEMA["$schema"] == DIALECT == Draft202012Validator.META_SCHEMA["$id"]
    Draft202012Validator.check_schema(SCHEMA)


def test_the_file_beside_the_plans_is_the_one_that_the_code_makes():
    committed = (PLANS / "plan.schema.json").read_text(encoding="utf-8")
    assert committed == text(), "write it again: vramscope schema > deploy/plans/plan.schema.json"


def test_every_kind_is_there_with_its_fields_and_its_documentation():
    written = SCHEMA["$defs"]["Step"]["anyOf"][0]["properties"]
    assert set(written) == {*KINDS, "name", "timeout"}
    for name, kind in KINDS.items():
        assert written[name]["description"] == documentation()[name]
        fields = SCHEMA["$defs"][kind.fields.__name__]
        assert set(fields["properties"]) == set(kind.fields.model_fields)
        assert fields["additionalProperties"] is False
    assert BLOCK in SCHEMA["$defs"]["Step"]["anyOf"][1]["properties"]


@pytest.mark.parametrize("path", sorted(PLANS.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_plans_that_are_delivered_pass_and_name_the_schema(path):
    plan = path.read_text(encoding="utf-8")
    assert is_valid(plan)
    (line,) = [line for line in plan.splitlines() if line.startswith("# yaml-language-server:")]
    assert (path.parent / line.split("$schema=")[1]).samefile(PLANS / "plan.schema.json")


@pytest.mark.parametrize("kind", KINDS)
def test_the_example_of_every_kind_passes(kind):
    example = KINDS[kind].example.replace("qwen", "m")
    assert is_valid(f"{HEAD}steps:\n- {example}\n")


GOOD = [
    "repeat: forever\nsteps: [release]",
    "repeat: 1e3\nevery: 1h30m\nsteps: [release: {}]",
    "repeat: 1_000\nname: 千问 循环\ndevice: cpu\nsteps: [{release: }]",
    "x-anchors: {any: [thing]}\non_failure: stop\nsteps: [restart_worker]",
    "steps: [{wait: 0.5}, {wait: 250 ms}, {wait: 1d 2h}, {wait: {duration: .5}}]",
    "steps: [{expect: {device_used: {below: 1.5GiB, above: 1e6}, device: null}}]",
    "steps: [{name: twice, load: m, timeout: 1m}, {unload: {model: m}}]",
    "steps: [{repeat: {times: 1000000000000, steps: [{repeat: {times: 2, steps: [release]}}]}}]",
]


@pytest.mark.parametrize("rest", GOOD)
def test_what_the_parser_takes_passes(rest):
    plan = f"{HEAD}{rest}\n"
    parse_plan(plan.encode(), "plan.yaml", KINDS)
    assert is_valid(plan)


MODELS = [
    *("Qwen/Qwen2.5-0.5B-Instruct", "gpt2", "./m", "../m", "~/m", "/m", "synthetic:qwen2.5-0.5b"),
    *("千问/x", "a b", "synthetic:no-such", "m/", "", "org/name/more"),
]


@pytest.mark.parametrize("source", MODELS)
def test_a_source_is_judged_as_the_parser_judges_it(source):
    plan = f"version: 1\nmodels: {{m: {{source: '{source}'}}}}\nsteps: [release]\n"
    assert is_valid(plan) is (source in MODELS[:7])


BAD = [
    "steps: []",
    "steps: release",
    "steps: [relase]",
    "steps: [load]",
    "steps: [{load: m, unload: m}]",
    "steps: [{name: nothing}]",
    "steps: [{load: {modle: m}}]",
    "steps: [{load: {model: m, to: gpu}}]",
    "steps: [{load: {model: m, force: maybe}}]",
    "steps: [{load: 'a b'}]",
    "steps: [{move: {to: cpu}}]",
    "steps: [{tokenize: {model: m}}]",
    "steps: [{tokenize: {model: m, text: 5}}]",
    "steps: [{wait: soon}]",
    "steps: [{wait: -1}]",
    "steps: [{wait: 30m1h}]",
    "steps: [{wait: 5s, timeout: [1]}]",
    "steps: [{expect: {device_used: {below: 10gb}}}]",
    "steps: [{expect: {device_usd: {below: 10GB}}}]",
    "steps: [{repeat: {times: 0, steps: [release]}}]",
    "steps: [{repeat: {times: 2, steps: []}}]",
    "steps: [{repeat: {times: 2, steps: [release]}, name: block}]",
    "steps: [release]\nrepeat: never",
    "steps: [release]\nevery: 10:30",
    "steps: [release]\ndevice: cuda",
    "steps: [release]\non_failure: next-cycle",
    "steps: [release]\nstpes: []",
    "steps: [release]\nname: ' x'",
]


@pytest.mark.parametrize("rest", BAD)
def test_most_mistakes_are_underlined(rest):
    assert not is_valid(f"{HEAD}{rest}\n")


@pytest.mark.parametrize(
    "head",
    [
        "",
        "version: 2",
        "version: 1\nmodels: {a b: {source: gpt2}}",
        "version: 1\nmodels: {m: {source: gpt2, dtype: fp16}}",
        "version: 1\nmodels: {m: {source: gpt2, download: always}}",
        "version: 1\nmodels: {m: {source: gpt2, revision: ../up}}",
        "version: 1\nmodels: {m: {}}",
    ],
)
def test_mistakes_above_the_steps_are_underlined(head):
    assert not is_valid(f"{head}\nsteps: [release]\n")


QUANTITIES = st.text("0123456789._-+ eEdhmsuKMGTPkiBb", max_size=12)


@given(QUANTITIES)
def test_a_size_that_the_parser_takes_passes(spelling):
    _agree(part(SCHEMA["$defs"]["Bound"]["properties"]["below"]), parse_bytes, spelling)


@given(QUANTITIES)
def test_a_duration_that_the_parser_takes_passes(spelling):
    _agree(part(SCHEMA["$defs"]["WaitFields"]["properties"]["duration"]), parse_seconds, spelling)


def _agree(validator, parse, spelling):
    """The schema is as strict as the parser, save for limits that no expression can say."""
    try:
        parse(spelling)
        taken = True
    except ValueError as error:
        taken = any(limit in str(error) for limit in ("larger than", "longer than", "a part of a byte"))
    assert validator.is_valid(spelling) is taken
