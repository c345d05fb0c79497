import hashlib
import subprocess
from pathlib import Path

import pytest
from tests.loading.monitor import RecordingMonitor

from vramscope.errors import SourceError, StepCancelledError
from vramscope.loading.checksum import HASH_BYTES, git_or_sha256, verify_files

CONTENT = b"0123456789abcdef" * (HASH_BYTES // 16) + b"tail"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def snapshot(tmp_path: Path):
    """Makes a file as a hub's cache has it: a link of the snapshot to a blob that is named by a sum."""

    def make(name: str, content: bytes, named: str) -> Path:
        blob, link = tmp_path / "blobs" / named, tmp_path / "snapshots" / "c0ffee" / name
        for path in (blob, link):
            path.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(content)
        link.symlink_to(blob)
        return link

    return make


def test_a_file_that_is_what_the_hub_named_it(snapshot):
    monitor = RecordingMonitor()
    path = snapshot("model.safetensors", CONTENT, sha256(CONTENT))
    assert verify_files((path,), monitor) == {"files_sha256": sha256(CONTENT), "files_compared": 1}
    assert [(phase.name, phase.nbytes) for phase in monitor.phases] == [("verify", len(CONTENT))]
    assert monitor.reports == [(HASH_BYTES, len(CONTENT)), (len(CONTENT), len(CONTENT))]


def test_one_changed_bit_fails_and_says_which_file_and_what_to_do(snapshot):
    changed = bytes([CONTENT[0] ^ 1]) + CONTENT[1:]
    good = snapshot("a.safetensors", b"good", sha256(b"good"))
    path = snapshot("b.safetensors", changed, sha256(CONTENT))
    with pytest.raises(SourceError) as raised:
        verify_files((good, path), RecordingMonitor())
    assert raised.value.message == (
        f"{path}: has the SHA-256 {sha256(changed)}, and the hub's cache names it {sha256(CONTENT)}"
    )
    assert "fetch the model again" in raised.value.hint


def test_files_that_nobody_named_have_the_sum_that_sha256sum_would_print(tmp_path: Path):
    paths = tuple(tmp_path / name for name in ("b.safetensors", "a.safetensors"))
    for path in paths:
        path.write_bytes(path.name.encode())
    facts = verify_files(paths, RecordingMonitor())
    names = [path.name for path in sorted(paths)]
    printed = subprocess.run(["sha256sum", *names], cwd=tmp_path, capture_output=True, check=True).stdout
    # sha256sum sorts nothing, and we do it by sum.
    assert facts == {"files_sha256": sha256(b"".join(sorted(printed.splitlines(keepends=True)))), "files_compared": 0}


def test_a_name_of_64_other_signs_or_in_another_place_is_no_sum(snapshot, tmp_path: Path):
    odd = snapshot("model.safetensors", b"x", "z" * 64)
    elsewhere = tmp_path / ("0" * 64)
    elsewhere.write_bytes(b"y")
    assert verify_files((odd, elsewhere), RecordingMonitor())["files_compared"] == 0


def test_a_cancelled_step_reads_no_further(snapshot):
    path = snapshot("model.safetensors", CONTENT, sha256(CONTENT))
    monitor = RecordingMonitor(checks_left=0)
    with pytest.raises(StepCancelledError):
        verify_files((path,), monitor)
    assert monitor.reports == [(HASH_BYTES, len(CONTENT))]


def test_a_file_that_is_gone_is_named(tmp_path: Path):
    with pytest.raises(SourceError, match=r"gone\.safetensors: cannot be read: No such file"):
        verify_files((tmp_path / "gone.safetensors",), RecordingMonitor())


def test_small_files_have_the_sum_that_git_gives_them(tmp_path: Path):
    path = tmp_path / "config.json"
    path.write_bytes(b"{}\n")
    assert git_or_sha256(path, "0" * 40) == "0967ef424bce6791893e9a57bb952f80fd536e93"
    assert git_or_sha256(path, "0" * 64) == sha256(b"{}\n")


def test_a_file_whose_bytes_cannot_be_read_is_named(tmp_path: Path):
    path = tmp_path / "model.safetensors"
    path.symlink_to("/proc/self/mem")  # opens, and has nothing at its first address
    with pytest.raises(SourceError, match=r"model\.safetensors: cannot be read: Input/output error"):
        verify_files((path,), RecordingMonitor())
