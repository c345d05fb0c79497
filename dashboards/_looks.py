"""Colours that mean the same on every dashboard, and the words and colours of single values."""

from collections.abc import Mapping

from grafana_foundation_sdk.builders.dashboard import FieldColor, ThresholdsConfig
from grafana_foundation_sdk.models.dashboard import (
    DynamicConfigValue,
    FieldColorModeId,
    Threshold,
    ThresholdsMode,
    ValueMap,
    ValueMapping,
    ValueMappingResult,
)

from vramscope.memory import ledger

# Those of the daemon's own page in its dark look, so that an owner has one colour wherever it is shown.
OWNER_COLOURS = {
    ledger.PARAMETERS: "#2a8fd0",
    ledger.BUFFERS: "#8accf2",
    ledger.ALLOCATOR_ROUNDING: "#dc9abf",
    ledger.ALLOCATOR_CACHE: "#eeb22e",
    ledger.CUDA_CONTEXT: "#18b98b",
    ledger.OUTSIDE_ALLOCATOR: "#18b98b",
    ledger.OTHER_PROCESSES: "#e8762c",
    ledger.DRIVER_RESERVED: "#8d97a3",
    ledger.FREE: "#525b66",  # a shade lighter than the page's: it must stand out from a panel's ground in both themes
}
# A level has the colour of the owner that reaches up to it.
ALLOCATED, RESERVED = OWNER_COLOURS[ledger.ALLOCATOR_ROUNDING], OWNER_COLOURS[ledger.ALLOCATOR_CACHE]
PROCESS, USED = OWNER_COLOURS[ledger.CUDA_CONTEXT], OWNER_COLOURS[ledger.OTHER_PROCESSES]
HIGH_WATER = "#f2cc0c"
TOTAL, WARNING, CRITICAL = "#98a2ae", "#ff9830", "#f2495c"
GOOD, BAD, CALM = "#56a64b", "#e02f44", "#6ca5ff"


def steps(*levels: tuple[float | None, str]) -> ThresholdsConfig:
    """From which value on a colour holds; the first has no value."""
    return (
        ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps([Threshold(value, colour) for value, colour in levels])
    )


def words(texts: Mapping[str, tuple[str, str]]) -> list[ValueMapping]:
    """What is shown instead of a value: value to (text, colour)."""
    results = {value: ValueMappingResult(text=text, color=colour) for value, (text, colour) in texts.items()}
    return [ValueMap(options=results)]


CALM_ONLY = ((None, CALM),)
# As the alerts' thresholds are unless somebody sets others.
FILLING = ((None, GOOD), (0.85, WARNING), (0.95, CRITICAL))
ZERO_IS_GOOD = ((None, GOOD), (1, BAD))
UP = {"1": ("up", GOOD), "0": ("down", BAD)}
READ = {"1": ("as written", GOOD), "0": ("older", WARNING)}
# Kinds of steps as a matcher, and their colour on the timeline.
KIND_COLOURS = (
    ('=~"fetch|load"', "#2a8fd0"),
    ('="move"', "#18b98b"),
    ('=~"wait|hold"', "#6f7884"),
    ('!~"fetch|load|move|wait|hold"', "#dc9abf"),
)

COMPONENT_COLOURS = {
    "embedding": "#2a8fd0",
    "attention": "#8accf2",
    "mlp": "#18b98b",
    "norm": "#eeb22e",
    "lm_head": "#dc9abf",
    "vision": "#e8762c",
    "other": "#8d97a3",
}


def fixed(colour: str) -> list[DynamicConfigValue]:
    """An override that gives one colour."""
    return [DynamicConfigValue("color", {"mode": "fixed", "fixedColor": colour})]


def shades_of(colour: str) -> FieldColor:
    """One colour for all series of a panel, each a shade of its own."""
    return FieldColor().mode(FieldColorModeId.SHADES).fixed_color(colour)


def line_in(unit: str) -> list[DynamicConfigValue]:
    """An override for a line among bars, with an axis of its own on the right."""
    return [
        DynamicConfigValue("unit", unit),
        DynamicConfigValue("custom.drawStyle", "line"),
        DynamicConfigValue("custom.lineInterpolation", "stepAfter"),
        DynamicConfigValue("custom.stacking", {"mode": "none"}),
        DynamicConfigValue("custom.fillOpacity", 0),
        DynamicConfigValue("custom.axisPlacement", "right"),
    ]
