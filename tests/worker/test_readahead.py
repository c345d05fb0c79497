"""The first model's files are in the page cache, or in their place, before a step asks for them."""

import threading
from pathlib import Path

import pytest
import torch
from tests.devices.contract import same_bits
from tests.loading.checkpoints import load, resolve_directory, save_checkpoint
from tests.loading.files import descriptors, drop_from_cache, reading_threads
from tests.loading.monitor import RecordingMonitor
from tests.memory.trees import limited_root

from vramscope.anatomy.source import resolve
from vramscope.errors import SourceError
from vramscope.loading import halves, loader
from vramscope.loading.weightfile import WeightFile
from vramscope.settings import WorkerSettings
from vramscope.worker.readahead import ReadAhead

MIB = 1 << 20
SECONDS = 60.0


def ahead(home: Path, source: str, **changes: object) -> ReadAhead:
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


def begun(directory: Path, dtype: str):
    """What is read ahead for a load to RAM, when all of it was read; None where that is left to the load."""
    reading = ahead(directory, str(directory), first_dtype=dtype)
    reading.start()
    assert reading.wait(SECONDS)
    return reading.take()


def load_with(directory: Path, staged, dtype: torch.dtype):
    return loader.load(resolve_directory(directory), dtype, RecordingMonitor(), begun=staged)


@pytest.mark.parametrize("name", ["llama", "qwen2", "mixtral", "t5"])
def test_a_load_takes_what_was_read_ahead(tmp_path, name):
    """mixtral's weights are fused by transformers; of t5 some stay in float32, which nobody could foresee."""
    directory, dtype = save_checkpoint(name, tmp_path / "model", torch.float16), torch.float16
    staged = begun(directory, "float16")
    loaded = load_with(directory, staged, dtype)
    staged.stop()
    assert (loaded.reading.ahead_bytes > 0) == (name != "t5")
    expected, _ = load(resolve_directory(directory), dtype)
    pairs = zip(loaded.module.state_dict().items(), expected.state_dict().items(), strict=True)
    assert all(first == second and same_bits(a, b) for (first, a), (second, b) in pairs)


@pytest.mark.skipif(halves.native is None, reason="nothing was compiled here that converts without torch")
def test_bfloat16_is_read_ahead_as_float16(tmp_path):
    directory = save_checkpoint("llama", tmp_path / "model")
    loaded = load_with(directory, begun(directory, "float16"), torch.float16)
    assert loaded.reading.ahead_bytes > 0
    tensors = load(resolve_directory(directory), torch.float16)[0].state_dict()
    assert all(same_bits(tensor, tensors[name]) for name, tensor in loaded.module.state_dict().items())


def test_what_torch_has_to_convert_is_left_to_the_load(tmp_path):
    assert begun(save_checkpoint("llama", tmp_path / "model"), "float32") is None


def test_another_dtype_than_was_foreseen_is_read_again(tmp_path):
    directory = save_checkpoint("llama", tmp_path / "model")
    staged = begun(directory, "bfloat16")
    loaded = load_with(directory, staged, torch.float32)
    staged.stop()
    assert loaded.reading.ahead_bytes == 0
    assert {parameter.dtype for parameter in loaded.module.parameters()} == {torch.float32}


def test_a_file_that_was_replaced_meanwhile_is_read_again(tmp_path):
    directory = save_checkpoint("llama", tmp_path / "model")
    staged = begun(directory, "bfloat16")
    other = save_checkpoint("llama", tmp_path / "other")
    (other / "model.safetensors").replace(directory / "model.safetensors")
    loaded = load_with(directory, staged, torch.bfloat16)
    staged.stop()
    assert loaded.reading.ahead_bytes == 0


def test_what_cannot_be_read_is_told_by_the_load(tmp_path):
    directory = save_checkpoint("llama", tmp_path / "model")
    before = descriptors()
    path = directory / "model.safetensors"
    staged = begun(directory, "bfloat16")
    staged.stop()
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(SourceError):
        load_with(directory, begun(directory, "bfloat16"), torch.bfloat16)
    assert (reading_threads(), descriptors()) == ([], before)


@pytest.mark.parametrize("limit_bytes", [1000, 1 << 40], ids=["no room", "room"])
def test_stopping_lets_go_of_everything(tmp_path, limit_bytes):
    directory = save_checkpoint("llama", tmp_path / "model")
    before = descriptors()
    reading = ahead(
        tmp_path,
        str(directory),
        first_dtype="bfloat16",
        cgroup_root=limited_root(tmp_path / "cgroup", limit_bytes, 0),
    )
    reading.start()
    reading.stop()
    assert (reading_threads(), descriptors()) == ([], before)
    assert reading.take() is None
