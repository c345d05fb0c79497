import math
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramscope.plan.nodes import MAX_DEPTH, MAX_NODES, read_document
from vramscope.plan.problems import PlanError


def read(text):
    return read_document(text.encode(), "plan.yaml")


BOMB = "a: &a [l,l,l,l,l,l,l,l,l]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGES = f"a: &a {{{', '.join(f'k{i}: 1' for i in range(1000))}}}\n" + "".join(
    f"b{i}: {{<<: *a}}\n" for i in range(1000)
)
DEEP_ALIASES = "a0: &a0 [1]\n" + "".join(f"a{i}: &a{i} [[[[[[[[[[*a{i - 1}]]]]]]]]]]\n" for i in range(1, 10))

REFUSED = {
    "nothing": ("", "1:1: expected a plan, got a file with nothing in it"),
    "only a comment": ("# only\n", "2:1: expected a plan, got a file with nothing in it"),
    "tab": ("steps:\n\t- wait: 1s\n", "2:1: expected spaces, got a tab (YAML is indented with spaces)"),
    "not YAML": (
        "a: [1\nb: 2\n",
        "2:2: not valid YAML: expected ',' or ']', but got ':' while parsing a flow sequence that begins on line 1",
    ),
    "undefined alias": ("a: *b\n", "1:4: not valid YAML: found undefined alias 'b'"),
    "two documents": ("a: 1\n---\nb: 2\n", "2:1: expected one document, got a second one"),
    "python tag": (
        'a: !!python/object/apply:os.system ["false"]\n',
        '1:4: expected a value without a tag, got "!!python/object/apply:os.system"',
    ),
    "standard tag": ("a: !!str 5\n", '1:4: expected a value without a tag, got "!!str"'),
    "own tag": ("a: !model x\n", '1:4: expected a value without a tag, got "!model"'),
    "deep": ("[" * 20_000 + "]" * 20_000, "1:66: expected at most 64 levels of nesting, got more"),
    "deep by aliases": (
        DEEP_ALIASES,
        "8:15: expected at most 64 levels of nesting, got more where aliases are written out",
    ),
    "many values": (
        "[" + "1," * MAX_NODES + "]",
        f"1:{2 * MAX_NODES}: expected at most 30,000 keys and values, got more in the file",
    ),
    "alias bomb": (BOMB, "5:4: expected at most 30,000 keys and values, got more where aliases are written out"),
    "merge bomb": (MERGES, "32:7: expected at most 30,000 keys and values, got more where merges are written out"),
    "recursive list": (
        "a: &a [*a]\n",
        "1:4: expected a value with an end, got one that contains itself through an alias",
    ),
    "recursive merge": (
        "a: &a {<<: *a}\n",
        "1:4: expected a value with an end, got one that contains itself through an alias",
    ),
    "recursive key": (
        "? &a [*a]\n: 1\n",
        "1:3: expected a value with an end, got one that contains itself through an alias",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_plan_does_not_use_is_refused_where_it_stands(case):
    text, message = REFUSED[case]
    with pytest.raises(PlanError) as caught:
        read(text)
    assert str(caught.value) == f"plan.yaml:{message}"


def test_an_alias_bomb_takes_next_to_no_memory():
    tracemalloc.start()
    try:
        with pytest.raises(PlanError):
            read(BOMB)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def test_a_python_tag_runs_nothing(tmp_path):
    with pytest.raises(PlanError):
        read(f'a: !!python/object/apply:os.system ["touch {tmp_path}/ran"]\n')
    assert not list(tmp_path.iterdir())


COLLECTED = {
    "duplicate key": ("a: 1\nb: 2\na: 3\n", '3:1: the key "a" is given twice, first on line 1'),
    "duplicate key inside": ("s:\n  - {m: a, m: b}\n", '2:12: s[0]: the key "m" is given twice, first on line 2'),
    "duplicate merge": (
        "a: &a {x: 1}\nb:\n  <<: *a\n  <<: *a\n",
        '4:3: b: the key "<<" is given twice, first on line 3',
    ),
    "integer key": (
        "s:\n  - 5: x\n",
        "2:5: s[0]: expected a text as key, got the number 5 (quote it to make it text)",
    ),
    "boolean key": ("true: b\n", "1:1: expected a text as key, got true (quote it to make it text)"),
    "null key": ("a: 1\nnull: c\n", "2:1: expected a text as key, got nothing (quote it to make it text)"),
    "list as key": ("? [1, 2]\n: c\n", "1:3: expected a text as key, got a list"),
    "mapping as key": ("{{a: 1}: c}\n", "1:2: expected a text as key, got a mapping"),
    "merge of a text": ("a: {<<: b}\n", '1:9: a: expected a mapping to merge, got "b"'),
    "half a character": (
        'a: "\\ud800"\n',
        "1:4: a: expected text, got the escape of half a character (a lone surrogate)",
    ),
}


@pytest.mark.parametrize("case", COLLECTED)
def test_a_wrong_key_or_text_is_told_and_the_rest_is_still_read(case):
    text, message = COLLECTED[case]
    document = read(text)
    assert [str(problem) for problem in document.problems] == [f"plan.yaml:{message}"]


def test_keys_that_python_takes_for_equal_do_not_hide_each_other():
    document = read("a: 1\n1: x\ntrue: y\n1.0: z\n")
    assert document.value == {"a": 1}
    assert len(document.problems) == 3


SCALARS = {
    "no": "no",
    "on": "on",
    "y": "y",
    "10:30": "10:30",
    "2024-01-01": "2024-01-01",
    "=": "=",
    "1_000": "1_000",
    "'5'": "5",
    '"true"': "true",
    "0123abc": "0123abc",
    "1e6": 1e6,
    "1.0e6": 1e6,
    "1.e+6": 1e6,
    "010": 10,
    "0x1F": 31,
    "0o10": 8,
    "-7": -7,
    "1.5": 1.5,
    ".inf": math.inf,
    "-.inf": -math.inf,
    "True": True,
    "FALSE": False,
    "~": None,
    "null": None,
    "": None,
    '"\\ud83d\\ude00"': "😀",
    "1" * 5000: "1" * 5000,
}


@pytest.mark.parametrize("text", SCALARS, ids=lambda text: repr(text)[:20])
def test_scalars_are_read_by_the_core_schema(text):
    value = read(f"a: {text}\n").value["a"]
    assert value == SCALARS[text]
    assert type(value) is type(SCALARS[text])


def test_a_scalar_that_is_no_number_is_one():
    assert math.isnan(read("a: .nan").value["a"])


def test_a_block_scalar_is_text_with_its_lines():
    assert read("a: |\n  5\n  6\n").value == {"a": "5\n6\n"}


def test_aliases_are_the_value_again():
    document = read("- &w {wait: 1s}\n- *w\n- *w\n")
    assert document.value == [{"wait": "1s"}] * 3
    assert document.position((2, "wait")) == (1, 13)


def test_merge_keys_fill_what_a_mapping_does_not_say_itself():
    document = read("a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc: {<<: [*a, *b], x: 3}\nd: {'<<': 1}\n")
    assert document.value["c"] == {"x": 3, "y": 1, "z": 2}
    assert document.value["d"] == {"<<": 1}
    assert document.position(("c", "z")) == (2, 17)
    assert document.position(("c", "x")) == (3, 22)


def test_places_of_values_and_keys_count_from_one_in_characters():
    document = read('# 从\na: {从: b, c: [d, "e"]}\n')
    assert document.position(("a", "从")) == (2, 8)
    assert document.position(("a", "c"), key=True) == (2, 11)
    assert document.position(("a", "c", 1)) == (2, 18)


def test_a_path_that_leaves_the_text_has_the_place_of_its_parent():
    document = read("a:\n  - b: 1\n")
    assert document.existing(("a", 0, "b", "c")) == ("a", 0, "b")
    assert document.existing(("a", 7)) == ("a",)
    assert document.position(("a", 0, "zzz")) == (2, 5)


@pytest.mark.parametrize("text", ["﻿a: 1\n", "a: 1\r\n", "--- \na: 1\n...\n", "%YAML 1.2\n---\na: 1\n"])
def test_all_forms_of_one_document_are_read(text):
    assert read(text).value == {"a": 1}


def test_the_deepest_allowed_nesting_is_read():
    assert read("[" * MAX_DEPTH + "]" * MAX_DEPTH).problems == ()


PIECES = ("- ", ": ", "? ", "[", "]", "{", "}", "&a ", "*a", "<<: ", "!!str ", "|\n", "'", '"', "\t", "\n", "\n  ", "#")
RARE = (
    "---\n",
    "...\n",
    "%YAML 1.2\n",
    "\ufeff",
    "\0",
    "\\ud800",
    '"\\UFFFFFFFF"',
    ".inf",
    "~",
    "a",
    "9" * 5000,
    "\x85",
)


@given(st.lists(st.sampled_from(PIECES + RARE), max_size=25).map(lambda pieces: "".join(pieces).encode()))
def test_any_pieces_of_yaml_are_a_document_or_a_problem_with_its_place(content):
    _document_or_problem(content)


@given(st.binary(max_size=60) | st.text("ab:-[]{}&*<!|>?'\"\\# \n\t,1", max_size=60).map(str.encode))
def test_any_bytes_are_a_document_or_a_problem_with_its_place(content):
    _document_or_problem(content)


def _document_or_problem(content):
    try:
        read_document(content, "plan.yaml")
    except PlanError as error:
        (problem,) = error.problems
        assert problem.line >= 1
        assert problem.column >= 1
        assert len(str(problem).splitlines()) == 1
