"""Inspection foretells what a load has in memory, for every architecture that the tests know."""

from collections import defaultdict

import pytest
import torch
from tests.loading.checkpoints import ARCHITECTURES, load, resolve_directory

from vramscope.anatomy.census import Share
from vramscope.anatomy.components import component_of
from vramscope.anatomy.inspection import Wanted, inspect
from vramscope.loading.order import slots

# transformers keeps some parameters of these in float32 when a load asks for float16; only the class knows which.
WIDER = {"t5"}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_parameters_bytes_and_parts(checkpoints, name, dtype):
    directory = checkpoints(name)
    found = inspect(Wanted(source=str(directory), dtype=dtype), directory)
    assert found.problems == ()
    model, _ = load(resolve_directory(directory), getattr(torch, dtype))
    parts = defaultdict(lambda: [0, 0])
    for slot in slots(model):
        if not slot.is_buffer:
            part = parts[str(component_of(slot.name))]
            part[0] += slot.tensor.numel()
            part[1] += slot.tensor.nbytes
    assert found.parameters == sum(count for count, _ in parts.values())
    if name in WIDER and dtype == "float16":
        return
    assert found.whole.nbytes == sum(nbytes for _, nbytes in parts.values())
    expected = {part: Share(parameters=count, nbytes=nbytes) for part, (count, nbytes) in sorted(parts.items())}
    assert found.components == expected
