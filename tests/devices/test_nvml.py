"""nvidia-ml-py over a library that answers as drivers in the field do: each answer is a value or a reason."""

import pytest
from tests.devices.fake_nvml import (
    DRIVER_NOT_LOADED,
    GIB,
    GPU_IS_LOST,
    LIBRARY_NOT_FOUND,
    MIB,
    MISMATCH,
    NO_PERMISSION,
    NOT_SUPPORTED,
    SELF,
    TOTAL,
    UNKNOWN,
    UNKNOWN_ERROR,
    VERSION_MISMATCH,
    FakeNvml,
    Gpu,
    build,
    console_of,
)

OWN = 300 * MIB
CODE = """
import os
from vramscope.devices.driver import read_device
from vramscope.devices.nvml import Nvml, NvmlError
from vramscope.devices.own import ProcessNames
nvml = Nvml()
def tell():
    nvml.stop()
    nvml.start()
    found = []
    for card in nvml.cards(nvml.count()):
        try:
            told = read_device(nvml, card, (os.getpid(),), ProcessNames())
        except NvmlError as error:
            found.append([str(error), {}])
        else:
            known = {name.removesuffix("_bytes"): value for name, value in vars(told.memory).items() if value}
            known.pop("process_used_source", None)
            found.append([told.reason, known])
    return found
def fault(function):
    try:
        function()
    except NvmlError as error:
        return str(error), error.code
"""


@pytest.fixture(scope="module")
def machine(tmp_path_factory) -> FakeNvml:
    return FakeNvml(build(tmp_path_factory.mktemp("libraries")), tmp_path_factory.mktemp("machine"))


@pytest.fixture(scope="module")
def console(machine):
    machine.set()
    with console_of(machine, CODE) as console:
        yield console


def whole(**changed: int) -> dict[str, int]:
    """What a healthy device of 80 GiB with 1 GiB used tells."""
    return {"total": TOTAL, "used": GIB, "free": TOTAL - GIB, **changed}


