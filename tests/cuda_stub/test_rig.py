"""First light: the real torch finds the stub GPU, moves data right, and its allocator does what was recorded of it."""

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

pytestmark = pytest.mark.cuda_stub

HERE = Path(__file__).parent
MIB = 1 << 20
GOLDEN = json.loads((HERE.parent / "memory" / "golden" / "models.json").read_text())


def test_switch_gives_torch_a_device(machine):
    assert machine.python("-c", "import torch; print(torch.cuda.is_available())") == "True\n"


def test_switch_gives_nvidia_ml_py_its_library(machine):
    assert machine.python("-c", "import pynvml as n; n.nvmlInit(); print(n.nvmlDeviceGetCount())") == "1\n"


def test_program_that_knows_nothing_hands_the_stub_to_its_child(machine):
    program = """
import subprocess, sys
code = "import torch; torch.empty(1, device='cuda'); print(torch.cuda.memory_reserved())"
print(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip())
"""
    assert machine.python("-c", program) == f"{2 * MIB}\n"


def test_no_stub_is_loaded_without_the_switch(machine):
    program = "print('cuda-stub' in open('/proc/self/maps').read())"
    assert machine.python("-c", program) == "True\n"
    assert machine.python("-c", program, VRAMSCOPE_CUDA_STUB="0") == "False\n"


def test_environment_holds_none_of_nvidias_own_libraries():
    names = {distribution.metadata["Name"] for distribution in metadata.distributions()}
    assert {name for name in names if name.startswith(("nvidia", "triton", "cuda"))} == {"nvidia-ml-py"}


def test_missing_compiler_skips_with_one_sentence(tmp_path):
    prepare = [sys.executable, str(HERE / "rig" / "prepare.py")]
    done = subprocess.run(prepare, env={"PATH": str(tmp_path)}, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 77
    assert done.stdout == "skipped: gcc is not installed: apt-get install gcc binutils (or your system's packages)\n"


COPIES = {
    "host to device and back": "x = torch.randn(1 << 20); y = x.cuda().cpu()",
    "device to device": "x = torch.randn(1000); y = torch.empty_like(x, device='cuda').copy_(x.cuda()).cpu()",
    "strided": "x = torch.randn(300, 400).t(); y = x.cuda().cpu()",
    "type changed on the way": "x = torch.randn(1000).half(); y = x.float().to('cuda', torch.float16).cpu()",
    "into a view": "x = torch.randn(10); z = torch.empty(30, device='cuda'); z[10:20].copy_(x); y = z.cpu()[10:20]",
    "one item": "x = torch.tensor(7.5); y = torch.tensor(x.cuda().item())",
    "pinned, on a stream": """
x = torch.randn(1 << 18).pin_memory()
with torch.cuda.stream(torch.cuda.Stream()) as stream:
    z = x.to("cuda", non_blocking=True)
torch.cuda.synchronize()
y = z.cpu()
""",
}


@pytest.fixture(scope="module")
def torch_console(shared_machine):
    return shared_machine.console("import torch")


@pytest.mark.parametrize("copy", COPIES)
def test_copies_arrive_unchanged(torch_console, copy):
    assert torch_console.run(f"{COPIES[copy]}\ntorch.equal(x, y)")


def test_pinned_memory_is_told_from_pageable(torch_console):
    assert torch_console.run("x = torch.ones(3)\n[x.is_pinned(), x.pin_memory().is_pinned()]") == [False, True]


def test_registered_memory_counts_as_pinned(torch_console):
    register = "x = torch.ones(5000); runtime = torch.cuda.cudart()\n"
    asked = "[int(runtime.cudaHostRegister(x.data_ptr(), x.nbytes, 0)), x.is_pinned(), "
    undone = "int(runtime.cudaHostUnregister(x.data_ptr())), x.is_pinned()]"
    assert torch_console.run(register + asked + undone) == [0, True, 0, False]


def test_events_tell_time(torch_console):
    measured = torch_console.run("""
import time
a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
a.record(); time.sleep(0.02); b.record(); b.synchronize()
a.elapsed_time(b)
""")
    assert 20 <= measured < 2000


def test_kernel_launch_is_an_error_and_leaves_the_process_well(torch_console):
    with pytest.raises(Exception, match="invalid device function") as raised:
        torch_console.run("torch.ones(5).cuda() + 1")
    assert raised.value.kind == "AcceleratorError"
    assert torch_console.run("torch.ones(5).cuda().cpu().tolist()") == [1.0] * 5


def test_kernels_can_be_let_pass_without_effect(torch_console, shared_machine):
    shared_machine.configure(kernels="noop")
    assert torch_console.run("(torch.ones(5).cuda() + 1).cpu().shape") == [5]
    shared_machine.configure(kernels="fail")


@pytest.fixture(scope="module")
def measured_models(shared_machine):
    """Every model moved by the real torch, on a device large enough, copying no bytes."""
    shared_machine.configure(total_mib=142336, context_mib=128, data="discard")
    return json.loads(shared_machine.python(str(HERE / "measure_models.py")))


@pytest.mark.parametrize("name", GOLDEN)
def test_allocator_gives_each_model_the_recorded_bytes(measured_models, name):
    measured, recorded = measured_models[name], GOLDEN[name]
    assert measured["order"] == recorded["order"]
    assert measured["phases"] == recorded["phases"]
    assert measured["parameters"] == recorded["parameters"]
