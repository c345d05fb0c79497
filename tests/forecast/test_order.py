"""What is remembered of a model, and under which key."""

import itertools
import json
from dataclasses import replace

import pytest

from vramscope.anatomy.header import Header, TensorEntry
from vramscope.forecast.order import ModelOrder, OrderCache, TensorPlace, order_key, order_of_files

CONFIG = {"model_type": "qwen2", "hidden_size": 64, "rope": {"theta": 1e6, "none": None}}
ORDER = ModelOrder(
    dtype="float16",
    tensors=(
        TensorPlace(name="embed", nbytes=131_072, halves=False),
        TensorPlace(name="von 从", nbytes=3, halves=True),
        TensorPlace(name="table", nbytes=0, is_buffer=True),
    ),
    direct=(2, 0, 1),
    exact=False,
    basis="a guess",
)


def header(name="model.safetensors", **tensors):
    """A header of tensors by name, dtype and shape; only those count here."""
    sizes = {"F32": 4, "F16": 2, "BF16": 2, "I64": 8, "U8": 1, "F8_E4M3": 1}
    entries = []
    for tensor, (dtype, *shape) in tensors.items():
        elements = 1
        for size in shape:
            elements *= size
        start = entries[-1].end if entries else 0
        entries.append(TensorEntry(tensor, dtype, tuple(shape), start, start + elements * sizes[dtype], elements))
    return Header(path=name, tensors=tuple(entries), metadata={}, data_offset=8, file_bytes=8)


STORED = (header(embed=("BF16", 96, 32), norm=("F32", 32)),)


@pytest.fixture
def cache(tmp_path):
    return OrderCache(tmp_path / "cache")


def test_an_order_comes_back_as_it_was_kept(cache, tmp_path):
    assert cache.find("key") is None
    cache.keep("key", ORDER)
    assert OrderCache(tmp_path / "cache").find("key") == ORDER
    assert cache.find("other") is None


def test_keeping_again_replaces_and_leaves_no_other_file(cache, tmp_path):
    cache.keep("key", ORDER)
    cache.keep("key", replace(ORDER, exact=True))
    assert cache.find("key").exact
    assert [path.name for path in (tmp_path / "cache/orders").iterdir()] == ["key.json"]


@pytest.mark.parametrize("length", [0, 1, 40, -1])
def test_a_file_that_was_torn_off_counts_as_not_there(cache, tmp_path, length):
    cache.keep("key", ORDER)
    path = tmp_path / "cache/orders/key.json"
    path.write_bytes(path.read_bytes()[:length])
    assert cache.find("key") is None
    cache.keep("key", ORDER)
    assert cache.find("key") == ORDER


@pytest.mark.parametrize("text", [b"\xff\xfe", b"[]", b'{"dtype": "float16"}', b"null", b"{}" * 2])
def test_what_is_no_order_counts_as_not_there(cache, tmp_path, text):
    cache.keep("key", ORDER)
    (tmp_path / "cache/orders/key.json").write_bytes(text)
    assert cache.find("key") is None


@pytest.mark.parametrize("direct", [(0, 1), (0, 1, 3), (0, 0, 1, 2), (-1, 0, 1)])
def test_an_order_that_does_not_name_each_tensor_once_counts_as_not_there(cache, tmp_path, direct):
    cache.keep("key", ORDER)
    path = tmp_path / "cache/orders/key.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "direct": direct}))
    assert cache.find("key") is None


def test_a_cache_that_cannot_be_written_to_keeps_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    cache = OrderCache(tmp_path / "file")
    cache.keep("key", ORDER)
    assert cache.find("key") is None


def test_a_failed_write_leaves_nothing_behind(cache, tmp_path):
    (tmp_path / "cache/orders/key.json").mkdir(parents=True)
    (tmp_path / "cache/orders/key.json/in the way").touch()
    cache.keep("key", ORDER)
    assert cache.find("key") is None
    assert [path.name for path in (tmp_path / "cache/orders").iterdir()] == ["key.json"]


def test_the_key_is_the_same_for_the_same_model():
    again = (header("elsewhere.safetensors", embed=("BF16", 96, 32), norm=("F32", 32)),)
    shuffled = dict(reversed(CONFIG.items()))
    assert order_key(CONFIG, STORED, "float16") == order_key(shuffled, again, "float16")


def test_whatever_the_order_depends_on_changes_the_key(monkeypatch, tmp_path):
    def key(config=CONFIG, stored=STORED, dtype="float16"):
        return order_key(config, stored, dtype)

    keys = [
        key(),
        key(dtype="float32"),
        key(config={**CONFIG, "hidden_size": 65}),
        key(config={**CONFIG, "rope": {"theta": 1e6}}),
        key(stored=()),
        key(stored=(header(embed=("BF16", 96, 32)),)),
        key(stored=(header(embed=("F16", 96, 32), norm=("F32", 32)),)),
        key(stored=(header(embed=("BF16", 32, 96), norm=("F32", 32)),)),
        key(stored=(header(norm=("F32", 32), embed=("BF16", 96, 32)),)),
        key(stored=(header(Embed=("BF16", 96, 32), norm=("F32", 32)),)),
    ]
    for package in ("torch", "transformers"):
        with monkeypatch.context() as later:
            later.syspath_prepend(released(tmp_path / package, package, "9.9"))
            keys.append(key())
    assert all(first != second for first, second in itertools.combinations(keys, 2))


def released(directory, package, version):
    """A directory on the path of which Python says that this release of a package is installed."""
    metadata = directory / f"{package}-{version}.dist-info/METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    return directory


def test_without_the_architecture_the_files_are_the_best_guess():
    files = (
        header(second=("BF16", 10), first=("F32", 10)),
        header("other", numbers=("I64", 10), bytes=("U8", 10), eighth=("F8_E4M3", 10)),
    )
    order = order_of_files(files, "float32", 4, "nobody knows it")
    assert [(tensor.name, tensor.nbytes) for tensor in order.tensors] == [
        ("second", 40),
        ("first", 40),
        ("numbers", 80),
        ("bytes", 10),
        ("eighth", 10),
    ]
    assert order.direct == (0, 1, 2, 3, 4)
    assert not order.exact
    assert order.basis.endswith("since the architecture cannot be built: nobody knows it")
    assert (order.dtype, order.parameter_bytes, order.buffer_bytes, order.nbytes) == ("float32", 180, 0, 180)
