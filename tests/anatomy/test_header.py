import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors import SafetensorError, deserialize, safe_open
from safetensors.numpy import save

from vramscope.anatomy.header import DTYPE_BITS, Header, read_header
from vramscope.errors import SourceError

A = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
TEXT_A = json.dumps(A)

NUMPY = {"F32": np.float32, "F16": np.float16, "F64": np.float64, "I64": np.int64, "U8": np.uint8, "BOOL": np.bool_}

arrays = st.sampled_from(list(NUMPY.values())).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4), fill=st.just(1))
)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=12).filter(lambda name: name != "__metadata__")
metadata = st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), st.just("x"), max_size=2)


@given(tensors=st.dictionaries(names, arrays, max_size=5), about=metadata)
def test_reads_what_the_reference_wrote(tmp_path: Path, tensors, about):
    path = tmp_path / "m.safetensors"
    path.write_bytes(save(tensors, metadata=about or None))
    header = read_header(path)
    assert header.metadata == about
    with safe_open(path, "np") as reference:
        in_file = reference.offset_keys()
        assert [tensor.name for tensor in header.tensors if tensor.nbytes] == [n for n in in_file if tensors[n].size]
    for tensor in header.tensors:
        array = tensors[tensor.name]
        assert (tensor.shape, tensor.elements, tensor.nbytes) == (array.shape, array.size, array.nbytes)
        assert NUMPY[tensor.dtype] == array.dtype
        data = path.read_bytes()[header.data_offset + tensor.start : header.data_offset + tensor.end]
        assert data == array.tobytes()
    assert header.tensor_bytes == sum(array.nbytes for array in tensors.values())
    assert header.elements == sum(array.size for array in tensors.values())
    assert header.file_bytes == path.stat().st_size


small = st.integers(-1, 9)
entries = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from([*DTYPE_BITS, "F8", "f32"]),
        "shape": st.lists(small, max_size=2),
        "data_offsets": st.lists(small, min_size=2, max_size=2),
    }
)


@given(tensors=st.dictionaries(st.sampled_from("abc"), entries, max_size=2), data=st.binary(max_size=9))
def test_accepts_and_refuses_what_the_reference_does(tmp_path: Path, raw_file, tensors, data):
    path = raw_file(tmp_path / "m.safetensors", tensors, data)
    try:
        reference = {name: (view["dtype"], tuple(view["shape"])) for name, view in deserialize(path.read_bytes())}
    except SafetensorError:
        with pytest.raises(SourceError, match=r"m\.safetensors: "):
            read_header(path)
    else:
        assert {tensor.name: (tensor.dtype, tensor.shape) for tensor in read_header(path).tensors} == reference


@pytest.mark.parametrize(("dtype", "bits"), DTYPE_BITS.items())
def test_knows_the_width_of_every_dtype(tmp_path: Path, raw_file, dtype, bits):
    header = {"w": {"dtype": dtype, "shape": [2, 4], "data_offsets": [0, bits]}}
    path = raw_file(tmp_path / "m.safetensors", header, bytes(bits))
    assert deserialize(path.read_bytes())[0][1]["dtype"] == dtype
    (tensor,) = read_header(path).tensors
    assert (tensor.elements, tensor.nbytes) == (8, bits)


def test_file_order_is_by_offset_and_empty_tensors_take_no_room(tmp_path: Path, raw_file):
    header = {
        "late": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]},
        "scalar": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]},
        "empty": {"dtype": "F8_E4M3", "shape": [0], "data_offsets": [4, 4]},
        "__metadata__": None,
    }
    read = read_header(raw_file(tmp_path / "m.safetensors", json.dumps(header).encode() + b"   ", bytes(8)))
    assert [(tensor.name, tensor.elements) for tensor in read.tensors] == [("scalar", 1), ("empty", 0), ("late", 1)]


