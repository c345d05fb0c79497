import pytest

from vramscope.anatomy.components import Component
from vramscope.anatomy.parts import part_of
from vramscope.errors import PartError

NAMES = [
    "model.embed_tokens.weight",
    *(f"model.layers.{n}.{leaf}.weight" for n in range(4) for leaf in ("self_attn.q_proj", "mlp.up_proj")),
    "model.norm.weight",
]


def named(*layers, components=()):
    return [NAMES[index] for index in part_of(layers, components).indices(NAMES)]


def test_a_part_is_what_layers_or_components_name():
    found = named((0, 0), (2, 2), components=[Component.EMBEDDING, Component.MLP])
    assert found == [
        "model.embed_tokens.weight",
        "model.layers.0.self_attn.q_proj.weight",
        "model.layers.0.mlp.up_proj.weight",
        "model.layers.1.mlp.up_proj.weight",
        "model.layers.2.self_attn.q_proj.weight",
        "model.layers.2.mlp.up_proj.weight",
        "model.layers.3.mlp.up_proj.weight",
    ]


def test_runs_that_touch_or_overlap_are_one():
    part = part_of([(2, 3), (0, 1), (3, 5), (9, 9)], [Component.NORM, Component.EMBEDDING, Component.NORM])
    assert str(part) == "layers 0-5,9, embedding, norm"
    assert part_of([], []) is None


@pytest.mark.parametrize(
    ("layers", "components", "message"),
    [
        ([(4, 4)], [], "the model has no layer 4: it has layers 0-3"),
        ([(2, 999_999)], [], "the model has no layer 4: it has layers 0-3"),
        ([], ["vision"], "the model has no vision: it has embedding, attention, mlp, norm"),
        (
            [(0, 0)],
            ["lm_head"],
            (
                "the model has no lm_head: it has embedding, attention, mlp, norm "
                "(a head that is tied to the embedding is the embedding)"
            ),
        ),
    ],
)
def test_a_part_that_the_model_does_not_have_says_what_there_is(layers, components, message):
    with pytest.raises(PartError) as caught:
        named(*layers, components=[Component(each) for each in components])
    assert str(caught.value) == message


def test_a_model_without_layers_has_none_to_name():
    with pytest.raises(PartError, match="has no layer 0: it has no numbered layers"):
        part_of([(0, 0)], []).indices(["weight"])
