"""Reads how torch's allocator is configured, and says which of it the allocator's model does not follow."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from vramscope.memory.rules import LARGE_SEGMENT_BYTES, AllocatorSettings

MIB = 1 << 20
# torch 2.9 renamed the variable. The first of these that is set counts, even if it is empty, whatever the notes say:
# CUDAAllocatorConfig::instance() looks for the older names first.
VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
NO_CACHE = "PYTORCH_NO_CUDA_MEMORY_CACHING"  # every tensor gets and frees its own memory
_MODELLED = {"max_split_size_mb", "large_segment_size_mb", "max_non_split_rounding_mb", "per_process_memory_fraction"}
# Options that change nothing about which blocks are handed out in a process without streams and graphs of its own;
# those that begin with "pinned_" are about host memory.
_HARMLESS = {"release_lock_on_cudamalloc", "graph_capture_record_stream_reuse"}
_DEFAULTS = {("expandable_segments", "False"), ("backend", "native")}
_COMMA = re.compile(r",(?![^\[]*\])")  # one that is not inside the brackets of a list
_NUMBER = re.compile(r"[0-9]+")


@dataclass(frozen=True, kw_only=True)
class AllocatorConfiguration:
    """What the user's environment asks of torch's allocator. Nothing exact is promised if `unmodelled` is not empty."""

    settings: AllocatorSettings
    unmodelled: tuple[str, ...] = ()


def read_configuration(environment: Mapping[str, str]) -> AllocatorConfiguration:
    """The options as torch reads them (https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management)."""
    text = next((environment[name] for name in VARIABLES if name in environment), "")
    options, unmodelled = _options(text)
    if environment.get(NO_CACHE, "0") not in ("", "0"):
        unmodelled.append(NO_CACHE)
    try:
        settings = AllocatorSettings(
            large_segment_bytes=_mib(options, "large_segment_size_mb") or LARGE_SEGMENT_BYTES,
            max_split_bytes=_mib(options, "max_split_size_mb"),
            max_non_split_rounding_bytes=_mib(options, "max_non_split_rounding_mb") or LARGE_SEGMENT_BYTES,
            memory_fraction=float(options["per_process_memory_fraction"])
            if "per_process_memory_fraction" in options
            else None,
        )
    except ValueError as error:
        return AllocatorConfiguration(settings=AllocatorSettings(), unmodelled=(*unmodelled, f"{text} ({error})"))
    return AllocatorConfiguration(settings=settings, unmodelled=tuple(unmodelled))


def _options(text: str) -> tuple[dict[str, str], list[str]]:
    """The modelled options by name, and the words of the others. torch passes over white space wherever it is."""
    options: dict[str, str] = {}
    unmodelled: list[str] = []
    for word in filter(None, _COMMA.split("".join(text.split()))):
        key, _, value = word.partition(":")
        if key.startswith("pinned_") or key in _HARMLESS or (key, value) in _DEFAULTS:
            continue
        if key in _MODELLED:
            options[key] = value
        else:
            unmodelled.append(word)
    return options, unmodelled


def _mib(options: Mapping[str, str], key: str) -> int | None:
    """The bytes of an option in MiB, None where it is not set. Raises ValueError for what is no whole number."""
    if key not in options:
        return None
    if not _NUMBER.fullmatch(options[key]):
        raise ValueError(f"{key} must be a whole number of MiB")
    return int(options[key]) * MIB
