"""The predictor, step by step: what torch has allocated and reserved, and what nvidia-smi shows."""

import pytest
import torch
from tests.forecast.sketch import CARD, MIB, RELEASE, after, card, load, mib, model, move, unload

from vramscope.anatomy.source import resolve
from vramscope.forecast.predict import DeviceBudget, MisfitError, Predictor, UnknownModelError
from vramscope.loading.assemble import find_architecture
from vramscope.loading.skeleton import Skeleton
from vramscope.memory.allocator import AllocatorSettings

# The published picture: Qwen2.5-0.5B in float16 on a card of 12 GiB with a context of 113 MiB.
ALLOCATED, RESERVED, USED = 996_322_304, 1_040_187_392, 1_158_676_480


@pytest.fixture(scope="module")
def qwen(tmp_path_factory):
    """The order of its tensors, from a checkpoint that is planned and not written."""
    checkpoint = resolve("synthetic:qwen2.5-0.5b", tmp_path_factory.mktemp("cache"))
    assert not checkpoint.directory.exists()
    architecture = find_architecture(checkpoint.directory, checkpoint.config)
    return Skeleton(architecture, torch.float16).order(checkpoint.headers)


@pytest.fixture
def picture(qwen):
    return Predictor({"qwen": qwen}, {CARD: card(12_288, context=113)})


def predictor(total, context=0, **models):
    return Predictor(models, {CARD: card(total, context)})


def figures(levels):
    return levels.allocated_bytes, levels.reserved_bytes, levels.used_bytes


def test_the_published_picture(picture):
    on_host = after(picture, load("qwen"))
    assert figures(on_host) == (0, 0, 0)
    assert picture.levels().host_bytes == 988_065_792
    on_device = after(picture, move("qwen"))
    assert figures(on_device) == (ALLOCATED, RESERVED, USED)
    assert (on_device.parameter_bytes, on_device.buffer_bytes) == (988_065_536, 256)
    assert picture.levels().host_bytes == 0


def test_what_the_first_cycle_leaves_in_the_cache_serves_the_second_one(picture):
    after(picture, load("qwen"), move("qwen"))
    assert figures(after(picture, move("qwen", "cpu"), unload("qwen"))) == (0, RESERVED, USED)
    assert figures(after(picture, load("qwen"), move("qwen"))) == (ALLOCATED, RESERVED, USED)


def test_after_a_release_only_the_context_is_left_and_the_second_cycle_is_as_the_first(picture):
    after(picture, load("qwen"), move("qwen"), move("qwen", "cpu"), unload("qwen"))
    assert figures(after(picture, RELEASE)) == (0, 0, USED - RESERVED)
    assert figures(after(picture, load("qwen"), move("qwen"))) == (ALLOCATED, RESERVED, USED)


def test_a_load_straight_to_the_device_takes_blocks_in_file_order(qwen, picture):
    assert sorted(qwen.direct) == list(range(len(qwen.tensors)))
    assert qwen.direct != tuple(range(len(qwen.tensors)))
    levels = after(picture, load("qwen", CARD))
    assert levels.parameter_bytes + levels.buffer_bytes == qwen.nbytes
    assert figures(levels) == (ALLOCATED, RESERVED, USED)


def test_the_order_decides_what_is_reserved():
    # After 12.5 MiB in a segment of 14 MiB, 1.4 MiB fit into the rest; before it, they open a segment of 20 MiB.
    two = model(12.5, 1.4, direct=(1, 0))
    assert mib(after(predictor(100, two=two), load("two"), move("two")))[1] == 14
    assert mib(after(predictor(100, two=two), load("two", CARD)))[1] == 20


def test_the_context_is_taken_once_and_by_the_first_model_that_comes():
    both = predictor(30, 10, a=model(2), b=model(2))
    assert mib(after(both, load("a"))) == (0, 0, 0)
    assert mib(after(both, move("a"))) == (2, 20, 30)
    assert mib(after(both, load("b", CARD))) == (4, 20, 30)
    assert mib(after(both, unload("a"), unload("b"), RELEASE)) == (0, 0, 10)


def test_a_context_that_has_no_room_is_a_misfit_and_takes_nothing():
    small = predictor(9, 10, a=model(1))
    after(small, load("a"))
    with pytest.raises(MisfitError, match="a context needs 10485760"):
        small.apply(move("a"))
    assert mib(small.levels()) == (0, 0, 0)
    assert small.placed() == [("a", "cpu")]


