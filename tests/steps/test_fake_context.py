"""The fake that the other tests stand on does what they take for granted."""

import pytest

from vramscope.errors import OutOfMemoryError, StepCancelledError, StepError


def allocator(context, device="cuda:0"):
    return next(found for found in context.memory().devices if found.device == device).allocator


def test_a_model_is_counted_where_it_is(context):
    context.load("qwen", "cpu")
    assert allocator(context).allocated_bytes == 0
    context.move("qwen", "cuda:0")
    assert allocator(context).allocated_bytes == 1000
    assert context.memory().models[0].bytes_on("cuda:0") == (900, 100)


def test_what_is_freed_stays_reserved_until_it_is_released(context):
    context.load("qwen", "cuda:0")
    context.unload("qwen")
    assert (allocator(context).allocated_bytes, allocator(context).reserved_bytes) == (0, 500)
    context.release_cache()
    assert allocator(context).reserved_bytes == 0


def test_a_model_is_loaded_once(context):
    context.load("qwen", "cpu")
    with pytest.raises(StepError):
        context.load("qwen", "cpu")


def test_a_full_device_takes_no_model_and_loses_none(make_context):
    context = make_context(capacity_bytes=1500, places={"a": "cuda:0", "b": "cuda:1"})
    with pytest.raises(OutOfMemoryError):
        context.move("b", "cuda:0")
    assert context.places == {"a": "cuda:0", "b": "cuda:1"}


def test_a_cancelled_context_does_no_more(make_context):
    context = make_context(cancel_in=1)
    context.sleep(1)
    with pytest.raises(StepCancelledError):
        context.sleep(1)
    assert context.now == 1
