import os
from pathlib import Path

import pytest

from vramscope.anatomy.source import resolve, steady
from vramscope.errors import SourceError


def test_a_directory_is_a_checkpoint(sharded: Path, tmp_path: Path):
    checkpoint = resolve(str(sharded), tmp_path)
    assert checkpoint.directory == sharded
    assert checkpoint.config == {"model_type": "llama"}
    assert checkpoint.revision == ""
    assert [file.name for file in checkpoint.files] == [header.path.name for header in checkpoint.headers]
    assert [(header.path.name[:11], tensor.name) for header, tensor in checkpoint.tensors] == [
        ("model-00001", "a"),
        ("model-00001", "b"),
        ("model-00002", "c"),
    ]
    assert (checkpoint.elements, checkpoint.tensor_bytes) == (9, 28)
    assert checkpoint.file_bytes == sum(file.stat().st_size for file in checkpoint.files)


def test_one_file_is_a_checkpoint_with_the_config_beside_it(sharded: Path, tmp_path: Path):
    file = sharded / "model-00002-of-00002.safetensors"
    checkpoint = resolve(str(file), tmp_path)
    assert (checkpoint.directory, checkpoint.files, checkpoint.elements) == (sharded, (file,), 4)


def test_a_directory_wins_over_a_hub_id(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(model.parent)
    assert resolve("model", tmp_path, hub_cache=tmp_path / "hub").directory == Path("model")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (None, "no such file"),
        ("", "the file is empty"),
        ('{"model_type": ', "the file is not valid JSON"),
        ('{"x": ' + "[" * 100_000 + "]" * 100_000 + "}", "the file is not valid JSON: it is nested too deeply"),
        ("version https://git-lfs.github.com/spec/v1\nsize 7\n", "a Git LFS pointer to 7 bytes, not JSON"),
        ("<!DOCTYPE html><html>404</html>", "an HTML page, not JSON"),
        ("null", "expected a JSON object, got null"),
        ("[]", "expected a JSON object, got a list"),
        ('{"hidden_size": 16}', '"model_type" is missing'),
        ('{"model_type": ""}', '"model_type" is missing'),
        ('{"model_type": null}', '"model_type" is missing'),
    ],
)
def test_a_bad_config_is_refused_with_its_reason(model: Path, tmp_path: Path, config, message):
    path = model / "config.json"
    path.unlink()
    if config is not None:
        path.write_text(config)
    with pytest.raises(SourceError) as caught:
        resolve(str(model), tmp_path)
    assert caught.value.message.startswith(f"{path}: ")
    assert message in caught.value.message


def test_odd_configs_are_refused_without_waiting(model: Path, tmp_path: Path):
    path = model / "config.json"
    path.unlink()
    path.symlink_to("../nowhere")
    with pytest.raises(SourceError, match="not downloaded: the link points to a file that is not there"):
        resolve(str(model), tmp_path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(SourceError, match="not a regular file"):
        resolve(str(model), tmp_path)
    path.unlink()
    with path.open("wb") as file:
        file.truncate(200_000_000)
    with pytest.raises(SourceError, match="200,000,000 bytes are too many for a JSON file"):
        resolve(str(model), tmp_path)


def test_weights_are_judged_before_the_config(tmp_path: Path):
    (tmp_path / "model.gguf").touch()
    with pytest.raises(SourceError, match="only GGUF weights"):
        resolve(str(tmp_path), tmp_path)


@pytest.mark.parametrize("source", ["", "\0", "./nowhere", "/nowhere/at/all", "a/b/c", "org/na me", "\ud800"])
def test_what_is_no_source_is_refused(tmp_path: Path, source):
    with pytest.raises(SourceError, match=r"no such file or directory \(a source is a directory, a \.safetensors"):
        resolve(source, tmp_path, hub_cache=tmp_path)


def test_other_bad_sources_are_refused(tmp_path: Path):
    (tmp_path / "notes.txt").touch()
    (tmp_path / "model.bin").touch()
    for source, message in (
        ("x" * 5000, "File name too long"),
        (str(tmp_path / "notes.txt"), "not a .safetensors file"),
        (str(tmp_path / "model.bin"), "a pickle, which is never opened, and not a .safetensors file"),
        ("org/name", "no such directory, and there is no hub cache"),
        ("synthetic:none", "synthetic:none: no such model"),
    ):
        with pytest.raises(SourceError) as caught:
            resolve(source, tmp_path)
        assert message in caught.value.message
        assert len(caught.value.message) < 400


def test_a_steady_name_is_where_the_links_led_when_it_was_asked_for(tmp_path):
    (tmp_path / "v1").mkdir()
    link = tmp_path / "model"
    link.symlink_to("v1")
    assert steady(str(link)) == str(tmp_path / "v1")
    for name in ("synthetic:tiny", "org/name", "", "a\0b", "x" * 5000):
        assert steady(name) == name
