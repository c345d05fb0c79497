"""The models: where each one is, and what its parameters take there."""

from collections.abc import Iterable

from prometheus_client.core import Metric

from vramscope.collectors._frame import CollectorFactory, Sources, gauge, info
from vramscope.memory.snapshot import ModelSnapshot, Residency

# What transformers calls its methods; a model's own config.json may have any text there.
QUANTIZATIONS = (
    "aqlm",
    "awq",
    "bitsandbytes",
    "compressed-tensors",
    "eetq",
    "fp8",
    "gptq",
    "hqq",
    "mlx",
    "mxfp4",
    "quanto",
    "torchao",
)
GROUP = ("model", "component", "dtype", "device")


class Models:
    """vramscope_model_*; all but the state exist only while the worker holds the model."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def collect(self) -> Iterable[Metric]:
        models = self._sources.state().models
        yield self._states(models)
        yield info(
            "vramscope_model",
            "What the loaded model is: architecture, number type, quantization and revision; always 1.",
            [
                {
                    "model": model.model,
                    "architecture": model.architecture,
                    "dtype": model.dtype,
                    "quantization": _bounded(model.quantization),
                    "revision": model.revision,
                }
                for model in models
            ],
        )
        yield from _parameters(models)
        yield from _files(models)

    def _states(self, models: tuple[ModelSnapshot, ...]) -> Metric:
        residency = dict.fromkeys(self._sources.model_names(), Residency.ABSENT)
        residency.update({model.model: model.residency for model in models})
        return gauge(
            "vramscope_model_state",
            "Where the model is: 1 for its state (absent, host, device, mixed or failed), 0 for the others.",
            ["model", "state"],
            [
                ((model, state.value), float(state is current))
                for model, current in sorted(residency.items())
                for state in Residency
            ],
        )


def _bounded(quantization: str) -> str:
    """A known word, or `other`; empty where the model is not quantized."""
    return quantization if quantization in ("", *QUANTIZATIONS) else "other"


def _parameters(models: tuple[ModelSnapshot, ...]) -> Iterable[Metric]:
    groups = [
        ((model.model, group.component, group.dtype, group.device), group) for model in models for group in model.groups
    ]
    yield gauge(
        "vramscope_model_parameters",
        "How many parameters the loaded model has, by component, number type and device (cpu is RAM).",
        GROUP,
        [(labels, group.parameters) for labels, group in groups],
    )
    yield gauge(
        "vramscope_model_parameter_bytes",
        "How many bytes the loaded model's parameters take, by component, number type and device (cpu is RAM).",
        GROUP,
        [(labels, group.nbytes) for labels, group in groups],
    )
    yield gauge(
        "vramscope_model_buffer_bytes",
        "How many bytes the loaded model's buffers (tensors that are not trained) take, by device (cpu is RAM).",
        ["model", "device"],
        [((model.model, device), nbytes) for model in models for device, nbytes in model.buffer_bytes.items()],
    )


def _files(models: tuple[ModelSnapshot, ...]) -> Iterable[Metric]:
    yield gauge(
        "vramscope_model_file_bytes",
        "How large the loaded model's weight files are on disk, in bytes.",
        ["model"],
        [((model.model,), model.file_bytes) for model in models],
    )
    yield gauge(
        "vramscope_model_file_elements",
        "How many numbers the loaded model's weight files hold.",
        ["model"],
        [((model.model,), model.file_elements) for model in models],
    )
    yield gauge(
        "vramscope_model_context_window_tokens",
        "How many tokens the loaded model can look at together.",
        ["model"],
        [((model.model,), model.context_window_tokens) for model in models],
    )


COLLECTOR = CollectorFactory(name="models", create=Models)
