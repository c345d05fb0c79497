"""What a process holds in RAM: samples of /proc/PID/status, and this process itself."""

import gc
import mmap
from pathlib import Path

import pytest

from vramscope.memory.resident import Peak, read_resident, reset_peak
from vramscope.memory.snapshot import ResidentMemory

from .trees import write

MIB = 1 << 20
SIZE = 24 * MIB
FILLING = b"\1" * SIZE
PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
# A process that has mapped its weights and was then swapped out: its RSS alone looks small.
STATUS = """Name:\tpython3
State:\tS (sleeping)
VmPeak:\t 20000000 kB
VmHWM:\t 11000000 kB
VmRSS:\t   370004 kB
RssAnon:\t  120000 kB
RssFile:\t  250000 kB
RssShmem:\t       4 kB
VmSwap:\t 10900000 kB
Threads:\t17"""

needs_status = pytest.mark.skipif(read_resident() is None, reason="this system does not tell")


def resident(directory, status):
    return read_resident(42, write(directory, {"42/status": status}))


def test_anonymous_memory_mapped_files_and_swap_are_told_apart(tmp_path):
    assert resident(tmp_path, STATUS) == ResidentMemory(
        anonymous_bytes=120_000 * 1024,
        file_bytes=250_004 * 1024,
        swap_bytes=10_900_000 * 1024,
        peak_bytes=11_000_000 * 1024,
    )


def test_swap_that_the_kernel_does_not_tell_is_unknown(tmp_path):
    found = resident(tmp_path, STATUS.replace("VmSwap", "VmOther"))
    assert found.swap_bytes is None
    assert found.anonymous_bytes == 120_000 * 1024


@pytest.mark.parametrize("field", ["RssAnon", "RssFile", "VmHWM"])
@pytest.mark.parametrize("text", ["120000", "many kB", "-5 kB", "120000 MB", ""])
def test_what_cannot_be_understood_is_unknown(tmp_path, field, text):
    lines = [f"{field}:\t{text}" if line.startswith(field) else line for line in STATUS.splitlines()]
    assert resident(tmp_path, "\n".join(lines)) is None


def test_a_process_that_is_gone_or_has_no_memory_left_is_unknown(tmp_path):
    assert resident(tmp_path, "Name:\tpython3\nState:\tZ (zombie)") is None
    assert read_resident(43, tmp_path) is None


def test_a_name_that_is_no_text_does_not_matter(tmp_path):
    write(tmp_path, {"42/status": ""})
    (tmp_path / "42/status").write_bytes(b"Name:\t\xff\xfe\n" + STATUS.encode())
    assert read_resident(42, tmp_path) is not None


@needs_status
def test_mapped_weights_are_file_memory_and_filled_memory_is_anonymous(tmp_path):
    path = tmp_path / "weights"
    path.write_bytes(bytes(SIZE))
    before = read_resident()
    with path.open("rb") as file, mmap.mmap(file.fileno(), SIZE, prot=mmap.PROT_READ) as mapped:
        _touch(mapped)
        with_file = read_resident()
        with mmap.mmap(-1, SIZE, PRIVATE) as memory:
            memory.write(FILLING)
            with_both = read_resident()
    assert with_file.file_bytes - before.file_bytes == pytest.approx(SIZE, abs=2 * MIB)
    assert with_file.anonymous_bytes - before.anonymous_bytes == pytest.approx(0, abs=2 * MIB)
    assert with_both.anonymous_bytes - with_file.anonymous_bytes == pytest.approx(SIZE, abs=2 * MIB)


@needs_status
def test_both_kinds_agree_with_the_kernels_walk_over_all_pages():
    rollup = Path("/proc/self/smaps_rollup")
    if not rollup.exists():
        pytest.skip("this kernel has no smaps_rollup")
    gc.collect()
    found = read_resident()
    lines = (line.split() for line in rollup.read_text().splitlines()[1:])
    walked = {name: int(amount) * 1024 for name, amount, *_ in lines}
    assert found.anonymous_bytes == pytest.approx(walked["Anonymous:"], abs=4 * MIB)
    assert found.total_bytes == pytest.approx(walked["Rss:"], abs=4 * MIB)
    assert found.swap_bytes == walked["Swap:"]


@needs_status
def test_the_peak_begins_anew_where_the_kernel_allows_it():
    if not reset_peak():
        pytest.skip("this kernel does not reset the peak")
    with mmap.mmap(-1, SIZE, PRIVATE) as memory:  # what malloc gives back it may keep
        memory.write(FILLING)
        reached = read_resident().peak_bytes
    assert read_resident().peak_bytes >= reached - MIB, "a peak stays"
    assert reset_peak()
    assert reached - read_resident().peak_bytes > SIZE // 2


def test_a_system_that_does_not_reset_the_peak_is_no_fault(tmp_path):
    assert not reset_peak(tmp_path)


def machine(directory, *, anonymous, peak):
    """A machine on which this process holds so many MiB, and has held so many at its peak; nothing resets that."""
    (directory / "self/clear_refs").mkdir(parents=True, exist_ok=True)
    text = f"VmHWM: {peak * 1024} kB\nRssAnon: {anonymous * 1024} kB\nRssFile: 1024 kB"
    return write(directory, {"self/status": text})


def test_a_peak_that_the_kernel_does_not_reset_is_the_most_that_was_seen_unless_a_higher_one_was_reached(tmp_path):
    peak = Peak(machine(tmp_path, anonymous=10, peak=500))
    peak.begin()
    machine(tmp_path, anonymous=300, peak=500)
    peak.look()
    machine(tmp_path, anonymous=20, peak=500)
    peak.look()
    assert peak.nbytes == 301 * MIB
    machine(tmp_path, anonymous=20, peak=600)
    assert peak.nbytes == 600 * MIB
    peak.begin()
    assert peak.nbytes == 21 * MIB


def test_a_peak_that_nobody_tells_is_unknown(tmp_path):
    peak = Peak(tmp_path)
    peak.begin()
    peak.look()
    assert peak.nbytes is None


@needs_status
def test_a_peak_of_this_process_begins_anew():
    peak = Peak()
    with mmap.mmap(-1, SIZE, PRIVATE) as memory:
        memory.write(FILLING)
        peak.begin()
        assert peak.nbytes == pytest.approx(read_resident().total_bytes, abs=4 * MIB)
    before = read_resident().total_bytes
    peak.begin()
    with mmap.mmap(-1, SIZE, PRIVATE) as memory:
        memory.write(FILLING)
        peak.look()
    assert peak.nbytes == pytest.approx(before + SIZE, abs=4 * MIB)


def _touch(mapped: mmap.mmap) -> None:
    for offset in range(0, len(mapped), mmap.PAGESIZE):
        _ = mapped[offset]
