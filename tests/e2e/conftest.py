"""Daemons as a user starts them, and plans for them. What still runs is ended by the process that started it."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.daemon import Daemon


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Synthetic checkpoints for the whole session; a full-size one takes 1 GB, so none is left behind."""
    directory = tmp_path_factory.mktemp("checkpoints")
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def start(cache: Path) -> Iterator[Callable[..., Daemon]]:
    """Start daemons; whatever still runs at the end of the test is killed, by its pid."""
    started: list[Daemon] = []

    def begin(*arguments: object) -> Daemon:
        started.append(Daemon([str(argument) for argument in arguments], cache))
        return started[-1]

    yield begin
    for daemon in started:
        if daemon.process.poll() is None:
            daemon.process.kill()
            daemon.process.wait()
        daemon._reader.join(30)


@pytest.fixture
def write_plan(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "plan.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write
