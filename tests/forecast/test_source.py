"""What a forecast reads of a model, wherever its plan says that the model is."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from vramscope.anatomy.synthetic import materialize
from vramscope.errors import SourceError
from vramscope.forecast.source import read_source
from vramscope.plan.schema import ModelSpec

COMMIT = "c" * 40
CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "dtype": "bfloat16"}


@pytest.fixture
def places(tmp_path):
    """Where synthetic models and the hub's are kept; neither is there yet."""
    return tmp_path / "cache", tmp_path / "hub"


def spec(source, dtype="auto", revision="main"):
    return ModelSpec(name="m", source=str(source), dtype=dtype, revision=revision)


def only_config(directory: Path, **config):
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps({**CONFIG, **config}))
    return directory


def whole(directory: Path, **config):
    only_config(directory, **config)
    save_file({"norm.weight": torch.ones(4), "embed.weight": torch.ones(3, 4).half()}, directory / "model.safetensors")
    return directory


def in_hub(hub: Path, make):
    """Put a model into the hub cache as ORG/NAME, and return its directory."""
    home = hub / "models--org--name"
    (home / "refs").mkdir(parents=True)
    (home / "refs/main").write_text(COMMIT)
    return make(home / "snapshots" / COMMIT)


def test_a_directory_is_read_down_to_its_headers(tmp_path, places):
    facts = read_source(spec(whole(tmp_path / "model")), *places)
    assert facts.directory == tmp_path / "model"
    assert facts.config == CONFIG
    assert {tensor.name: tensor.dtype for header in facts.headers for tensor in header.tensors} == {
        "norm.weight": "F32",
        "embed.weight": "F16",
    }
    assert facts.dtype == "bfloat16"


@pytest.mark.parametrize(
    ("asked", "config", "dtype"),
    [
        ("auto", {}, "bfloat16"),
        ("float16", {}, "float16"),
        ("auto", {"dtype": None}, "float16"),  # that of the first stored tensor by name
        ("auto", {"dtype": None, "torch_dtype": "float32"}, "float32"),
    ],
)
def test_the_dtype_is_the_one_that_a_load_will_use(tmp_path, places, asked, config, dtype):
    assert read_source(spec(whole(tmp_path / "model", **config), dtype=asked), *places).dtype == dtype


def test_a_config_alone_is_enough_where_that_is_asked_for(tmp_path, places):
    source = spec(only_config(tmp_path / "model"))
    facts = read_source(source, *places, from_config=True)
    assert (facts.directory, facts.config, facts.headers, facts.dtype) == (tmp_path / "model", CONFIG, (), "bfloat16")
    with pytest.raises(SourceError, match=str(tmp_path / "model")):
        read_source(source, *places)


def test_from_the_config_alone_the_files_are_not_looked_at(tmp_path, places):
    (whole(tmp_path / "model") / "model.safetensors").write_bytes(b"no header at all")
    assert read_source(spec(tmp_path / "model"), *places, from_config=True).headers == ()


def test_without_any_dtype_a_config_alone_means_float32(tmp_path, places):
    only_config(tmp_path / "model", dtype=None)
    assert read_source(spec(tmp_path / "model"), *places, from_config=True).dtype == "float32"


def test_a_file_has_its_config_beside_it(tmp_path, places):
    file = whole(tmp_path / "model") / "model.safetensors"
    assert len(read_source(spec(file), *places).headers) == 1
    assert read_source(spec(file), *places, from_config=True).config == CONFIG


def test_a_model_of_the_hub_cache(places):
    directory = in_hub(places[1], whole)
    facts = read_source(spec("org/name"), *places)
    assert (facts.directory, len(facts.headers)) == (directory, 1)
    assert read_source(spec("org/name", revision=COMMIT), *places).key == facts.key


def test_a_config_alone_of_the_hub_cache(places):
    in_hub(places[1], only_config)
    assert read_source(spec("org/name"), *places, from_config=True).config == CONFIG
    with pytest.raises(SourceError):
        read_source(spec("org/name"), *places)
    with pytest.raises(SourceError, match="revision v2 is not in the hub cache"):
        read_source(spec("org/name", revision="v2"), *places, from_config=True)


@pytest.mark.parametrize("from_config", [True, False])
def test_a_synthetic_model_is_described_before_it_is_made(places, from_config):
    planned = read_source(spec("synthetic:tiny"), *places, from_config=from_config)
    assert not planned.directory.exists()
    assert planned.config["model_type"] == "qwen2"
    materialize("tiny", places[0], progress=lambda _done, _total: None, check=lambda: None)
    made = read_source(spec("synthetic:tiny"), *places, from_config=from_config)
    assert made.directory == planned.directory
    assert made.key == planned.key


def test_the_key_follows_the_dtype_the_config_and_the_headers(tmp_path, places):
    first = read_source(spec(whole(tmp_path / "model")), *places)
    copy = read_source(spec(whole(tmp_path / "copy")), *places)
    assert first.key == copy.key
    others = [
        read_source(spec(tmp_path / "model", dtype="float32"), *places),
        read_source(spec(tmp_path / "model"), *places, from_config=True),
        read_source(spec(whole(tmp_path / "changed", hidden_size=5)), *places),
    ]
    assert len({first.key, *(other.key for other in others)}) == 4


@pytest.mark.parametrize("from_config", [True, False])
@pytest.mark.parametrize("source", ["x" * 5000, "a\0b", "/no/such/model", "no/such", "synthetic:nonsense", "no such"])
def test_a_model_that_is_not_there_is_told_and_not_raised_in_our_face(places, source, from_config):
    with pytest.raises(SourceError) as caught:
        read_source(spec(source), *places, from_config=from_config)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500
