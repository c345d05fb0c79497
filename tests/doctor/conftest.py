"""A machine of files: what checks read below its root, and nothing of the real one."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.memory.trees import write

from vramscope.doctor._frame import Machine

GPU = {"sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de", "sys/bus/pci/devices/0000:01:00.0/class": "0x030200"}
OTHER = {"sys/bus/pci/devices/0000:00:02.0/vendor": "0x8086", "sys/bus/pci/devices/0000:00:02.0/class": "0x030000"}
MODULE = {
    "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.14  Release Build\n"
    "GCC version:  gcc version 12.3.0"
}


@pytest.fixture
def machine(tmp_path: Path) -> Callable[..., Machine]:
    """Make a machine that has these files and these settings."""

    def make(*files: dict[str, str], **settings) -> Machine:
        root = tmp_path / "root"
        for each in ({"proc/meminfo": "", "sys/x": "", "dev/x": ""}, *files):
            write(root, each)
        settings = {"environment": {}, "cache": tmp_path / "cache", "hub_cache": tmp_path / "hub", **settings}
        return Machine(root=root, **settings)

    return make
