"""Loading straight to a device: what is in RAM meanwhile, what is left when it fails, and when it is not done."""

import gc
import json
import math
import os
import threading
import time
import weakref

import pytest
import torch
import transformers
from tests.devices.contract import same_bits
from tests.devices.mapped import MappedDevice
from tests.loading.checkpoints import load, resolve_directory, save_checkpoint
from tests.loading.files import descriptors, reading_threads, tensors_of, write_hole
from tests.loading.monitor import RecordingMonitor

from vramscope.anatomy.parts import part_of
from vramscope.devices.simulated import SimulatedCard, SimulatedDevice
from vramscope.errors import OutOfMemoryError, StepCancelledError
from vramscope.loading import loader
from vramscope.loading.assemble import find_architecture
from vramscope.loading.dtypes import STORED_DTYPES
from vramscope.loading.order import slots
from vramscope.loading.reader import WINDOW_BYTES
from vramscope.loading.skeleton import Skeleton
from vramscope.loading.weights import StagedWeights
from vramscope.memory.resident import read_resident

MIB = 1 << 20
ROOMY = SimulatedCard(capacity_bytes=4096 * MIB, context_bytes=MIB)


class PeakMonitor(RecordingMonitor):
    """Remembers how much anonymous memory the process had at most; cancels at a share of the bytes if told to."""

    def __init__(self, cancel_at=2.0):
        super().__init__()
        self.before = self.peak = read_resident().anonymous_bytes
        self._cancel_at = cancel_at

    @property
    def growth(self):
        return self.peak - self.before

    def progress(self, bytes_done, bytes_total):
        super().progress(bytes_done, bytes_total)
        self.peak = max(self.peak, read_resident().anonymous_bytes)

    def check_cancelled(self):
        if self.reports and self.reports[-1][0] >= self._cancel_at * self.reports[-1][1]:
            raise StepCancelledError("far enough")


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A model of 386 MiB whose weights are zeros that take no room on the disk; its classes are imported already."""
    directory = tmp_path_factory.mktemp("large")
    config = transformers.LlamaConfig(
        architectures=["LlamaForCausalLM"],
        hidden_size=1024,
        intermediate_size=4096,
        num_hidden_layers=12,
        num_attention_heads=8,
        num_key_value_heads=8,
        vocab_size=1000,
        tie_word_embeddings=False,
        dtype="float16",
    )
    config.save_pretrained(directory)
    skeleton = Skeleton(find_architecture(directory, config.to_dict()), torch.float16)
    header, end = {}, 0
    for slot in skeleton.slots:
        if not slot.is_buffer:
            start, end = end, end + 2 * math.prod(slot.tensor.shape)
            shape = list(slot.tensor.shape)
            header[slot.name] = {"dtype": STORED_DTYPES[torch.float16], "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    path = directory / "model.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    os.truncate(path, 8 + len(text) + end)
    return resolve_directory(directory)


def test_a_streamed_load_never_has_the_whole_model_in_ram(large):
    device, monitor = MappedDevice("cuda:0", ROOMY), PeakMonitor()
    loaded = loader.load(large, torch.float16, monitor, device)
    assert large.tensor_bytes > 380 * MIB
    assert device.snapshot().allocator.requested_bytes >= large.tensor_bytes
    assert len(loaded.held) > 100
    assert monitor.growth < 180 * MIB
    assert read_resident().anonymous_bytes - monitor.before < 24 * MIB


def test_a_streamed_load_of_a_part_has_the_rest_in_ram_and_no_more(large):
    """Every second layer goes, so what goes and what stays lie in turns in the arena."""
    device, monitor = MappedDevice("cuda:0", ROOMY), PeakMonitor()
    part = part_of([(layer, layer) for layer in range(0, 12, 2)], [])
    loaded = loader.load(large, torch.float16, monitor, device, part)
    going = device.snapshot().allocator.requested_bytes
    staying = sum(slot.tensor.nbytes for index, slot in enumerate(slots(loaded.module)) if index not in loaded.held)
    assert going > 180 * MIB
    assert going + staying >= large.tensor_bytes
    assert read_resident().anonymous_bytes - monitor.before < staying + 48 * MIB


def test_a_load_to_the_host_has(large):
    monitor = PeakMonitor()
    loaded = loader.load(large, torch.float16, monitor)
    assert loaded.held == {}
    assert monitor.growth > 370 * MIB


def test_readers_wait_for_what_empties_the_arena(tmp_path):
    """While it is held up, they fill the window and no more; nothing is discarded here, so the arena only grows."""
    nbytes = 6 * WINDOW_BYTES
    staged = StagedWeights(tensors_of(write_hole(tmp_path / "model.safetensors", nbytes)), lambda _: "U8")
    before, taken, too_far = read_resident().anonymous_bytes, [0], []

    def grown():
        return read_resident().anonymous_bytes - before

    def take(ready):
        limit = taken[-1] + WINDOW_BYTES
        if len(taken) == 1:
            assert happens(lambda: grown() >= WINDOW_BYTES - 16 * MIB, 60)
            assert not happens(lambda: grown() > limit + 48 * MIB, 0.3)
        too_far.append(grown() - limit)
        taken.append(ready)
        return ready

    staged.fill(RecordingMonitor(), take=take)
    assert taken[-1] == nbytes
    assert max(too_far) < 48 * MIB  # a piece and a buffer a thread, and huge pages that are touched at their begin


def happens(condition, seconds):
    """Whether the condition comes true before the time is up."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        threading.Event().wait(0.005)
    return False


