from pathlib import Path

import pytest
from tests.anatomy.cases import SIZES, TIED, llama, tensor, write, write_config, write_llama

from vramscope.anatomy.census import Share
from vramscope.anatomy.inspection import Inspection, Wanted, estimates, inspect
from vramscope.anatomy.vocabulary import Vocabulary


def inspected(path: Path, **changes: object) -> Inspection:
    return inspect(Wanted(source=str(path), **changes), path / "cache")  # type: ignore[arg-type]


def test_seven_billion_in_half_precision_are_fourteen_gigabytes():
    sizes = {"float32": 28e9, "float16": 14e9, "bfloat16": 14e9, "int8": 7e9, "int4": 3.5e9}
    assert estimates(7_000_000_000) == sizes
    assert estimates(3)["int4"] == 2


@pytest.mark.parametrize(
    ("source", "nominal", "parameters"),
    [
        ("Qwen/Qwen2.5-0.5B-Instruct", "0.5B", 500_000_000),
        ("synthetic:llama-3.2-1b", "1b", 1_000_000_000),
        ("/models/SmolLM-135M/", "135M", 135_000_000),
        ("meta-llama/Llama-2-7b-hf", "7b", 7_000_000_000),
        ("Qwen/Qwen3-30B-A3B", "30B", 30_000_000_000),
        ("mistralai/Mixtral-8x7B-v0.1", "8x7B", None),
        ("microsoft/phi-2", "", None),
        ("org/gemma-4bit", "", None),
        ("7B/model", "", None),
    ],
)
def test_the_size_that_a_name_speaks_of(source, nominal, parameters):
    found = Inspection(source=source, directory=Path())
    assert (found.nominal, found.nominal_parameters) == (nominal, parameters)


def test_parts_of_a_tied_model_with_only_its_head_are_those_of_the_loaded_one(tmp_path: Path):
    write_config(tmp_path, tie_word_embeddings=True, dtype="bfloat16")
    write(tmp_path / "model.safetensors", llama(tied=False)[1:])
    found = inspected(tmp_path)
    assert "lm_head" not in found.components
    assert found.components["embedding"] == Share(parameters=1024, nbytes=2048)


def test_a_nonsense_dtype_leaves_counts_and_hides_only_bytes(tmp_path: Path):
    write_llama(tmp_path, dtype="bf16")
    found = inspected(tmp_path)
    assert found.whole == Share(parameters=TIED, nbytes=None)
    assert (found.config.hidden_size, found.config.dtype) == (16, "")
    (problem,) = found.problems
    assert problem.where == str(tmp_path / "config.json")
    assert problem.what.startswith('"dtype": expected one of ')


def test_facts_of_a_language_part_two_levels_down(tmp_path: Path):
    part = {"text_config": SIZES | {"num_hidden_layers": 7}}
    write_config(tmp_path, thinker_config=part, model_type="qwen2_5_omni", **dict.fromkeys(SIZES))
    write(tmp_path / "model.safetensors", [tensor("a", "BF16", 2)])
    found = inspected(tmp_path)
    assert (found.config.layers, found.config.heads, found.config.vocabulary) == (7, 2, 64)


def test_layers_are_those_of_the_files_where_no_config_says_it(tmp_path: Path):
    write(tmp_path / "m.safetensors", [*llama(), tensor("draft.layers.0.w", "BF16", 2)])
    assert inspect(Wanted(source=str(tmp_path / "m.safetensors")), tmp_path).layers == 2


def test_three_numbers_of_a_vocabulary(tmp_path: Path):
    write_llama(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": {"vocab": {"a": 0}}, "added_tokens": [{"content": "b"}]}')
    assert inspected(tmp_path).vocabulary == Vocabulary(vocabulary=1, added=1, embedding_rows=64)


def test_more_tokens_than_rows_are_a_remark(tmp_path: Path):
    write_llama(tmp_path)
    vocabulary = ", ".join(f'"{number}": {number}' for number in range(65))
    (tmp_path / "tokenizer.json").write_text(f'{{"model": {{"vocab": {{{vocabulary}}}}}}}')
    found = inspected(tmp_path)
    assert found.notes == ("the tokenizer has 65 tokens, the model rows for 64",)
    assert found.problems == ()


def test_a_damaged_tokenizer_is_no_reason_not_to_load(tmp_path: Path):
    write_llama(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    found = inspected(tmp_path)
    assert found.problems == ()
    assert found.notes[0].startswith("the tokenizer cannot be used: ")


def test_an_adapter_is_counted_apart(tmp_path: Path):
    write(tmp_path / "adapter_model.safetensors", [tensor("lora_A.weight", "F32", 8, 16)])
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "org/base"}')
    found = inspected(tmp_path)
    assert (found.adapter.base, found.adapter.elements, found.adapter.nbytes) == ("org/base", 128, 512)
    assert found.whole is None
    assert len(found.problems) == 1


def test_one_shard_by_itself_is_not_missing_the_others(tmp_path: Path):
    write_config(tmp_path, tie_word_embeddings=True)
    write(tmp_path / "model-00001-of-00002.safetensors", llama()[:3])
    found = inspect(Wanted(source=str(tmp_path / "model-00001-of-00002.safetensors")), tmp_path)
    assert (found.parameters, found.comparison, found.problems) == (1024 + 2 * 256, None, ())


def test_a_synthetic_model_has_its_facts_before_it_has_files(tmp_path: Path):
    found = inspect(Wanted(source="synthetic:tiny"), tmp_path)
    assert (found.files, found.problems, found.config.layers) == ((), (), 2)
    assert found.parameters == sum(part.parameters for part in found.components.values())
