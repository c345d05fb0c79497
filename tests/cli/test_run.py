import logging

import pytest

from vramscope.cli import main


@pytest.mark.parametrize("option", ["--cgroup-root", "--proc-root"])
def test_a_root_that_is_no_directory_is_a_misuse(tmp_path, capsys, option):
    missing = str(tmp_path / "missing")
    with pytest.raises(SystemExit) as ended:
        main(["run", "plan.yaml", option, missing])
    assert ended.value.code == 2
    assert f"argument {option}: {missing!r} is no directory" in capsys.readouterr().err


def test_a_run_that_never_starts_leaves_logging_as_it_was(tmp_path, capsys):
    before = logging.getLogger().handlers[:]
    assert main(["run", str(tmp_path / "no.yaml")]) == 1
    assert logging.getLogger().handlers == before
    assert "no.yaml" in capsys.readouterr().err
