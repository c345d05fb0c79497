"""Whole checkpoints: ties, dtypes, shards beside single files, experts, buffers, several modalities."""

import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from tests.anatomy.cases import (
    HEAD,
    SIZES,
    TIED,
    TWO,
    UNTIED,
    Expected,
    llama,
    tensor,
    write,
    write_config,
    write_llama,
    write_shards,
)

WHOLE_TIED = Expected(parameters=TIED, parameter_bytes=2 * TIED, loaded=(TIED, 2 * TIED))
WHOLE = Expected(parameters=UNTIED, parameter_bytes=4 * UNTIED, loaded=(UNTIED, 4 * UNTIED))


def tied_without_a_head(path: Path) -> list[Expected]:
    nbytes = write_llama(path / "m", dtype="bfloat16")
    return [replace(WHOLE_TIED, stored_elements=TIED, file_bytes=nbytes, tensors=20)]


def tied_with_two_equal_ends(path: Path) -> list[Expected]:
    write_config(path / "m", tie_word_embeddings=True, dtype="bfloat16")
    write(path / "m/model.safetensors", llama(tied=False))
    return [
        replace(WHOLE_TIED, stored_elements=UNTIED, file_bytes=2 * UNTIED, note="both ends of a tie: lm_head.weight")
    ]


def tied_with_two_different_ends(path: Path) -> list[Expected]:
    """Headers cannot tell; a load keeps both, and must say how much there is of it."""
    write_config(path / "m", tie_word_embeddings=True, dtype="bfloat16")
    head = tensor("lm_head.weight", "BF16", SIZES["vocab_size"], SIZES["hidden_size"], value=TWO["BF16"])
    write(path / "m/model.safetensors", [*llama(), head])
    note = f"should the two differ, a load keeps both, {HEAD:,} parameters more"
    return [replace(WHOLE_TIED, file_bytes=2 * UNTIED, note=note, loaded=(UNTIED, 2 * UNTIED))]


def tied_with_only_the_head(path: Path) -> list[Expected]:
    write_config(path / "m", tie_word_embeddings=True, dtype="bfloat16")
    write(path / "m/model.safetensors", llama(tied=False)[1:])
    return [replace(WHOLE_TIED, file_bytes=2 * TIED)]


def untied_without_a_head(path: Path) -> list[Expected]:
    write_config(path / "m", tie_word_embeddings=False, dtype="bfloat16")
    write(path / "m/model.safetensors", llama())
    write_config(path / "default", dtype="bfloat16")  # the class does not tie where the config does not say
    write(path / "default/model.safetensors", llama())
    missing = r"1 parameter\(s\) are not in the (files|checkpoint): 'lm_head\.weight'"
    return [Expected(source=name, file_bytes=2 * TIED, problem=missing) for name in ("m", "default")]


def a_layer_that_is_not_there(path: Path) -> list[Expected]:
    write_config(path / "m", tie_word_embeddings=True, num_hidden_layers=3)
    write(path / "m/model.safetensors", llama())
    return [Expected(stored_elements=TIED, problem=r"9 parameter\(s\) are not in the .*model\.layers\.2.* and 6 more")]


def shapes_of_another_model(path: Path) -> list[Expected]:
    write_config(path / "m", tie_word_embeddings=True, vocab_size=65)
    write(path / "m/model.safetensors", llama())
    problem = r"1 parameter\(s\) have another shape than config\.json says: 'model\.embed_tokens\.weight'"
    return [Expected(stored_elements=TIED, problem=problem)]


def names_without_their_prefix(path: Path) -> list[Expected]:
    """A base model of its own, as LlamaModel saves it."""
    write_config(path / "m", tie_word_embeddings=True, dtype="bfloat16")
    named = [(name.removeprefix("model."), *rest) for name, *rest in llama()]
    write(path / "m/model.safetensors", named)  # type: ignore[arg-type]
    return [WHOLE_TIED]


def one_file_beside_shards(path: Path) -> list[Expected]:
    write_shards(path / "m", llama("F32", tied=False, value=TWO["F32"]))
    write_llama(path / "m", "F32", tied=False, dtype="float32")
    note = r"not counted: model-00001-of-00004\.safetensors.*; a load reads model\.safetensors$"
    return [replace(WHOLE, file_bytes=4 * UNTIED, note=note)]


def the_publishers_file_beside_shards(path: Path) -> list[Expected]:
    write_config(path / "m", tie_word_embeddings=False, dtype="float32")
    write_shards(path / "m", llama("F32", tied=False))
    write(path / "m/consolidated.safetensors", llama("F32", tied=False))
    return [replace(WHOLE, file_bytes=4 * UNTIED, note=r"not counted: consolidated\.safetensors")]