BAD_HEADERS = {
    "list": (b"[]", "the header must start with \"{\", got b'[]'"),
    "nothing": (b"", 'the header must start with "{", got nothing'),
    "blank first": (b" {}", "the header must start with \"{\", got b' {}'"),
    "byte order mark": (b"\xef\xbb\xbf{}", "the header must start with \"{\", got b'\\xef\\xbb\\xbf{}'"),
    "not utf-8": (b'{"\xff": 1}', "the header is not UTF-8 text (byte 2)"),
    "half a surrogate": (b'{"\\ud800": %s}' % TEXT_A.encode(), "the header holds '\\ud800', which is no Unicode text"),
    "broken": (b'{"a": ', "the header is not valid JSON: Expecting value at line 1, column 7"),
    "more after it": (b"{}x", "the header is not valid JSON: Extra data at line 1, column 3"),
    "nan": (b'{"a": NaN}', "the header is not valid JSON: NaN is no JSON"),
    "deep": (
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        "the header is not valid JSON: it is nested too deeply",
    ),
    "long number": (b'{"a":' + b"9" * 5000 + b"}", "not valid JSON: it holds a number too long to be one"),
    "tensor twice": (f'{{"a": {TEXT_A}, "a": {TEXT_A}}}'.encode(), "the header says the key 'a' twice"),
    "field twice": (b'{"a": {"dtype": "F32", "dtype": "F32"}}', "the header says the key 'dtype' twice"),
    "metadata twice": (b'{"__metadata__": {"k": "1", "k": "1"}}', "the header says the key 'k' twice"),
    "metadata number": ({"__metadata__": {"k": 1}}, "'__metadata__': 'k': expected a string, got a number"),
    "metadata list": ({"__metadata__": []}, "'__metadata__': expected an object, got a list"),
    "entry list": ({"a": [1]}, "'a': expected an object, got a list"),
    "no dtype": ({"a": {"shape": [2], "data_offsets": [0, 8]}}, "'a': \"dtype\" is missing"),
    "no shape": ({"a": {"dtype": "F32", "data_offsets": [0, 8]}}, "'a': \"shape\" is missing"),
    "no offsets": ({"a": {"dtype": "F32", "shape": [2]}}, "'a': \"data_offsets\" is missing"),
    "unknown dtype": ({"a": A | {"dtype": "F12"}}, "got 'F12'"),
    "dtype number": ({"a": A | {"dtype": 32}}, "got 32"),
    "negative shape": ({"a": A | {"shape": [-2]}}, "'a': \"shape\": expected a list of whole numbers from 0, got [-2]"),
    "float shape": ({"a": A | {"shape": [2.0]}}, "expected a list of whole numbers from 0, got [2.0]"),
    "negative zero": (
        b'{"a": {"dtype": "F32", "shape": [-0], "data_offsets": [0, 0]}}',
        "expected a list of whole numbers from 0, got [-0.0]",
    ),
    "bool shape": ({"a": A | {"shape": [True, 2]}}, "expected a list of whole numbers from 0, got [True, 2]"),
    "shape number": ({"a": A | {"shape": 2}}, "expected a list of whole numbers from 0, got 2"),
    "huge size": ({"a": A | {"shape": [2**64]}}, "expected a list of whole numbers from 0, got [18446744073709551616]"),
    "huge product": ({"a": A | {"shape": [2**40, 2**40]}}, "is more than any file can hold"),
    "huge times zero": ({"a": A | {"shape": [2**63, 2**63, 0]}}, "is more than any file can hold"),
    "one offset": (
        {"a": A | {"data_offsets": [8]}},
        "'a': \"data_offsets\": expected two whole numbers from 0, got [8]",
    ),
    "negative offset": ({"a": A | {"data_offsets": [-8, 0]}}, "expected two whole numbers from 0, got [-8, 0]"),
    "backwards": ({"a": A | {"data_offsets": [8, 0]}}, "'a': \"data_offsets\": the end 0 lies before the begin 8"),
    "size": ({"a": A | {"shape": [3]}}, "'a': F32 [3] needs 12 bytes, its offsets span 8"),
    "half a byte": ({"a": A | {"dtype": "F4", "shape": [3]}}, "'a': F4 [3] needs 12 bits, which is no whole number of"),
    "hole at 0": ({"a": A | {"data_offsets": [8, 16]}}, "'a': begins at byte 8: a hole of 8 bytes"),
    "hole": ({"a": A, "b": A | {"data_offsets": [12, 20]}}, "'b': begins at byte 12: a hole of 4 bytes"),
    "overlap": ({"a": A, "b": A | {"data_offsets": [4, 12]}}, "'b': begins at byte 4: overlaps 4 bytes"),
}


