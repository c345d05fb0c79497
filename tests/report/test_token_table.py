import io
from dataclasses import replace

import pytest
from rich.console import Console

from vramscope.report.token_table import TOKENS_SHOWN, TokenReport, print_tokens

REPORT = TokenReport(
    source="org/m",
    text="你 a",
    is_chat=False,
    ids=(160, 121, 254, 220),
    tokens=("ä", "½", "ł", "Ġa"),
    spans=((0, 1), (0, 1), (0, 1), (1, 3)),
    count=4,
    count_with_special=6,
    spelled_special=0,
    characters=3,
    words=2,
    context_window=32,
    vocabulary=258,
    added=1,
    embedding_rows=272,
)


def shown(report):
    out = io.StringIO()
    print_tokens(report, Console(file=out, width=100))
    return [" ".join(line.split()) for line in out.getvalue().splitlines()]


def test_every_figure_has_its_name():
    assert shown(REPORT)[2:10] == [
        "│ tokens of the text │ 4 │ without added special tokens │",
        "│ tokens for the model │ 6 │ with 2 special tokens added │",
        "│ characters │ 3 │ Unicode code points; a sign may be several │",
        "│ words │ 2 │ parts between white space │",
        "│ context window │ 32 │ tokens, 18.8 % filled │",
        "│ vocabulary │ 258 │ tokens of the tokenizer itself │",
        "│ added tokens │ 1 │ beside the vocabulary │",
        "│ embedding rows │ 272 │ of the model, 13 without a token │",
    ]


def test_a_character_of_several_tokens_says_which_part_each_is():
    lines = shown(REPORT)
    assert "│ 1 │ 121 │ ½ │ 你 2 of 3 │" in lines
    assert lines[-1].startswith("token: as the vocabulary spells it")


def test_a_long_list_ends_with_how_many_more_there_are():
    many = TOKENS_SHOWN + 2
    lines = shown(replace(REPORT, ids=(1,) * many, tokens=("a",) * many, spans=(), count=many))
    assert lines[-1] == "and 2 more tokens: --format json has them all"
    assert sum(line.startswith(("│ 0 │ 1", f"│ {TOKENS_SHOWN - 1} │ 1")) for line in lines) == 2


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"is_chat": True}, "│ tokens of the chat │ 4 │ special tokens by the template, none added │"),
        ({"spelled_special": 1}, "│ of them special │ 1 │ spelled out in the text │"),
        ({"is_chat": True, "spelled_special": 1}, "│ of them special │ 1 │ by the template │"),
        ({"context_window": None}, "│ context window │ - │ │"),
        ({"embedding_rows": None}, "│ embedding rows │ - │ no config.json says it │"),
        ({"embedding_rows": 259}, "│ embedding rows │ 259 │ of the model, one for each token │"),
        ({"embedding_rows": 200}, "│ embedding rows │ 200 │ 59 tokens without one: another model's tokenizer? │"),
    ],
)
def test_what_is_special_or_unknown_is_said(changed, line):
    assert line in shown(replace(REPORT, **changed))


def test_nothing_has_figures_and_no_tokens():
    lines = shown(replace(REPORT, text="", ids=(), tokens=(), spans=(), count=0))
    assert lines[-1].startswith("└")


def test_a_text_cannot_write_to_the_terminal():
    assert "\x1b" not in "".join(shown(replace(REPORT, text="\x1b[", tokens=("\x1b", "[red]", "ł", "Ġa"))))