def copies_in_other_formats(path: Path) -> list[Expected]:
    write_llama(path / "m", "F32", tied=False, dtype="float32")
    write(path / "m/original/model-00001-of-00001.safetensors", llama("F32", tied=False))
    (path / "m/pytorch_model.bin").write_bytes(b"not read")
    return [replace(WHOLE, file_bytes=4 * UNTIED, note=r"not counted: pytorch_model\.bin")]


def an_index_with_a_wrong_total(path: Path) -> list[Expected]:
    write_config(path / "m", tie_word_embeddings=False, dtype="float32")
    write_shards(path / "m", llama("F32", tied=False), total=1)
    return [replace(WHOLE, note=r'says "total_size" 1, its shards hold 28,992 bytes of tensors')]


def empty_tensors_and_scalars(path: Path) -> list[Expected]:
    write(path / "empty.safetensors", [tensor("s", "F8_E4M3", 0), tensor("e", "F32", 0, 5), tensor("w", "F32", 2)])
    write(path / "scalar.safetensors", [tensor("logit_scale", "F32"), tensor("w", "BF16", 3)])
    return [
        Expected(source="empty.safetensors", parameters=2, stored_elements=2, file_bytes=8, tensors=3),
        Expected(source="scalar.safetensors", parameters=4, parameter_bytes=10, dtypes={"F32": (1, 4), "BF16": (3, 6)}),
    ]


def four_bits_an_element(path: Path) -> list[Expected]:
    """The shape in the header is what counts; torch's own type has two in an element."""
    write(path / "f4.safetensors", [tensor("w", "F4", 2, 4)])
    write(path / "f6.safetensors", [tensor("w", "F6_E2M3", 2, 4)])
    write_config(path / "m", tie_word_embeddings=True)
    write(path / "m/model.safetensors", [*llama(), tensor("x", "F4", 2, 4)])
    return [
        Expected(source="f4.safetensors", parameters=8, parameter_bytes=4, dtypes={"F4": (8, 4)}),
        Expected(source="f6.safetensors", parameters=8, parameter_bytes=6),
        Expected(stored_elements=TIED + 8, problem=r"dtype F4, of which torch .*one value an element"),
    ]


def experts_one_by_one(path: Path) -> list[Expected]:
    """transformers fuses them: fewer tensors with other names, and the same count."""
    tensors = [entry for entry in llama(tied=False) if ".mlp." not in entry[0]]
    for layer in range(2):
        prefix = f"model.layers.{layer}.block_sparse_moe."
        tensors.append(tensor(f"{prefix}gate.weight", "BF16", 4, 16))
        for expert in range(4):
            shapes = {"w1": (32, 16), "w2": (16, 32), "w3": (32, 16)}
            tensors += [tensor(f"{prefix}experts.{expert}.{w}.weight", "BF16", *shape) for w, shape in shapes.items()]
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2, "tie_word_embeddings": False, "dtype": "bfloat16"}
    write_config(path / "m", architectures=["MixtralForCausalLM"], model_type="mixtral", **experts)
    write(path / "m/model.safetensors", tensors)
    return [Expected(parameters=16592, parameter_bytes=33184, tensors=41, loaded=(16592, 33184))]


def buffers_in_no_file(path: Path) -> list[Expected]:
    sizes = {key: size for key, size in SIZES.items() if key != "num_key_value_heads"} | {"num_hidden_layers": 1}
    _save(path / "m", "BertModel", "BertConfig", **sizes)
    return [Expected(parameters=4096, parameter_bytes=16384, loaded=(4096, 16384), buffer_bytes=512)]


def buffers_among_the_weights(path: Path) -> list[Expected]:
    """Older files of GPT-2 hold its causal masks, which are as large as its weights are small."""
    sizes = {"vocab_size": 64, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 32}
    _save(path / "m", "GPT2LMHeadModel", "GPT2Config", **sizes)
    from safetensors.numpy import load_file, save_file

    tensors = load_file(path / "m/model.safetensors")
    mask = tensors["transformer.wpe.weight"][:1, :1].reshape(1, 1, 1, 1).repeat(8, 2).repeat(8, 3)
    save_file(tensors | {"transformer.h.0.attn.bias": mask}, path / "m/model.safetensors")
    count = 64 * 16 + 32 * 16 + 16 * 48 + 48 + 16 * 16 + 16 + 16 * 64 + 64 + 64 * 16 + 16 + 3 * 32
    note = r"1 stored tensor\(s\) are buffers.*attn\.bias"
    return [Expected(parameters=count, parameter_bytes=4 * count, note=note, loaded=(count, 4 * count))]


