import pytest

from vramscope.errors import ExitCode
from vramscope.plan.problems import PlanError, Problem, expected_one_of, nearest, path_text, unknown_key


def test_a_problem_is_one_line_with_file_line_column_and_place():
    problem = Problem(
        path="plan.yaml",
        line=14,
        column=11,
        where='steps[3] "warm-b"',
        message=expected_one_of(["load", "move", "unload", "wait"], "lod"),
    )
    assert str(problem) == (
        'plan.yaml:14:11: steps[3] "warm-b": expected one of load, move, unload, wait; got "lod" (did you mean "load"?)'
    )


def test_a_problem_without_a_place_leaves_it_out():
    assert str(Problem(path="a.yaml", message="cannot be read")) == "a.yaml: cannot be read"
    assert str(Problem(path="a.yaml", line=1, column=2, message="wrong")) == "a.yaml:1:2: wrong"


def test_a_plan_error_shows_its_problems_in_the_order_of_the_file():
    places = [(9, 1), (2, 7), (2, 3), (None, None)]
    error = PlanError(Problem(path="p", line=line, column=column, message="m") for line, column in places)
    assert str(error) == "p: m\np:2:3: m\np:2:7: m\np:9:1: m"
    assert error.exit_code is ExitCode.USER


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("lod", "load"),
        ("LOAD", "load"),
        ("fp16", "float16"),
        ("mve", "move"),
        ("half", "float16"),
        ("zzz", None),
        ("", None),
    ],
)
def test_the_nearest_name_is_what_was_probably_meant(word, name):
    assert nearest(word, ["load", "move", "unload", "float16", "bfloat16"]) == name


@pytest.mark.parametrize(
    ("word", "known"), [("quantisation", ["source", "revision"]), ("sleep", ["release"]), ("gpu0", ["cpu"])]
)
def test_what_only_looks_a_little_alike_was_not_meant(word, known):
    assert nearest(word, known) is None


def test_an_unknown_key_without_a_near_one_lists_the_known_ones():
    assert unknown_key("colour", ["model", "to"]) == 'unknown key "colour" (known: model, to)'
    assert unknown_key("colour", []) == 'unknown key "colour"'


def test_a_path_reads_as_people_write_it():
    assert path_text(("steps", 2, "repeat", "steps", 0, "a\nb")) == "steps[2].repeat.steps[0].a\\nb"
    assert path_text(()) == ""
