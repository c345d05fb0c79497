import re
from pathlib import Path

import pytest

from vramscope.plan import head

SOURCE = (
    "expected a hub id such as Qwen/Qwen2.5-0.5B-Instruct, a directory that starts with ./ ../ ~/ or /, "
    "or synthetic:NAME; got "
)


@pytest.mark.parametrize(
    "name",
    ["gpt2", "Qwen/Qwen2.5-0.5B-Instruct", "synthetic:qwen2.5-0.5b", "./m", "../m", "/m", "~/m", ".", "..", "./模型"],
)
def test_a_source_is_a_hub_id_a_directory_or_synthetic(name):
    assert head.source(name) == name


@pytest.mark.parametrize(
    ("name", "got"),
    [
        ("https://huggingface.co/gpt2", '"https://huggingface.co/gpt2"'),
        ("models/qwen/main", '"models/qwen/main"'),
        ("org/..", '"org/.."'),
        ("synthetic:", '"synthetic:"'),
        ("", '""'),
        ("C:\\models", '"C:\\models"'),
        ("my model", '"my model"'),
    ],
)
def test_another_source_is_refused_with_what_a_source_is(name, got):
    with pytest.raises(ValueError, match=f"^{re.escape(SOURCE + got)}$"):
        head.source(name)


def test_a_path_that_a_terminal_cannot_show_is_refused():
    with pytest.raises(ValueError, match=r'^expected a printable path, got "./a\\n"$'):
        head.source("./a\n")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("./m/x", "/plans/m/x"),
        ("../m", "/plans/../m"),
        (".", "/plans"),
        ("/m", "/m"),
        ("org/name", "org/name"),
        ("synthetic:tiny", "synthetic:tiny"),
    ],
)
def test_a_relative_directory_starts_at_the_plan(name, found):
    assert head.located(name, Path("/plans")) == found


def test_the_home_directory_is_expanded_in_a_path_alone(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    assert head.located("~/m", Path("/plans")) == "/home/me/m"
    assert head.located("./~/m", Path("/plans")) == "/plans/~/m"


def test_the_home_directory_of_nobody_is_refused():
    with pytest.raises(ValueError, match=r'^expected a directory, got "~nobody-\w+/m", and that user has no home'):
        head.source("~nobody-y/m")


@pytest.mark.parametrize(
    "name", ["main", "v1.0", "refs/pr/12", "0123456789abcdef0123456789abcdef01234567", "a.b+c_d-e"]
)
def test_a_revision_is_a_branch_a_tag_or_a_commit(name):
    assert head.revision(name) == name


@pytest.mark.parametrize("name", ["", "..", "../x", "a/../b", "/a", "-a", "a b", "a/", ".hidden"])
def test_a_revision_cannot_climb_out_of_the_cache(name):
    with pytest.raises(ValueError, match=r"^expected a branch, a tag or a commit, got "):
        head.revision(name)


@pytest.mark.parametrize(("value", "cycles"), [("forever", None), (3, 3), ("3", 3), (1e9, 10**9)])
def test_a_plan_repeats_a_number_of_times_or_forever(value, cycles):
    assert head.cycles(value) == cycles


def test_the_schema_for_editors_names_the_required_keys():
    schema = head.PlanFields.model_json_schema()
    assert schema["required"] == ["version", "steps"]
    assert schema["$defs"]["ModelFields"]["required"] == ["source"]
