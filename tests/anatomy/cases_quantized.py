"""Quantized checkpoints: stored numbers are not parameters. Each is one or two layers, with its config."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.anatomy.cases import Expected, Tensor, tensor, write, write_config

UP = "model.layers.0.mlp.up_proj"
DOWN = "model.layers.0.mlp.down_proj"
# What the layer of most of these stands for: 64 inputs, 32 outputs.
INPUTS, OUTPUTS, GROUP = 64, 32, 32
LOGICAL = INPUTS * OUTPUTS


class Collection:
    """Writes models beside each other, and keeps what is right about each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.expected: list[Expected] = []

    def add(self, name: str, tensors: Sequence[Tensor], logical: int | None, method: str, **config: Any) -> None:
        """Write a model; `logical` is the count of its parameters, None where it cannot be told."""
        write_config(self.path / name, **config)
        nbytes = write(self.path / name / "model.safetensors", tensors)
        self.expected.append(
            Expected(
                source=name,
                parameters=logical,
                is_unknown=logical is None,
                parameter_bytes=nbytes,
                file_bytes=nbytes,
                stored_elements=sum(_elements(entry) for entry in tensors),
                quantization=method,
                note="" if logical is not None else "how many parameters .* hold is unknown",
            )
        )


def _elements(entry: Tensor) -> int:
    count = 1
    for size in entry[2]:
        count *= size
    return count


