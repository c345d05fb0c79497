import pytest

from vramscope.anatomy.components import Component
from vramscope.anatomy.parts import part_of

LAYER = "expected a layer or a range of layers such as 3 or 0-11, got"


@pytest.mark.parametrize(
    ("fields", "layers", "components"),
    [
        ("layers: 3", [(3, 3)], []),
        ("layers: 0-11", [(0, 11)], []),
        ("layers: '0-3, 20 - 23'", [(0, 3), (20, 23)], []),
        ("layers: [0-3, 7, '5']", [(0, 3), (5, 5), (7, 7)], []),
        ("components: [lm_head, embedding]", [], [Component.EMBEDDING, Component.LM_HEAD]),
        ("components: mlp, layers: 0", [(0, 0)], [Component.MLP]),
    ],
)
def test_a_part_is_read_and_travels_to_the_worker_as_it_is(parse, fields, layers, components):
    head = "version: 1\nmodels: {m: {source: 'synthetic:tiny'}}\nsteps:\n- load: m\n"
    (_, step) = parse(f"{head}- move: {{model: m, to: cuda:1, {fields}}}\n").steps
    assert step.effect.part == part_of(layers, components)
    again = type(step.fields)(**step.fields.model_dump(mode="json", exclude_unset=True))
    assert again.part == step.effect.part


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("layers: 11-0", f'.layers: {LAYER} "11-0", which runs backwards (did you mean "0-11"?)'),
        ("layers: -1", f".layers: {LAYER} the number -1"),
        ("layers: true", f".layers: {LAYER} true"),
        ("layers: 2.0", f".layers: {LAYER} the number 2.0"),
        ("layers:", f".layers: {LAYER} nothing"),
        ("layers: {a: 1}", f".layers: {LAYER} a mapping"),
        ("layers: x", f'.layers: {LAYER} "x"'),
        (
            "layers: 1000000",
            f".layers: {LAYER} the number 1000000: layers are numbered from 0 to 999,999 at most",
        ),
        ("layers: []", ".layers: expected at least one of the model's layers, got an empty list"),
        ("layers: [1, 5-3]", f'.layers[1]: {LAYER} "5-3", which runs backwards (did you mean "3-5"?)'),
        ("components: []", ".components: expected at least one of the model's components, got an empty list"),
        (
            "components: [mlp, mpl]",
            (
                ".components[1]: expected one of embedding, attention, mlp, norm, lm_head, vision, other; "
                'got "mpl" (did you mean "mlp"?)'
            ),
        ),
    ],
)
def test_a_bad_part_is_told_at_its_place(step_problems, fields, message):
    (problem,) = step_problems(f"- load: qwen\n- move: {{model: qwen, {fields}}}\n")
    assert problem.startswith("5:")
    assert problem.partition("steps[1].move")[2] == message


def test_a_load_of_a_part_needs_a_device(step_problems):
    (problem,) = step_problems("- load: {model: qwen, layers: 0}\n")
    assert problem.endswith("expected to: cuda:N beside layers or components, which say what goes to that device")


def test_a_step_without_a_name_says_its_part(parse):
    head = "version: 1\nmodels: {m: {source: 'synthetic:tiny'}}\nsteps:\n- load: m\n"
    long = "layers: [0,2,4,6,8,10,12,14,16,18,20,22,24,26]"
    plan = parse(f"{head}- move: {{model: m, layers: 0-3}}\n- move: {{model: m, {long}}}\n")
    assert [step.name for step in plan.steps] == [
        "load m",
        "move layers 0-3 of m to cuda:0",
        "move part of m to cuda:0",
    ]


def test_a_part_may_go_anywhere_but_where_all_of_the_model_is(step_problems, parse):
    (problem,) = step_problems("- load: qwen\n- move: {model: qwen, to: cpu, layers: 0}\n")
    assert 'expected model "qwen" on another device, but it is on cpu since line 4' in problem
    (problem,) = step_problems("- load: qwen\n- move: {model: qwen, layers: 0}\n- load: qwen\n")
    assert "not to be loaded, but it is in parts on several devices since line 5" in problem
    head = "version: 1\nmodels: {m: {source: 'synthetic:tiny'}}\nsteps:\n- load: {model: m, to: cuda:0, layers: 0}\n"
    parse(f"{head}- move: {{model: m, layers: 1}}\n- move: m\n- move: {{model: m, to: cpu}}\n- unload: m\n")
