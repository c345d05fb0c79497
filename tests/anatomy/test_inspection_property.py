"""Whatever a config says and tensors are called, inspecting them ends, and its sums agree."""

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tests.anatomy.cases import tensor, write

from vramscope.anatomy.inspection import Wanted, inspect
from vramscope.cli.inspect import as_json

KEYS = [
    *("model_type", "architectures", "dtype", "torch_dtype", "tie_word_embeddings", "text_config", "vision_config"),
    *("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "intermediate_size", "head_dim"),
    *("quantization_config", "compression_config", "quantization", "quant_method", "bits", "group_size", "format"),
    *("config_groups", "targets", "weights", "num_bits", "load_in_4bit", "auto_map", "num_key_value_heads", "up"),
]
WORDS = [
    "llama",
    "LlamaForCausalLM",
    "gptq",
    "awq",
    "mlx",
    "compressed-tensors",
    "bfloat16",
    "bf16",
    "re:.*",
    "re:(",
    "",
]
LEAVES = [
    *("weight", "qweight", "qzeros", "scales", "g_idx", "biases", "weight_packed", "weight_scale", "weight_shape"),
    *("weight.absmax", "up_blocks", "up_scales", "blocks", "SCB", "bias", "inv_freq", "position_ids"),
]
MODULES = [
    "",
    "up.",
    "model.layers.0.up.",
    "model.layers.1.up.",
    "lm_head.",
    "model.embed_tokens.",
    "shared.",
    "a.b.c.",
]

scalars = st.none() | st.booleans() | st.integers(-2, 2**70) | st.floats(allow_nan=False) | st.sampled_from(WORDS)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=12,
)
configs = st.dictionaries(st.sampled_from(KEYS), values, max_size=8).map(
    lambda config: {"model_type": "llama"} | config
)
tensors = st.lists(
    st.tuples(
        st.builds(str.__add__, st.sampled_from(MODULES), st.sampled_from(LEAVES)),
        st.sampled_from(["F32", "BF16", "I32", "U32", "U8", "I8", "F8_E4M3", "I64", "BOOL"]),
        st.lists(st.integers(0, 5), max_size=4),
    ),
    max_size=8,
    unique_by=lambda entry: entry[0],
)


@given(config=configs, entries=tensors)
def test_no_checkpoint_breaks_it(tmp_path: Path, config, entries):
    (tmp_path / "config.json").write_text(json.dumps(config))
    nbytes = write(tmp_path / "model.safetensors", [tensor(name, dtype, *shape) for name, dtype, shape in entries])
    told = as_json(inspect(Wanted(source=str(tmp_path)), tmp_path))
    json.dumps(told, allow_nan=False)
    assert (told["file_bytes"], told["tensors"]) == (nbytes, len(entries))
    parts = told["components"].values()
    if told["parameters"] is not None:
        assert sum(part["parameters"] for part in parts) == told["parameters"]
    if told["parameter_bytes"] is not None:
        assert sum(part["bytes"] for part in parts) == told["parameter_bytes"]
    assert all(problem["what"] for problem in told["problems"])
