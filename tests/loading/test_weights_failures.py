"""What goes wrong while weights are read: one clear error, and nothing that stays behind."""

import gc
import os
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file
from tests.loading.files import descriptors, read, read_weights, reading_threads, tensors_of, write_hole
from tests.loading.monitor import RecordingMonitor

from vramscope.anatomy.header import Header, TensorEntry
from vramscope.errors import SourceError, StepCancelledError
from vramscope.loading.dtypes import refuse_unknown
from vramscope.memory.resident import read_resident

MIB = 1 << 20


@contextmanager
def leaving_nothing():
    """No thread and no open file more after the block than before it."""
    before = descriptors()
    yield
    assert reading_threads() == []
    assert descriptors() == before


def as_stored(entry):
    return torch.float32 if entry.dtype == "F32" else torch.uint8


def failed_read(tensors, monitor=None, wanted=as_stored):
    """The error of a read that fails, without its frames."""
    try:
        read_weights(tensors, wanted, monitor or RecordingMonitor())
    except (SourceError, StepCancelledError, MemoryError) as error:
        return error.with_traceback(None)
    pytest.fail("nothing was raised")


def unread(tensors):
    """The same as if nobody had looked at the file."""
    return [(replace(header, identity=None), tensor) for header, tensor in tensors]


@pytest.fixture
def weights(tmp_path):
    """A file of 64 MiB, and its tensors."""
    path = tmp_path / "model.safetensors"
    save_file({str(n): torch.ones(4 * MIB) for n in range(4)}, path)
    return path, tensors_of(path)


def test_a_file_that_is_cut_short_after_its_header_was_read(weights):
    path, tensors = weights
    os.truncate(path, path.stat().st_size - 1000)
    with leaving_nothing():
        error = failed_read(tensors)
    assert isinstance(error, SourceError)
    assert str(error).startswith(f"{path} ended at byte {path.stat().st_size} while its header promises more")


def test_a_file_that_is_gone(weights):
    path, tensors = weights
    path.unlink()
    with leaving_nothing():
        assert str(failed_read(tensors)) == f"{path}: cannot be opened: No such file or directory"


def test_bfloat16_of_which_the_end_is_missing(tmp_path, wanted):
    path = tmp_path / "model.safetensors"
    save_file({str(n): torch.ones(4 * MIB, dtype=torch.bfloat16) for n in range(2)}, path)
    tensors = tensors_of(path)
    os.truncate(path, path.stat().st_size - 1001)  # in the middle of a number
    with leaving_nothing():
        error = failed_read(tensors, wanted=lambda _: wanted)
    assert isinstance(error, SourceError)
    assert str(error).startswith(f"{path} ended at byte {path.stat().st_size} while its header promises more")


def test_bfloat16_that_cannot_be_read(tmp_path, wanted):
    path = tmp_path / "model.safetensors"
    save_file({"weight": torch.ones(1000, dtype=torch.bfloat16)}, path)
    tensors = tensors_of(path)
    path.unlink()
    path.mkdir()
    with leaving_nothing():
        error = failed_read(unread(tensors), wanted=lambda _: wanted)
    assert str(error) == f"{path}: cannot be read: Is a directory"


def test_a_file_that_cannot_be_read(weights):
    path, tensors = weights
    path.unlink()
    path.mkdir()
    with leaving_nothing():
        assert str(failed_read(unread(tensors))) == f"{path}: cannot be read: Is a directory"


def test_one_of_several_files_is_gone(weights, tmp_path):
    path, tensors = weights
    other = tmp_path / "other.safetensors"
    save_file({"other": torch.ones(10)}, other)
    both = [*tensors_of(other), *tensors]
    path.unlink()
    with leaving_nothing():
        assert isinstance(failed_read(both), SourceError)


def test_a_failed_read_gives_its_memory_back_at_once(weights):
    path, tensors = weights
    os.truncate(path, path.stat().st_size - 1000)
    failed_read(tensors)
    gc.disable()
    try:
        before = read_resident().anonymous_bytes
        with suppress(SourceError):
            read_weights(tensors, as_stored, RecordingMonitor())
        assert read_resident().anonymous_bytes - before < 16 * MIB
    finally:
        gc.enable()


def test_cancelling_stops_between_two_chunks(tmp_path):
    tensors = tensors_of(write_hole(tmp_path / "model.safetensors", 4 << 30))
    monitor = RecordingMonitor(checks_left=0)
    with leaving_nothing():
        error = failed_read(tensors, monitor)
    assert isinstance(error, StepCancelledError)
    done, total = monitor.reports[-1]
    assert done < total
    assert monitor.phases == []


def test_a_dtype_that_torch_lacks(tmp_path):
    entry = TensorEntry(name="odd", dtype="F4", shape=(4,), start=0, end=2, elements=4)
    header = Header(path=tmp_path / "x.safetensors", tensors=(entry,), metadata={}, data_offset=10, file_bytes=12)
    message = rf"x\.safetensors: tensor 'odd' has dtype F4, of which torch {torch.__version__} has no ".replace(
        "+", r"\+"
    )
    with leaving_nothing(), pytest.raises(SourceError, match=message):
        refuse_unknown([(header, entry)])


def test_more_than_the_system_can_address(tmp_path):
    size = 1 << 50
    entry = TensorEntry(name="huge", dtype="U8", shape=(size,), start=0, end=size, elements=size)
    header = Header(path=tmp_path / "x", tensors=(entry,), metadata={}, data_offset=10, file_bytes=10 + size)
    with leaving_nothing():
        error = failed_read([(header, entry)])
    assert isinstance(error, MemoryError)
    assert str(error).startswith(f"the system has no {size} bytes for the weights")


def test_memory_of_tensors_that_nobody_holds_goes_back_to_the_system(weights):
    path, _ = weights
    read(path)
    before = read_resident().anonymous_bytes
    found = read(path)
    assert read_resident().anonymous_bytes - before > 60 * MIB
    del found["1"], found["2"], found["3"]
    assert read_resident().anonymous_bytes - before > 60 * MIB  # one view keeps all
    found.clear()
    assert read_resident().anonymous_bytes - before < 4 * MIB


def test_a_file_that_was_replaced_after_its_header_was_read(weights, tmp_path):
    path, tensors = weights
    new = tmp_path / "new"
    save_file({str(n): torch.zeros(4 * MIB) for n in range(4)}, new)
    new.replace(path)
    with leaving_nothing():
        error = failed_read(tensors)
    assert isinstance(error, SourceError)
    assert str(error).startswith(f"{path} is not the file any more whose header was read")
