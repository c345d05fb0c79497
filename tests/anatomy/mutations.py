"""Safetensors files with something wrong with them, at random: what a fuzz run feeds to the header's reader."""

import json
import math
import random
from collections.abc import Callable, Iterator

from vramscope.anatomy.header import DTYPE_BITS

_NAMES = ("a", "model.layers.0.mlp.up_proj.weight", "", "x\ny", "数", "__metadata__", "\\u0000", '"')
_NUMBERS = (0, 1, -1, 2, 3, 8, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**30, 1.5, 1e300, True, None)
_WORDS = (
    '"F32"',
    '"F4"',
    '"F6_E2M3"',
    '"f32"',
    '""',
    "null",
    "NaN",
    "Infinity",
    "-0",
    "1e2",
    "[]",
    "{}",
    "[0,0]",
    "1.0",
)
_BYTES = (
    b"{",
    b"}",
    b"[",
    b"]",
    b'"',
    b"\\",
    b",",
    b":",
    b" ",
    b"\0",
    b"\xff",
    b"\xef\xbb\xbf",
    b"\\ud800",
    b"//",
    b"-",
)
_DEPTHS = (1, 100, 200, 2000)
_PADDING = 8


def valid_file(chance: random.Random) -> bytes:
    """A file that the reference reads: some tensors of any dtype, in any order, padded or not."""
    header: dict[str, object] = {}
    end = 0
    names = chance.sample(_NAMES[:5], chance.randrange(4))
    for name in names:
        dtype = chance.choice(list(DTYPE_BITS))
        shape = [chance.randrange(4) for _ in range(chance.randrange(4))]
        if math.prod(shape) * DTYPE_BITS[dtype] % 8:
            shape = [*shape, 4] if DTYPE_BITS[dtype] != 4 else [*shape, 2]
        start, end = end, end + math.prod(shape) * DTYPE_BITS[dtype] // 8
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    if chance.random() < 0.3:
        header["__metadata__"] = {"format": "pt"}
    items = list(header.items())
    chance.shuffle(items)
    text = json.dumps(dict(items), ensure_ascii=chance.random() < 0.5).encode()
    if chance.random() < 0.5:
        text += b" " * (-len(text) % _PADDING)
    return len(text).to_bytes(8, "little") + text + bytes(end)


def mutants(chance: random.Random) -> Iterator[bytes]:
    """Files without end, each a good one with one to three things done to it."""
    while True:
        content = valid_file(chance)
        for _ in range(chance.randint(1, 3)):
            content = chance.choice(_MUTATIONS)(content, chance)
        yield content


def _with_header(content: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """Change the header's text, and let its length say so: the parser is reached, not only the check of the length."""
    length = int.from_bytes(content[:8], "little")
    if length > len(content):
        return content
    text = change(content[8 : 8 + length])
    return len(text).to_bytes(8, "little") + text + content[8 + length :]


def _flip(content: bytes, chance: random.Random) -> bytes:
    def change(text: bytes) -> bytes:
        at = chance.randrange(len(text) + 1)
        return text[:at] + bytes([chance.randrange(256)]) + text[at + 1 :]

    return _with_header(content, change)


def _insert(content: bytes, chance: random.Random) -> bytes:
    def change(text: bytes) -> bytes:
        at = chance.randrange(len(text) + 1)
        return text[:at] + chance.choice(_BYTES) + text[at:]

    return _with_header(content, change)


def _cut(content: bytes, chance: random.Random) -> bytes:
    def change(text: bytes) -> bytes:
        start = chance.randrange(len(text) + 1)
        return text[:start] + text[start + chance.randrange(9) :]

    return _with_header(content, change)


def _repeat(content: bytes, chance: random.Random) -> bytes:
    def change(text: bytes) -> bytes:
        start = chance.randrange(len(text) + 1)
        end = start + chance.randrange(60)
        return text[:end] + text[start:end] + text[end:]

    return _with_header(content, change)


def _renumber(content: bytes, chance: random.Random) -> bytes:
    """Put another value in the place of a number."""

    def change(text: bytes) -> bytes:
        places = [at for at, byte in enumerate(text) if 0x30 <= byte <= 0x39]
        if not places:
            return text
        at = chance.choice(places)
        number = chance.choice(_NUMBERS)
        return text[:at] + json.dumps(number).encode() + text[at + 1 :]

    return _with_header(content, change)


def _reword(content: bytes, chance: random.Random) -> bytes:
    """Put another word in the place of a value."""

    def change(text: bytes) -> bytes:
        at = text.find(b":", chance.randrange(len(text) + 1))
        end = min((place for place in (text.find(b",", at), text.find(b"}", at)) if place > at), default=len(text))
        return text[: at + 1] + chance.choice(_WORDS).encode() + text[end:]

    return _with_header(content, change)


def _nest(content: bytes, chance: random.Random) -> bytes:
    def change(text: bytes) -> bytes:
        depth = chance.choice(_DEPTHS)
        return text.replace(b"{", b'{"deep":' + b"[" * depth + b"]" * depth + b",", 1)

    return _with_header(content, change)


def _relength(content: bytes, chance: random.Random) -> bytes:
    length = int.from_bytes(content[:8], "little")
    other = chance.choice((0, 1, length - 1, length + 1, 2 * length, 10**8, 10**8 + 1, 2**31, 2**63, 2**64 - 1))
    return max(0, min(other, 2**64 - 1)).to_bytes(8, "little") + content[8:]


def _truncate(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content) + 1)]


def _extend(content: bytes, chance: random.Random) -> bytes:
    return content + bytes(chance.randrange(20))


_MUTATIONS = (
    *(_flip, _insert, _cut, _repeat, _renumber, _renumber, _reword, _reword),
    *(_nest, _relength, _truncate, _extend),
)
