import json
import os
from pathlib import Path

import pytest

from vramscope.anatomy.weights import read_headers
from vramscope.errors import SourceError

FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
INDEX = "model.safetensors.index.json"


def names(directory: Path) -> list[str]:
    return [header.path.name for header in read_headers(directory)]


def test_a_single_file_is_used_alone(sharded: Path, weights):
    assert names(sharded) == [FIRST, SECOND]
    weights(sharded / "model.safetensors", {"a": ("F32", [1])})
    assert names(sharded) == ["model.safetensors"]


def test_other_files_of_the_directory_are_left_alone(model: Path, sharded: Path, weights):
    for directory, read in ((model, ["model.safetensors"]), (sharded, [FIRST, SECOND])):
        weights(directory / "consolidated.safetensors", {"a": ("F32", [1])})
        weights(directory / "original" / "model.safetensors", {"a": ("F32", [1])})
        (directory / "pytorch_model.bin").write_bytes(b"not opened")
        assert names(directory) == read


def test_a_shard_may_hold_more_than_the_index_says(sharded: Path, weights):
    weights(sharded / SECOND, {"c": ("BF16", [4]), "extra": ("F32", [1])})
    assert sum(len(header.tensors) for header in read_headers(sharded)) == 4


@pytest.mark.parametrize(
    "shard",
    [
        "../up.safetensors",
        "/up.safetensors",
        "C:up.safetensors",
        "C:\\up.safetensors",
        "..\\up.safetensors",
        "sub/../../up",
        "sub/m.safetensors",
        "",
        ".",
        "..",
        "a\x00.safetensors",
        7,
        None,
    ],
)
def test_a_shard_outside_the_directory_is_refused_before_any_is_opened(sharded: Path, shard):
    index = json.loads((sharded / INDEX).read_text())
    index["weight_map"]["z"] = shard
    (sharded / INDEX).write_text(json.dumps(index))
    for name in (FIRST, SECOND):  # whoever opened one of these would wait for ever
        (sharded / name).unlink()
        os.mkfifo(sharded / name)
    os.mkfifo(sharded.parent / "up.safetensors")
    with pytest.raises(SourceError, match="\"weight_map\": 'z': expected the name of a file beside the index, got "):
        read_headers(sharded)


def test_a_pickle_cannot_hide_in_the_index(sharded: Path):
    (sharded / INDEX).write_text('{"weight_map": {"a": "pytorch_model.bin"}}')
    with pytest.raises(SourceError, match=r"'a': expected a \.safetensors file, got 'pytorch_model\.bin'"):
        read_headers(sharded)


def test_a_missing_shard_is_named(sharded: Path):
    (sharded / SECOND).unlink()
    with pytest.raises(SourceError, match=f"{SECOND}: the shard is missing, {INDEX} names it"):
        read_headers(sharded)


def test_a_tensor_that_is_not_in_its_shard_is_named(sharded: Path):
    index = json.loads((sharded / INDEX).read_text())
    index["weight_map"]["model.mtp.fc.weight"] = SECOND
    (sharded / INDEX).write_text(json.dumps(index))
    with pytest.raises(SourceError, match=rf"the tensor 'model\.mtp\.fc\.weight' is not in {SECOND}"):
        read_headers(sharded)


def test_a_tensor_in_two_shards_is_refused(sharded: Path, weights):
    weights(sharded / SECOND, {"c": ("BF16", [4]), "a": ("F32", [2])})
    with pytest.raises(SourceError, match=f"the tensor 'a' is in {FIRST} and in {SECOND}"):
        read_headers(sharded)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ("", "the file is empty"),
        ("{", "the file is not valid JSON"),
        ("[]", "expected a JSON object, got a list"),
        ("{}", '"weight_map": expected an object with one entry a tensor'),
        ('{"weight_map": {}}', '"weight_map": expected an object with one entry a tensor'),
        ('{"weight_map": ["a"]}', '"weight_map": expected an object with one entry a tensor'),
    ],
)
def test_a_bad_index_is_refused(sharded: Path, index, message):
    (sharded / INDEX).write_text(index)
    with pytest.raises(SourceError) as caught:
        read_headers(sharded)
    assert message in caught.value.message
    assert caught.value.message.startswith(f"{sharded / INDEX}: ")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["config.json", "pytorch_model.bin"], "only pickled weights (pytorch_model.bin), no safetensors"),
        (["consolidated.00.pth"], "only pickled weights (consolidated.00.pth), no safetensors"),
        (["m.Q4_K_M.gguf"], "only GGUF weights (m.Q4_K_M.gguf), which vramscope does not read"),
        (["tf_model.h5"], "only tf_model.h5, which vramscope does not read"),
        (["consolidated.safetensors"], "neither model.safetensors nor model.safetensors.index.json is there, only con"),
        (["a.bin", "b.bin", "c.bin", "d.bin"], "only pickled weights (a.bin, b.bin, c.bin and 1 more)"),
        (["adapter_model.safetensors"], "only an adapter, not a whole model"),
        (["config.json"], "no weights: neither model.safetensors nor model.safetensors.index.json is there"),
        ([], "no weights: neither model.safetensors nor model.safetensors.index.json is there"),
    ],
)
def test_a_directory_without_weights_is_named_for_what_it_is(tmp_path: Path, files, message):
    for name in files:
        os.mkfifo(tmp_path / name)  # whoever opened it would wait for ever
    with pytest.raises(SourceError) as caught:
        read_headers(tmp_path)
    assert caught.value.message.startswith(f"{tmp_path}: {message}")
    assert caught.value.hint


def test_an_adapter_names_its_base(tmp_path: Path):
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "org/base"}')
    with pytest.raises(SourceError, match="only an adapter for org/base, not a whole model"):
        read_headers(tmp_path)


def test_a_link_to_nothing_is_not_downloaded(model: Path):
    (model / "model.safetensors").unlink()
    (model / "model.safetensors").symlink_to("../../blobs/0123")
    with pytest.raises(SourceError, match=r"model\.safetensors: not downloaded: the link points to a file"):
        read_headers(model)
