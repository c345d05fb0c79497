from dataclasses import replace

import pytest

from vramscope.collectors.models import Models
from vramscope.memory.snapshot import MemorySampled, Residency

from ..picture import back_and_gone, model_on, until_on_device  # noqa: TID252 - tests are not packages


def test_a_model_that_was_unloaded_leaves_only_its_state(page):
    text = page.of(Models, until_on_device(), back_and_gone())
    assert text.count("\n") == 5
    assert 'vramscope_model_state{model="qwen",state="absent"} 1.0' in text
    assert 'vramscope_model_state{model="qwen",state="device"} 0.0' in text


def test_a_model_that_the_plan_no_longer_names_is_shown_while_it_is_loaded_and_then_gone(page):
    nameless = page.without_models()
    assert 'vramscope_model_state{model="qwen",state="device"} 1.0' in nameless.of(Models, until_on_device())
    assert nameless.of(Models, back_and_gone()) == ""


def test_each_model_and_place_has_its_own_series(page):
    both = MemorySampled(at=1.0, devices=(), models=(model_on("cpu"), model_on("cuda:1", "other")))
    text = page.of(Models, [both])
    assert 'component="norm",device="cpu",dtype="float16",model="qwen"' in text
    assert 'component="norm",device="cuda:1",dtype="float16",model="other"' in text
    assert 'vramscope_model_state{model="qwen",state="host"} 1.0' in text


@pytest.mark.parametrize(
    ("named", "label"),
    [("gptq", "gptq"), ("", ""), ("my own <b>", "other"), ("compressed-tensors", "compressed-tensors")],
)
def test_the_quantization_is_one_of_a_few_words(page, named, label):
    (told,) = [event for event in until_on_device() if isinstance(event, MemorySampled)][-1:]
    text = page.of(Models, [replace(told, models=(replace(told.models[0], quantization=named),))])
    assert f'quantization="{label}"' in text


def test_a_model_in_parts_has_each_component_where_it_is(page):
    here, there = model_on("cpu"), model_on("cuda:1")
    groups = (*here.groups[:1], *there.groups[1:], replace(there.groups[0], parameters=7, nbytes=14))
    buffers = {"cpu": 64, "cuda:1": 64}
    model = replace(here, residency=Residency.MIXED, groups=groups, buffer_bytes=buffers)
    text = page.of(Models, [MemorySampled(at=1.0, devices=(), models=(model,))])
    assert 'vramscope_model_state{model="qwen",state="mixed"} 1.0' in text
    component = here.groups[0].component
    assert f'_parameters{{component="{component}",device="cuda:1",dtype="float16",model="qwen"}} 7.0' in text
    assert f'_parameter_bytes{{component="{component}",device="cpu",dtype="float16",model="qwen"}}' in text
    assert f'_parameter_bytes{{component="{component}",device="cuda:1",dtype="float16",model="qwen"}} 14.0' in text
    assert 'vramscope_model_buffer_bytes{device="cpu",model="qwen"} 64.0' in text
