"""Moves through pinned memory on torch's CUDA build: what arrives, and what is left."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.cuda_stub

REPOSITORY = Path(__file__).parents[2]
IMPORTS = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import torch, transferred"
MIB = 1 << 20


@pytest.fixture(scope="module")
def process(shared_machine):
    shared_machine.configure(total_mib=4096, context_mib=100)
    return shared_machine.console(IMPORTS, PYTHONPATH=str(REPOSITORY))


@pytest.fixture
def console(shared_machine, process):
    """A process on a healthy machine; what a test does to it is undone."""
    yield process
    shared_machine.mend()
    shared_machine.configure(baseline_mib=0, kernels="fail")


@pytest.mark.parametrize("refused", [False, True])
def test_every_model_comes_back_as_it_went(shared_machine, console, refused):
    if refused:
        shared_machine.fail("cudaHostRegister", 801)
    for name in ("odd", *console.run("list(transferred.MODULES)")):
        found = console.run(f"transferred.there_and_back({name!r})")
        how = "pageable" if refused else "pinned"
        if name == "empty":
            how, found["arenas"] = "none", 1
        assert found == {"different": 0, "staging": [how], "tied": True, "arenas": 1, "allocated": 0}, name


def test_a_refusal_leaves_no_error_for_the_next_kernel(shared_machine, console):
    """The runtime remembers it for the thread that asked, and torch looks there after each kernel."""
    shared_machine.fail("cudaHostRegister", 801)
    assert console.run("transferred.broken()") == {
        "failure": "",
        "allocated": 40 * MIB,
        "place": "cuda:0",
        "same": True,
    }
    shared_machine.configure(kernels="noop")
    assert console.run("torch.zeros(3, device='cuda:0').shape[0]") == 3


def test_moves_leave_nothing_in_ram(console):
    found = console.run("transferred.residue(4)")
    assert found["ram"] < 8 * MIB
    assert found["pinned"] == 0


def test_out_of_memory_midway_gives_everything_back(shared_machine, console):
    console.run("transferred.device.empty_cache()")
    free = console.run("torch.cuda.mem_get_info(0)[0]") // MIB
    shared_machine.configure(baseline_mib=free - 30)
    expected = {"failure": "OutOfMemoryError", "allocated": 0, "place": "cpu", "same": True}
    assert console.run("transferred.broken()") == expected


@pytest.mark.parametrize(("back", "place"), [(False, "cpu"), (True, "cuda:0")])
@pytest.mark.parametrize("checks", [0, 1, 7])
def test_a_cancelled_move_leaves_the_model_where_it_was(console, back, place, checks):
    found = console.run(f"transferred.broken({checks}, back={back})")
    assert found == {"failure": "StepCancelledError", "allocated": 0, "place": place, "same": True}


@pytest.mark.parametrize("function", ["cudaMemcpyAsync", "cudaEventRecord", "cudaStreamSynchronize"])
def test_a_failure_of_cuda_is_sticky_and_leaves_the_model_where_it_was(shared_machine, console, function):
    shared_machine.fail(function, "700 @times=1")
    expected = {"failure": "StickyDeviceError", "allocated": 0, "place": "cpu", "same": True}
    assert console.run("transferred.broken()") == expected
