import json
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from vramscope.anatomy.bpe import MERGES, SPECIALS, tokenizer_files
from vramscope.anatomy.recipes import RECIPES

ENGLISH = "The model goes from the disk to the memory of the graphics card, and it doesn't wait."
CHINESE = "从 Infra 角度看，大语言模型到底是什么？"  # noqa: RUF001 - Chinese has signs of its own
CODE = "  def f(x):\n\treturn x[12:345] # 'start'\r\n\n\n"
FAMILY = "👨‍👩‍👧"


@pytest.fixture(scope="module", params=["tiny", "llama-3.2-1b"])
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tokenizer")
    config = RECIPES[request.param].config
    files = tokenizer_files(config["model_type"], config["max_position_embeddings"])
    for name, text in (files | {"config.json": json.dumps(config)}).items():
        (directory / name).write_text(text, encoding="utf-8")
    return directory


@pytest.fixture(scope="module")
def tokenizer(directory: Path):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(directory)


def test_every_text_comes_back(tokenizer):
    for text in (ENGLISH, CHINESE, CODE, FAMILY, "", "\0\x7f", "é", " "):
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert tokenizer.decode(tokenizer("e\u0301")["input_ids"]) == "\u00e9"


def test_merges_make_text_shorter(tokenizer):
    assert len(tokenizer(ENGLISH)["input_ids"]) < 0.5 * len(ENGLISH.encode())
    assert len(tokenizer(CHINESE)["input_ids"]) < 0.5 * len(CHINESE.encode())


@given(text=st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(" \n't12.the"), max_size=30))
def test_the_file_alone_counts_as_transformers_does(directory: Path, tokenizer, text):
    alone = Tokenizer.from_file(str(directory / "tokenizer.json"))
    assert alone.encode(text).ids == tokenizer(text)["input_ids"]
    assert alone.decode(alone.encode(text).ids, skip_special_tokens=False) == unicodedata.normalize("NFC", text)


def test_sizes_and_special_tokens(directory: Path, tokenizer):
    first = 256 + MERGES
    assert (tokenizer.vocab_size, len(tokenizer)) == (first, first + len(SPECIALS))
    assert len(tokenizer) <= RECIPES["tiny"].config["vocab_size"]
    assert tokenizer.convert_tokens_to_ids(list(SPECIALS)) == [first, first + 1, first + 2]
    assert tokenizer("<|im_start|>user")["input_ids"][0] == first + 1
    assert tokenizer.decode(tokenizer("<|im_start|>hi<|im_end|>")["input_ids"], skip_special_tokens=True) == "hi"
    assert (tokenizer.eos_token_id, tokenizer.pad_token_id, tokenizer.bos_token_id) == (first, first, None)
    context = json.loads((directory / "config.json").read_text())["max_position_embeddings"]
    assert tokenizer.model_max_length == context


def test_the_chat_template_is_chatml(tokenizer):
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "你好"}]
    expected = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n你好<|im_end|>\n"
    assert tokenizer.apply_chat_template(chat, tokenize=False) == expected
    prompt = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert prompt == expected + "<|im_start|>assistant\n"
