"""The first model's files are in the page cache before a step asks for them."""

import threading
from pathlib import Path

import pytest
from tests.loading.checkpoints import save_checkpoint
from tests.loading.files import drop_from_cache
from tests.memory.trees import limited_root

from vramscope.anatomy.source import resolve
from vramscope.loading.weightfile import WeightFile
from vramscope.settings import WorkerSettings
from vramscope.worker.readahead import ReadAhead

MIB = 1 << 20
SECONDS = 60.0


def ahead(home: Path, source: str, **changes: Path) -> ReadAhead:
    return ReadAhead(WorkerSettings(cache=home, hub_cache=home, first_source=source, **changes))


@pytest.fixture
def cold(tmp_path):
    """A checkpoint of which nothing is cached, and a look at whether that is still so."""
    directory = save_checkpoint("llama", tmp_path / "model")
    (path,) = resolve(str(directory), directory).files
    drop_from_cache(path)
    file = WeightFile(path)
    if file.is_cached(0, path.stat().st_size):
        pytest.skip("this file system keeps what it is told to drop")
    yield directory, lambda: file.is_cached(0, path.stat().st_size)
    file.close()


def test_the_files_of_the_first_model_are_read(cold, tmp_path):
    directory, is_cached = cold
    reading = ahead(tmp_path, str(directory))
    reading.start()
    assert reading.wait(SECONDS)
    for _ in range(1000):  # the kernel was asked, and may take its time
        if is_cached():
            break
        threading.Event().wait(0.01)
    assert is_cached()


def test_a_host_without_room_for_it_reads_nothing(cold, tmp_path):
    directory, is_cached = cold
    reading = ahead(tmp_path, str(directory), cgroup_root=limited_root(tmp_path / "cgroup", 1000, 0))
    reading.start()
    assert reading.wait(SECONDS)
    assert not is_cached()


def test_one_that_was_stopped_asks_for_nothing(cold, tmp_path):
    directory, is_cached = cold
    reading = ahead(tmp_path, str(directory))
    reading.stop()
    reading.start()
    assert reading.wait(SECONDS)
    assert not is_cached()


@pytest.mark.parametrize("source", ["", "no/such", "synthetic:tiny", "synthetic:nonsense"])
def test_what_is_not_there_is_left_to_the_load(tmp_path, source):
    reading = ahead(tmp_path, source)
    reading.start()
    assert reading.wait(SECONDS)
