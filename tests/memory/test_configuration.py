"""How torch's allocator is configured. What torch makes of each text was asked of torch 2.13 and 2.14."""

import os
import subprocess
import sys

import pytest

from vramscope.memory.configuration import read_configuration
from vramscope.memory.rules import AllocatorSettings

MIB = 1 << 20
OLD, NEW = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"


def read(text):
    return read_configuration({NEW: text})


def test_nothing_set_is_torchs_default():
    configuration = read_configuration({"PATH": "/bin"})
    assert (configuration.settings, configuration.unmodelled) == (AllocatorSettings(), ())


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("", AllocatorSettings()),
        (",", AllocatorSettings()),
        ("max_split_size_mb:128", AllocatorSettings(max_split_bytes=128 * MIB)),
        (" max_split_size_mb : 1 28 ,", AllocatorSettings(max_split_bytes=128 * MIB)),
        ("max_split_size_mb:100,max_split_size_mb:200", AllocatorSettings(max_split_bytes=200 * MIB)),
        ("max_non_split_rounding_mb:64", AllocatorSettings(max_non_split_rounding_bytes=64 * MIB)),
        ("large_segment_size_mb:40", AllocatorSettings(large_segment_bytes=40 * MIB)),
        (
            "large_segment_size_mb:40,max_split_size_mb:50",
            AllocatorSettings(large_segment_bytes=40 * MIB, max_split_bytes=50 * MIB),
        ),
        ("per_process_memory_fraction:0.5", AllocatorSettings(memory_fraction=0.5)),
        ("per_process_memory_fraction:0", AllocatorSettings(memory_fraction=0.0)),
        ("expandable_segments:False,backend:native", AllocatorSettings()),
        ("pinned_use_background_threads:True,pinned_max_cached_size_mb:8", AllocatorSettings()),
        ("release_lock_on_cudamalloc:True,graph_capture_record_stream_reuse:True", AllocatorSettings()),
    ],
)
def test_what_is_modelled_becomes_settings(text, settings):
    configuration = read(text)
    assert (configuration.settings, configuration.unmodelled) == (settings, ())


@pytest.mark.parametrize(
    "word",
    [
        "expandable_segments:True",
        "backend:cudaMallocAsync",
        "garbage_collection_threshold:0.8",
        "roundup_power2_divisions:4",
        "roundup_power2_divisions:[256:1,512:2,>:4]",
        "throw_on_cudamalloc_oom:True",
        "nonsense",
        "nonsense:3",
    ],
)
def test_what_is_not_modelled_is_named_as_it_stands(word):
    configuration = read(f"max_split_size_mb:128, {word} ,pinned_num_register_threads:2")
    assert configuration.unmodelled == (word,)
    assert configuration.settings == AllocatorSettings(max_split_bytes=128 * MIB)


def test_every_option_that_is_not_modelled_is_named():
    configuration = read("roundup_power2_divisions:[256:1,>:4],expandable_segments:True,max_split_size_mb:64")
    assert configuration.unmodelled == ("roundup_power2_divisions:[256:1,>:4]", "expandable_segments:True")


@pytest.mark.parametrize(
    "text",
    [
        "max_split_size_mb:12abc",
        "max_split_size_mb:-5",
        "max_split_size_mb:1_000",
        "max_split_size_mb:100.7",
        "max_split_size_mb",
        "max_split_size_mb:",
        "max_split_size_mb:0",
        "max_split_size_mb:10",
        "large_segment_size_mb:5",
        "large_segment_size_mb:64,max_split_size_mb:50",
        "per_process_memory_fraction:1.5",
        "per_process_memory_fraction:nan",
        "per_process_memory_fraction:half",
    ],
)
def test_what_torch_refuses_or_reads_in_its_own_way_is_not_guessed_at(text):
    configuration = read(text)
    assert configuration.settings == AllocatorSettings()
    assert len(configuration.unmodelled) == 1
    assert configuration.unmodelled[0].startswith(f"{text} (")


def test_the_older_name_wins_as_it_does_in_torch_and_nothing_is_joined():
    both = {NEW: "max_split_size_mb:50", OLD: "max_non_split_rounding_mb:64"}
    assert read_configuration(both).settings == AllocatorSettings(max_non_split_rounding_bytes=64 * MIB)
    hip = {"PYTORCH_HIP_ALLOC_CONF": "max_split_size_mb:77", NEW: "max_split_size_mb:50"}
    assert read_configuration(hip).settings == AllocatorSettings(max_split_bytes=77 * MIB)
    assert read_configuration({**hip, OLD: "max_split_size_mb:99"}).settings.max_split_bytes == 99 * MIB


def test_an_older_name_that_is_set_to_nothing_wins_too():
    assert read_configuration({NEW: "max_split_size_mb:50", OLD: ""}).settings == AllocatorSettings()


@pytest.mark.parametrize(("value", "unmodelled"), [("1", ("PYTORCH_NO_CUDA_MEMORY_CACHING",)), ("0", ()), ("", ())])
def test_an_allocator_without_a_cache_is_not_modelled(value, unmodelled):
    assert read_configuration({"PYTORCH_NO_CUDA_MEMORY_CACHING": value}).unmodelled == unmodelled


def test_the_text_that_counts_is_the_one_that_the_installed_torch_takes():
    variables = {NEW: "max_split_size_mb:50", OLD: "max_split_size_mb:99"}
    code = "import torch; print(torch._C._accelerator_getAllocatorSettings())"
    command = [sys.executable, "-W", "ignore", "-c", code]
    ended = subprocess.run(
        command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=60, check=True
    )
    assert read_configuration(variables) == read(ended.stdout.strip())