@pytest.mark.parametrize(("header", "message"), BAD_HEADERS.values(), ids=BAD_HEADERS.keys())
def test_a_bad_header_is_refused_with_its_reason(tmp_path: Path, raw_file, header, message):
    path = raw_file(tmp_path / "m.safetensors", header, bytes(8))
    with pytest.raises(SourceError) as caught:
        read_header(path)
    assert caught.value.message.startswith(f"{path}: ")
    assert message in caught.value.message


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 7516192768\n"
BAD_FILES = {
    "empty": (b"", "the file is empty (an interrupted download leaves such files; fetch it again)"),
    "3 bytes": (b"\1\2\3", "3 bytes are too few for a safetensors file (the file is damaged; fetch it again)"),
    "lfs": (
        POINTER,
        "a Git LFS pointer to 7,516,192,768 bytes, not the weights (run `git lfs pull` in the repository)",
    ),
    "html": (b"\n<!DOCTYPE HTML><html>404</html>", "an HTML page, not safetensors"),
    "short html": (b"<html>", "an HTML page, not safetensors"),
    "xml": (b"<?xml version='1.0'?><Error/>", "an XML page, not safetensors"),
    "json": (b'{"error": "gated"}', "a JSON text without the length of a safetensors header"),
    "pickle": (b"\x80\x02}q\x00X\x01\x00\x00\x00", "a Python pickle, not safetensors (convert it to safetensors)"),
    "zip": (b"PK\x03\x04\x14\x00\x08\x08\x00", "a zip archive (a PyTorch pickle), not safetensors"),
    "gguf": (b"GGUF\x03\x00\x00\x00\x01\x00", "a GGUF file, not safetensors"),
    "over limit": (
        (132_095_296).to_bytes(8, "little") + b"{}",
        "132,095,296 bytes long, the format allows 100,000,000",
    ),
    "2^64-1": (b"\xff" * 8 + b"{}", "18,446,744,073,709,551,615 bytes long, the format allows 100,000,000"),
    "length past end": ((1000).to_bytes(8, "little") + b"{}", "the header ends at byte 1,008, the file has 10 bytes"),
    "length of a zip": (
        b"PK\x03\x04\0\0\0\0{}",
        "cut short: the header ends at byte 67,324,760, the file has 10 bytes",
    ),
}


@pytest.mark.parametrize(("content", "message"), BAD_FILES.values(), ids=BAD_FILES.keys())
def test_a_file_that_is_something_else_is_named(tmp_path: Path, content, message):
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(SourceError) as caught:
        read_header(path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")


def test_a_truncated_file_tells_both_sizes(tmp_path: Path, raw_file):
    path = raw_file(tmp_path / "m.safetensors", {"a": A}, bytes(5))
    size = path.stat().st_size
    with pytest.raises(SourceError, match=f"cut short by 3 bytes: expected {size + 3} bytes, got {size}"):
        read_header(path)


def test_bytes_after_the_last_tensor_are_refused(tmp_path: Path, raw_file):
    path = raw_file(tmp_path / "m.safetensors", {"a": A}, bytes(9))
    with pytest.raises(SourceError, match="1 bytes too long, which belong to no tensor"):
        read_header(path)


def test_what_is_no_file_is_refused_without_waiting(tmp_path: Path):
    pipe = tmp_path / "pipe.safetensors"
    os.mkfifo(pipe)
    dangling = tmp_path / "link.safetensors"
    dangling.symlink_to("nowhere")
    for path, message in (
        (pipe, "not a regular file"),
        (tmp_path, "not a regular file"),
        (tmp_path / "none.safetensors", "no such file"),
        (dangling, "not downloaded: the link points to a file that is not there"),
        (tmp_path / ("x" * 300), "File name too long"),
    ):
        with pytest.raises(SourceError) as caught:
            read_header(path)
        assert message in caught.value.message


def test_odd_names_are_names(tmp_path: Path, raw_file):
    odd = ["a\nb", 'q"', "../up", "", "数字"]
    header = {name: {"dtype": "U8", "shape": [1], "data_offsets": [n, n + 1]} for n, name in enumerate(odd)}
    read = read_header(raw_file(tmp_path / "m.safetensors", header, bytes(len(odd))))
    assert [tensor.name for tensor in read.tensors] == odd


def test_headers_are_values(tmp_path: Path, raw_file):
    path = raw_file(tmp_path / "m.safetensors", {"a": A}, bytes(8))
    assert isinstance(read_header(path), Header)
    assert read_header(path) == read_header(path)
