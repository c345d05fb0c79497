import json
from pathlib import Path

import pytest

from vramscope.anatomy.header import Header, TensorEntry
from vramscope.anatomy.tokenizer import (
    check_tokenizer_files,
    embedding_rows,
    find_tokenizer,
    optional_config,
    synthetic_files,
)
from vramscope.errors import SourceError

ALL = frozenset({"sentencepiece", "google.protobuf", "tiktoken"})
OWN_CODE = json.dumps({"auto_map": {"AutoTokenizer": ["tokenization_qwen.QWenTokenizer", None]}})
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 7031645\n"


def write(directory, files):
    for name, content in files.items():
        path = directory / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


UNUSABLE = {
    "nothing": ({}, ALL, "there is no tokenizer.json, and no other file that a tokenizer is made from"),
    "only its config": (
        {"tokenizer_config.json": "{}"},
        ALL,
        "there is no tokenizer.json, and no other file that a tokenizer is made from",
    ),
    "sentencepiece, not installed": (
        {"tokenizer.model": b"\x0a\x05dummy"},
        {"tiktoken"},
        (
            "there is only tokenizer.model, a sentencepiece model, and no tokenizer.json; to read it, sentencepiece "
            "and protobuf must be installed (`pip install sentencepiece protobuf`, or fetch tokenizer.json)"
        ),
    ),
    "sentencepiece without protobuf": (
        {"spiece.model": b"\x0a\x05dummy"},
        {"sentencepiece"},
        (
            "there is only spiece.model, a sentencepiece model, and no tokenizer.json; to read it, protobuf must be "
            "installed"
        ),
    ),
    "ranks under the name of a sentencepiece model": (
        {"tokenizer.model": "IQ== 0\nIg== 1\n"},
        {"sentencepiece", "google.protobuf"},
        (
            "there is only tokenizer.model, a tiktoken model, and no tokenizer.json; to read it, tiktoken must be "
            "installed (`pip install tiktoken`, or fetch tokenizer.json)"
        ),
    ),
    "code of its own": (
        {"tokenizer_config.json": OWN_CODE, "qwen.tiktoken": "IQ== 0\n"},
        ALL,
        "it is made by code of the model's own (tokenization_qwen.py), which vramscope does not run",
    ),
    "no merges": ({"vocab.json": "{}"}, ALL, "there is vocab.json without merges.txt"),
    "no vocabulary": ({"merges.txt": ""}, ALL, "there is merges.txt without vocab.json"),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_what_a_tokenizer_lacks_is_named(tmp_path, case):
    files, installed, message = UNUSABLE[case]
    write(tmp_path, files)
    with pytest.raises(SourceError) as caught:
        check_tokenizer_files(tmp_path, installed.__contains__)
    assert str(caught.value).startswith(f"{tmp_path}: no tokenizer can be loaded: {message}")


NOT_A_TOKENIZER = {
    "LFS pointer": (POINTER, "a Git LFS pointer to 7,031,645 bytes, not a tokenizer (run `git lfs pull`"),
    "HTML page": ("<!DOCTYPE html><p>Please log in", "an HTML page, not a tokenizer (fetch the file itself"),
    "empty": ("", "the file is empty (the download was interrupted"),
}


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer.model"])
@pytest.mark.parametrize("case", NOT_A_TOKENIZER)
def test_a_file_that_is_something_else_is_named_for_what_it_is(tmp_path, case, name):
    content, message = NOT_A_TOKENIZER[case]
    write(tmp_path, {name: content})
    with pytest.raises(SourceError) as caught:
        check_tokenizer_files(tmp_path, ALL.__contains__)
    assert str(caught.value).startswith(f"{tmp_path / name}: {message}")


def test_a_link_to_nothing_is_an_interrupted_download(tmp_path):
    (tmp_path / "tokenizer.json").symlink_to("../blobs/gone")
    with pytest.raises(SourceError, match=r"tokenizer\.json: not downloaded: .*run it again"):
        check_tokenizer_files(tmp_path, ALL.__contains__)


@pytest.mark.parametrize(
    "files",
    [
        {"tokenizer.json": "{}"},
        {"tokenizer.json": '{"version": "1.0"}', "tokenizer_config.json": OWN_CODE},
        {"vocab.txt": "a"},
        {"vocab.json": "{}", "merges.txt": ""},
        {"tekken.json": "{}"},
        {"spiece.model": b"\x0a\x05dummy"},
    ],
)
def test_files_that_may_be_a_tokenizer_pass(tmp_path, files):
    write(tmp_path, files)
    check_tokenizer_files(tmp_path, ALL.__contains__)


def test_a_directory_that_is_not_there(tmp_path):
    with pytest.raises(SourceError, match="No such file or directory"):
        check_tokenizer_files(tmp_path / "gone", ALL.__contains__)


def header(*tensors):
    entries = tuple(TensorEntry(name, "F16", shape, 0, 0, 0) for name, shape in tensors)
    return Header(path=Path("m"), tensors=entries, metadata={}, data_offset=0, file_bytes=0)


@pytest.mark.parametrize(
    ("config", "tensors", "rows"),
    [
        ({"vocab_size": 272}, [], 272),
        ({"text_config": {"vocab_size": 300}}, [], 300),
        ({"vocab_size": None}, [("model.embed_tokens.weight", (64, 16))], 64),
        ({}, [("wte.weight", (64, 16)), ("position_embeddings.weight", (512, 16))], 64),
        ({"vocab_size": True}, [], None),
        ({}, [], None),
    ],
)
def test_the_rows_of_the_embedding_are_the_configs_else_the_files_else_unknown(config, tensors, rows):
    assert embedding_rows(config, [header(*tensors)]) == rows


def test_a_source_is_a_directory_a_file_in_it_or_a_snapshot_of_the_hub(tmp_path):
    snapshot = tmp_path / "models--org--m" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("abc")
    write(snapshot, {"tokenizer.json": "{}"})
    assert find_tokenizer(str(snapshot), tmp_path) == snapshot
    assert find_tokenizer(str(snapshot / "tokenizer.json"), tmp_path) == snapshot
    assert find_tokenizer("org/m", tmp_path) == snapshot


@pytest.mark.parametrize("source", ["", "a\0b", "./gone", "x" * 5000, "org/never-fetched"])
def test_a_source_that_is_nowhere_is_one_error(tmp_path, source):
    with pytest.raises(SourceError):
        find_tokenizer(source, tmp_path)


def test_a_config_may_be_absent_but_not_damaged(tmp_path):
    assert optional_config(tmp_path) == {}
    write(tmp_path, {"config.json": "{"})
    with pytest.raises(SourceError, match="not valid JSON"):
        optional_config(tmp_path)


def test_a_synthetic_model_has_its_tokenizer_without_its_weights():
    files = synthetic_files("tiny")
    assert {"config.json", "tokenizer.json", "tokenizer_config.json"} <= files.keys()
    with pytest.raises(SourceError):
        synthetic_files("no-such-model")
