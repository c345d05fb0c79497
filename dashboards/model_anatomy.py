"""Model anatomy: how many parameters a model has, what they weigh and where they are, and what its text becomes."""

from collections.abc import Sequence

from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import Panel

from dashboards import _annotations, _variables
from dashboards._looks import ALLOCATED, COMPONENT_COLOURS, OWNER_COLOURS, PROCESS, RESERVED, TOTAL, USED, fixed
from dashboards._page import Line, Page, Section
from dashboards._panels import areas, gauges, lines, name, number
from dashboards._queries import now, of, over_time
from dashboards._tables import Column, Key, grid

# The series of a model exist only while it is loaded. This looks at each moment of the time range, and the largest sum
# is the whole model, though a move takes its parts from one device to the other.
MOMENTS = "[$__range:$__interval]"


def _sections() -> Sequence[Section]:
    facts = [(5, _parameters()), (5, _bytes()), (5, _file()), (4, _window()), (5, _state())]
    return [
        Section(
            title="The model (its last load in the time range, if it is not loaded now)",
            lines=[Line(height=3, panels=facts), Line(height=9, panels=[(11, _sizes()), (13, _places())])],
        ),
        Section(
            title="What it consists of",
            lines=[
                Line(height=8, panels=[(7, _parameters_by_component()), (7, _bytes_by_component()), (10, _groups())]),
                Line(height=6, panels=[(12, _kinds()), (12, _over_time())]),
            ],
        ),
        Section(
            title="Tokens: what text becomes",
            lines=[Line(height=6, panels=[(12, _tokens()), (12, _tokens_over_time())])],
        ),
    ]


def most(by: str, metric: str) -> str:
    """The largest sum of a metric within the time range, for each set of the labels `by`."""
    return f"max_over_time(sum by ({by}) ({of(metric, 'model')}){MOMENTS})"


def _parameters() -> Builder[Panel]:
    return number(
        "Parameters",
        "How many numbers the model has learnt. It is a count, not a size: what it weighs depends on the bytes of each "
        "number. Numbers that two layers share are counted once.",
        "locale",
        now(most("model", "vramscope_model_parameters"), "{{model}}"),
    )


def _bytes() -> Builder[Panel]:
    return number(
        "Weight in memory",
        "Parameters times the bytes of each: 4 in float32, 2 in float16 and bfloat16. The least that the model takes "
        "wherever it is.",
        "bytes",
        now(most("model", "vramscope_model_parameter_bytes"), "{{model}}"),
    ).decimals(2)


def _file() -> Builder[Panel]:
    return number(
        "Weight on disk",
        "The size of its weight files. Files may hold another number type than the plan asks for, so disk and memory "
        "can differ by a factor.",
        "bytes",
        now(f"max by (model) (last_over_time({of('vramscope_model_file_bytes', 'model')}[$__range]))", "{{model}}"),
    ).decimals(2)


def _window() -> Builder[Panel]:
    tokens = of("vramscope_model_context_window_tokens", "model")
    return number(
        "Context window",
        "How many tokens the model can look at together, its own answer included.",
        "locale",
        now(f"max by (model) (last_over_time({tokens}[$__range]))", "{{model}}"),
    )


def _state() -> Builder[Panel]:
    return name(
        "Where it is now",
        "absent: not loaded. host: in system RAM. device: in VRAM. mixed: a part in each. failed: its step broke off.",
        now(of("vramscope_model_state", "model") + " == 1", "{{state}}"),
    )


def _sizes() -> Builder[Panel]:
    def device(metric: str) -> str:
        return f"max(max_over_time({of(metric, 'device')}[$__range]))"

    file_bytes = f"max(last_over_time({of('vramscope_model_file_bytes', 'model')}[$__range]))"
    buffers = f"max(max_over_time({of('vramscope_model_buffer_bytes', 'model')}[$__range]))"
    return gauges(
        "One model, many sizes",
        "From the file to what the driver counts; each is the largest within the time range. On disk: the weight "
        "files. In theory: parameters times their bytes. Buffers: tensors that are not learnt. Allocated: what "
        "PyTorch gave to tensors on the fullest device, rounded up. Reserved: what it took from the driver. Process: "
        "with the CUDA context. Used: with all other processes. The last four are a device's, so choose a range in "
        "which only this model was on it.",
        "bytes",
        now(file_bytes, "on disk", TOTAL),
        now(f"max({most('model', 'vramscope_model_parameter_bytes')})", "in theory", OWNER_COLOURS["parameters"]),
        now(buffers, "buffers", OWNER_COLOURS["buffers"]),
        now(device("vramscope_torch_allocated_bytes"), "allocated", ALLOCATED),
        now(device("vramscope_torch_reserved_bytes"), "reserved", RESERVED),
        now(device("vramscope_nvml_process_used_bytes"), "process", PROCESS),
        now(device("vramscope_nvml_used_bytes"), "used (NVML)", USED),
    ).decimals(2)


