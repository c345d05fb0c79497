import hashlib
from pathlib import Path

import pytest

from vramscope.plan.parse import load_plan, parse_plan
from vramscope.plan.problems import PlanError
from vramscope.plan.schema import Download, OnFailure
from vramscope.steps._catalog import step_kinds

KINDS = step_kinds()
SMALLEST = "version: 1\nsteps: [release]\n"


def test_the_smallest_plan_has_defaults_for_the_rest(parse):
    plan = parse(SMALLEST)
    assert (plan.name, plan.path, plan.device, plan.models) == ("plan", "plan.yaml", "cuda:0", {})
    assert (plan.repeat, plan.every_seconds, plan.on_failure) == (1, None, OnFailure.NEXT_CYCLE)
    assert plan.sha256 == hashlib.sha256(SMALLEST.encode()).hexdigest()


def test_a_full_plan_is_read_as_it_is_written(parse):
    plan = parse(
        "version: 1\nname: 千问\nmodels:\n  qwen:\n    source: Qwen/Qwen2.5-0.5B\n    revision: v1\n"
        "    dtype: float16\n    download: never\ndevice: cuda:1\nrepeat: forever\nevery: 5m\non_failure: stop\n"
        "steps:\n  - release\n"
    )
    assert (plan.name, plan.device, plan.repeat, plan.every_seconds) == ("千问", "cuda:1", None, 300.0)
    assert plan.on_failure is OnFailure.STOP
    model = plan.models["qwen"]
    assert (model.source, model.revision, model.dtype) == ("Qwen/Qwen2.5-0.5B", "v1", "float16")
    assert (model.download, model.line, model.column) == (Download.NEVER, 4, 3)


def test_top_level_keys_that_begin_with_x_hold_anchors(parse):
    plan = parse(
        "version: 1\nx-base: &base {source: gpt2, dtype: float16}\n"
        "models: {a: *base, b: {<<: *base, dtype: float32}}\nsteps: [release]\n"
    )
    assert {name: model.dtype for name, model in plan.models.items()} == {"a": "float16", "b": "float32"}


