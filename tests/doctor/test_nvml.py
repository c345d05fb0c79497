"""The checks that ask NVML, over a library that answers as drivers do."""

import pytest
from tests.devices.fake_nvml import (
    DRIVER_NOT_LOADED,
    GPU_IS_LOST,
    LIBRARY_NOT_FOUND,
    MISMATCH,
    FakeNvml,
    Gpu,
    build,
    console_of,
)

CODE = """
import importlib
from pathlib import Path
from vramscope.doctor._frame import Check, Machine, examine
from vramscope.settings import DeviceMode
def look(name, mode="auto", seconds=60, **environment):
    machine = Machine(
        environment=environment, cache=Path("/x"), hub_cache=Path("/x"), root=Path("/x"), device_mode=DeviceMode(mode)
    )
    check = importlib.import_module(f"vramscope.doctor.{name}").CHECK
    check = Check(title=check.title, look=check.look, seconds=seconds)
    finding = examine({name: check}, machine)[0].finding
    return [finding.state, finding.found, finding.advice]
"""
FIRST = "GPU-00000000-0000-0000-0000-000000000000"


@pytest.fixture(scope="module")
def fake(tmp_path_factory) -> FakeNvml:
    return FakeNvml(build(tmp_path_factory.mktemp("libraries")), tmp_path_factory.mktemp("machine"))


@pytest.fixture(scope="module")
def console(fake):
    fake.set()
    with console_of(fake, CODE) as opened:
        yield opened


def test_versions_and_devices_are_told(fake, console):
    fake.set(Gpu(), Gpu(name="NVIDIA OTHER"), versions=("550.54.14", 12040))
    state, found, _ = console.run("look('nvml')")
    assert state == "ok"
    assert found == "driver 550.54.14, CUDA up to 12.4; 0 NVIDIA FAKE 80.00 GiB, 1 NVIDIA OTHER 80.00 GiB"


def test_a_lost_device_is_told_beside_the_others(fake, console):
    fake.set(Gpu(), Gpu(handle=GPU_IS_LOST))
    state, found, advice = console.run("look('nvml')")
    assert state == "warning"
    assert "0 NVIDIA FAKE 80.00 GiB" in found
    assert "fell off the bus" in found
    assert advice


@pytest.mark.parametrize("code", [DRIVER_NOT_LOADED, MISMATCH])
def test_a_driver_that_does_not_start_says_what_to_do(fake, console, code):
    fake.set(Gpu(), init=code)
    assert console.run("look('nvml', 'simulated')")[0] == "note"
    state, _, advice = console.run("look('nvml')")
    assert state == "warning"
    assert "module" in advice


def test_no_library_and_no_gpu_is_no_fault(fake, console):
    fake.set(init=LIBRARY_NOT_FOUND)
    assert console.run("look('nvml')")[0] == "note"


def test_a_hung_driver_holds_nothing_up(fake, console):
    fake.set(Gpu(), sleep=3_000)
    state, found, _ = console.run("look('nvml', seconds=0.3)")
    fake.set()
    assert (state, found) == ("warning", "no answer within 0.3 s")


@pytest.mark.parametrize(
    ("value", "state", "said"),
    [
        ("", "warning", "hides every device"),
        ("-1", "warning", "hides every device"),
        ("1", "ok", "cuda:0 is GPU-00000001"),
        ("0,7,1", "warning", "'7' names no device, and CUDA ignores all from there on"),
        ("GPU-00000001", "ok", "cuda:0 is GPU-00000001"),
        ("GPU-1234", "warning", "CUDA takes none"),
        ("0,0", "warning", "CUDA takes none"),
    ],
)
def test_each_form_of_the_variable(fake, console, value, state, said):
    fake.set(Gpu(), Gpu())
    told, found, _ = console.run(
        f"look('cuda_visibility', CUDA_VISIBLE_DEVICES={value!r}, CUDA_DEVICE_ORDER='PCI_BUS_ID')"
    )
    assert told == state
    assert said in found


def test_without_the_variable_all_are_visible_and_the_order_is_noted_where_it_matters(fake, console):
    fake.set(Gpu(), Gpu())
    assert console.run("look('cuda_visibility')")[0] == "ok"
    fake.set(Gpu(), Gpu(name="NVIDIA OTHER"))
    state, found, advice = console.run("look('cuda_visibility')")
    assert (state, advice) == ("note", "set CUDA_DEVICE_ORDER=PCI_BUS_ID for one numbering")
    assert "all 2 devices are visible" in found


def test_hiding_every_device_is_a_warning(fake, console):
    fake.set(Gpu())
    assert console.run("look('cuda_visibility', 'cuda', CUDA_VISIBLE_DEVICES='')")[0] == "warning"
    assert console.run("look('cuda_visibility', 'cuda', NVIDIA_VISIBLE_DEVICES='void')")[0] == "warning"
