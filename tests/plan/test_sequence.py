import pytest

from vramscope.plan.schema import Repeat, walk

KNOWN = "expect, fetch, load, move, release, repeat, restart_worker, tokenize, unload, wait"
DURATION = "expected a duration such as 250ms, 30s, 5m or 1h30m"

BAD = {
    "unknown kind": (
        "- name: warm-b\n  lod: qwen\n",
        f'5:3: steps[0] "warm-b": expected one of {KNOWN}; got "lod" (did you mean "load"?)',
    ),
    "unknown kind without a near one": ("- dance\n", f'4:3: steps[0]: expected one of {KNOWN}; got "dance"'),
    "a number": ("- 5\n", "4:3: steps[0]: expected a step, got the number 5"),
    "nothing": ("-\n- wait: 1s\n", "4:2: steps[0]: expected a step, got nothing"),
    "a list": ("- [wait]\n", "4:3: steps[0]: expected a step, got a list"),
    "an empty mapping": ("- {}\n", f"4:3: steps[0]: expected one of {KNOWN}; got no kind"),
    "only a name": ("- name: a\n", f'4:3: steps[0] "a": expected one of {KNOWN}; got no kind'),
    "two kinds": (
        "- load: qwen\n  move: qwen\n",
        "5:3: steps[0]: expected one kind in a step, got load and move (each needs a list item of its own)",
    ),
    "unknown option": (
        "- wait: 1s\n  timout: 5s\n",
        '5:3: steps[0]: unknown key "timout" (did you mean "timeout"?)',
    ),
    "unknown option without a near one": (
        "- wait: 1s\n  colour: red\n",
        '5:3: steps[0]: unknown key "colour" (known: name, timeout)',
    ),
    "kind without its fields": ("- load\n", "4:3: steps[0]: expected load: MODEL, got nothing"),
    "kind with nothing": (
        "- tokenize:\n",
        "4:12: steps[0].tokenize: expected tokenize: {model: MODEL, text: TEXT}, got nothing",
    ),
    "a kind without its colon": (
        "- load qwen\n",
        '4:3: steps[0]: expected load: qwen (with a colon after the kind), got "load qwen"',
    ),
    "a move without its colon": (
        "- move a to cuda:0\n",
        '4:3: steps[0]: expected move: {model: a, to: cuda:0} (with a colon after the kind), got "move a to cuda:0"',
    ),
    "a word behind a kind without fields": (
        "- release now\n",
        f'4:3: steps[0]: expected one of {KNOWN}; got "release now" (did you mean "release"?)',
    ),
    "a move as people say it": (
        "- move: qwen to cuda:0\n",
        '4:9: steps[0].move: expected move: {model: qwen, to: cuda:0}, got "qwen to cuda:0"',
    ),
    "missing field": ("- tokenize: {model: qwen}\n", '4:13: steps[0].tokenize: missing key "text"'),
    "unknown field": (
        "- move: {model: qwen, too: cpu}\n",
        '4:23: steps[0].move: unknown key "too" (did you mean "to"?)',
    ),
    "unknown field inside": (
        "- expect: {torch_allocated: {belw: 1GiB}}\n",
        '4:30: steps[0].expect.torch_allocated: unknown key "belw" (did you mean "below"?)',
    ),
    "fields that are a list": (
        "- tokenize: [qwen]\n",
        "4:13: steps[0].tokenize: expected a mapping with model, text; got a list",
    ),
    "fields for a kind without any": (
        "- release: all\n",
        '4:12: steps[0].release: expected only the word release; got "all"',
    ),
    "scalar of a wrong type": (
        "- load: 5\n",
        "4:9: steps[0].load: expected text, got the number 5 (quote it to make it text)",
    ),
    "unknown device": (
        "- name: warm\n  load: {model: qwen, to: cuda}\n",
        '5:27: steps[0].load.to "warm": expected cpu or cuda:N, got "cuda" (did you mean "cuda:0"?)',
    ),
    "unknown model": (
        "- load: qwne\n",
        '4:9: steps[0].load: expected one of the plan\'s models (qwen, llama), got "qwne" (did you mean "qwen"?)',
    ),
    "unknown model in a mapping": (
        '- tokenize: {text: "a", model: gpt}\n',
        '4:32: steps[0].tokenize.model: expected one of the plan\'s models (qwen, llama), got "gpt"',
    ),
    "infinite wait": ("- wait: .inf\n", f"4:9: steps[0].wait: {DURATION}, got the number inf"),
    "wait that is no number": ("- wait: .nan\n", f"4:9: steps[0].wait: {DURATION}, got the number nan"),
    "negative wait": ("- wait: -1s\n", f'4:9: steps[0].wait: {DURATION}, got "-1s"'),
    "wait of a boolean": ("- wait: true\n", f"4:9: steps[0].wait: {DURATION}, got true"),
    "timeout of nothing": (
        "- wait: 1s\n  timeout: 0s\n",
        '5:12: steps[0].timeout: expected a duration longer than 0, got "0s"',
    ),
    "timeout of a step with a name": (
        "- {name: a, wait: 1s, timeout: -1}\n",
        f'4:32: steps[0].timeout "a": {DURATION}, got the number -1: a duration is never negative',
    ),
    "name that is no name": (
        "- name: ''\n  wait: 1s\n",
        '4:9: steps[0].name: expected a name of 1 to 64 printable characters without spaces at its ends, got ""',
    ),
    "name that is a number": (
        "- name: 5\n  wait: 1s\n",
        "4:9: steps[0].name: expected text, got the number 5 (quote it to make it text)",
    ),
    "name of another step": (
        "- {name: a, wait: 1s}\n- {name: a, wait: 1s}\n",
        '5:10: steps[1].name "a": expected a name that no other step has, got "a" again (first on line 4)',
    ),
    "name of a step in a block": (
        "- {name: a, wait: 1s}\n- repeat: {times: 2, steps: [{name: a, wait: 1s}]}\n",
        (
            '5:37: steps[1].repeat.steps[0].name "a": expected a name that no other step has, '
            'got "a" again (first on line 4)'
        ),
    ),
    "name that aliases share": (
        "- &w {name: a, wait: 1s}\n- *w\n",
        '4:13: steps[1].name "a": expected a name that no other step has, got "a" again (first on line 4)',
    ),
    "block that is a number": (
        "- repeat: 3\n",
        "4:11: steps[0].repeat: expected a mapping with times and steps, got the number 3",
    ),
    "block without times": ("- repeat: {steps: [wait: 1s]}\n", '4:11: steps[0].repeat: missing key "times"'),
    "block without steps": ("- repeat: {times: 3}\n", '4:11: steps[0].repeat: missing key "steps"'),
    "block with no steps": (
        "- repeat: {times: 3, steps: []}\n",
        "4:29: steps[0].repeat.steps: expected at least one step, got an empty list",
    ),
    "block with unknown key": (
        "- repeat: {times: 3, step: 1, steps: [wait: 1s]}\n",
        '4:22: steps[0].repeat: unknown key "step" (did you mean "steps"?)',
    ),
    "block with a name": (
        "- name: again\n  repeat: {times: 3, steps: [wait: 1s]}\n",
        '4:3: steps[0] "again": expected no name on a repeat block: give it to a step inside',
    ),
    "block with a timeout": (
        "- repeat: {times: 3, steps: [wait: 1s]}\n  timeout: 1s\n",
        "5:3: steps[0]: expected no timeout on a repeat block: give it to a step inside",
    ),
    **{
        f"block of {spelled} times": (
            f"- repeat: {{times: {spelled}, steps: [wait: 1s]}}\n",
            f"4:19: steps[0].repeat.times: expected a whole number of 1 or more, got {shown}",
        )
        for spelled, shown in [
            ("true", "true"),
            ("0", "the number 0"),
            ("-1", "the number -1"),
            ("1.5", "the number 1.5"),
            (".inf", "the number inf"),
            ("forever", '"forever"'),
        ]
    },
}