BAD = {
    "null": ("null\n", "1:1: expected a mapping with version, models and steps; got nothing"),
    "empty document": ("---\n", "2:1: expected a mapping with version, models and steps; got nothing"),
    "a list": ("- a\n", "1:1: expected a mapping with version, models and steps; got a list"),
    "a word": ("hello\n", '1:1: expected a mapping with version, models and steps; got "hello"'),
    "no version": ("steps: [release]\n", '1:1: missing key "version"'),
    "no steps": ("version: 1\n", '1:1: missing key "steps"'),
    "steps of nothing": ("version: 1\nsteps:\n", "2:7: steps: expected a list, got nothing"),
    "steps that are a mapping": ("version: 1\nsteps: {wait: 1s}\n", "2:8: steps: expected a list, got a mapping"),
    "empty steps": ("version: 1\nsteps: []\n", "2:8: steps: expected at least one step, got an empty list"),
    "another version": (
        "version: 2\nsteps: [release]\n",
        "1:10: version: expected 1, the only version of plans so far; got the number 2",
    ),
    "version true": (
        "version: true\nsteps: [release]\n",
        "1:10: version: expected 1, the only version of plans so far; got true",
    ),
    "unknown key": (f"{SMALLEST}stpes: []\n", '3:1: unknown key "stpes" (did you mean "steps"?)'),
    "duplicate key": (f"{SMALLEST}steps: []\n", '3:1: the key "steps" is given twice, first on line 2'),
    "key that is no text": (
        f"{SMALLEST}1: a\n",
        "3:1: expected a text as key, got the number 1 (quote it to make it text)",
    ),
    "sexagesimal key": (
        "{1:2}\n",
        (
            '1:1: missing key "version"\nplan.yaml:1:1: missing key "steps"\nplan.yaml:1:2: unknown key "1:2" '
            "(known: version, name, models, device, repeat, every, on_failure, steps)"
        ),
    ),
    "name": (
        f"{SMALLEST}name: ' '\n",
        '3:7: name: expected a name of 1 to 64 printable characters without spaces at its ends, got " "',
    ),
    "models of nothing": (f"{SMALLEST}models:\n", "3:8: models: expected a mapping, got nothing"),
    "model that is a word": (f"{SMALLEST}models: {{a: gpt2}}\n", '3:13: models.a: expected a mapping, got "gpt2"'),
    "model without source": (f"{SMALLEST}models: {{a: {{}}}}\n", '3:13: models.a: missing key "source"'),
    "model with a bad name": (
        f"{SMALLEST}models: {{a b: {{source: gpt2}}}}\n",
        '3:10: models: expected a name of 1 to 64 letters, digits, dots, dashes and underscores, got "a b"',
    ),
    "unknown key of a model": (
        f"{SMALLEST}models: {{a: {{source: gpt2, revison: main}}}}\n",
        '3:28: models.a: unknown key "revison" (did you mean "revision"?)',
    ),
    "dtype": (
        f"{SMALLEST}models: {{a: {{source: gpt2, dtype: fp16}}}}\n",
        '3:35: models.a.dtype: expected one of auto, float32, float16, bfloat16; got "fp16" (did you mean "float16"?)',
    ),
    "download": (
        f"{SMALLEST}models: {{a: {{source: gpt2, download: true}}}}\n",
        "3:38: models.a.download: expected one of never, if-missing; got true",
    ),
    "revision": (
        f"{SMALLEST}models: {{a: {{source: gpt2, revision: 5}}}}\n",
        "3:38: models.a.revision: expected text, got the number 5 (quote it to make it text)",
    ),
    "home of nobody": (
        f"{SMALLEST}models: {{a: {{source: ~nobody-y/m}}}}\n",
        '3:22: models.a.source: expected a directory, got "~nobody-y/m", and that user has no home directory here',
    ),
    "device": (f"{SMALLEST}device: gpu\n", '3:9: device: expected cpu or cuda:N, got "gpu" (did you mean "cuda:0"?)'),
    "repeat": (
        f"{SMALLEST}repeat: 0\n",
        "3:9: repeat: expected forever or a whole number of 1 or more, got the number 0",
    ),
    "repeat of a boolean": (
        f"{SMALLEST}repeat: true\n",
        "3:9: repeat: expected forever or a whole number of 1 or more, got true",
    ),
    "every": (f"{SMALLEST}every: 0s\n", '3:8: every: expected a duration longer than 0, got "0s"'),
    "on_failure": (
        f"{SMALLEST}on_failure: next-cycle\n",
        '3:13: on_failure: expected one of next_cycle, stop; got "next-cycle" (did you mean "next_cycle"?)',
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_wrong_plan_is_told_with_its_place(problems, case):
    text, message = BAD[case]
    assert "\n".join(problems(text)) == f"plan.yaml:{message}"


EIGHT = """\
version: 1
device: gpu
models:
  qwen: {source: gpt2, dtype: fp16}
stpes: []
steps:
  - move: qwen
  - lod: qwen
  - load: qwne
  - wait: soon
  - tokenize: {model: qwen, text: 5}
"""


def test_eight_mistakes_are_eight_lines_in_the_order_of_the_file(problems):
    known = "expect, fetch, load, move, release, repeat, restart_worker, tokenize, unload, wait"
    assert problems(EIGHT) == [
        'plan.yaml:2:9: device: expected cpu or cuda:N, got "gpu" (did you mean "cuda:0"?)',
        (
            "plan.yaml:4:31: models.qwen.dtype: expected one of auto, float32, float16, bfloat16; "
            'got "fp16" (did you mean "float16"?)'
        ),
        'plan.yaml:5:1: unknown key "stpes" (did you mean "steps"?)',
        'plan.yaml:7:5: steps[0] "move qwen to cuda:0": expected model "qwen" to be loaded, but it was never loaded',
        f'plan.yaml:8:5: steps[1]: expected one of {known}; got "lod" (did you mean "load"?)',
        'plan.yaml:9:11: steps[2].load: expected one of the plan\'s models (qwen), got "qwne" (did you mean "qwen"?)',
        'plan.yaml:10:11: steps[3].wait: expected a duration such as 250ms, 30s, 5m or 1h30m, got "soon"',
        "plan.yaml:11:35: steps[4].tokenize.text: expected text, got the number 5 (quote it to make it text)",
    ]


def test_a_directory_is_found_from_the_plan_and_a_name_is_left_alone(tmp_path):
    plan_file = tmp_path / "plans" / "a.yaml"
    plan_file.parent.mkdir()
    plan_file.write_text(
        "version: 1\nsteps: [release]\nmodels: {near: {source: ./m}, up: {source: ../m}, hub: {source: org/m}}\n"
    )
    sources = {name: model.source for name, model in load_plan(plan_file, KINDS).models.items()}
    assert sources == {"near": f"{tmp_path}/plans/m", "up": f"{tmp_path}/plans/../m", "hub": "org/m"}


def test_a_plan_without_a_name_has_the_name_of_its_file(tmp_path):
    plan_file = tmp_path / f"nightly\n{'x' * 80}.yaml"
    plan_file.write_text(SMALLEST)
    assert load_plan(plan_file, KINDS).name == f"nightly_{'x' * 56}"


@pytest.mark.parametrize(
    ("path", "message"),
    [("none.yaml", "cannot be read: No such file or directory"), (".", "cannot be read: Is a directory")],
)
def test_a_file_that_cannot_be_read_is_one_problem_without_a_place(tmp_path, path, message):
    with pytest.raises(PlanError) as caught:
        load_plan(tmp_path / path, KINDS)
    assert str(caught.value) == f"{tmp_path / path}: {message}"
    (problem,) = caught.value.problems
    assert (problem.line, problem.column) == (None, None)


def test_a_device_file_without_end_is_refused_by_its_size():
    with pytest.raises(PlanError, match=r"/dev/zero:1:1: expected a file of at most 1,048,576 bytes, got a larger one"):
        load_plan(Path("/dev/zero"), KINDS)


@pytest.mark.parametrize(
    "text", ["\ufeff" + SMALLEST, SMALLEST.replace("\n", "\r\n"), '{"version": 1, "steps": ["release"]}']
)
def test_other_forms_of_the_same_plan_are_read(text):
    assert len(parse_plan(text.encode(), "p.yaml", KINDS).steps) == 1


PLANS = sorted((Path(__file__).parents[2] / "deploy" / "plans").glob("*.yaml"))


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_the_plans_that_are_delivered_are_good(path):
    assert load_plan(path, KINDS).steps


def test_the_demo_is_the_cycle_that_it_says_it_is():
    plan = load_plan(next(path for path in PLANS if path.stem == "demo"), KINDS)
    assert (plan.name, plan.device, plan.repeat) == ("qwen-cycle", "cuda:0", 3)
    assert plan.models["qwen"].source == "synthetic:qwen2.5-0.5b"
    kinds = [step.kind for step in plan.steps]
    assert kinds == ["tokenize", "load", "move", "wait", "expect", "move", "unload", "release"]
    assert plan.steps[0].fields.text == "从 Infra 角度看，大语言模型到底是什么？"  # noqa: RUF001  as people type it