def ties_of_other_names(path: Path) -> list[Expected]:
    """Files that hold what a class ties by itself: the config says nothing of it."""
    from safetensors.numpy import load_file, save_file

    sizes = {"vocab_size": 64, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 32}
    _save(path / "gpt2", "GPT2LMHeadModel", "GPT2Config", **sizes)
    sizes = {"vocab_size": 64, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
    _save(path / "t5", "T5ForConditionalGeneration", "T5Config", **sizes)
    copies = {
        "gpt2": ("transformer.wte.weight", ["lm_head.weight"]),
        "t5": ("shared.weight", ["encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"]),
    }
    expected = []
    for name, (first, others) in copies.items():
        config = json.loads((path / name / "config.json").read_text())
        (path / name / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": None}))
        tensors = load_file(path / name / "model.safetensors")
        count = sum(tensor.size for tensor in tensors.values())
        whole = tensors | {other: tensors[first].copy() for other in others}
        save_file(whole, path / name / "model.safetensors")
        note = rf"both ends of a tie: {others[-1]} counts once"
        expected.append(Expected(source=name, parameters=count, parameter_bytes=4 * count, note=note))
    return expected


def several_modalities(path: Path) -> list[Expected]:
    import torch
    from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

    vision = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(**vision, image_size=16, patch_size=8, projection_dim=16),
        text_config=LlamaConfig(**SIZES),
    )
    LlavaForConditionalGeneration(config).to(torch.bfloat16).save_pretrained(path / "m")
    return [Expected(parameters=13248, parameter_bytes=26496, loaded=(13248, 26496))]


def dtypes_of_the_config(path: Path) -> list[Expected]:
    """The file is BF16; `dtype` wins over `torch_dtype`, and without either the file decides."""
    cases: dict[str, tuple[Mapping[str, str], int]] = {
        "older": ({"torch_dtype": "bfloat16"}, 2),
        "newer": ({"dtype": "bfloat16"}, 2),
        "wider": ({"dtype": "float32"}, 4),
        "neither": ({}, 2),
        "both": ({"dtype": "float16", "torch_dtype": "float32"}, 2),
        "null": ({"dtype": None, "torch_dtype": "float32"}, 4),  # type: ignore[dict-item]
    }
    expected = []
    for name, (fields, width) in cases.items():
        write_llama(path / name, tied=False, **fields)
        nbytes = width * UNTIED
        expected.append(
            Expected(
                source=name,
                parameters=UNTIED,
                parameter_bytes=nbytes,
                file_bytes=2 * UNTIED,
                loaded=(UNTIED, nbytes),
            )
        )
    return expected


def wider_norms(path: Path) -> list[Expected]:
    write_config(path / "m", tie_word_embeddings=False, dtype="bfloat16")
    write(path / "m/model.safetensors", llama(tied=False, norms="F32"))
    dtypes = {"BF16": (UNTIED - 80, 2 * (UNTIED - 80)), "F32": (80, 320)}
    return [Expected(parameters=UNTIED, parameter_bytes=2 * UNTIED, dtypes=dtypes, loaded=(UNTIED, 2 * UNTIED))]


def more_than_the_class_uses(path: Path) -> list[Expected]:
    write_config(path / "m", tie_word_embeddings=False, dtype="float32")
    write(path / "m/model.safetensors", [*llama("F32", tied=False), tensor("mtp.fc.weight", "F32", 16, 16)])
    note = r"1 tensor\(s\) in the files are none of the model's.*'mtp\.fc\.weight'"
    return [replace(WHOLE, stored_elements=UNTIED + 256, file_bytes=30016, note=note, unexpected=("mtp.fc.weight",))]


def names_of_any_kind(path: Path) -> list[Expected]:
    names = ["a\nb", 'q"', "model..weight", "../up", "", "数字", "x" * 5000]
    write(path / "names.safetensors", [tensor(name, "F32", 2) for name in names])
    return [Expected(source="names.safetensors", parameters=14, tensors=7)]


def _save(directory: Path, model_class: str, config_class: str, **fields: int) -> None:
    import transformers

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = getattr(transformers, config_class)(**fields)
        getattr(transformers, model_class)(config).save_pretrained(directory)


CASES: tuple[Callable[[Path], list[Expected]], ...] = (
    tied_without_a_head,
    tied_with_two_equal_ends,
    tied_with_two_different_ends,
    tied_with_only_the_head,
    untied_without_a_head,
    a_layer_that_is_not_there,
    shapes_of_another_model,
    names_without_their_prefix,
    one_file_beside_shards,
    the_publishers_file_beside_shards,
    copies_in_other_formats,
    an_index_with_a_wrong_total,
    empty_tensors_and_scalars,
    four_bits_an_element,
    experts_one_by_one,
    buffers_in_no_file,
    buffers_among_the_weights,
    ties_of_other_names,
    several_modalities,
    dtypes_of_the_config,
    wider_norms,
    more_than_the_class_uses,
    names_of_any_kind,
)
