"""The real nvidia-ml-py and torch agree on who holds how much of the stub GPU."""

import pytest

pytestmark = pytest.mark.cuda_stub

MIB = 1 << 20

NVML = """
import pynvml as nvml
nvml.nvmlInit()
device = nvml.nvmlDeviceGetHandleByIndex(0)
def used():
    return nvml.nvmlDeviceGetMemoryInfo(device, version=nvml.nvmlMemory_v2).used
def processes():
    return {str(each.pid): each.usedGpuMemory for each in nvml.nvmlDeviceGetComputeRunningProcesses(device)}
"""
TORCH = """
import torch
blocks = []
def hold(nbytes):
    blocks.append(torch.empty(nbytes, dtype=torch.uint8, device="cuda"))
    return torch.cuda.memory_reserved()
"""
# A program that uses the runtime without torch, which takes seconds to import. Both return the CUDA error.
RUNTIME = """
import ctypes
runtime = ctypes.CDLL("libcudart.so.13")
address = ctypes.c_void_p()
def hold(nbytes):
    return runtime.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(nbytes))
def release():
    return runtime.cudaFree(address)
"""
OUT_OF_MEMORY = 2


@pytest.fixture
def configured(machine):
    machine.configure(total_mib=12288, reserved_mib=250, context_mib=113, baseline_mib=40)
    return machine


def test_both_memory_calls_count_the_drivers_reserve_as_nvidia_documents(configured):
    nvml = configured.console(NVML)
    old = nvml.run("info = nvml.nvmlDeviceGetMemoryInfo(device)\n[info.total, info.used, info.free]")
    assert old == [12288 * MIB, 290 * MIB, 11998 * MIB]
    new = "info = nvml.nvmlDeviceGetMemoryInfo(device, version=nvml.nvmlMemory_v2)\n"
    assert nvml.run(new + "[info.total, info.used, info.free]") == [12288 * MIB, 40 * MIB, 11998 * MIB]
    assert nvml.run("info.reserved") == 250 * MIB


def test_nvml_sees_each_process_with_its_context_and_what_it_reserved(configured):
    nvml, first, second = configured.console(NVML), configured.console(TORCH), configured.console(RUNTIME)
    first.run("torch.cuda.init()")
    assert nvml.run("[used(), processes()]") == [40 * MIB, {}], "torch.cuda.init() alone makes no context"
    assert first.run("hold(100)") == 2 * MIB
    assert second.run(f"hold({500 * MIB})") == 0
    assert nvml.run("processes()") == {str(first.pid): (2 + 113) * MIB, str(second.pid): (500 + 113) * MIB}
    assert nvml.run("used()") == (2 + 500 + 2 * 113 + 40) * MIB
    free, total = first.run("torch.cuda.mem_get_info()")
    assert (free, total) == (12038 * MIB - nvml.run("used()"), 12038 * MIB)
    assert first.run("torch.cuda.device_memory_used()") == nvml.run("nvml.nvmlDeviceGetMemoryInfo(device).used")


def test_out_of_memory_tells_of_the_other_process(configured):
    first, second = configured.console(RUNTIME), configured.console(TORCH)
    first.run(f"hold({4000 * MIB})")
    with pytest.raises(Exception, match=f"Process {first.pid} has 4.02 GiB memory in use") as raised:
        second.run(f"hold({8000 * MIB})")
    assert raised.value.kind == "OutOfMemoryError"
    first.run("release()")
    assert second.run(f"hold({8000 * MIB})") == 8000 * MIB


def test_context_stays_until_the_process_ends(configured):
    nvml, holder = configured.console(NVML), configured.console(RUNTIME)
    holder.run(f"hold({100 * MIB}); release()")
    assert nvml.run("used()") == (113 + 40) * MIB
    holder.close()
    assert nvml.run("[used(), processes()]") == [40 * MIB, {}]


def test_killed_process_holds_nothing(configured):
    nvml, holder = configured.console(NVML), configured.console(RUNTIME)
    holder.run(f"hold({2000 * MIB})")
    assert nvml.run("used()") == (2000 + 113 + 40) * MIB
    holder.kill()
    assert nvml.run("[used(), processes()]") == [40 * MIB, {}]


def test_room_can_shrink_and_grow_under_a_running_program(machine):
    holder = machine.console(RUNTIME)
    assert holder.run(f"hold({1000 * MIB})") == 0
    machine.configure(baseline_mib=11000)
    assert holder.run(f"hold({1000 * MIB})") == OUT_OF_MEMORY
    machine.configure(baseline_mib=0)
    assert holder.run(f"hold({1000 * MIB})") == 0


def test_discarded_data_costs_no_memory(machine):
    machine.configure(data="discard")
    holder = machine.console(TORCH)
    holder.run("import psutil\ndef resident():\n    return psutil.Process().memory_info().rss")
    before = holder.run("hold(1)\nresident()")
    holder.run(f"blocks.append(torch.empty({4000 * MIB}, dtype=torch.uint8).cuda())")
    assert holder.run("torch.cuda.memory_reserved()") == 4002 * MIB
    assert holder.run("resident()") < before + 200 * MIB


@pytest.mark.parametrize(("told", "sizes"), [("unsized", [None]), ("hidden", [])])
def test_processes_can_be_told_as_on_wsl_or_from_another_namespace(machine, told, sizes):
    machine.configure(processes=told)
    nvml, holder = machine.console(NVML), machine.console(RUNTIME)
    holder.run(f"hold({10 * MIB})")
    assert nvml.run("processes()") == {str(holder.pid): size for size in sizes}
    assert nvml.run("used()") == (128 + 10) * MIB


def test_torch_and_nvml_name_the_same_devices_in_the_same_order(machine):
    machine.configure(devices=2, **{"name.1": "Second", "pci.1": "00000000:65:00.0"})
    by_nvml = machine.console(NVML).run("""
handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
[[nvml.nvmlDeviceGetUUID(h), nvml.nvmlDeviceGetPciInfo(h).bus, nvml.nvmlDeviceGetName(h)] for h in handles]
""")
    by_torch = machine.console("import torch").run("""
devices = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
[[f"GPU-{device.uuid}", device.pci_bus_id, device.name] for device in devices]
""")
    assert [name for _, _, name in by_nvml] == ["Stub GeForce RTX 3060", "Second"]
    assert by_torch == by_nvml


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        ("1", "B"),
        ("2,0", "CA"),
        ("GPU-57ab0000-0000-4000-8000-000000000001", "B"),
        ("1,9,0", "B"),
        ("0,0", ""),
        ("", ""),
    ],
)
def test_cuda_visible_devices_chooses_and_orders(machine, visible, names):
    machine.configure(devices=3, **{"name.0": "A", "name.1": "B", "name.2": "C"})
    seen = machine.console(CUDA_VISIBLE_DEVICES=visible).run("""
import ctypes
driver, count, name = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.create_string_buffer(10)
driver.cuDeviceGetCount(ctypes.byref(count))
"".join(name.value.decode() for i in range(count.value) if not driver.cuDeviceGetName(name, 10, i))
""")
    assert seen == names


def test_memory_of_a_visible_device_is_charged_to_its_place_in_the_machine(machine):
    machine.configure(devices=2)
    holder, nvml = machine.console(TORCH, CUDA_VISIBLE_DEVICES="1"), machine.console(NVML)
    holder.run(f"hold({100 * MIB})")
    by_device = "[nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByIndex(i)).used for i in range(2)]"
    assert nvml.run(by_device) == [0, 228 * MIB]
    assert holder.run("torch.cuda.device_memory_used()") == 228 * MIB