def _kinds() -> Builder[Panel]:
    return grid(
        "What kind of model",
        "Architecture: the class that transformers builds. Number type: what the plan asks for; float16 and bfloat16 "
        "take 2 bytes, float32 takes 4. Quantization: a way to store numbers in fewer bits; empty means none.",
        [
            Key(label="model", title="Model", width=100),
            Key(label="architecture", title="Architecture"),
            Key(label="dtype", title="Number type", width=110),
            Key(label="quantization", title="Quantization"),
            Key(label="revision", title="Revision"),
        ],
        [
            Column(
                title="Numbers in its files",
                expr="max by (model, architecture, dtype, quantization, revision) ("
                f"last_over_time({of('vramscope_model_info', 'model')}[$__range]))"
                f" * on (model) group_left () max by (model) ("
                f"last_over_time({of('vramscope_model_file_elements', 'model')}[$__range]))",
                unit="locale",
            )
        ],
    )


def _parameters_by_component() -> Builder[Panel]:
    return _components(
        "Parameters by component",
        "embedding: a vector for each token. attention: looks at other tokens. mlp: most of the rest, experts "
        "included. norm: keeps numbers in range. lm_head: turns vectors into tokens; not there if it shares the "
        "embedding's numbers.",
        "locale",
        most("model, component", "vramscope_model_parameters"),
    )


def _bytes_by_component() -> Builder[Panel]:
    return _components(
        "Bytes by component",
        "The same in bytes. A component may have another number type than the rest, so the shares can differ.",
        "bytes",
        most("model, component", "vramscope_model_parameter_bytes"),
    )


def _components(title: str, text: str, unit: str, expr: str) -> Builder[Panel]:
    panel = gauges(title, text, unit, now(f"sort_desc({expr})", "{{component}}"))
    for component, colour in COMPONENT_COLOURS.items():
        panel.override_by_name(component, fixed(colour))
    return panel


def _places() -> Builder[Panel]:
    return areas(
        "Where its bytes are",
        "The parameters' bytes over time by place; cpu is system RAM. A load fills cpu; a move empties it and fills a "
        "device; an unload empties all. This is how loading and moving differ.",
        "bytes",
        over_time(
            f"sum by (model, device) ({of('vramscope_model_parameter_bytes', 'model')})",
            "in {{device}}",
        ),
    )


def _groups() -> Builder[Panel]:
    by = "component, dtype, device"

    def last(metric: str) -> str:
        return f"max by ({by}) (last_over_time({of(metric, 'model')}[$__range]))"

    counted, weighed = last("vramscope_model_parameters"), last("vramscope_model_parameter_bytes")
    return grid(
        "Component, number type and place",
        "A row for each place where a component was within the time range; a model that was moved has rows for both. "
        "The last column shows the point: bytes are parameters times the bytes of one number.",
        [
            Key(label="component", title="Component", width=92),
            Key(label="dtype", title="Number type", width=100),
            Key(label="device", title="Place", width=70),
        ],
        [
            Column(title="Parameters", width=102, expr=counted, unit="locale"),
            Column(title="Bytes", width=75, expr=weighed, unit="bytes"),
            Column(title="Each", width=80, expr=f"{weighed} / {counted}", unit="none", decimals=1),
        ],
    )


def _over_time() -> Builder[Panel]:
    return lines(
        "Bytes by number type",
        "How the parameters' bytes divide by number type, over time. A line appears with a load and goes with the "
        "unload.",
        "bytes",
        over_time(f"sum by (model, dtype) ({of('vramscope_model_parameter_bytes', 'model')})", "{{dtype}}"),
        over_time(f"sum by (model) ({of('vramscope_model_buffer_bytes', 'model')})", "buffers"),
    ).min(0)


def _tokens() -> Builder[Panel]:
    tokens = f"max by (model, step) ({of('vramscope_tokens', 'model')})"
    window = f"max by (model) (last_over_time({of('vramscope_model_context_window_tokens', 'model')}[$__range]))"
    return grid(
        "Tokens of each text",
        "A model reads tokens, not characters: pieces of words from its vocabulary. The share is how much of the "
        "context window the text takes. Tokenizing needs the tokenizer's files only, not the model.",
        [Key(label="model", title="Model", width=110), Key(label="step", title="Step")],
        [
            Column(title="Tokens", width=90, expr=tokens, unit="locale"),
            Column(
                title="Share of the window",
                width=170,
                expr=f"{tokens} / on (model) group_left () {window}",
                unit="percentunit",
                decimals=3,
            ),
        ],
    )


def _tokens_over_time() -> Builder[Panel]:
    return lines(
        "Tokens over time",
        "The same text gives the same number each time; a change means that the text or the tokenizer changed.",
        "locale",
        over_time(of("vramscope_tokens", "model"), "{{step}}"),
    ).min(0)


DASHBOARD = Page(
    uid="vramscope-model-anatomy",
    title="vramscope / Model anatomy",
    text="How many parameters a model has, what they weigh on disk, in RAM and in VRAM, and what text becomes.",
    span="30m",
    refresh="30s",
    variables=_variables.one_model,
    annotations=_annotations.happenings,
    sections=_sections,
)
