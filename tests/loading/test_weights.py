import math
import time
from itertools import pairwise

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.devices.contract import same_bits
from tests.loading.files import read, write_in_order
from tests.loading.monitor import RecordingMonitor

from vramscope.loading.dtypes import TORCH_DTYPES
from vramscope.loading.spans import PIECE_BYTES

FLOATS = {name: dtype for name, dtype in TORCH_DTYPES.items() if dtype.is_floating_point}
MIB = 1 << 20


def every_pattern(dtype):
    """Every value that an 8 or 16 bit format has; for wider ones the special values, their neighbours and many more."""
    if dtype.itemsize == 1:
        return torch.arange(256, dtype=torch.uint8).view(dtype)
    if dtype.itemsize == 2:
        return torch.arange(65536, dtype=torch.int32).to(torch.uint16).view(dtype)
    info, half = torch.finfo(dtype), torch.finfo(torch.float16)
    limits = (info.max, info.tiny, info.smallest_normal / 2, half.max, half.tiny, half.tiny / 1024, 65519.99, 65520.0)
    special = torch.tensor([math.nan, math.inf, 0.0, 1.0, *limits], dtype=dtype)
    below = torch.nextafter(special, torch.tensor(0, dtype=dtype))
    scale = torch.logspace(-50, 40, 4001, dtype=torch.float64).to(dtype)
    positive = torch.cat([special, below, scale])
    return torch.cat([positive, -positive, every_pattern(torch.float16).to(dtype)])


def with_one_nan(tensor):
    """All NaNs as one: which bits torch gives them depends on the kernel that it takes, and on the processor."""
    return torch.where(tensor.isnan(), torch.tensor(torch.nan, dtype=tensor.dtype), tensor)


@pytest.mark.parametrize("stored", FLOATS.values(), ids=FLOATS)
def test_every_value_is_converted_as_torch_converts_it(tmp_path, stored, wanted):
    path = write_in_order(tmp_path / "model.safetensors", {"all": every_pattern(stored)})
    found, expected = read(path, dtype=wanted)["all"], load_file(path)["all"].to(wanted)
    assert same_bits(with_one_nan(found), with_one_nan(expected))


