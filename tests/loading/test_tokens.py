import json
import shutil

import pytest

from vramscope.anatomy.synthetic import materialize
from vramscope.errors import SourceError, StepError
from vramscope.loading.tokens import count_tokens, load_tokenizer


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return materialize("tiny", tmp_path_factory.mktemp("cache"), progress=lambda *_: None, check=lambda: None)


@pytest.fixture(scope="module")
def tokenizer(tiny):
    return load_tokenizer(tiny)


@pytest.mark.parametrize(
    ("text", "characters", "words"),
    [
        ("", 0, 0),
        ("hello", 5, 1),
        ("two  words\n", 11, 2),
        ("从 Infra 角度看", 11, 3),
        ("\N{SLIGHTLY SMILING FACE}", 1, 1),
    ],
)
def test_tokens_are_neither_characters_nor_words(tokenizer, text, characters, words):
    count = count_tokens(tokenizer, text)
    assert (count.characters, count.words) == (characters, words)
    assert count.tokens == len(count.ids)
    assert tokenizer.decode(count.ids) == text


def test_special_tokens_are_counted_apart(tiny, tmp_path):
    shutil.copytree(tiny, tmp_path / "model")
    path = tmp_path / "model" / "tokenizer.json"
    document = json.loads(path.read_text())
    special = document["added_tokens"][0]
    begin = {"SpecialToken": {"id": special["content"], "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    document["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [begin, text, begin],
        "pair": [begin, text],
        "special_tokens": {
            special["content"]: {"id": special["content"], "ids": [special["id"]], "tokens": [special["content"]]}
        },
    }
    path.write_text(json.dumps(document))
    config = tmp_path / "model" / "tokenizer_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"tokenizer_class": "PreTrainedTokenizerFast"}))
    count = count_tokens(load_tokenizer(tmp_path / "model"), "hello")
    assert count.special_tokens == 2
    assert special["id"] not in count.ids


def test_a_long_text_is_counted_whole_and_without_a_warning(tokenizer):
    assert count_tokens(tokenizer, "a b " * 5000).tokens >= 10000


def test_text_that_is_no_unicode_is_refused(tokenizer):
    with pytest.raises(StepError, match=r"^the text cannot be tokenized: .*no valid Unicode text"):
        count_tokens(tokenizer, "half a pair: \ud800")


def test_a_directory_without_a_tokenizer(tmp_path):
    with pytest.raises(SourceError, match=rf"^{tmp_path}: no tokenizer can be loaded: .*needs tokenizer\.json"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("model_type", ["qwen2", "gpt2", "bert", "t5", "roberta"])
def test_a_tokenizer_without_its_vocabulary_is_not_taken_for_an_empty_one(tmp_path, model_type):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    with pytest.raises(SourceError, match="no tokenizer can be loaded: there is no vocabulary"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    "text", ["", "{", "{}", "[]", '{"version": "2.0", "added_tokens": []}', '{"added_tokens": [], "model": {}}']
)
def test_a_damaged_tokenizer(tiny, tmp_path, text):
    shutil.copytree(tiny, tmp_path / "model")
    (tmp_path / "model" / "tokenizer.json").write_text(text)
    with pytest.raises(SourceError, match=r"model: no tokenizer can be loaded: .+ \("):
        load_tokenizer(tmp_path / "model")
