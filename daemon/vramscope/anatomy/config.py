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
_INTERMEDIATE = ("intermediate_size", "ffn_dim", "n_inner", "d_ff", "ffn_hidden_size")
_HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_kv_heads", "multi_query_group_num")
_HEAD_SIZE = ("head_dim", "d_kv", "attention_head_dim")
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
_ACTIVE_EXPERTS = ("num_experts_per_tok", "num_experts_per_token", "moe_topk")
_VOCABULARY = ("vocab_size", "padded_vocab_size", "n_vocab")
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_CONTEXT = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_sequence_length", "seq_length")

# The names that torch gives to the types in which a whole model can be built (torch.set_default_dtype takes no other).
_DTYPES = {name: name for name in ("float64", "float32", "float16", "bfloat16")} | {
    "double": "float64",
    "float": "float32",
    "half": "float16",
}
# What torch has besides; a part of a model may name it.
_TORCH_NAMES = {*_DTYPES, "float8_e4m3fn", "float8_e5m2", "int8", "uint8", "int16", "int32", "int64", "bool"}
DTYPE_KEYS = ("dtype", "torch_dtype")
_QUANTIZATION = ("quantization_config", "compression_config")
_STORED = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The facts that vramscope uses. `dtype` is empty where none is named, `tied` None means "as the class does"."""

    architecture: str
    model_type: str
    dtype: str
    hidden_size: int | None
    intermediate_size: int | None
    layers: int | None
    heads: int | None
    kv_heads: int | None
    head_size: int | None
    experts: int | None
    active_experts: int | None
    vocabulary: int | None
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
            intermediate_size=_first_count(parts, _INTERMEDIATE),
            layers=_first_count(parts, _LAYERS),
            heads=_first_count(parts, _HEADS),
            kv_heads=_first_count(parts, _KV_HEADS),
            head_size=_first_count(parts, _HEAD_SIZE),
            experts=_first_count(parts, _EXPERTS),
            active_experts=_first_count(parts, _ACTIVE_EXPERTS),
            vocabulary=stated_vocabulary(config),
            context_window_tokens=stated_window(config),
            tied=_first_flag(parts, "tie_word_embeddings"),
            quantization=quantization_of(config)[0],
        )


def read_config(directory: Path) -> dict[str, Any]:
    """Read the config.json of `directory`: an object with a model_type, which is all that every model needs."""
    path = directory / FILE_NAME
    config = jsonfile.read_object(path)
    if not isinstance(config.get("model_type"), str) or not config["model_type"]:
        hint = "the config says which model the weights belong to; take the one that came with them"
        raise SourceError(f'{path}: "model_type" is missing', hint=hint)
    return config


def stated_vocabulary(config: Mapping[str, Any]) -> int | None:
    """How many ids the config says that the model has a row for; asked of configs whose dtype is nonsense, too."""
    return _first_count(_parts(config), _VOCABULARY)


def stated_window(config: Mapping[str, Any]) -> int | None:
    """How many tokens the config says that the model can look at."""
    return _first_count(_parts(config), _CONTEXT)


def config_dtype(config: Mapping[str, Any]) -> str:
    """Return the dtype that the config names, or "". As in transformers 5, `dtype` wins over `torch_dtype`.

    The dtypes of the parts of a multimodal model are checked, too: transformers looks each one up in torch.
    """
    for name, part in config.items():
        if name.endswith("_config") and name not in _QUANTIZATION and isinstance(part, Mapping):
            key, value = _named_dtype(part)
            if value is not None and not (isinstance(value, str) and value in _TORCH_NAMES):
                raise _no_dtype(value, f'{FILE_NAME}: "{name}": "{key}"')
    key, value = _named_dtype(config)
    return "" if value is None else _dtype(value, f'{FILE_NAME}: "{key}"')


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


def _named_dtype(config: Mapping[str, Any]) -> tuple[str, object]:
    stated = ((key, config[key]) for key in DTYPE_KEYS if config.get(key) is not None)
    return next(stated, ("", None))


def _dtype(value: object, where: str) -> str:
    if not isinstance(value, str) or value not in _DTYPES:
        raise _no_dtype(value, where)
    return _DTYPES[value]


def _no_dtype(value: object, where: str) -> SourceError:
    expected = ", ".join(sorted(set(_DTYPES.values())))
    return SourceError(f"{where}: expected one of {expected}; got {jsonfile.shown(value)}")


def _parts(config: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the config, then the config of its language part, if it has one, which may be two levels down."""
    yield config
    for part in _language(config):
        yield part
        yield from _language(part)


def _language(config: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    return (part for key in _NESTED if isinstance(part := config.get(key), Mapping))


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


def quantization_of(config: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Name the method by which a model is quantized, and return what the config says of it; empty if it is not."""
    return next((found for part in _parts(config) if (found := _quantization(part))[0]), ("", {}))


def _quantization(config: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """compressed-tensors once wrote `compression_config`; MLX writes `quantization`, no method, and newer ones both."""
    mlx = config.get("quantization")
    is_mlx = isinstance(mlx, Mapping) and "bits" in mlx
    for key in _QUANTIZATION:
        if not isinstance(section := config.get(key), Mapping):
            continue
        if method := _text(section.get("quant_method")):
            return method, section
        if section.get("load_in_4bit") or section.get("load_in_8bit"):
            return "bitsandbytes", section
        if not is_mlx:
            return "unknown", section
    if isinstance(mlx, Mapping) and "bits" in mlx:
        return "mlx", mlx
    return "", {}
