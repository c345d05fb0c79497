import json
import shutil

import pytest
from tests.loading.tokenizers import (
    ADDED,
    BASE,
    BEGIN,
    CHAT_TEMPLATE,
    NO_LONGEST,
    TEXTS,
    WINDOW,
    save_byte_tokenizer,
    save_wordpiece_vocabulary,
)

from vramscope.anatomy.synthetic import materialize
from vramscope.errors import SourceError, StepCancelledError, StepError
from vramscope.loading.tokens import (
    SPANS_CHARACTERS,
    Vocabulary,
    context_window,
    count_chat,
    count_tokens,
    load_tokenizer,
    vocabulary_of,
)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return materialize("tiny", tmp_path_factory.mktemp("cache"), progress=lambda *_: None, check=lambda: None)


@pytest.fixture(scope="module")
def tokenizer(tiny):
    return load_tokenizer(tiny)


@pytest.fixture(scope="module")
def bytewise(tmp_path_factory):
    return load_tokenizer(save_byte_tokenizer(tmp_path_factory.mktemp("bytes")))


@pytest.mark.parametrize(
    ("text", "characters", "words"),
    [
        ("", 0, 0),
        ("hello", 5, 1),
        ("two  words\n", 11, 2),
        ("从 Infra 角度看", 11, 3),
        ("\N{SLIGHTLY SMILING FACE}", 1, 1),
        ("e\u0301", 2, 1),
    ],
)
def test_tokens_are_neither_characters_nor_words(tokenizer, text, characters, words):
    count = count_tokens(tokenizer, text)
    assert (count.characters, count.words) == (characters, words)
    assert count.tokens == len(count.ids)


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_a_text_is_counted_without_and_with_special_tokens(bytewise, text):
    count = count_tokens(bytewise, text)
    assert (count.tokens, count.special_tokens, count.tokens_with_special) == (TEXTS[text], 2, TEXTS[text] + 2)


def test_where_the_tokenizer_adds_no_special_token_both_counts_are_one(tmp_path):
    count = count_tokens(load_tokenizer(save_byte_tokenizer(tmp_path, special=False)), "hello")
    assert (count.tokens, count.special_tokens) == (5, 0)


def test_a_special_token_that_the_text_spells_out_is_told(bytewise):
    count = count_tokens(bytewise, f"a{BEGIN}b{ADDED}")
    assert (count.tokens, count.spelled_special) == (4, 1)


def test_every_token_says_where_in_the_text_it_comes_from(bytewise):
    assert count_tokens(bytewise, "a你").spans == ((0, 1), (1, 2), (1, 2), (1, 2))
    assert count_tokens(bytewise, "a" * (SPANS_CHARACTERS + 1)).spans == ()


def test_truncation_that_stands_in_the_file_cuts_no_count_short(tmp_path):
    path = save_byte_tokenizer(tmp_path) / "tokenizer.json"
    cut = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    fill = {"strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0}
    fill |= {"pad_type_id": 0, "pad_token": "!"}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"truncation": cut, "padding": fill}))
    count = count_tokens(load_tokenizer(tmp_path), "hello")
    assert (count.tokens, count.tokens_with_special) == (5, 7)


def test_the_vocabulary_and_what_was_added_to_it_are_two_numbers(bytewise):
    assert vocabulary_of(bytewise) == Vocabulary(base=BASE, added=1)


@pytest.mark.parametrize(
    ("config", "longest", "window"),
    [
        ({"max_position_embeddings": 32}, WINDOW, 32),
        ({}, WINDOW, WINDOW),
        ({}, NO_LONGEST, None),
        ({"text_config": {"max_position_embeddings": 64}}, NO_LONGEST, 64),
    ],
)
def test_the_context_window_is_the_configs_else_the_tokenizers_else_unknown(tmp_path, config, longest, window):
    assert context_window(config, load_tokenizer(save_byte_tokenizer(tmp_path, longest=longest))) == window


