import pytest

from vramscope.plan.schema import named_steps

ABSENT = 'expected model "qwen" to be loaded, but it was never loaded'


def since(line, device="cpu"):
    return f'expected model "qwen" not to be loaded, but it is on {device} since line {line}'


def already(line, device):
    return f'expected model "qwen" on another device, but it is on {device} since line {line}'


GOOD = {
    "load, move, unload": "- load: qwen\n- move: qwen\n- move: {model: qwen, to: cpu}\n- unload: qwen\n",
    "straight to the device": "- load: {model: qwen, to: cuda:0}\n- move: {model: qwen, to: cuda:1}\n",
    "twice": "- load: qwen\n- unload: qwen\n- load: qwen\n",
    "two models": "- load: qwen\n- load: llama\n- move: llama\n- unload: qwen\n",
    "tokenize needs no load": "- tokenize: {model: qwen, text: a}\n",
    "a block that ends as it begins": (
        "- load: qwen\n- repeat: {times: 2, steps: [move: qwen, move: {model: qwen, to: cpu}]}\n"
    ),
    "a restart when all is unloaded": "- load: qwen\n- unload: qwen\n- restart_worker\n- load: qwen\n",
    "a block of one pass": "- repeat: {times: 1, steps: [load: qwen]}\n",
    "a block that loads and unloads": "- repeat: {times: 9, steps: [load: qwen, unload: qwen]}\n- load: qwen\n",
    "blocks inside blocks": (
        "- repeat: {times: 2, steps: [load: qwen, {repeat: {times: 2, steps: [wait: 1]}}, unload: qwen]}\n"
    ),
    "still loaded at the end of one cycle": "- load: qwen\n",
}


@pytest.mark.parametrize("case", GOOD)
def test_steps_that_can_work_pass(parse, case):
    head = "version: 1\nmodels: {qwen: {source: synthetic:tiny}, llama: {source: synthetic:tiny}}\nsteps:\n"
    assert parse(head + GOOD[case]).steps


BAD = {
    "move before load": ("- move: qwen\n", [f'4:3: steps[0] "move qwen to cuda:0": {ABSENT}']),
    "unload before load": ("- unload: qwen\n", [f'4:3: steps[0] "unload qwen": {ABSENT}']),
    "load twice": ("- load: qwen\n- load: qwen\n", [f'5:3: steps[1] "load qwen #2": {since(4)}']),
    "load after move": (
        "- load: qwen\n- move: qwen\n- load: qwen\n",
        [f'6:3: steps[2] "load qwen #2": {since(5, "cuda:0")}'],
    ),
    "unload twice": (
        "- load: qwen\n- unload: qwen\n- unload: qwen\n",
        ['6:3: steps[2] "unload qwen #2": expected model "qwen" to be loaded, but it is unloaded since line 5'],
    ),
    "move to where it is": (
        "- load: {model: qwen, to: cuda:0}\n- move: qwen\n",
        [f'5:3: steps[1] "move qwen to cuda:0": {already(4, "cuda:0")}'],
    ),
    "move to the host where it is": (
        "- load: qwen\n- move: {model: qwen, to: cpu}\n",
        [f'5:3: steps[1] "move qwen to cpu": {already(4, "cpu")}'],
    ),
    "a restart while a model is loaded": (
        "- load: qwen\n- move: qwen\n- restart_worker\n",
        [('6:3: steps[2] "restart_worker": expected every model to be unloaded, but "qwen" is on cuda:0 since line 5')],
    ),
    "one mistake is told once": (
        "- move: qwen\n- move: {model: qwen, to: cpu}\n- unload: qwen\n",
        [f'4:3: steps[0] "move qwen to cuda:0": {ABSENT}'],
    ),
    "a block that loads twice": (
        "- repeat: {times: 2, steps: [load: qwen]}\n",
        [f'4:30: steps[0].repeat.steps[0] "load qwen": {since(4)} (when the block repeats)'],
    ),
    "a block that moves twice": (
        "- load: qwen\n- repeat: {times: 2, steps: [move: qwen]}\n",
        [f'5:30: steps[1].repeat.steps[0] "move qwen to cuda:0": {already(5, "cuda:0")} (when the block repeats)'],
    ),
    "a block that unloads twice": (
        "- load: qwen\n- repeat: {times: 1000000000, steps: [unload: qwen]}\n",
        [
            (
                '5:39: steps[1].repeat.steps[0] "unload qwen": expected model "qwen" to be loaded, '
                "but it is unloaded since line 5 (when the block repeats)"
            )
        ],
    ),
    "a block wrong in its first pass is told once": (
        "- repeat: {times: 2, steps: [unload: qwen]}\n",
        [f'4:30: steps[0].repeat.steps[0] "unload qwen": {ABSENT}'],
    ),
    "an inner block wrong when the outer one repeats": (
        "- load: qwen\n- repeat: {times: 2, steps: [{repeat: {times: 1, steps: [move: qwen]}}]}\n",
        [
            (
                f'5:58: steps[1].repeat.steps[0].repeat.steps[0] "move qwen to cuda:0": {already(5, "cuda:0")}'
                " (when the block repeats)"
            )
        ],
    ),
    "after a step that cannot be read nothing is known": (
        "- lod: qwen\n- move: qwen\n- load: qwen\n",
        [
            (
                "4:3: steps[0]: expected one of expect, fetch, load, move, release, repeat, restart_worker, tokenize, "
                'unload, wait; got "lod" (did you mean "load"?)'
            ),
            f'6:3: steps[2] "load qwen": {since(5, "cuda:0")}',
        ],
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_the_first_step_that_cannot_work_is_named(step_problems, case):
    steps, messages = BAD[case]
    assert step_problems(steps) == messages


@pytest.mark.parametrize("repeat", ["forever", "2", "1000000000000"])
def test_a_model_still_loaded_when_the_plan_repeats_is_named_where_it_was_last_touched(problems, repeat):
    plan = "version: 1\nrepeat: {}\nmodels: {{qwen: {{source: gpt2}}}}\nsteps:\n- load: qwen\n- move: qwen\n"
    assert problems(plan.format(repeat)) == [
        (
            'plan.yaml:6:3: steps[1] "move qwen to cuda:0": model "qwen" is still on cuda:0 when the plan ends, '
            'and the plan repeats: add "- unload: qwen"'
        )
    ]


def test_blocks_inside_blocks_are_followed_in_no_time(parse):
    block = "{wait: 1}"
    for _ in range(14):
        block = f"{{repeat: {{times: 1000000000, steps: [{block}, {{load: qwen}}, {{unload: qwen}}]}}}}"
    plan = parse(f"version: 1\nmodels: {{qwen: {{source: gpt2}}}}\nsteps: [{block}]\n")
    assert len(list(named_steps(plan.steps))) == 29
