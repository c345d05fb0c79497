import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

GOOD = """\
version: 1
models: {qwen: {source: synthetic:tiny}}
repeat: forever
every: 5m
steps:
  - load: qwen
  - repeat: {times: 1000000000000, steps: [wait: 1ms]}
  - unload: qwen
"""
BAD = """\
version: 1
modles: {}
steps:
  - lod: qwen
  - wait: 从
"""
KNOWN = "expect, fetch, load, move, release, repeat, restart_worker, tokenize, unload, wait"
BAD_PROBLEMS = [
    {"line": 2, "column": 1, "where": "", "message": 'unknown key "modles" (did you mean "models"?)'},
    {
        "line": 4,
        "column": 5,
        "where": "steps[0]",
        "message": f'expected one of {KNOWN}; got "lod" (did you mean "load"?)',
    },
    {
        "line": 5,
        "column": 11,
        "where": "steps[1].wait",
        "message": 'expected a duration such as 250ms, 30s, 5m or 1h30m, got "从"',
    },
]


@pytest.fixture
def check(tmp_path):
    """Run `vramscope check` where good.yaml and bad.yaml are."""
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "bad.yaml").write_text(BAD)

    def run(*argv, **environment):
        return subprocess.run(
            [sys.executable, "-m", "vramscope", "check", *argv],
            cwd=tmp_path,
            capture_output=True,
            encoding="utf-8",
            timeout=100,
            check=False,
            env={**os.environ, **environment},
        )

    return run


def test_a_good_plan_is_summed_up(check):
    result = check("good.yaml")
    assert result.stdout == "good.yaml: ok, 3 steps, 1 model, cycles without end, one every 5m 0s\n"
    assert (result.returncode, result.stderr) == (0, "")


def test_a_bad_plan_prints_all_its_problems(check):
    result = check("bad.yaml")
    assert result.stdout.splitlines() == [
        'bad.yaml:2:1: unknown key "modles" (did you mean "models"?)',
        f'bad.yaml:4:5: steps[0]: expected one of {KNOWN}; got "lod" (did you mean "load"?)',
        'bad.yaml:5:11: steps[1].wait: expected a duration such as 250ms, 30s, 5m or 1h30m, got "从"',
    ]
    assert (result.returncode, result.stderr) == (1, "")


def test_every_plan_is_checked_and_one_bad_one_is_enough_to_fail(check):
    result = check("bad.yaml", "good.yaml", "none.yaml")
    assert result.returncode == 1
    assert len(result.stdout.splitlines()) == 5
    assert result.stdout.endswith("none.yaml: cannot be read: No such file or directory\n")


def test_json_is_an_object_for_each_plan(check):
    result = check("--format", "json", "bad.yaml", "good.yaml", "none.yaml")
    assert [json.loads(line) for line in result.stdout.splitlines()] == [
        {"path": "bad.yaml", "ok": False, "problems": BAD_PROBLEMS},
        {"path": "good.yaml", "ok": True, "problems": []},
        {
            "path": "none.yaml",
            "ok": False,
            "problems": [
                {"line": None, "column": None, "where": "", "message": "cannot be read: No such file or directory"}
            ],
        },
    ]
    assert result.returncode == 1


def test_a_terminal_that_is_not_utf8_shows_what_it_can(check):
    result = check("bad.yaml", PYTHONIOENCODING="ascii")
    assert result.stdout.splitlines()[-1].endswith('got "\\u4ece"')
    assert result.returncode == 1


def test_the_plans_that_are_delivered_pass(check):
    plans = sorted((Path(__file__).parents[2] / "deploy" / "plans").glob("*.yaml"))
    assert plans
    result = check(*plans)
    assert (result.returncode, result.stderr) == (0, "")
    assert len(result.stdout.splitlines()) == len(plans)
