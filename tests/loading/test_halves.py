"""bfloat16 to float16 by compiled code, against torch, and what it does with files and memory of every size."""

import errno
import os
import platform
import shutil
from pathlib import Path

import pytest
import torch
from tests.loading.test_weights import every_pattern, with_one_nan

from vramscope.loading import halves

MARK = 0xA5  # of the bytes that must stay as they are
CHUNK_BYTES = 256 << 10
COUNTS = range(41)

needs_native = pytest.mark.skipif(
    halves.native is None, reason="built without a compiler, or the processor lacks AVX2 or F16C"
)


def processor_flags():
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return set(next((line for line in lines if line.startswith("flags")), "").split())


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the compiled code is for x86-64")
@pytest.mark.skipif(not (shutil.which("gcc") or shutil.which("cc")), reason="needs a C compiler")
def test_where_there_is_a_compiler_the_package_has_its_compiled_code():
    if not {"avx2", "f16c"} <= processor_flags():
        pytest.skip("this processor lacks AVX2 or F16C")
    assert halves.native is not None, "loading/_halves.c was not compiled: pip install --verbose --editable . says why"


@pytest.fixture
def native():
    return halves.native


def noise(nbytes):
    return bytearray(os.urandom(nbytes))


def numbers(memory, dtype):
    return torch.frombuffer(bytearray(memory), dtype=dtype) if memory else torch.empty(0, dtype=dtype)


def is_converted(found, source):
    """Whether bytes are the float16 of others that are bfloat16."""
    expected = numbers(source, torch.bfloat16).half()
    bits = [with_one_nan(tensor).view(torch.int16) for tensor in (numbers(found, torch.float16), expected)]
    return torch.equal(*bits)


def framed(nbytes, offset):
    """A place of that many bytes at an offset of marked memory, and whether all around it is as it was."""
    memory = bytearray([MARK]) * (offset + nbytes + 64)

    def is_untouched():
        return set(memory[:offset] + memory[offset + nbytes :]) == {MARK}

    return memoryview(memory)[offset : offset + nbytes], is_untouched


@needs_native
@pytest.mark.parametrize("in_place", [False, True], ids=["elsewhere", "in place"])
def test_every_pattern_is_converted_as_torch_converts_it(native, in_place):
    source = bytearray(every_pattern(torch.bfloat16).view(torch.uint8).numpy())
    target = bytearray(source) if in_place else bytearray(len(source))
    native.convert(memoryview(target), memoryview(target if in_place else source))
    assert is_converted(target, source)


@needs_native
def test_any_count_at_any_alignment_and_nothing_beyond_it(native):
    for count in COUNTS:
        for to, start in ((0, 0), (1, 0), (0, 1), (1, 3), (30, 33)):
            source = noise(start + 2 * count)
            target, is_untouched = framed(2 * count, to)
            native.convert(target, memoryview(source)[start:])
            assert is_converted(target, source[start:]), (count, to, start)
            assert is_untouched(), (count, to, start)


@needs_native
def test_any_count_in_place(native):
    for count in COUNTS:
        for offset in (0, 1, 15):
            source = noise(2 * count)
            target, is_untouched = framed(2 * count, offset)
            target[:] = source
            native.convert(target, target)
            assert is_converted(target, source), (count, offset)
            assert is_untouched(), (count, offset)


@needs_native
def test_memory_of_another_length_is_refused(native):
    target, is_untouched = framed(4, 8)
    with pytest.raises(ValueError, match=r"^6 bytes of bfloat16 do not become 4 bytes of float16$"):
        native.convert(target, memoryview(noise(6)))
    assert target == bytes([MARK]) * 4
    assert is_untouched()


@pytest.fixture
def opened(tmp_path):
    """A descriptor of a file of two chunks and some bytes more, and what is in it."""
    content = bytes(noise(2 * CHUNK_BYTES + 101))
    (tmp_path / "file").write_bytes(content)
    descriptor = os.open(tmp_path / "file", os.O_RDONLY)
    yield descriptor, content
    os.close(descriptor)


@needs_native
@pytest.mark.parametrize("offset", [0, 1, 4095, CHUNK_BYTES + 7])
@pytest.mark.parametrize("nbytes", [2, 14, 16, 18, CHUNK_BYTES - 2, CHUNK_BYTES, CHUNK_BYTES + 2])
def test_any_part_of_a_file_is_read_to_any_place(native, opened, offset, nbytes):
    descriptor, content = opened
    target, is_untouched = framed(nbytes, offset % 3)
    got, *seconds = native.read(descriptor, offset, target)
    assert got == nbytes
    assert is_converted(target, content[offset : offset + nbytes])
    assert is_untouched()
    assert min(seconds) > 0


@needs_native
@pytest.mark.parametrize("missing", [1, 2, 17, CHUNK_BYTES, 2 * CHUNK_BYTES])
def test_at_the_end_of_a_file_what_is_there_is_read(native, opened, tmp_path, missing):
    descriptor, content = opened
    offset, nbytes = 101, 2 * CHUNK_BYTES
    os.truncate(tmp_path / "file", offset + nbytes - missing)
    target, is_untouched = framed(nbytes, 1)
    got, *_ = native.read(descriptor, offset, target)
    assert got == nbytes - missing
    whole = got - got % 2
    assert is_converted(target[:whole], content[offset : offset + whole])
    assert set(target[got:]) == {MARK}
    assert is_untouched()


@needs_native
def test_beyond_the_end_of_a_file_nothing_is_read(native, opened):
    descriptor, content = opened
    target, _ = framed(10, 0)
    got, *_ = native.read(descriptor, len(content) + 1000, target)
    assert got == 0
    assert set(target) == {MARK}


@needs_native
def test_half_a_number_at_the_end_stays_as_it_is(native, opened):
    descriptor, content = opened
    target, is_untouched = framed(7, 0)
    got, *_ = native.read(descriptor, 3, target)
    assert got == 7
    assert is_converted(target[:6], content[3:9])
    assert target[6] == content[9]
    assert is_untouched()


@needs_native
@pytest.mark.parametrize(
    ("path", "code"), [(None, errno.EBADF), (".", errno.EISDIR)], ids=["no descriptor", "a directory"]
)
def test_what_cannot_be_read_says_why(native, path, code):
    descriptor = -1 if path is None else os.open(path, os.O_RDONLY)
    try:
        with pytest.raises(OSError, match=os.strerror(code)) as raised:
            native.read(descriptor, 0, framed(10, 0)[0])
    finally:
        if path is not None:
            os.close(descriptor)
    assert raised.value.errno == code


@needs_native
def test_an_offset_that_no_file_has_is_refused(native, opened):
    with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
        native.read(opened[0], -1, framed(10, 0)[0])


@needs_native
@pytest.mark.parametrize("kind", [bytearray, bytes])
def test_no_memory_at_all_is_no_work(native, opened, kind):
    empty = memoryview(kind())
    native.convert(empty, empty)
    assert native.read(opened[0], 0, empty)[0] == 0
