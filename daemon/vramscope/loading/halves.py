"""bfloat16 to float16 by a compiled function, where the package was built with one and the processor can run it.

torch converts between the two 16-bit formats element by element, or in two vectorised copies through float32. Reading a
checkpoint of bfloat16 as float16 with this takes about as long as reading it as it is. Without it all works, slower.
"""

import ctypes
import os
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path


def address_of(memory: memoryview) -> int:
    """Where writable memory begins, which must not be empty."""
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


class Halves:
    """The functions of _halves.c. They hold no lock of the interpreter while they work."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._convert = library.vramscope_convert
        self._convert.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
        self._convert.restype = None
        self._read = library.vramscope_read
        self._read.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
        self._read.restype = ctypes.c_int64

    def convert(self, target: memoryview, source: memoryview) -> None:
        """Write bfloat16 into memory of the same length as float16; the two may be the same memory.

        Both are writable bytes. Raises ValueError where their lengths differ.
        """
        if len(target) != len(source):
            raise ValueError(f"{len(source)} bytes of bfloat16 do not become {len(target)} bytes of float16")
        if source:
            self._convert(address_of(target), address_of(source), len(source) // 2)

    def read(self, descriptor: int, offset: int, target: memoryview) -> tuple[int, float, float]:
        """Fill memory with bfloat16 from a file, and make float16 of it there.

        Returns the bytes read, which are fewer at the end of the file, and the seconds of reading and of converting.
        Raises OSError, after which nobody knows what the memory holds.
        """
        seconds = (ctypes.c_double * 2)()
        address = address_of(target) if target else None
        got = self._read(descriptor, offset, address, len(target), seconds)
        if got < 0:
            raise OSError(-got, os.strerror(-got))
        return got, *seconds


def _open() -> Halves | None:
    here = Path(__file__)
    found = (here.with_name("_halves" + suffix) for suffix in EXTENSION_SUFFIXES)
    for path in filter(Path.is_file, found):
        try:
            library = ctypes.CDLL(str(path))
        except OSError:  # built for another system
            continue
        return Halves(library) if library.vramscope_can_convert() else None
    return None


# None where it was not built, for want of a compiler, or where the processor lacks what it needs.
native = _open()
