"""Faults strike the function that a test names, when it says so, and nothing else."""

import time

import pytest

pytestmark = pytest.mark.cuda_stub

NVML = "import pynvml as nvml\nnvml.nvmlInit()\ndevice = nvml.nvmlDeviceGetHandleByIndex(0)"
ALLOCATE = "torch.empty(5 << 20, dtype=torch.uint8, device='cuda').nbytes"
MEMORY = "nvml.nvmlDeviceGetMemoryInfo(device).total"


@pytest.fixture
def nvml(machine):
    return machine.console(NVML)


@pytest.mark.parametrize(
    ("fault", "call", "error"),
    [
        ("GPU_IS_LOST", MEMORY, "NVMLError_GpuIsLost"),
        ("NOT_SUPPORTED", "nvml.nvmlDeviceGetUtilizationRates(device)", "NVMLError_NotSupported"),
        ("UNKNOWN", "nvml.nvmlDeviceGetComputeRunningProcesses(device)", "NVMLError_Unknown"),
        ("NO_PERMISSION", "nvml.nvmlDeviceGetUUID(device)", "NVMLError_NoPermission"),
    ],
)
def test_nvml_error_strikes_the_named_function_only(machine, nvml, fault, call, error):
    machine.fail(call.removeprefix("nvml.").partition("(")[0], fault)
    with pytest.raises(Exception) as raised:  # noqa: PT011 - the type's name is in `kind`
        nvml.run(call)
    assert raised.value.kind == error
    assert nvml.run("nvml.nvmlDeviceGetCount()") == 1
    machine.mend()
    nvml.run(f"{call}\nNone")


def test_fault_on_a_function_strikes_its_later_versions_too(machine, nvml):
    machine.fail("nvmlDeviceGetMemoryInfo", "GPU_IS_LOST")
    with pytest.raises(Exception, match="GPU is lost"):
        nvml.run("nvml.nvmlDeviceGetMemoryInfo(device, version=nvml.nvmlMemory_v2)")


def test_whole_library_can_fail(machine, nvml):
    machine.fail("nvml*", "GPU_IS_LOST")
    for call in ("nvml.nvmlDeviceGetCount()", "nvml.nvmlDeviceGetName(device)"):
        with pytest.raises(Exception, match="GPU is lost"):
            nvml.run(call)


def test_driver_can_be_missing_from_the_start(machine):
    machine.fail("nvmlInit", "DRIVER_NOT_LOADED")
    with pytest.raises(Exception, match="Driver Not Loaded"):
        machine.console(NVML)


def test_fault_can_strike_the_third_call_alone(machine, nvml):
    machine.fail("nvmlDeviceGetName", "TIMEOUT @after=2 @times=1")
    outcomes = []
    for _ in range(4):
        try:
            outcomes.append(nvml.run("nvml.nvmlDeviceGetName(device)"))
        except Exception as error:  # noqa: BLE001 - what it was is compared below
            outcomes.append(error.kind)
    assert outcomes == ["Stub GeForce RTX 3060"] * 2 + ["NVMLError_Timeout", "Stub GeForce RTX 3060"]


def test_hang_with_an_end_times_out(machine, nvml):
    machine.fail("nvmlDeviceGetMemoryInfo", "hang:0.3")
    started = time.monotonic()
    with pytest.raises(Exception, match="Timeout"):
        nvml.run(MEMORY)
    assert time.monotonic() - started >= 0.3


def test_slow_call_is_right(machine, nvml):
    machine.fail("nvmlDeviceGetMemoryInfo", "slow:0.2")
    started = time.monotonic()
    assert nvml.run(MEMORY) == 12288 << 20
    assert time.monotonic() - started >= 0.2


def test_hang_without_an_end_leaves_other_threads_and_processes_alone(machine, nvml):
    machine.fail("nvmlDeviceGetMemoryInfo", "hang")
    nvml.run(f"import threading; threading.Thread(target=lambda: {MEMORY}, daemon=True).start()")
    assert nvml.run("nvml.nvmlDeviceGetCount()", timeout_seconds=60) == 1
    assert machine.console(NVML).run("nvml.nvmlDeviceGetCount()") == 1
    with pytest.raises(TimeoutError):
        nvml.run(MEMORY, timeout_seconds=0.5)


def test_machine_can_have_no_device(machine):
    machine.configure(devices=0)
    program = "import torch; print(torch.cuda.is_available(), torch.cuda.device_count())"
    assert machine.python("-c", program) == "False 0\n"


def test_busy_device_is_not_available(machine):
    machine.fail("cudaGetDeviceCount", 46)
    with pytest.raises(Exception, match="busy or unavailable"):
        machine.console("import torch\ntorch.empty(1, device='cuda')")


@pytest.fixture(scope="module")
def one_torch(shared_machine):
    return shared_machine.console("import torch\nkept = torch.empty(5, device='cuda')")


@pytest.fixture
def torch(one_torch, shared_machine):
    """A torch that the tests share, with an empty cache and no faults before each."""
    shared_machine.mend()
    one_torch.run("torch.cuda.empty_cache(); torch.cuda.reset_accumulated_memory_stats()")
    return one_torch


COUNTS = "stats = torch.cuda.memory_stats()\n[stats['num_ooms'], stats['num_alloc_retries']]"


def test_injected_out_of_memory_is_torchs_own_and_passes(shared_machine, torch):
    before = torch.run(COUNTS)
    shared_machine.fail("cudaMalloc", "2 @times=2")  # the allocator tries once more after it emptied its cache
    with pytest.raises(Exception, match="CUDA out of memory") as raised:
        torch.run(ALLOCATE)
    assert raised.value.kind == "OutOfMemoryError"
    assert torch.run(COUNTS) == [before[0] + 1, before[1] + 1]
    assert torch.run(ALLOCATE) == 5 << 20


def test_one_failed_allocation_is_only_a_retry(shared_machine, torch):
    before = torch.run(COUNTS)
    shared_machine.fail("cudaMalloc", "2 @times=1")
    assert torch.run(ALLOCATE) == 5 << 20
    assert torch.run(COUNTS) == [before[0], before[1] + 1]


def test_injected_illegal_address_is_an_accelerator_error(shared_machine, torch):
    shared_machine.fail("cudaMemcpyAsync", 700)
    with pytest.raises(Exception, match="illegal memory access") as raised:
        torch.run("torch.ones(5).cuda()")
    assert raised.value.kind == "AcceleratorError"


def test_hanging_call_is_ended_by_killing_the_process(machine, nvml):
    runtime = machine.console("import ctypes\nruntime = ctypes.CDLL('libcudart.so.13')")
    assert runtime.run("runtime.cudaSetDevice(0)") == 0
    machine.fail("cudaDeviceSynchronize", "hang")
    with pytest.raises(TimeoutError):
        runtime.run("runtime.cudaDeviceSynchronize()", timeout_seconds=0.5)
    processes = "[each.pid for each in nvml.nvmlDeviceGetComputeRunningProcesses(device)]"
    assert nvml.run(processes) == [runtime.pid]
    runtime.kill()
    assert nvml.run(processes) == []