@pytest.mark.parametrize("dtype", [None, torch.float16], ids=["as stored", "float16"])
def test_all_dtypes_of_the_format_are_read_as_the_library_reads_them(tmp_path, dtype):
    bits = torch.randint(256, (8 * 33,), dtype=torch.uint8)
    tensors = {name: bits.view(each)[:33] for name, each in TORCH_DTYPES.items() if each is not torch.bool}
    tensors["BOOL"] = bits > 100
    save_file({name: tensor.clone() for name, tensor in tensors.items()}, tmp_path / "model.safetensors")
    found = read(tmp_path / "model.safetensors", dtype=dtype)
    for name, tensor in load_file(tmp_path / "model.safetensors").items():
        wanted = dtype if dtype and tensor.is_floating_point() else tensor.dtype
        assert same_bits(found[name], tensor.to(wanted)), name


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_tensors_larger_than_a_piece_arrive_whole(tmp_path, wanted, threads):
    tensors = {str(n): torch.randn(2 * PIECE_BYTES // 2 + 37 * n).bfloat16() for n in range(3)}
    save_file(tensors, tmp_path / "model.safetensors")
    found = read(tmp_path / "model.safetensors", dtype=wanted, threads=threads)
    assert all(same_bits(found[name], tensor.to(wanted)) for name, tensor in tensors.items())


def test_shards_are_read_as_one_model(tmp_path):
    shards = {tmp_path / f"{n}.safetensors": {f"{n}.{k}": torch.randn(100, n + 1) for k in range(5)} for n in range(4)}
    for path, tensors in shards.items():
        save_file(tensors, path)
    found = read(*shards, dtype=torch.float16)
    expected = {name: tensor for tensors in shards.values() for name, tensor in tensors.items()}
    assert found.keys() == expected.keys()
    assert all(same_bits(found[name], tensor.half()) for name, tensor in expected.items())


def test_tensors_at_odd_offsets_of_the_file(tmp_path, wanted):
    tensors = {}
    for n, dtype in enumerate((torch.float32, torch.bfloat16, torch.float16, torch.float64)):
        tensors[f"bytes.{n}"] = torch.arange(2 * n + 1, dtype=torch.uint8)
        tensors[f"floats.{n}"] = torch.randn(3, n + 1).to(dtype)
    found = read(write_in_order(tmp_path / "model.safetensors", tensors), dtype=wanted)
    for name, tensor in tensors.items():
        assert same_bits(found[name], tensor.to(wanted) if tensor.is_floating_point() else tensor), name


def test_empty_and_zero_dimensional_tensors_keep_their_shape(tmp_path):
    tensors = {
        "empty": torch.empty(0, 3),
        "one": torch.tensor(3.5),
        "none": torch.empty(3, 0, 2, dtype=torch.int64),
        "flag": torch.tensor(True),  # noqa: FBT003
    }
    found = read(write_in_order(tmp_path / "model.safetensors", tensors), dtype=torch.bfloat16)
    assert {name: tuple(tensor.shape) for name, tensor in found.items()} == {
        "empty": (0, 3),
        "one": (),
        "none": (3, 0, 2),
        "flag": (),
    }
    assert found["one"] == 3.5
    assert found["flag"]


@pytest.mark.parametrize("tensors", [{}, {"empty": torch.empty(0)}], ids=["none", "empty"])
def test_a_file_without_data(tmp_path, tensors):
    monitor = RecordingMonitor()
    found = read(write_in_order(tmp_path / "model.safetensors", tensors), monitor=monitor)
    assert found.keys() == tensors.keys()
    assert monitor.reports[-1] == (0, 0)


def test_many_tiny_tensors(tmp_path):
    dtypes = (torch.bfloat16, torch.float32, torch.uint8)
    tensors = {f"{n:04}": torch.full((n % 7 + 1,), n % 200).to(dtypes[n % 3]) for n in range(3000)}
    found = read(write_in_order(tmp_path / "model.safetensors", tensors), dtype=torch.float16)
    assert list(found) == list(tensors)
    for name, tensor in tensors.items():
        assert same_bits(found[name], tensor.half() if tensor.is_floating_point() else tensor), name


def test_all_tensors_are_views_of_one_piece_of_memory(tmp_path):
    save_file({str(n): torch.randn(1000, n + 1) for n in range(5)}, tmp_path / "model.safetensors")
    found = read(tmp_path / "model.safetensors", dtype=torch.float16)
    assert len({tensor.untyped_storage().data_ptr() for tensor in found.values()}) == 1
    assert min(tensor.data_ptr() for tensor in found.values()) % (2 * MIB) == 0


def test_progress_only_grows_and_ends_at_the_total(tmp_path):
    save_file({str(n): torch.zeros(4 * MIB) for n in range(4)}, tmp_path / "model.safetensors")
    monitor = RecordingMonitor()
    read(tmp_path / "model.safetensors", dtype=torch.float16, monitor=monitor)
    assert all(before <= after for (before, _), (after, _) in pairwise(monitor.reports))
    assert {total for _, total in monitor.reports} == {64 * MIB}
    assert monitor.reports[-1] == (64 * MIB, 64 * MIB)


def test_progress_of_a_file_that_is_read_at_once_still_ends_at_the_total(tmp_path):
    save_file({str(n): torch.zeros(1) for n in range(8)}, tmp_path / "model.safetensors")
    for _ in range(100):  # the threads may be faster than who waits for them, or not
        monitor = RecordingMonitor()
        read(tmp_path / "model.safetensors", monitor=monitor, threads=4)
        assert monitor.reports[-1] == (32, 32)


def test_reading_and_converting_make_up_the_time_of_the_pass(tmp_path):
    save_file({"weight": torch.zeros(16 * MIB)}, tmp_path / "model.safetensors")
    shares = []
    for _ in range(10):
        monitor = RecordingMonitor()
        began = time.perf_counter()
        read(tmp_path / "model.safetensors", dtype=torch.bfloat16, monitor=monitor)
        seconds = time.perf_counter() - began
        read_phase, convert_phase = monitor.phases
        assert (read_phase.name, read_phase.nbytes) == ("read", 64 * MIB)
        assert (convert_phase.name, convert_phase.nbytes) == ("convert", 32 * MIB)
        assert min(read_phase.seconds, convert_phase.seconds) > 0
        shares.append((read_phase.seconds + convert_phase.seconds) / seconds)
    assert 0.7 <= max(shares) <= 1, "a busy machine may hold up what is around them, but not each time"


def test_without_a_conversion_there_is_no_phase_of_that_name(tmp_path):
    save_file({"weight": torch.zeros(1000)}, tmp_path / "model.safetensors")
    monitor = RecordingMonitor()
    read(tmp_path / "model.safetensors", dtype=torch.float32, monitor=monitor)
    assert [(phase.name, phase.nbytes) for phase in monitor.phases] == [("read", 4000)]
