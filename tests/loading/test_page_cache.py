import mmap
import os
from pathlib import Path

import pytest

from vramscope.loading.page_cache import _by_cachestat, _by_mincore, page_cache_share

PAGES = 64


@pytest.fixture
def path(tmp_path):
    """A file whose pages are all on the disk."""
    path = tmp_path / "file"
    path.write_bytes(os.urandom(PAGES * mmap.PAGESIZE))
    with path.open("rb") as opened:
        os.fsync(opened.fileno())
    return path


def drop(path) -> None:
    with path.open("rb") as opened:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def test_what_was_written_just_now_is_warm(path):
    assert page_cache_share([path]) == 1.0


def test_what_the_kernel_has_dropped_is_cold(path):
    drop(path)
    share = page_cache_share([path])
    if share == 1.0:
        pytest.skip("this file system keeps its files in RAM")
    assert share == 0.0


def test_a_part_is_a_share_of_all_files(path, tmp_path):
    warm = tmp_path / "warm"
    warm.write_bytes(bytes(PAGES * mmap.PAGESIZE))
    drop(path)
    if page_cache_share([path]) == 1.0:
        pytest.skip("this file system keeps its files in RAM")
    assert page_cache_share([path, warm]) == 0.5


def test_both_ways_to_ask_the_kernel_agree(path):
    drop(path)
    with path.open("rb") as opened:
        opened.read(8 * mmap.PAGESIZE)
        nbytes = PAGES * mmap.PAGESIZE
        found = _by_cachestat(opened.fileno(), nbytes)
        if found is None:
            pytest.skip("this kernel has no cachestat, or a sandbox forbids it")
        assert found == _by_mincore(opened.fileno(), 0, nbytes)
        assert found >= 8 * mmap.PAGESIZE


def test_cachestat_says_no_more_than_the_file_has(tmp_path):
    path = tmp_path / "short"
    path.write_bytes(b"x" * (mmap.PAGESIZE + 1))
    with path.open("rb") as opened:
        assert _by_cachestat(opened.fileno(), mmap.PAGESIZE + 1) in (None, mmap.PAGESIZE + 1)


def test_asking_reads_nothing(path):
    drop(path)
    before = page_cache_share([path])
    assert page_cache_share([path]) == before


def test_a_last_page_that_is_not_whole_counts_its_bytes(tmp_path):
    path = tmp_path / "short"
    path.write_bytes(b"x" * (mmap.PAGESIZE + 1))
    assert page_cache_share([path]) == 1.0


def test_what_is_not_there_or_empty_is_not_known(tmp_path):
    (tmp_path / "empty").touch()
    assert page_cache_share([tmp_path / "none"]) is None
    assert page_cache_share([tmp_path / "empty"]) is None


@pytest.mark.skipif(os.geteuid() == 0, reason="every file is open to root")
def test_of_another_s_file_the_kernel_does_not_tell():
    assert page_cache_share([Path("/etc/passwd")]) is None
