from pathlib import Path

import pytest

from vramscope.anatomy.listing import LIMIT, list_files

IN_ORDER = {
    "config.json": "the architecture",
    "generation_config.json": "defaults for generating text",
    "tokenizer.json": "the tokenizer",
    "tokenizer_config.json": "how the tokenizer is used",
    "chat_template.jinja": "how a chat becomes one text",
    "merges.txt": "an older form of the tokenizer",
    "tokenizer.model": "a sentencepiece tokenizer",
    "preprocessor_config.json": "how images",
    "model.safetensors.index.json": "the index: which shard holds which tensor",
    "model-00001-of-00002.safetensors": "weights, which a load reads",
    "model-00002-of-00002.safetensors": "weights, which a load reads",
    "consolidated.00.pth": "the publisher's original format of the weights, not read",
    "other.safetensors": "weights that a load does not read",
    "pytorch_model.bin": "pickled weights, never opened",
    "model.gguf": "weights for llama.cpp",
    "modeling_own.py": "code of the model's own, never run",
    "README.md": "for people",
    "some.json": "other settings",
    "unknown": "",
}


@pytest.fixture
def shown():
    def shown(directory, *read):
        files, number = list_files(directory, read)
        assert number == len(list(directory.iterdir()))
        return {file.name: file for file in files}

    return shown


def test_every_file_has_its_place_and_its_purpose(tmp_path: Path, shown):
    for name in reversed(IN_ORDER):
        (tmp_path / name).write_bytes(b"four")
    files = shown(tmp_path, "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    assert list(files) == list(IN_ORDER)
    assert [name for name, file in files.items() if not file.role.startswith(IN_ORDER[name])] == []
    assert {file.nbytes for file in files.values()} == {4}
    assert [name for name, file in files.items() if file.is_read] == [name for name in IN_ORDER if "-of-" in name]


def test_what_has_no_size_has_none(tmp_path: Path, shown):
    (tmp_path / "original").mkdir()
    (tmp_path / "model.safetensors").symlink_to("nowhere")
    files = shown(tmp_path)
    assert (files["original/"].nbytes, files["original/"].role) == (None, "a directory, not read")
    assert (files["model.safetensors"].nbytes, files["model.safetensors"].role[:14]) == (None, "not downloaded")


def test_a_link_has_the_size_of_what_it_leads_to(tmp_path: Path, shown):
    (tmp_path / "blob").write_bytes(b"1234567")
    (tmp_path / "config.json").symlink_to("blob")
    assert shown(tmp_path)["config.json"].nbytes == 7


def test_a_directory_of_any_size_makes_a_short_list(tmp_path: Path):
    for number in range(LIMIT + 5):
        (tmp_path / f"{number}").touch()
    files, number = list_files(tmp_path, ())
    assert (len(files), number) == (LIMIT, LIMIT + 5)


def test_any_name_has_a_role(tmp_path: Path, shown):
    for name in ("a\nb", "\n", "x" * 200, "数字.json", "CONFIG.JSON"):
        (tmp_path / name).touch()
    assert shown(tmp_path)["数字.json"].role == "other settings"