def _gptq(bits: int, *, index: bool = True, zeros: bool = True, module: str = UP) -> list[Tensor]:
    groups = INPUTS // GROUP
    tensors = [tensor(f"{module}.qweight", "I32", INPUTS * bits // 32, OUTPUTS)]
    if zeros:
        tensors.append(tensor(f"{module}.qzeros", "I32", groups, OUTPUTS * bits // 32))
    tensors.append(tensor(f"{module}.scales", "F16", groups, OUTPUTS))
    return [*tensors, tensor(f"{module}.g_idx", "I32", INPUTS)] if index else tensors


def gptq(path: Path) -> list[Expected]:
    made = Collection(path)
    norm = tensor("model.norm.weight", "F16", 64)
    for bits in (2, 3, 4, 8):
        config = {"quant_method": "gptq", "bits": bits, "group_size": GROUP}
        made.add(f"{bits}", [*_gptq(bits), norm], LOGICAL + 64, "gptq", quantization_config=config)
        made.add(f"{bits}-by-zeros", _gptq(bits, index=False), LOGICAL, "gptq", quantization_config=config)
        bare = _gptq(bits, index=False, zeros=False)
        made.add(f"{bits}-by-config", bare, LOGICAL, "gptq", quantization_config=config)
    mixed = {"quant_method": "gptq", "bits": 4, "dynamic": {"down_proj": {"bits": 8}}}
    both = [*_gptq(4, index=False), *_gptq(8, index=False, module=DOWN)]
    made.add("two-widths", both, 2 * LOGICAL, "gptq", quantization_config=mixed)
    made.add("without-config", _gptq(3), LOGICAL, "gptq")
    silent = _gptq(4, index=False, zeros=False)
    made.add("nothing-tells", silent, None, "gptq", quantization_config={"quant_method": "gptq"})
    nested = {"text_config": {"quantization_config": {"quant_method": "gptq", "bits": 3}}}
    made.add("nested", _gptq(3), LOGICAL, "gptq", **nested)
    return made.expected


def awq(path: Path) -> list[Expected]:
    made = Collection(path)
    packed = OUTPUTS // 8
    tensors = [
        tensor(f"{UP}.qweight", "I32", INPUTS, packed),
        tensor(f"{UP}.qzeros", "I32", 2, packed),
        tensor(f"{UP}.scales", "F16", 2, OUTPUTS),
    ]
    config = {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm"}
    made.add("gemm", tensors, LOGICAL, "awq", quantization_config=config)
    made.add("without-zeros", [tensors[0], tensors[2]], LOGICAL, "awq", quantization_config=config)
    made.add("without-config", tensors, LOGICAL, "awq")
    rows = [
        tensor(f"{UP}.qweight", "I32", OUTPUTS, INPUTS // 8),
        tensor(f"{UP}.qzeros", "I32", OUTPUTS, 1),
        tensor(f"{UP}.scales", "F16", OUTPUTS, 2),
    ]
    made.add("gemv", rows, LOGICAL, "awq", quantization_config=config | {"version": "gemv"})
    return made.expected


def bitsandbytes(path: Path) -> list[Expected]:
    made = Collection(path)
    weight = f"{UP}.weight"
    states = [
        tensor(f"{weight}.absmax", "U8", 32),
        tensor(f"{weight}.nested_absmax", "F32", 1),
        tensor(f"{weight}.nested_quant_map", "F32", 256),
        tensor(f"{weight}.quant_map", "F32", 16),
        tensor(f"{weight}.quant_state.bitsandbytes__nf4", "U8", 160),
    ]
    config = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
    for storage, elements in (("U8", 1024), ("BF16", 512), ("F32", 256)):
        packed = tensor(weight, storage, elements, 1)
        made.add(storage, [packed, *states], LOGICAL, "bitsandbytes", quantization_config=config)
    made.add("older", [tensor(weight, "U8", 1024, 1), *states], LOGICAL, "bitsandbytes")
    eight = [
        tensor(weight, "I8", OUTPUTS, INPUTS),
        tensor(f"{UP}.SCB", "F32", OUTPUTS),
        tensor(f"{UP}.weight_format", "U8"),
    ]
    made.add("8", eight, LOGICAL, "bitsandbytes", quantization_config={"load_in_8bit": True})
    return made.expected


def blocks_and_scales(path: Path) -> list[Expected]:
    made = Collection(path)
    experts = "model.layers.0.mlp.experts.gate_up_proj"
    mxfp4 = [
        tensor(f"{experts}_blocks", "U8", 2, 64, 2, 16),
        tensor(f"{experts}_scales", "U8", 2, 64, 2),
        tensor(f"{experts}_bias", "BF16", 2, 64),
    ]
    made.add("mxfp4", mxfp4, 8192 + 128, "mxfp4", quantization_config={"quant_method": "mxfp4"})
    dotted = [tensor(f"{experts}.blocks", "U8", 64, 2, 16), tensor(f"{experts}.scales", "U8", 64, 2)]
    made.add("mxfp4-dotted", dotted, 4096, "mxfp4", quantization_config={"quant_method": "mxfp4"})
    fp8 = [tensor(f"{UP}.weight", "F8_E4M3", 128, 256), tensor(f"{UP}.weight_scale_inv", "F32", 1, 2)]
    config = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    made.add("fp8", fp8, 32768, "fp8", quantization_config=config)
    fused = [tensor(experts, "F8_E4M3", 2, 16, 16), tensor(f"{experts}_scale_inv", "F32", 2, 1, 1)]
    made.add("fp8-fused", fused, 512, "fp8", quantization_config=config)
    scaled = [
        tensor(f"{UP}.weight", "F8_E4M3", 32, 64),
        tensor(f"{UP}.weight_scale", "F32"),
        tensor(f"{UP}.input_scale", "F32"),
    ]
    made.add("fp8-scalar", scaled, LOGICAL, "fp8")
    nvfp4 = [
        tensor(f"{UP}.weight", "U8", OUTPUTS, INPUTS // 2),
        tensor(f"{UP}.weight_scale", "F8_E4M3", OUTPUTS, INPUTS // 16),
        tensor(f"{UP}.weight_scale_2", "F32"),
        tensor(f"{UP}.input_scale", "F32"),
    ]
    made.add("nvfp4", nvfp4, LOGICAL, "modelopt", quantization_config={"quant_method": "modelopt"})
    bitnet = [tensor(f"{UP}.weight", "U8", OUTPUTS // 4, INPUTS), tensor(f"{UP}.weight_scale", "BF16", 1)]
    made.add("bitnet", bitnet, LOGICAL, "bitnet", quantization_config={"quant_method": "bitnet"})
    return made.expected


def _compressed(bits: int, module: str, *, groups: int) -> list[Tensor]:
    words = -(-INPUTS // (32 // bits))
    return [
        tensor(f"{module}.weight_packed", "I32", OUTPUTS, words),
        tensor(f"{module}.weight_scale", "BF16", OUTPUTS, groups),
        tensor(f"{module}.weight_shape", "I64", 2),
    ]


def _groups(**named: tuple[list[str], Mapping[str, Any]]) -> dict[str, Any]:
    listed = {name: {"targets": targets, "weights": weights} for name, (targets, weights) in named.items()}
    return {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": listed}


def compressed_tensors(path: Path) -> list[Expected]:
    made = Collection(path)
    method = "compressed-tensors"
    for bits in (2, 3, 4, 8):  # three bits leave room in the last word of a row
        one = _groups(all=(["Linear"], {"num_bits": bits, "group_size": GROUP}))
        made.add(f"{bits}", _compressed(bits, UP, groups=2), LOGICAL, method, quantization_config=one)
    channel = _groups(all=(["Linear"], {"num_bits": 4, "strategy": "channel"}))
    made.add("channel", _compressed(4, UP, groups=1), LOGICAL, method, quantization_config=channel)
    both = [*_compressed(4, UP, groups=1), *_compressed(8, DOWN, groups=1)]
    for name, target in {"pattern": "re:.*down_proj$", "name": DOWN, "end-of-name": "mlp.down_proj"}.items():
        two = _groups(most=(["Linear"], {"num_bits": 4}), few=([target], {"num_bits": 8}))
        made.add(f"two-widths-by-{name}", both, 2 * LOGICAL, method, quantization_config=two)
    endless = _groups(a=(["re:(a+)+$", "re:(.*)*x"], {"num_bits": 4}), b=(["re:(x*)*y"], {"num_bits": 8}))
    made.add("patterns-without-end", both, None, method, quantization_config=endless)
    fp4 = [
        tensor(f"{UP}.weight_packed", "U8", OUTPUTS, INPUTS // 2),
        tensor(f"{UP}.weight_scale", "F8_E4M3", OUTPUTS, INPUTS // 16),
        tensor(f"{UP}.weight_global_scale", "F32", 1),
        tensor(f"{UP}.input_global_scale", "F32", 1),
    ]
    nvfp4 = _groups(all=(["Linear"], {"num_bits": 4, "type": "float"})) | {"format": "nvfp4-pack-quantized"}
    made.add("nvfp4", fp4, LOGICAL, method, quantization_config=nvfp4)
    int8 = [tensor(f"{UP}.weight", "I8", OUTPUTS, INPUTS), tensor(f"{UP}.weight_scale", "BF16", OUTPUTS, 1)]
    eight = _groups(all=(["Linear"], {"num_bits": 8})) | {"format": "int-quantized"}
    made.add("int8", int8, LOGICAL, method, compression_config=eight)
    return made.expected


def _mlx(module: str, bits: int, rows: int = 32, group: int = GROUP) -> list[Tensor]:
    return [
        tensor(f"{module}.weight", "U32", rows, INPUTS * bits // 32),
        tensor(f"{module}.scales", "BF16", rows, INPUTS // group),
        tensor(f"{module}.biases", "BF16", rows, INPUTS // group),
    ]


def mlx(path: Path) -> list[Expected]:
    made = Collection(path)
    embedding = "model.embed_tokens"
    section = {"bits": 4, "group_size": GROUP, embedding: {"bits": 8, "group_size": GROUP}}
    both = [*_mlx(UP, 4), *_mlx(embedding, 8, rows=64)]
    made.add("two-widths", both, LOGICAL + 64 * 64, "mlx", quantization=section)
    nested = [*_mlx(f"language_model.{UP}", 4), *_mlx(f"language_model.{embedding}", 8, rows=64)]
    made.add("nested", nested, LOGICAL + 64 * 64, "mlx", quantization=section)
    forgotten = {"bits": 4, "group_size": GROUP}
    made.add("width-not-stated", both, LOGICAL + 64 * 64, "mlx", quantization=forgotten)
    for bits in (2, 3, 5, 6):
        stated = {"bits": bits, "group_size": GROUP}
        made.add(f"{bits}", _mlx(UP, bits), LOGICAL, "mlx", quantization=stated, quantization_config=stated)
    made.add("without-config", _mlx(UP, 4), None, "mlx")
    return made.expected


def methods_without_a_rule(path: Path) -> list[Expected]:
    """Nothing is guessed: the count is unknown, and the bytes are known all the same."""
    made = Collection(path)
    norm = tensor("model.norm.weight", "F16", 64)
    packed = {
        "hqq": [tensor(f"{UP}.W_q", "U8", 32, 32), tensor(f"{UP}.scale", "F16", 32)],
        "aqlm": [tensor(f"{UP}.codes", "I8", 32, 8, 1), tensor(f"{UP}.codebooks", "F16", 1, 256, 1, 8)],
        "exl2": [tensor(f"{UP}.q_weight", "I32", 16, 32), tensor(f"{UP}.q_scale", "I32", 2, 4)],
    }
    for method, tensors in packed.items():
        made.add(method, [*tensors, norm], None, method, quantization_config={"quant_method": method})
    return made.expected


CASES: tuple[Callable[[Path], list[Expected]], ...] = (
    gptq,
    awq,
    bitsandbytes,
    blocks_and_scales,
    compressed_tensors,
    mlx,
    methods_without_a_rule,
)