CHAT = [{"role": "user", "content": "hi"}]


def test_the_special_tokens_of_a_chat_are_those_of_its_template_alone(bytewise):
    text, count = count_chat(bytewise, CHAT)
    assert text == "<s>[user]hi"
    assert (count.tokens, count.special_tokens, count.spelled_special) == (9, 0, 1)
    assert count_tokens(bytewise, text).tokens_with_special == 11  # what counting twice would give


def test_what_begins_the_answer_is_counted_where_it_is_asked_for(tmp_path):
    template = CHAT_TEMPLATE + "{% if add_generation_prompt %}[assistant]{% endif %}"
    tokenizer = load_tokenizer(save_byte_tokenizer(tmp_path, template=template))
    counts = [count_chat(tokenizer, CHAT, generation_prompt=asked)[1].tokens for asked in (False, True)]
    assert counts == [9, 9 + len("[assistant]")]


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (None, "the tokenizer has no chat template (base models have none"),
        ("{{ raise_exception('roles must alternate') }}", "the chat template refuses this chat: roles must alternate"),
        ("{{ messages[0].content.nothing.more }}", "the chat template refuses this chat: "),
        ("{% if %}", "the chat template refuses this chat: "),
    ],
)
def test_a_chat_that_cannot_be_written_is_one_error(tmp_path, template, message):
    with pytest.raises(StepError) as caught:
        count_chat(load_tokenizer(save_byte_tokenizer(tmp_path, template=template)), CHAT)
    assert str(caught.value).startswith(message)


def test_a_vocabulary_of_word_pieces_is_enough(tmp_path):
    tokenizer = load_tokenizer(save_wordpiece_vocabulary(tmp_path))
    count = count_tokens(tokenizer, "hello")
    assert (count.tokens, count.special_tokens) == (5, 2)
    assert vocabulary_of(tokenizer) == Vocabulary(base=57, added=0)


def test_a_long_text_is_counted_whole_and_without_a_warning(tokenizer, caplog):
    assert count_tokens(tokenizer, "a b " * 5000).tokens >= 10000
    assert caplog.records == []


def test_a_long_text_is_left_as_soon_as_the_step_is_cancelled(tokenizer, monitor):
    monitor.checks_left = 1
    with pytest.raises(StepCancelledError):
        count_tokens(tokenizer, "hello world " * 100_000, monitor.check_cancelled)


@pytest.mark.parametrize("text", ["half a pair: \ud800", "\udfff"])
def test_text_that_is_no_unicode_is_refused_with_its_place(bytewise, text):
    message = (
        rf"^the text cannot be tokenized: character {len(text)} is half of one, U\+D.* \(it holds what is no valid"
    )
    with pytest.raises(StepError, match=message):
        count_tokens(bytewise, text)
    with pytest.raises(StepError, match="the text cannot be tokenized: "):
        count_chat(bytewise, [{"role": "user", "content": text}])


def test_a_directory_without_a_tokenizer(tmp_path):
    with pytest.raises(SourceError, match=rf"^{tmp_path}: no tokenizer can be loaded: there is no tokenizer\.json"):
        load_tokenizer(tmp_path)


def test_a_tokenizer_without_its_vocabulary_is_not_taken_for_an_empty_one(tmp_path):
    (save_wordpiece_vocabulary(tmp_path) / "vocab.txt").write_text("")
    with pytest.raises(SourceError, match="no tokenizer can be loaded: there is no vocabulary"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    "text", ["{", "{}", "[]", '{"version": "2.0", "added_tokens": []}', '{"added_tokens": [], "model": {}}']
)
def test_a_damaged_tokenizer(tiny, tmp_path, text):
    shutil.copytree(tiny, tmp_path / "model")
    (tmp_path / "model" / "tokenizer.json").write_text(text)
    with pytest.raises(SourceError, match=r"model: no tokenizer can be loaded: .+ \("):
        load_tokenizer(tmp_path / "model")
