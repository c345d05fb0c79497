"""Every checkpoint of the collection, loaded: what inspection foretold, or one clear error; never a stranger's code."""

import re
from pathlib import Path

import pytest
import torch
from tests.anatomy import cases_damaged, cases_plain, cases_quantized
from tests.anatomy.cases import Expected
from tests.loading.monitor import RecordingMonitor

from vramscope.anatomy.config import ModelConfig, resolve_dtype
from vramscope.anatomy.source import resolve
from vramscope.errors import SourceError, VramscopeError
from vramscope.loading.loader import Loaded, load
from vramscope.loading.order import slots


def loaded(directory: Path, expected: Expected) -> Loaded:
    """Load as a step does, in the dtype that the checkpoint asks for."""
    source = expected.source if expected.hub_cache else str(directory / expected.source)
    checkpoint = resolve(source, directory / "cache", hub_cache=directory / expected.hub_cache)
    ModelConfig.of(checkpoint.config)
    dtype = resolve_dtype("auto", checkpoint.config, checkpoint.headers)
    return load(checkpoint, getattr(torch, dtype), RecordingMonitor())


@pytest.mark.parametrize("case", [*cases_plain.CASES, *cases_damaged.CASES], ids=lambda case: case.__name__)
def test_load(tmp_path: Path, case):
    for expected in case(tmp_path):
        if expected.loaded:
            is_as_foretold(loaded(tmp_path, expected), expected)
        elif expected.problem:
            with pytest.raises(VramscopeError) as caught:
                loaded(tmp_path, expected)
            assert re.search(expected.load_error or expected.problem, str(caught.value), re.DOTALL), caught.value
        assert not any((tmp_path / name).exists() for name in expected.never_made)


def is_as_foretold(model: Loaded, expected: Expected):
    places = slots(model.module)
    parameters = [slot.tensor for slot in places if not slot.is_buffer]
    assert (sum(t.numel() for t in parameters), sum(t.nbytes for t in parameters)) == expected.loaded
    assert all(tensor.device.type == "cpu" for tensor in parameters)
    assert model.unexpected == expected.unexpected
    if expected.buffer_bytes is not None:
        assert sum(slot.tensor.nbytes for slot in places if slot.is_buffer) == expected.buffer_bytes


@pytest.mark.parametrize("case", cases_quantized.CASES, ids=lambda case: case.__name__)
def test_a_quantized_model_without_its_packages_is_one_error(tmp_path: Path, case):
    """Each of these is a part of a model; with the packages installed, it lacks the rest."""
    for expected in case(tmp_path):
        with pytest.raises(VramscopeError) as caught:
            loaded(tmp_path, expected)
        assert "\n" not in str(caught.value)


def test_weights_packed_by_mlx_are_named(tmp_path: Path):
    (expected,) = (expected for expected in cases_quantized.mlx(tmp_path) if expected.source == "two-widths")
    with pytest.raises(
        SourceError, match=r"config\.json: the weights are packed by MLX, which transformers does not load"
    ):
        loaded(tmp_path, expected)