@pytest.mark.parametrize("kind", [SimulatedDevice, MappedDevice])
@pytest.mark.parametrize("problem", ["out of memory", "cancelled"])
def test_a_load_that_ends_midway_gives_everything_back(large, kind, problem):
    half = problem == "out of memory"
    card = SimulatedCard(capacity_bytes=200 * MIB if half else 4096 * MIB, context_bytes=MIB)
    device, monitor = kind("cuda:0", card), PeakMonitor(cancel_at=2.0 if half else 0.5)
    taken = device.upload(torch.ones(5 * MIB))
    level, open_files = device.snapshot().allocator.allocated_bytes, descriptors()
    arrived = []
    watching = Watching(device, arrived)
    gc.disable()  # nothing may wait for the collector
    try:
        with pytest.raises(OutOfMemoryError if half else StepCancelledError) as caught:
            loader.load(large, torch.float16, monitor, watching)
        caught.value.with_traceback(None)
        del caught
        assert len(arrived) > 30
        assert [each for each in arrived if each() is not None] == []
        assert read_resident().anonymous_bytes - monitor.before < 24 * MIB
    finally:
        gc.enable()
    assert device.snapshot().allocator.allocated_bytes == level
    assert (reading_threads(), descriptors()) == ([], open_files)
    device.release(taken)


class Watching:
    """A device of which is known which tensors it took and gave."""

    def __init__(self, device, seen):
        self._device, self._seen = device, seen

    def __getattr__(self, name):
        return getattr(self._device, name)

    def upload(self, tensor):
        held = self._device.upload(tensor)
        self._seen += [weakref.ref(tensor.untyped_storage()), weakref.ref(held.tensor.untyped_storage())]
        return held


class CopyingConfig(transformers.LlamaConfig):
    model_type = "copying-llama"


class CopyingLlama(transformers.LlamaForCausalLM):
    """Computes one of its tensors while it is built, as some classes of transformers do."""

    config_class = CopyingConfig

    def tie_weights(self, *arguments, **options):
        super().tie_weights(*arguments, **options)
        self.model.norm.weight.data = self.model.norm.weight.data * 2


@pytest.fixture
def copying(tmp_path):
    """A checkpoint of a class that is no different from others before it is built."""
    transformers.AutoConfig.register("copying-llama", CopyingConfig, exist_ok=True)
    transformers.AutoModelForCausalLM.register(CopyingConfig, CopyingLlama, exist_ok=True)
    directory = save_checkpoint("llama", tmp_path)
    config = json.loads((directory / "config.json").read_text())
    config |= {"model_type": "copying-llama", "architectures": ["CopyingLlama"]}
    (directory / "config.json").write_text(json.dumps(config))
    return resolve_directory(directory)


def test_a_model_that_turns_out_to_compute_something_is_loaded_to_the_host_after_all(copying):
    architecture = find_architecture(copying.directory, copying.config)
    assert architecture.model_class is CopyingLlama
    assert Skeleton(architecture, torch.float16).is_plain(copying.headers)
    device = SimulatedDevice("cuda:0", ROOMY)
    loaded = loader.load(copying, torch.float16, RecordingMonitor(), device)
    assert (loaded.held, device.is_open) == ({}, False)
    expected = {slot.name: slot.tensor for slot in slots(load(copying, torch.float16)[0])}
    assert expected["model.norm.weight"].any()
    for slot in slots(loaded.module):
        assert same_bits(slot.tensor, expected[slot.name]), slot.name
