"""Puts the stub driver libraries into a Python process whose environment asks for them.

`prepare.py` installs this module into the environment's site-packages with a .pth file that calls it whenever an
interpreter starts. So a program that knows nothing of the stubs gets them, and so do the Python processes it starts.
No LD_PRELOAD is needed: once a library with the SONAME libcudart.so.13 is loaded, the loader gives it to everything
that asks for that name, whatever RPATH says; the same holds for libcuda.so.1, libnvidia-ml.so.1 and the rest.
"""

import ctypes
import os
import sys
from pathlib import Path

SWITCH = "VRAMSCOPE_CUDA_STUB"

_held: list[ctypes.CDLL] = []


def activate_if_asked() -> None:
    """Load every stub library of this environment where the switch is "1"."""
    if os.environ.get(SWITCH) != "1":
        return
    paths = sorted((Path(sys.prefix) / "cuda-stub" / "lib").glob("*.so.*"))
    _held.extend(ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL) for path in paths)
