"""What config.json says about a model. A fact that it does not state is None or empty, never a guess.

Multimodal models keep the facts of their language part one level down, under `text_config` and the like.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vramscope.anatomy import jsonfile
from vramscope.anatomy.header import Header
from vramscope.errors import SourceError

FILE_NAME = "config.json"

_NESTED = ("text_config", "llm_config", "language_config", "thinker_config")
_HIDDEN_SIZE = ("hidden_size", "n_embd", "d_model", "dim")
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_CONTEXT = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_sequence_length", "seq_length")

# The names that torch gives to the types in which a whole model can be built (torch.set_default_dtype takes no other).
_DTYPES = {name: name for name in ("float64", "float32", "float16", "bfloat16")} | {
    "double": "float64",
    "float": "float32",
    "half": "float16",
}
_STORED = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The facts that vramscope uses. `dtype` is empty where none is named, `tied` None means "as the class does"."""

    architecture: str
    model_type: str
    dtype: str
    hidden_size: int | None
    layers: int | None
    context_window_tokens: int | None
    tied: bool | None
    quantization: str

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "ModelConfig":
        """Pick the facts out of a parsed config.json; SourceError for a dtype that is none."""
        parts = list(_parts(config))
        return cls(
            architecture=_architecture(config),
            model_type=_text(config.get("model_type")),
            dtype=config_dtype(config),
            hidden_size=_first_count(parts, _HIDDEN_SIZE),
            layers=_first_count(parts, _LAYERS),
            context_window_tokens=_first_count(parts, _CONTEXT),
            tied=_first_flag(parts, "tie_word_embeddings"),
            quantization=next((method for part in parts if (method := _quantization(part))), ""),
        )


def read_config(directory: Path) -> dict[str, Any]:
    """Read the config.json of `directory`: an object with a model_type, which is all that every model needs."""
    path = directory / FILE_NAME
    config = jsonfile.read_object(path)
    if not isinstance(config.get("model_type"), str) or not config["model_type"]:
        hint = "the config says which model the weights belong to; take the one that came with them"
        raise SourceError(f'{path}: "model_type" is missing', hint=hint)
    return config


def config_dtype(config: Mapping[str, Any]) -> str:
    """Return the dtype that the config names, or "". As in transformers 5, `dtype` wins over `torch_dtype`."""
    for key in ("dtype", "torch_dtype"):
        value = config.get(key)
        if value is not None:
            return _dtype(value, f'{FILE_NAME}: "{key}"')
    return ""


def resolve_dtype(requested: str, config: Mapping[str, Any], headers: Sequence[Header]) -> str:
    """Choose the dtype to load in as transformers 5 does; `headers` in the order in which the files are read.

    auto is the config's dtype, else that of the first floating tensor of the first file in order of names (which is
    the order in which safetensors lists them), else float32. Types that no whole model can have are passed over.
    """
    named = config_dtype(config)
    if requested != "auto":
        return _dtype(requested, "dtype")
    if named or not headers:
        return named or "float32"
    floating = (tensor for tensor in headers[0].tensors if tensor.dtype in _STORED)
    first = min(floating, key=lambda tensor: tensor.name, default=None)
    return _STORED[first.dtype] if first else "float32"


def _dtype(value: object, where: str) -> str:
    name = value.removeprefix("torch.") if isinstance(value, str) else ""
    if name not in _DTYPES:
        expected = ", ".join(sorted(set(_DTYPES.values())))
        raise SourceError(f"{where}: expected one of {expected}; got {jsonfile.shown(value)}")
    return _DTYPES[name]


def _parts(config: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the config, then the config of its language part, if it has one."""
    yield config
    for key in _NESTED:
        if isinstance(part := config.get(key), Mapping):
            yield part


def _architecture(config: Mapping[str, Any]) -> str:
    named = config.get("architectures")
    return _text(named[0]) if isinstance(named, list) and named else ""


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _first_count(parts: Iterable[Mapping[str, Any]], keys: Iterable[str]) -> int | None:
    values = (part.get(key) for part in parts for key in keys)
    return next((value for value in values if type(value) is int and value > 0), None)


def _first_flag(parts: Iterable[Mapping[str, Any]], key: str) -> bool | None:
    return next((part[key] for part in parts if isinstance(part.get(key), bool)), None)


def _quantization(config: Mapping[str, Any]) -> str:
    """Name the method. compressed-tensors once wrote `compression_config`, MLX `quantization` without a name."""
    for key in ("quantization_config", "compression_config"):
        if isinstance(section := config.get(key), Mapping):
            method = _text(section.get("quant_method"))
            older = "bitsandbytes" if section.get("load_in_4bit") or section.get("load_in_8bit") else "unknown"
            return method or older
    section = config.get("quantization")
    return "mlx" if isinstance(section, Mapping) and "bits" in section else ""
