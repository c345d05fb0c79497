import json
from pathlib import Path

import pytest

from vramscope.anatomy.bpe import tokenizer_files
from vramscope.anatomy.vocabulary import count_vocabulary
from vramscope.errors import SourceError

ADDED = [{"content": "a"}, {"content": "<s>"}, {"content": "<s>"}, {"content": 7}, "odd"]


def write(directory: Path, content: object) -> Path:
    (directory / "tokenizer.json").write_text(json.dumps(content))
    return directory


def test_tokens_of_the_vocabulary_and_those_beside_it(tmp_path: Path):
    assert count_vocabulary(write(tmp_path, {"model": {"vocab": {"a": 0, "b": 1}}, "added_tokens": ADDED})) == (2, 1)
    pieces = {"model": {"vocab": [["a", -1.0], ["b", -2.0], ["c", -3.0]]}, "added_tokens": ADDED}
    assert count_vocabulary(write(tmp_path, pieces)) == (3, 1)
    assert count_vocabulary(write(tmp_path, {"model": {"vocab": {}}})) == (0, 0)


def test_the_numbers_are_those_of_transformers(tmp_path: Path):
    from transformers import AutoTokenizer

    for name, text in (tokenizer_files("qwen2", 512) | {"config.json": '{"model_type": "qwen2"}'}).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert count_vocabulary(tmp_path) == (tokenizer.vocab_size, len(tokenizer) - tokenizer.vocab_size)


def test_without_a_file_nothing_is_known(tmp_path: Path):
    (tmp_path / "tokenizer.model").write_bytes(b"sentencepiece")
    assert count_vocabulary(tmp_path) is None


@pytest.mark.parametrize("content", [{}, {"model": []}, {"model": {"vocab": 3}}, {"model": {"vocab": None}}])
def test_a_file_of_another_kind_is_refused(tmp_path: Path, content):
    with pytest.raises(SourceError, match=r'tokenizer\.json: "model": "vocab": expected an object or a list'):
        count_vocabulary(write(tmp_path, content))


def test_a_link_to_nothing_is_named(tmp_path: Path):
    (tmp_path / "tokenizer.json").symlink_to("nowhere")
    with pytest.raises(SourceError, match="not downloaded"):
        count_vocabulary(tmp_path)
