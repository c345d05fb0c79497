"""Reading a file through the page cache and past it."""

import mmap
import os

import pytest
import torch
from safetensors.torch import save_file
from tests.loading.files import descriptors, drop_from_cache, read, stage, tensors_of, write_in_order

from vramscope.errors import SourceError
from vramscope.loading.spans import PIECE_BYTES
from vramscope.loading.weightfile import PAGE_BYTES, WeightFile

MIB = 1 << 20


@pytest.fixture
def opened(tmp_path):
    """A file of 9 MiB and 100 bytes, closed afterwards; skips where the file system only reads through the cache."""
    path = tmp_path / "file"
    path.write_bytes(os.urandom(9 * MIB + 100))
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        pytest.skip("this file system has no reads past the page cache")
    drop_from_cache(path)
    file = WeightFile(path)
    if file.is_cached(0, MIB):
        pytest.skip("this file system keeps what it is told to drop")
    yield file, path
    file.close()


def buffer():
    return mmap.mmap(-1, PIECE_BYTES + 2 * PAGE_BYTES)


@pytest.mark.parametrize(
    ("offset", "nbytes"), [(0, 10), (7, 4096), (4095, 2), (5 * MIB + 3, PIECE_BYTES), (9 * MIB, 100)]
)
def test_any_part_is_read_past_the_cache_and_stays_out_of_it(opened, offset, nbytes):
    file, path = opened
    found = bytes(file.read_past_cache(offset, nbytes, buffer()))
    assert not file.is_cached(offset, nbytes)
    assert found == path.read_bytes()[offset : offset + nbytes]


def test_what_was_read_through_the_cache_is_in_it(opened):
    file, path = opened
    into = bytearray(2 * MIB)
    file.read(memoryview(into), 3 * MIB)
    assert into == path.read_bytes()[3 * MIB : 5 * MIB]
    assert file.is_cached(3 * MIB, 2 * MIB)


def test_beyond_the_end_nothing_is_read_past_the_cache_and_the_other_way_says_why(opened):
    file, path = opened
    nbytes = path.stat().st_size
    assert file.read_past_cache(nbytes - 10, 20, buffer()) is None
    assert file.is_cached(nbytes, 20)
    with pytest.raises(SourceError, match=rf"file ended at byte {nbytes} while its header promises more"):
        file.read(memoryview(bytearray(20)), nbytes - 10)


@pytest.mark.usefixtures("opened")
def test_everything_is_closed(tmp_path):
    (tmp_path / "other").write_bytes(b"x" * 10000)
    before = descriptors()
    WeightFile(tmp_path / "other").close()
    assert descriptors() == before


def cold_weights(path, dtype):
    staged = stage(tensors_of(path), lambda _: dtype)
    drop_from_cache(path)
    return staged


@pytest.mark.usefixtures("opened")
def test_a_cold_file_is_read_past_the_cache_and_a_warm_one_through_it(tmp_path, monitor, wanted):
    path = tmp_path / "model.safetensors"
    tensors = {str(n): torch.randn(PIECE_BYTES // 2 + 37 * n).bfloat16() for n in range(3)}
    save_file(tensors, path)
    cold = cold_weights(path, wanted)
    assert cold.fill(monitor).cached_share == 0
    assert all(torch.equal(view, tensors[name].to(wanted)) for name, view in cold.views().items())
    path.read_bytes()
    assert stage(tensors_of(path), lambda _: wanted).fill(monitor).cached_share == 1
    assert {phase.name for phase in monitor.phases} == ({"read"} if wanted is torch.bfloat16 else {"read", "convert"})


@pytest.mark.usefixtures("opened")
def test_a_tensor_at_an_odd_offset_of_a_cold_file(tmp_path):
    tensors = {"flag": torch.tensor([1], dtype=torch.uint8), "odd": torch.randn(3000)}
    path = write_in_order(tmp_path / "model.safetensors", tensors)
    drop_from_cache(path)
    assert torch.equal(read(path)["odd"], tensors["odd"])


def test_a_file_of_nothing_counts_as_cached(tmp_path):
    (tmp_path / "empty").touch()
    file = WeightFile(tmp_path / "empty")
    assert file.is_cached(0, 10)
    file.close()
