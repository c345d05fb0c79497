"""Reads PYTORCH_ALLOC_CONF, and says which of its options the allocator's model does not follow."""

from collections.abc import Mapping
from dataclasses import dataclass

from vramscope.memory.rules import LARGE_SEGMENT_BYTES, AllocatorSettings

MIB = 1 << 20
# torch 2.9 renamed the variable; the older name still works, and the newer one wins.
VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
# Options that change nothing about which blocks are handed out in a process without streams of its own.
HARMLESS = {"pinned_use_cuda_host_register", "pinned_num_register_threads", "pinned_use_background_threads"}


@dataclass(frozen=True, kw_only=True)
class AllocatorConfiguration:
    """What the user's environment asks of torch's allocator. Nothing exact is promised if `unmodelled` is not empty."""

    settings: AllocatorSettings
    unmodelled: tuple[str, ...] = ()


def read_configuration(environment: Mapping[str, str]) -> AllocatorConfiguration:
    """The options as torch reads them (https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management)."""
    text = next((environment[name] for name in VARIABLES if environment.get(name)), "")
    options, unmodelled = _options(text)
    try:
        settings = AllocatorSettings(
            large_segment_bytes=_mib(options, "large_segment_size_mb", LARGE_SEGMENT_BYTES),
            max_split_bytes=_mib(options, "max_split_size_mb", 0) or None,
            max_non_split_rounding_bytes=_mib(options, "max_non_split_rounding_mb", LARGE_SEGMENT_BYTES),
            memory_fraction=float(options["per_process_memory_fraction"])
            if "per_process_memory_fraction" in options
            else None,
        )
    except ValueError as error:
        return AllocatorConfiguration(settings=AllocatorSettings(), unmodelled=(*unmodelled, f"{text} ({error})"))
    return AllocatorConfiguration(settings=settings, unmodelled=tuple(unmodelled))


def _options(text: str) -> tuple[dict[str, str], list[str]]:
    """The modelled options by name, and the words of the others."""
    options: dict[str, str] = {}
    unmodelled: list[str] = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        key, _, value = (part.strip() for part in word.partition(":"))
        if key in HARMLESS or (key, value.lower()) in {("expandable_segments", "false"), ("backend", "native")}:
            continue
        if key in {
            "max_split_size_mb",
            "large_segment_size_mb",
            "max_non_split_rounding_mb",
            "per_process_memory_fraction",
        }:
            options[key] = value
        else:
            unmodelled.append(word)
    return options, unmodelled


def _mib(options: Mapping[str, str], key: str, default: int) -> int:
    return int(options[key]) * MIB if key in options else default
