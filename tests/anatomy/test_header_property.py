"""Our reading of headers against the reference's: the same tensors, and no file accepted that it refuses."""

import json
import math
import random
from itertools import islice
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from safetensors import SafetensorError, deserialize
from tests.anatomy.mutations import mutants, valid_file

from vramscope.anatomy.header import DTYPE_BITS, read_header
from vramscope.errors import SourceError

FUZZED = 1500

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=20).filter(lambda name: name != "__metadata__")
shapes = st.lists(st.integers(0, 5), max_size=4)
tensors = st.dictionaries(names, st.tuples(st.sampled_from(list(DTYPE_BITS)), shapes), max_size=6)
metadata = st.none() | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), st.text("xyz"))


def file_of(wanted, about, spaces):
    """A good file with these tensors; a shape whose bits make no whole bytes is filled up."""
    header, end = {} if about is None else {"__metadata__": about}, 0
    for name, (dtype, shape) in wanted.items():
        whole = [*shape, 4] if math.prod(shape) * DTYPE_BITS[dtype] % 8 else shape
        start, end = end, end + math.prod(whole) * DTYPE_BITS[dtype] // 8
        header[name] = {"dtype": dtype, "shape": whole, "data_offsets": [start, end]}
    text = json.dumps(header).encode() + b" " * spaces
    return len(text).to_bytes(8, "little") + text + bytes(end)


def reference(content):
    """What the reference finds in a file, or None where it refuses it."""
    try:
        return {name: (view["dtype"], tuple(view["shape"]), bytes(view["data"])) for name, view in deserialize(content)}
    except SafetensorError:
        return None


def ours(path: Path):
    header = read_header(path)
    content = path.read_bytes()[header.data_offset :]
    return {tensor.name: (tensor.dtype, tensor.shape, content[tensor.start : tensor.end]) for tensor in header.tensors}


@given(wanted=tensors, about=metadata, spaces=st.integers(0, 9))
def test_every_good_file_is_read_as_the_reference_reads_it(tmp_path: Path, wanted, about, spaces):
    path = tmp_path / "m.safetensors"
    path.write_bytes(file_of(wanted, about, spaces))
    expected = reference(path.read_bytes())
    assert expected is not None
    assert ours(path) == expected
    assert read_header(path).metadata == (about or {})


@given(wanted=tensors, change=st.tuples(st.integers(0), st.integers(0, 255)), length=st.integers(-9, 9))
def test_what_the_reference_refuses_is_refused(tmp_path: Path, wanted, change, length):
    content = bytearray(file_of(wanted, None, 0))
    content[change[0] % len(content)] = change[1]
    content = bytes(content[:length]) if length < 0 else bytes(content) + bytes(length)
    path = tmp_path / "m.safetensors"
    path.write_bytes(content)
    agree_or_are_stricter(path, content)


def test_a_short_fuzz_run(tmp_path: Path):
    """tests/benchmarks/fuzz_headers.py is the long one."""
    chance = random.Random(6)  # noqa: S311 - a seed, not a secret
    path = tmp_path / "m.safetensors"
    accepted = 0
    for content in islice(mutants(chance), FUZZED):
        path.write_bytes(content)
        accepted += agree_or_are_stricter(path, content)
    assert 0 < accepted < FUZZED  # some changes harm nothing; the others must have been refused


def test_the_fuzz_run_starts_from_good_files(tmp_path: Path):
    chance = random.Random(6)  # noqa: S311 - as above
    path = tmp_path / "m.safetensors"
    for _ in range(100):
        content = valid_file(chance)
        path.write_bytes(content)
        assert ours(path) == reference(content)


def agree_or_are_stricter(path: Path, content: bytes) -> bool:
    """Whether we accept the file, which the reference then does, too, and finds the same in it."""
    try:
        found = ours(path)
    except SourceError as error:
        assert str(path) in error.message  # noqa: PT017 - what is raised is one of two good outcomes
        return False
    assert found == reference(content)
    return True
