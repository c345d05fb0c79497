"""Whose number the driver lists, over process file systems that only say so, and what is believed of it."""

import os

import pytest

from vramscope.devices.own import ProcessNames, context_taken, own_use, process_names, settled, settled_with
from vramscope.memory.snapshot import AllocatorMemory, DeviceSnapshot, DriverMemory

OURS, THEIRS = "pid:[4026531001]", "pid:[4026531002]"


@pytest.fixture
def host(tmp_path):
    """A host on which process 40011 is 11 in our namespace, 50011 is 11 in another one, and 11 is a process of its own.

    In our namespace, 12 has no other number.
    """
    names = ProcessNames(proc=tmp_path / "proc", host_proc=tmp_path / "host")
    (names.proc / "self/ns").mkdir(parents=True)
    (names.proc / "self/ns/pid").symlink_to(OURS)
    for listed, numbers, namespace in (
        (40011, "40011\t11", OURS),
        (50011, "50011\t11", THEIRS),
        (11, "11", THEIRS),
        (12, "12", OURS),
    ):
        (names.host_proc / str(listed) / "ns").mkdir(parents=True)
        (names.host_proc / str(listed) / "ns/pid").symlink_to(namespace)
        (names.host_proc / str(listed) / "status").write_text(f"Name:\tx\nNSpid:\t{numbers}\nThreads:\t1\n")
    return names


@pytest.mark.parametrize(
    ("listed", "expected"), [(40011, "namespace"), (50011, ""), (11, ""), (12, "driver"), (60011, "")]
)
def test_host_tells_which_of_its_processes_is_ours(host, listed, expected):
    assert host.ours(listed, (11, 12)) == expected


def test_without_the_host_the_number_itself_decides(tmp_path):
    alone = ProcessNames(host_proc=tmp_path / "none")
    assert alone.ours(11, (11,)) == "driver"
    assert alone.ours(40011, (11,)) == ""


def test_own_proc_as_the_hosts_finds_this_process():
    names = process_names({"VRAMSCOPE_HOST_PROC": "/proc"})
    assert names.ours(os.getpid(), (os.getpid(),)) == "driver"
    assert names.ours(os.getppid(), (os.getpid(),)) == ""


@pytest.mark.parametrize(
    ("used", "expected"),
    [
        ({40011: 100, 11: 7}, (100, "namespace")),
        ({40011: 100, 12: 50}, (150, "namespace")),
        ({12: 50}, (50, "driver")),
        ({40011: None, 12: 50}, (None, "")),
        ({11: 7}, (None, "")),
        ({}, (None, "")),
    ],
)
def test_own_use_is_all_of_our_processes_or_unknown(host, used, expected):
    assert own_use(used, (11, 12), host) == expected


def memory(own: int | None) -> DriverMemory:
    return DriverMemory(process_used_bytes=own, process_used_source="" if own is None else "driver")


@pytest.mark.parametrize(
    ("told", "reserved", "context", "is_open", "expected"),
    [
        (600, 500, None, True, (600, "driver")),
        (600, 500, 90, True, (600, "driver")),
        (None, 500, 90, True, (590, "measured")),
        (None, 500, None, True, (None, "")),
        (499, 500, None, True, (None, "")),
        (499, 500, 90, True, (590, "measured")),
        (600, 0, None, False, (None, "")),
        (None, 0, 90, False, (None, "")),
    ],
    ids=[
        "told",
        "told although measured",
        "hidden, measured",
        "hidden",
        "another with our number",
        "another with our number, measured",
        "listed without a context",
        "no context",
    ],
)
def test_what_is_believed(told, reserved, context, is_open, expected):
    found = settled(memory(told), reserved, context, is_open=is_open)
    assert (found.process_used_bytes, found.process_used_source) == expected


def test_supervisor_takes_the_context_over_that_the_worker_measured():
    worker = DriverMemory(process_used_bytes=590, process_used_source="measured")
    held = DeviceSnapshot(
        device="cuda:0", backend="cuda", allocator=AllocatorMemory(reserved_bytes=500), driver=worker, is_open=True
    )
    found = settled_with(DriverMemory(used_bytes=700), held)
    assert (found.process_used_bytes, found.process_used_source) == (590, "measured")


def used(nbytes: int | None) -> DriverMemory:
    return DriverMemory(used_bytes=nbytes)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [(used(10), used(123), 113), (used(123), used(10), None), (used(None), used(5), None), (None, used(5), None)],
)
def test_context_is_what_the_device_has_more_in_use(before, after, expected):
    assert context_taken(before, after) == expected