def test_what_does_not_fit_is_taken_back_and_stays_where_it_was():
    tight = predictor(50, a=model(12), b=model(3, 14, 30))
    after(tight, load("a", CARD), load("b"))
    with pytest.raises(MisfitError, match=f"{30 * MIB} bytes needs a new segment") as caught:
        tight.apply(move("b"))
    assert caught.value.device == CARD
    # The 3 MiB had opened a segment of 20 MiB, into which the 14 went; the allocator keeps it.
    assert mib(tight.levels()) == (12, 32, 32)
    assert tight.placed() == [("a", CARD), ("b", "cpu")]
    assert mib(after(tight, unload("a"), RELEASE, move("b"))) == (47, 50, 50)


def test_a_model_that_does_not_fit_straight_away_is_not_loaded_at_all():
    tight = predictor(20, a=model(12, 12))
    with pytest.raises(MisfitError):
        tight.apply(load("a", CARD))
    assert tight.placed() == []
    assert mib(tight.levels())[0] == 0
    assert tight.levels().host_bytes == 0


def test_devices_do_not_know_of_each_other():
    two = Predictor({"a": model(30), "b": model(40)}, {"cuda:0": card(100, 10), "cuda:1": card(64, 5)})
    for effect in (load("a", "cuda:0"), load("b", "cuda:1")):
        two.apply(effect)
    assert (mib(two.levels(), "cuda:0"), mib(two.levels(), "cuda:1")) == ((30, 30, 40), (40, 40, 45))
    two.apply(move("b", "cuda:0"))
    assert (mib(two.levels(), "cuda:0"), mib(two.levels(), "cuda:1")) == ((70, 70, 80), (0, 40, 45))
    with pytest.raises(MisfitError) as caught:
        Predictor({"a": model(30)}, {"cuda:0": card(100)}).apply(load("a", "cuda:7"))
    assert caught.value.device == "cuda:7"


def test_a_move_between_devices_needs_room_on_the_other_one_while_the_first_still_holds_the_model():
    two = Predictor({"a": model(30)}, {"cuda:0": card(100), "cuda:1": card(29)})
    two.apply(load("a", "cuda:0"))
    with pytest.raises(MisfitError) as caught:
        two.apply(move("a", "cuda:1"))
    assert caught.value.device == "cuda:1"
    assert mib(two.levels(), "cuda:0") == (30, 30, 30)


def test_what_others_hold_is_not_free():
    budget = DeviceBudget(total_bytes=100 * MIB, context_bytes=0, other_bytes=60 * MIB)
    shared = Predictor({"a": model(30), "b": model(12)}, {CARD: budget})
    assert mib(after(shared, load("a", CARD))) == (30, 30, 90)
    with pytest.raises(MisfitError):
        shared.apply(load("b", CARD))
    shared.set_outside(CARD, 20 * MIB)
    shared.set_outside("cuda:9", 20 * MIB)
    assert mib(after(shared, load("b", CARD))) == (42, 42, 62)


def test_settings_of_the_allocator_count():
    unsplit = AllocatorSettings(max_split_bytes=25 * MIB)
    kept = Predictor({"a": model(30), "b": model(26)}, {CARD: card(100)}, unsplit)
    assert mib(after(kept, load("a", CARD), unload("a"), load("b", CARD))) == (30, 30, 30)
    split = predictor(100, a=model(30), b=model(26))
    assert mib(after(split, load("a", CARD), unload("a"), load("b", CARD))) == (26, 30, 30)


def test_clean_up_unloads_everything_and_keeps_the_cache():
    full = predictor(100, a=model(30), b=model(12))
    after(full, load("a", CARD), load("b"))
    full.unload_all()
    assert full.placed() == []
    assert mib(full.levels()) == (0, 30, 30)
    assert full.levels().host_bytes == 0


def test_nothing_can_be_said_about_a_model_that_nobody_knows():
    with pytest.raises(UnknownModelError, match="'b'"):
        predictor(100, a=model(1)).apply(load("b"))


def test_equal_signatures_mean_equal_futures():
    """Who owns a block is part of the state: what the two leave behind is not the same."""
    models = {"a": model(2), "b": model(2), "large": model(17)}
    first, second = predictor(100, **models), predictor(100, **models)
    after(first, load("a", CARD), load("b", CARD))
    after(second, load("b", CARD), load("a", CARD))
    third = predictor(100, **models)
    after(third, load("a", CARD), load("b", CARD))
    assert first.signature() == third.signature()
    assert first.signature() != second.signature()
    reserved = [mib(after(each, unload("a"), load("large", CARD)))[1] for each in (first, second, third)]
    assert reserved == [38, 20, 38]
