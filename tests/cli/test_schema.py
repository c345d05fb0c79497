import json

import pytest

from vramscope.cli import main
from vramscope.cli.schema import text


def test_it_prints_the_schema_and_nothing_else(capsys):
    assert main(["schema"]) == 0
    printed = capsys.readouterr()
    assert printed.out == text()
    assert json.loads(printed.out)["$schema"].startswith("https://json-schema.org/")
    assert printed.err == ""


def test_its_help_says_how_an_editor_finds_it(capsys):
    with pytest.raises(SystemExit, match=r"^0$"):
        main(["schema", "--help"])
    assert "# yaml-language-server: $schema=plan.schema.json" in " ".join(capsys.readouterr().out.split())
