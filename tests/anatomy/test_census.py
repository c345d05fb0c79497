from hypothesis import given
from hypothesis import strategies as st

from vramscope.anatomy.census import Counted, LayerRun, Share, by_component, by_layer, is_buffer, layer_of, total
from vramscope.anatomy.header import TensorEntry


def counted(name: str, parameters: int | None = 1, nbytes: int | None = 2) -> Counted:
    return Counted(name=name, parameters=parameters, nbytes=nbytes)


def test_one_count_that_cannot_be_told_makes_a_sum_that_cannot():
    assert total([]) == Share(parameters=0, nbytes=0)
    assert total([counted("a"), counted("b", 3, 4)]) == Share(parameters=4, nbytes=6)
    assert total([counted("a", None), counted("b")]) == Share(parameters=None, nbytes=4)
    assert total([counted("a", nbytes=None), counted("b")]) == Share(parameters=2, nbytes=None)


def test_layers_that_are_alike_and_follow_each_other_are_one_run():
    sizes = {0: 5, 1: 5, 2: 7, 3: 7, 10: 7}
    tensors = [counted(f"model.layers.{index}.w", size, 2 * size) for index, size in reversed(sizes.items())]
    assert by_layer([*tensors, counted("lm_head.weight"), counted("vision.blocks.0.w")]) == (
        LayerRun(stack="model.layers", first=0, last=1, each=Share(parameters=5, nbytes=10)),
        LayerRun(stack="model.layers", first=2, last=3, each=Share(parameters=7, nbytes=14)),
        LayerRun(stack="model.layers", first=10, last=10, each=Share(parameters=7, nbytes=14)),
        LayerRun(stack="vision.blocks", first=0, last=0, each=Share(parameters=1, nbytes=2)),
    )


def test_the_first_number_of_a_name_is_its_layer():
    assert layer_of("model.layers.3.mlp.experts.7.w1.weight") == ("model.layers", 3)
    for name in ("lm_head.weight", "0.weight", "", "a..b", "layers.٣.w", "layers.1234567.w", "layers.-1.w"):
        assert layer_of(name) is None, name


@given(st.lists(st.tuples(st.text("ab.0123", max_size=12), st.integers(0, 9)), max_size=20))
def test_parts_and_layers_lose_nothing(sizes):
    tensors = [counted(name, size, size) for name, size in sizes]
    whole = total(tensors)
    parts = by_component(tensors).values()
    assert sum(part.parameters for part in parts) == whole.parameters
    in_layers = total(tensor for tensor in tensors if layer_of(tensor.name))
    assert sum(run.layers * run.each.parameters for run in by_layer(tensors)) == in_layers.parameters


def test_buffers_are_known_by_name():
    def entry(name: str, *shape: int) -> TensorEntry:
        return TensorEntry(name=name, dtype="F32", shape=shape, start=0, end=0, elements=0)

    for name in ("h.0.attn.masked_bias", "model.layers.0.self_attn.rotary_emb.inv_freq", "embeddings.position_ids"):
        assert is_buffer(entry(name, 4)), name
    assert is_buffer(entry("h.0.attn.bias", 1, 1, 8, 8))
    assert not is_buffer(entry("h.0.attn.bias", 8))
    assert not is_buffer(entry("position_embeddings.weight", 1, 1, 8, 8))
