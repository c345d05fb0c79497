"""Which torch dtype each of safetensors' is."""

from collections.abc import Iterable

import torch

from vramscope.anatomy.header import Header, TensorEntry
from vramscope.errors import SourceError

TORCH_DTYPES: dict[str, torch.dtype] = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "U16": torch.uint16,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I32": torch.int32,
    "U32": torch.uint32,
    "F32": torch.float32,
    "I64": torch.int64,
    "U64": torch.uint64,
    "F64": torch.float64,
    "C64": torch.complex64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E8M0": torch.float8_e8m0fnu,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
}
# The other way round.
STORED_DTYPES = {dtype: name for name, dtype in TORCH_DTYPES.items()}


def refuse_unknown(tensors: Iterable[tuple[Header, TensorEntry]]) -> None:
    """Raise SourceError for a tensor whose dtype torch does not have."""
    for header, tensor in tensors:
        if tensor.dtype not in TORCH_DTYPES:
            raise SourceError(
                f"{header.path}: tensor {tensor.name!r} has dtype {tensor.dtype}, of which "
                f"torch {torch.__version__} has no tensor with one value an element"
            )