@pytest.mark.parametrize("case", BAD)
def test_a_wrong_step_is_told_with_its_place(step_problems, case):
    steps, message = BAD[case]
    assert step_problems(steps) == [message]


def test_no_model_at_all_is_told_as_such(problems):
    assert problems("version: 1\nsteps:\n- load: qwen\n") == [
        'plan.yaml:3:9: steps[0].load: expected a model of the plan, which has none under models:, got "qwen"'
    ]


def steps_of(parse, text):
    return parse(f"version: 1\nmodels: {{qwen: {{source: gpt2}}}}\nsteps:\n{text}").steps


def test_a_bare_word_an_empty_value_and_an_empty_mapping_are_a_kind_without_fields(parse):
    steps = steps_of(parse, "- release\n- release:\n- release: {}\n")
    assert [step.kind for step in steps] == ["release"] * 3


def test_a_bare_value_fills_the_field_of_the_kind_that_is_meant(parse):
    (bare,) = steps_of(parse, "- wait: 90\n")
    (full,) = steps_of(parse, "- wait: {duration: 1m30s}\n")
    assert bare.fields == full.fields
    assert bare.fields.duration == 90.0


def test_a_step_knows_its_place_its_timeout_and_what_it_does(parse):
    (_, step) = steps_of(parse, "- load: qwen\n- name: go\n  move: qwen\n  timeout: 2m\n")
    assert (step.name, step.kind, step.where, step.line, step.column) == ("go", "move", "steps[1]", 5, 3)
    assert step.timeout_seconds == 120.0
    assert (step.effect.model, step.effect.to) == ("qwen", "cuda:0")


def test_steps_are_named_for_what_they_do_and_told_apart(parse):
    text = (
        "- wait: 1s\n- {name: 'wait #2', wait: 1s}\n- wait: 1s\n- load: qwen\n- move: qwen\n"
        "- repeat: {times: 2, steps: [wait: 1s]}\n- unload: qwen\n- load: qwen\n"
    )
    names = [step.name for step in walk(steps_of(parse, text))]
    assert names == [
        "wait",
        "wait #2",
        "wait #3",
        "load qwen",
        "move qwen to cuda:0",
        "wait #4",
        "wait #4",
        "unload qwen",
        "load qwen #2",
    ]


def test_three_aliases_are_three_steps(parse):
    steps = steps_of(parse, "- &w {wait: 1s}\n- *w\n- *w\n")
    assert [step.name for step in steps] == ["wait", "wait #2", "wait #3"]
    assert [step.where for step in steps] == ["steps[0]", "steps[1]", "steps[2]"]


@pytest.mark.parametrize("times", ["1000000000000", "1e9", "'1_000'"])
def test_a_block_of_any_size_is_kept_as_it_is_written(parse, times):
    (block,) = steps_of(parse, f"- repeat: {{times: {times}, steps: [wait: 1ms]}}\n")
    assert isinstance(block, Repeat)
    assert block.times == int(float(times.strip("'")))
    assert len(block.steps) == 1
    assert next(walk((block,))).name == "wait"
