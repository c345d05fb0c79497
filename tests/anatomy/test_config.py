import pytest

from vramscope.anatomy.config import ModelConfig, resolve_dtype
from vramscope.anatomy.header import Header
from vramscope.anatomy.recipes import RECIPES
from vramscope.anatomy.source import resolve
from vramscope.errors import SourceError

LLAVA = {
    "architectures": ["LlavaForConditionalGeneration"],
    "model_type": "llava",
    "torch_dtype": "bfloat16",
    "vision_config": {"hidden_size": 16, "num_hidden_layers": 1, "max_position_embeddings": 9},
    "text_config": {
        "hidden_size": 32,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "max_position_embeddings": 64,
        "tie_word_embeddings": False,
        "quantization_config": {"quant_method": "awq"},
    },
}


def test_facts_of_a_published_config():
    assert ModelConfig.of(RECIPES["qwen2.5-0.5b"].config) == ModelConfig(
        architecture="Qwen2ForCausalLM",
        model_type="qwen2",
        dtype="bfloat16",
        hidden_size=896,
        intermediate_size=4864,
        layers=24,
        heads=14,
        kv_heads=2,
        head_size=None,
        experts=None,
        active_experts=None,
        vocabulary=151936,
        context_window_tokens=32768,
        tied=True,
        quantization="",
    )


def test_facts_of_the_language_part_stand_one_level_down():
    assert ModelConfig.of(LLAVA) == ModelConfig(
        architecture="LlavaForConditionalGeneration",
        model_type="llava",
        dtype="bfloat16",
        hidden_size=32,
        intermediate_size=None,
        layers=3,
        heads=4,
        kv_heads=None,
        head_size=None,
        experts=None,
        active_experts=None,
        vocabulary=None,
        context_window_tokens=64,
        tied=False,
        quantization="awq",
    )


def test_older_names_of_the_same_facts():
    facts = ModelConfig.of({"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_positions": 1024})
    assert (facts.hidden_size, facts.layers, facts.context_window_tokens) == (768, 12, 1024)


def test_what_is_not_stated_is_unknown():
    odd = {"architectures": [], "hidden_size": True, "num_hidden_layers": "2", "max_position_embeddings": -1}
    for config in (
        {},
        odd,
        {"architectures": "Llama", "model_type": 3, "text_config": [], "tie_word_embeddings": "no"},
    ):
        facts = ModelConfig.of(config)
        assert (facts.architecture, facts.model_type, facts.dtype, facts.quantization) == ("", "", "", "")
        assert (facts.hidden_size, facts.layers, facts.context_window_tokens, facts.tied) == (None, None, None, None)


@pytest.mark.parametrize(
    ("config", "method"),
    [
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "gptq"),
        ({"quantization_config": {"load_in_4bit": True}}, "bitsandbytes"),
        ({"quantization_config": {"bits": 4}}, "unknown"),
        ({"compression_config": {"quant_method": "compressed-tensors"}}, "compressed-tensors"),
        ({"quantization": {"group_size": 64, "bits": 4}}, "mlx"),
        ({"quantization": {"bits": 4}, "quantization_config": {"bits": 4, "mode": "affine"}}, "mlx"),
        ({"quantization_config": None}, ""),
    ],
)
def test_quantization_is_named(config, method):
    assert ModelConfig.of(config).quantization == method


@pytest.mark.parametrize(
    ("config", "dtype"),
    [
        ({"torch_dtype": "bfloat16"}, "bfloat16"),
        ({"dtype": "float16", "torch_dtype": "float32"}, "float16"),
        ({"dtype": None, "torch_dtype": "float32"}, "float32"),
        ({"dtype": "float16", "torch_dtype": "nonsense"}, "float16"),
        ({"dtype": "half"}, "float16"),
        ({}, ""),
    ],
)
def test_dtype_of_a_config(config, dtype):
    assert ModelConfig.of(config).dtype == dtype


@pytest.mark.parametrize(
    "value", ["bf16", "auto", "", "torch.float16", "int8", 16, ["bfloat16"], {"": "float16"}, False]
)
@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
def test_a_dtype_that_is_none_is_refused_with_key_and_value(key, value):
    message = f'config.json: "{key}": expected one of bfloat16, float16, float32, float64; got {value!r}'
    for read in (lambda: ModelConfig.of({key: value}), lambda: resolve_dtype("float32", {key: value}, ())):
        with pytest.raises(SourceError) as caught:
            read()
        assert caught.value.message == message


def test_a_part_of_a_model_may_not_name_nonsense_either():
    assert ModelConfig.of(LLAVA | {"vision_config": {"dtype": "float8_e4m3fn"}}).dtype == "bfloat16"
    assert ModelConfig.of({"quantization_config": {"dtype": "int4"}}).dtype == ""
    for value in ("bf16", "torch.bfloat16", 16, ["bfloat16"]):
        with pytest.raises(
            SourceError, match=r'config\.json: "text_config": "torch_dtype": expected one of .*; got '
        ) as caught:
            ModelConfig.of({"text_config": {"torch_dtype": value}})
        assert caught.value.message.endswith(f"got {value!r}")


def headers(tmp_path, weights, *files: dict[str, tuple[str, list[int]]]) -> tuple[Header, ...]:
    found = []
    for number, tensors in enumerate(files):
        directory = tmp_path / str(number)
        weights(directory / "model.safetensors", tensors)
        (directory / "config.json").write_text('{"model_type": "x"}')
        found.extend(resolve(str(directory), tmp_path).headers)
    return tuple(found)


def test_auto_follows_the_config_then_the_first_floating_tensor_by_name(tmp_path, weights):
    first = {"z": ("F32", [1]), "b": ("F16", [1]), "a": ("I32", [1])}
    files = headers(tmp_path, weights, first, {"a": ("BF16", [1])})
    assert resolve_dtype("auto", {"dtype": "bfloat16"}, files) == "bfloat16"
    assert resolve_dtype("auto", {}, files) == "float16"
    assert resolve_dtype("auto", {}, files[1:]) == "bfloat16"
    assert resolve_dtype("auto", {}, headers(tmp_path, weights, {"a": ("I32", [1])})) == "float32"
    assert resolve_dtype("auto", {}, ()) == "float32"


def test_a_requested_dtype_wins_and_is_checked():
    assert resolve_dtype("float16", {"dtype": "bfloat16"}, ()) == "float16"
    with pytest.raises(SourceError, match="dtype: expected one of bfloat16, float16, float32, float64; got 'int4'"):
        resolve_dtype("int4", {}, ())


def test_auto_agrees_with_transformers(tmp_path, weights):
    from transformers.modeling_utils import get_state_dict_dtype, load_state_dict

    tensors = {"z": ("F32", [1]), "b": ("F16", [1]), "a": ("I32", [1])}
    (header,) = headers(tmp_path, weights, tensors)
    theirs = get_state_dict_dtype(load_state_dict(str(header.path), map_location="meta"))
    assert f"torch.{resolve_dtype('auto', {}, (header,))}" == str(theirs)
