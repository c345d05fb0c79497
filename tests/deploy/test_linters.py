"""The linters of files that are not Python."""

from collections.abc import Callable

import pytest

from .conftest import REPOSITORY

SCRIPTS = (".ci/run", "tests/compose/run.sh", "tests/compose/engine.sh")


def test_the_dockerfile_is_clean(clean: Callable[..., str]) -> None:
    assert clean("hadolint", "deploy/Dockerfile") == ""


def test_the_yaml_files_are_clean(clean: Callable[..., str]) -> None:
    files = ("docker-compose.yml", "docker-compose.override.yml", "deploy", "tests/compose")
    assert clean("yamllint", "--strict", *files) == ""


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_scripts_are_clean(script: str, clean: Callable[..., str]) -> None:
    assert clean("shellcheck", "--external-sources", script) == ""


def test_no_script_is_forgotten() -> None:
    found = {
        str(path.relative_to(REPOSITORY)) for room in ("deploy", "tests") for path in (REPOSITORY / room).rglob("*.sh")
    }
    assert found <= set(SCRIPTS)
