import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.anatomy.cases import TIED, UNTIED, llama, write, write_config, write_llama, write_shards

FULL_SIZE = {
    "qwen2.5-0.5b": (494_032_768, 24, 151_936, 32_768),
    "qwen2.5-1.5b": (1_543_714_304, 28, 151_936, 131_072),
    "llama-3.2-1b": (1_235_814_400, 16, 128_256, 131_072),
}


@pytest.fixture
def run(tmp_path):
    """Run `vramscope inspect` in a directory of its own, with standard input that never ends."""

    def run(*argv, hub_cache="hub"):
        environment = {"VRAMSCOPE_CACHE": str(tmp_path / "cache"), "HF_HUB_CACHE": str(tmp_path / hub_cache)}
        with subprocess.Popen(
            [sys.executable, "-m", "vramscope", "inspect", *map(str, argv)],
            cwd=tmp_path,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            env={**os.environ, **environment},
        ) as process:
            output, errors = process.stdout.read(), process.stderr.read()
            return process.wait(60), output, errors

    return run


@pytest.mark.parametrize("name", FULL_SIZE)
def test_full_size_models_are_counted_before_they_are_made(run, name):
    code, output, errors = run(f"synthetic:{name}", "--format", "json")
    told = json.loads(output)
    parameters, layers, rows, window = FULL_SIZE[name]
    assert (code, errors, told["problems"]) == (0, "", [])
    assert (told["parameters"], told["parameter_bytes"], told["layers"]) == (parameters, 2 * parameters, layers)
    assert told["config"]["context_window"] == window
    assert told["config"]["tied"] is True
    assert told["tokenizer"]["embedding_rows"] == rows
    assert told["estimates"]["int8"] == parameters
    assert sum(part["parameters"] for part in told["components"].values()) == parameters
    runs = told["layer_runs"]
    assert [(run["stack"], run["first"], run["last"]) for run in runs] == [("model.layers", 0, layers - 1)]


def test_neither_torch_nor_the_terminal_library_is_imported_for_json(tmp_path):
    write_llama(tmp_path / "m")
    code = (
        "import sys; from vramscope.cli import main\n"
        f"main(['inspect', {str(tmp_path / 'm')!r}, '--format', 'json'])\n"
        "print({'torch', 'transformers', 'rich', 'pydantic', 'yaml'} & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", timeout=100, check=True)
    assert done.stderr == "set()\n"


def test_text_says_what_a_newcomer_asks(run, tmp_path):
    write_llama(tmp_path / "Tiny-0.006M", dtype="bfloat16")
    (tmp_path / "Tiny-0.006M/generation_config.json").write_text("{}")
    (tmp_path / "Tiny-0.006M/pytorch_model.bin").write_bytes(b"never opened")
    code, output, errors = run("Tiny-0.006M")
    assert (code, errors) == (0, "")
    for line in (
        "6,224 parameters, 12,448 bytes (12.16 KiB) in bfloat16",
        '"0.006M" is a name: 6,224 is 103.7 % of 6,000',
        "the architecture: class, sizes, dtype, quantization",
        "defaults for generating text",
        "weights, which a load reads",
        "pickled weights, never opened",
        "2 query heads, 2 key and value heads",
        "tied: input and output share one matrix",
        "model.layers 0-1",
        "float16, bfloat16",
        "note: not read, and not counted: pytorch_model.bin",
    ):
        assert line in output, line


def test_what_stands_against_loading_is_told_with_what_is_known(run, tmp_path):
    write_config(tmp_path / "m", tie_word_embeddings=False)
    last = write_shards(tmp_path / "m", llama("F32", tied=False))[-1]
    (tmp_path / "m" / last).unlink()
    code, output, errors = run("m")
    assert (code, errors) == (1, "")
    assert "parameters: unknown" in output
    assert f"cannot be loaded: m/{last}: the shard is missing" in output
    code, output, _ = run("m", "--format", "json")
    told = json.loads(output)
    assert code == 1
    assert (told["parameters"], told["parameter_bytes"], told["estimates"]) == (None, None, {})
    assert told["problems"][0]["where"] == f"m/{last}"


def test_a_source_that_is_not_there(run):
    code, output, errors = run("nowhere/at/all")
    assert (code, output) == (1, "")
    assert errors.startswith("vramscope: 'nowhere/at/all': no such file or directory (a source is a directory")
    code, output, errors = run("nowhere/at/all", "--format", "json")
    told = json.loads(output)
    assert (code, errors) == (1, "")
    assert (told["parameters"], told["file_bytes"], told["tensors"], told["config"]) == (None, None, None, {})
    assert "no such file or directory" in told["problems"][0]["what"]


def test_the_dtype_of_the_load_may_be_chosen(run, tmp_path):
    write_llama(tmp_path / "m", dtype="bfloat16")
    told = json.loads(run("m", "--dtype", "float32", "--format", "json")[1])
    assert (told["dtype"], told["parameter_bytes"], told["file_bytes"]) == ("float32", 4 * TIED, 2 * TIED)


def test_a_config_alone_is_enough_for_an_architecture_that_is_known(run, tmp_path):
    write_config(tmp_path / "m", tie_word_embeddings=False, dtype="bfloat16")
    assert run("m")[0] == 1
    code, output, _ = run("m", "--from-config", "--format", "json")
    told = json.loads(output)
    assert code == 0
    assert (told["parameters"], told["parameter_bytes"], told["file_bytes"]) == (UNTIED, 2 * UNTIED, None)
    write_config(tmp_path / "other", model_type="gpt2", architectures=["GPT2LMHeadModel"])
    code, output, _ = run("other", "--from-config", "--format", "json")
    told = json.loads(output)
    assert (code, told["parameters"], told["layers"]) == (0, None, 2)
    assert "tells no counts for this architecture" in told["notes"][0]


def test_sixty_thousand_tensors_make_no_long_page(run, tmp_path):
    write(tmp_path / "many.safetensors", [(f"model.layers.{n}.w", "F32", (1,), b"\0") for n in range(60_000)])
    code, output, _ = run("many.safetensors")
    assert code == 0
    assert "60,000 parameters, 240,000 bytes" in output
    assert len(output.splitlines()) < 60


def test_names_of_strangers_reach_the_terminal_escaped(run, tmp_path):
    directory = Path(tmp_path / "m")
    write_llama(directory)
    (directory / "evil\x1b[31m\n.safetensors").write_bytes(b"")
    output = run("m")[1]
    assert "\x1b" not in output
    assert "evil\\x1b[31m\\n.safetensors" in output