@pytest.mark.parametrize(
    ("gpu", "reason", "known"),
    [
        (Gpu(), "", whole()),
        (Gpu(reserved=MIB), "", whole(reserved=MIB, free=TOTAL - GIB - MIB)),
        (Gpu(code=NOT_SUPPORTED, compute=[(SELF, OWN)]), "not supported: nvmlDevice", {"process_used": OWN}),
        (Gpu(total=0, used=0, compute=[(SELF, OWN)]), "not supported: the driver", {"process_used": OWN}),
        (Gpu(total=UNKNOWN, used=0), "not supported", {}),
        (Gpu(used=2 * TOTAL, free=0), "more memory used or free than", {"total": TOTAL}),
        (Gpu(free=2 * TOTAL), "more memory used or free than", {"total": TOTAL}),
        (Gpu(used=0, free=UNKNOWN), "more memory used or free than", {"total": TOTAL}),
        (Gpu(memory2=(TOTAL, TOTAL, 0, GIB)), "", whole()),
        (Gpu(memory2=(0, 0, 0, 0)), "", whole()),
        (Gpu(code2=VERSION_MISMATCH), "", whole()),
        (Gpu(code=GPU_IS_LOST), "GPU is lost (the GPU fell off the bus", {}),
        (Gpu(code=4242), "nvmlDeviceGetMemoryInfo: error 4242", {}),
        (Gpu(code=-1), "nvmlDeviceGetMemoryInfo: ", {}),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_memory_that_cannot_be_is_not_known(machine, console, gpu, reason, known):
    machine.set(gpu)
    [(why, told)] = console.run("tell()")
    assert reason in why
    assert bool(why) == bool(reason)
    assert told == known


@pytest.mark.parametrize(
    ("gpu", "own"),
    [
        (Gpu(compute=[(SELF, OWN), (77, GIB)]), OWN),
        (Gpu(compute=[(77, GIB)]), None),
        (Gpu(compute=[(SELF, UNKNOWN), (79, UNKNOWN)]), None),
        (Gpu(compute=[(SELF, 0)]), None),
        (Gpu(compute=[(SELF, OWN)], graphics=[(SELF, OWN), (77, 20 * MIB)]), OWN),
        (Gpu(compute=[(SELF, UNKNOWN)], graphics=[(SELF, OWN)]), OWN),
        (Gpu(graphics=[(SELF, OWN)]), OWN),
        (Gpu(compute=[(SELF, MIB)], mps=[(SELF, OWN)]), OWN),
        (Gpu(compute=[(SELF, MIB), (SELF, OWN)]), OWN),
        (Gpu(compute=[(4294967295, 4294967295), (0, 1 << 50), (SELF, OWN)]), OWN),
        (Gpu(compute=[(SELF, TOTAL + 1)]), None),
        (Gpu(code=NOT_SUPPORTED, compute=[(SELF, 1 << 50)]), None),
        (Gpu(compute=[(0, OWN)]), None),
    ],
)
def test_own_use_is_each_process_once_and_no_garbage(machine, console, gpu, own):
    machine.set(gpu)
    [(_, told)] = console.run("tell()")
    assert told.get("process_used") == own


@pytest.mark.parametrize(
    "gpu", [Gpu(list_code=UNKNOWN_ERROR), Gpu(insufficient=True), Gpu(list_code=NOT_SUPPORTED)], ids=str
)
def test_failing_list_of_processes_leaves_the_memory_known_and_says_so(machine, console, gpu):
    machine.set(gpu)
    [(why, told)] = console.run("tell()")
    assert told == whole()
    assert why.startswith("the use of each process is not known: nvmlDeviceGetComputeRunningProcesses_v3: ")


def test_old_library_is_asked_in_its_own_words(machine):
    machine.set(Gpu(reserved=MIB, compute=[(SELF, 400 * MIB), (77, UNKNOWN)], graphics=[(SELF, MIB)]))
    with console_of(machine, CODE, old=True) as console:
        known = {"total": TOTAL, "used": GIB + MIB, "free": TOTAL - GIB - MIB, "process_used": 400 * MIB}
        assert console.run("tell()") == [["", known]]
        machine.set(Gpu())
        assert console.run("tell()") == [["", whole()]]


@pytest.mark.parametrize(
    ("init", "text"),
    [
        (MISMATCH, "driver/library version mismatch"),
        (DRIVER_NOT_LOADED, "load the nvidia kernel module"),
        (UNKNOWN_ERROR, "restart the container"),
        (LIBRARY_NOT_FOUND, "NVML Shared Library Not Found"),
        (4242, "nvmlInit: error 4242"),
    ],
)
def test_failed_start_says_what_to_do_and_the_next_one_may_succeed(machine, console, init, text):
    machine.set(Gpu(), init=init)
    reason, code = console.run("nvml.stop()\nfault(nvml.start)")
    assert text in reason
    assert code == init
    machine.set(Gpu())
    assert console.run("tell()") == [["", whole()]]


def test_failing_count_is_a_failure_of_all(machine, console):
    machine.set(Gpu(), count_code=UNKNOWN_ERROR)
    reason, code = console.run("nvml.start()\nfault(nvml.count)")
    assert reason.startswith("nvmlDeviceGetCount: ")
    assert code == UNKNOWN_ERROR


def test_lost_gpus_do_not_hide_the_others(machine, console):
    machine.set(Gpu(), Gpu(handle=GPU_IS_LOST), Gpu(code=GPU_IS_LOST), Gpu(used=4 * GIB))
    told = console.run("tell()")
    assert [known.get("used") for _, known in told] == [GIB, None, None, 4 * GIB]
    assert ["GPU is lost" in why for why, _ in told] == [False, True, True, False]


def test_texts_that_are_none_are_left_out(machine, console):
    machine.set(Gpu(name="\udcff\udcfe", pci="00000000:01:00.0"), Gpu(name="a\tb"))
    cards = "nvml.stop(); nvml.start(); [[card.name, card.pci_bus_id] for card in nvml.cards(2)]"
    assert console.run(cards) == [["", "00000000:01:00.0"], ["", ""]]


def test_mig_instances_stand_for_the_gpu_that_refuses(machine, console):
    parent = Gpu(uuid="GPU-aaaa", total=140 * GIB, code=NO_PERMISSION, list_code=NO_PERMISSION)
    small = Gpu(uuid="MIG-bbbb", of=0, number=2, instances=(7, 1), total=10 * GIB, used=600 * MIB)
    large = Gpu(uuid="MIG-cccc", of=0, number=4, instances=(1, 0), used=700 * MIB, compute=[(SELF, 500 * MIB)])
    machine.set(parent, small, large)
    refused, first, second = console.run("tell()")
    assert refused[0] == (
        "nvmlDeviceGetMemoryInfo: Insufficient Permissions "
        "(a container sees only the devices and MIG instances that it was given)"
    )
    assert (first[1]["total"], first[1]["used"]) == (10 * GIB, 600 * MIB)
    assert (second[1]["used"], second[1]["process_used"]) == (700 * MIB, 500 * MIB)
    fields = "[card.index, card.uuid, card.gpu_instance, card.compute_instance, card.is_partitioned]"
    assert console.run(f"[{fields} for card in nvml.cards(1)]") == [
        ["0", "GPU-aaaa", None, None, True],
        ["0:2", "MIG-bbbb", 7, 1, False],
        ["0:4", "MIG-cccc", 1, 0, False],
    ]
    alone = "from vramscope.devices.cards import without_partitioned\n"
    assert console.run(alone + "[card.device for card in without_partitioned(nvml.cards(1))]") == [
        "nvml:0:2",
        "nvml:0:4",
    ]


def test_library_that_is_not_there_is_told_from_one_that_fails(tmp_path):
    nothing = FakeNvml((tmp_path, tmp_path), tmp_path)
    absent = "[NvmlError(text, code=code).is_absent for text, code in [fault(nvml.start)]]"
    with console_of(nothing, CODE) as console:
        assert console.run(absent) == [True]
    (tmp_path / "libnvidia-ml.so.1").write_text("no library")
    with console_of(nothing, CODE) as console:
        assert console.run(absent) == [True]


@pytest.mark.parametrize("code", [0, GPU_IS_LOST, NOT_SUPPORTED])
def test_driver_of_the_worker_is_started_once_and_anew_only_after_a_failure_that_calls_for_it(machine, code):
    facts = "DeviceFacts(device='cuda:0', backend='cuda', name='', uuid='GPU-00000000-0000-0000-0000-000000000000')"
    machine.set(Gpu(code=code))
    before = machine.inits()
    with console_of(machine, CODE) as console:
        console.run(f"""
from vramscope.devices.driver import Driver
from vramscope.memory.snapshot import DeviceFacts
driver, facts = Driver({{}}), {facts}
for _ in range(20):
    fault(lambda: driver.sample(facts, os.getpid()))
""")
    assert machine.inits() - before == (20 if code == GPU_IS_LOST else 1)
