import os
from pathlib import Path

import pytest

from vramscope.doctor._frame import State
from vramscope.doctor._space import room_of
from vramscope.doctor.hub_cache import CHECK as HUB
from vramscope.doctor.synthetic_cache import CHECK as SYNTHETIC


@pytest.mark.parametrize("check", [HUB, SYNTHETIC])
def test_a_cache_need_not_be_there_yet(check, machine, tmp_path):
    assert f" free in {tmp_path}" in check.look(machine()).found


def test_a_file_in_the_way_is_told(machine, tmp_path):
    (tmp_path / "file").write_text("")
    found = HUB.look(machine(hub_cache=tmp_path / "file" / "hub"))
    assert found.state is State.WARNING
    assert found.found == f"{tmp_path}/file/hub cannot be there: {tmp_path}/file is no directory"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_may_not_be_written_is_told(machine, tmp_path):
    (tmp_path / "hub").mkdir(mode=0o500)
    assert "cannot be written to: a download will fail" in HUB.look(machine()).found


def test_a_file_system_without_room_is_told():
    """sysfs has no block at all, free or not."""
    found = room_of(Path("/sys/kernel"), "X", "it")
    assert found.state is State.WARNING
    assert "0 B free" in found.found or "cannot be written" in found.found
