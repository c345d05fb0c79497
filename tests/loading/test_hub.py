"""Downloads from a stand-in of the hub, by the process that a step starts for them."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
import transformers
from tests.loading.hub_server import COMMIT, Drop, HubServer, serving
from tests.loading.monitor import RecordingMonitor

from vramscope.anatomy.source import resolve
from vramscope.errors import NotHereError, SourceError, StepCancelledError
from vramscope.loading.hub import download

MIB = 1 << 20
ID = "org/name"
TOKEN = "hf_secretsecretsecret"  # noqa: S105 - nobody's


@pytest.fixture(scope="module")
def directory(tmp_path_factory) -> Path:
    """A checkpoint of three shards, the largest of 4 MiB, and a pickle that nobody wants."""
    directory = tmp_path_factory.mktemp("model")
    config = transformers.LlamaConfig(
        vocab_size=60_000,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=64,
        tie_word_embeddings=False,
    )
    transformers.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(directory, max_shard_size="4MB")
    (directory / "tokenizer.json").write_text("{}")
    (directory / "pytorch_model.bin").write_bytes(b"\x80\x02")
    (directory / "consolidated.safetensors").write_bytes(b"never fetched")
    (directory / "modeling_evil.py").write_text("raise SystemExit")
    return directory


@pytest.fixture
def hub(directory, monkeypatch):
    with serving(HubServer()) as server:
        server.add(ID, directory)
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")  # as in a worker
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield server


@pytest.fixture
def cache(tmp_path) -> Path:
    return tmp_path / "hub"


def found(cache):
    return resolve(ID, cache, hub_cache=cache)


def shards(directory):
    return sorted(path.name for path in directory.glob("model-*.safetensors"))


def partials(cache) -> list[Path]:
    return list(cache.glob("*/blobs/*.incomplete"))


def test_a_download_goes_on_after_dropped_connections_and_rate_limits(hub, cache, directory):
    hub.drops = [Drop(after_bytes=MIB * 3 // 2), Drop(after_bytes=MIB * 3 // 2, reset=True)]
    hub.limits = 2
    monitor = RecordingMonitor()
    came = download(ID, "main", cache, monitor)
    checkpoint = found(cache)
    assert [path.name for path in checkpoint.files] == shards(directory)
    assert len(checkpoint.files) > 1
    for path in checkpoint.files:
        assert (
            hashlib.sha256(path.read_bytes()).digest() == hashlib.sha256((directory / path.name).read_bytes()).digest()
        )
    assert monitor.phase_names == ["download", "verify"]
    assert monitor.phases[0].nbytes == came.came_bytes == came.nbytes
    assert (came.commit, checkpoint.revision, hub.drops, hub.limits) == (COMMIT, COMMIT, [], 0)
    assert partials(cache) == []
    again = [asked for name in shards(directory) for asked in hub.asked(name) if asked]
    assert [asked for asked in again if asked == f"bytes={MIB}-"], again  # a whole chunk had come
    assert hub.sent_bytes < came.nbytes + 4 * MIB + PICTURE_BYTES


PICTURE_BYTES = 64 << 10  # the answer that lists the files


def test_only_what_a_load_reads_is_asked_for(hub, cache):
    download(ID, "main", cache, RecordingMonitor())
    names = {path.rpartition("/")[2] for path, _ in hub.requests if "/resolve/" in path}
    assert not {"pytorch_model.bin", "consolidated.safetensors", "modeling_evil.py"} & names
    assert {"config.json", "tokenizer.json", "model.safetensors.index.json"} <= names


def test_what_is_there_does_not_come_again(hub, cache):
    download(ID, "main", cache, RecordingMonitor())
    sent = hub.sent_bytes
    came = download(ID, "main", cache, RecordingMonitor())
    assert came.came_bytes == 0
    assert hub.sent_bytes - sent < PICTURE_BYTES


def test_a_cancelled_download_ends_at_once_and_the_next_goes_on_behind_it(hub, cache):
    hub.bytes_per_second = 2 * MIB
    monitor = Impatient(cache)
    with pytest.raises(StepCancelledError):
        download(ID, "main", cache, monitor)
    (partial,) = [path for path in partials(cache) if path.stat().st_size >= MIB]
    had = partial.stat().st_size
    with pytest.raises(NotHereError):
        found(cache)
    hub.bytes_per_second = None
    came = download(ID, "main", cache, RecordingMonitor())
    assert came.came_bytes <= came.nbytes - had
    assert any(asked == f"bytes={had}-" for _, asked in hub.requests)
    assert found(cache).revision == COMMIT


class Impatient(RecordingMonitor):
    """Cancels once a part of a large file has come."""

    def __init__(self, cache: Path) -> None:
        super().__init__()
        self._cache = cache

    def check_cancelled(self) -> None:
        if any(path.stat().st_size >= MIB for path in partials(self._cache)):
            raise StepCancelledError("enough")


def test_it_says_how_far_it_is(hub, cache):
    """The hub keeps the rest back until it has been said three times."""
    hub.stalls_after_bytes = 2 * MIB
    monitor = Following(hub)
    came = download(ID, "main", cache, monitor)
    assert monitor.entered[0] == "download"
    done = [done for done, total in monitor.of_download if total == came.nbytes]
    assert len(done) >= 3
    assert done == sorted(done)
    assert done[-1] >= MIB


class Following(RecordingMonitor):
    """Keeps what is said of the download, and lets the hub go on after three times that more than 1 MiB was there."""

    def __init__(self, hub: HubServer) -> None:
        super().__init__()
        self._hub = hub
        self.of_download: list[tuple[int, int]] = []

    def progress(self, bytes_done: int, bytes_total: int) -> None:
        if self.entered[-1] == "download":
            self.of_download.append((bytes_done, bytes_total))
        if sum(done >= MIB for done, _ in self.of_download) >= 3:
            self._hub.stalls_after_bytes = None


def test_a_cancelled_download_tells_why_it_was_trying_again(hub, cache):
    hub.refusals[ID] = 429, {"Retry-After": "1"}
    with pytest.raises(StepCancelledError) as caught:
        download(ID, "main", cache, Patient(hub))
    assert caught.value.trouble == f"last failure: {ID}: the hub wants fewer requests (HTTP 429)"


class Patient(RecordingMonitor):
    """Cancels after the second request, once what was said before it has been read."""

    def __init__(self, hub: HubServer) -> None:
        super().__init__()
        self._hub = hub
        self._left = 2

    def check_cancelled(self) -> None:
        self._left -= len(self._hub.requests) > 1
        if not self._left:
            raise StepCancelledError("enough")


def test_bytes_that_are_not_what_the_hub_names_are_thrown_away(hub, cache, directory):
    """The server's listing is of other bytes than it sends."""
    name = shards(directory)[0]
    true = hub.files[ID]
    listed = hub.info(ID)
    hub.files[ID] = {**true, name: bytes(len(true[name]))}
    hub.info = lambda _id: listed
    with pytest.raises(SourceError, match=rf"{name}: what came has another checksum than the hub names"):
        download(ID, "main", cache, RecordingMonitor())
    assert len(partials(cache)) == 0 or all(path.stat().st_size != len(true[name]) for path in partials(cache))
    with pytest.raises(NotHereError):
        found(cache)


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        ((403, {"X-Error-Code": "GatedRepo"}), "its owner wants terms to be accepted first"),
        ((401, {"X-Error-Code": "RepoNotFound"}), "not on the hub, or private"),
        ((404, {"X-Error-Code": "RepoNotFound"}), "not on the hub, or private"),
        ((401, {"X-Error-Message": "Invalid credentials in Authorization header"}), "the hub refuses the token"),
        ((403, {}), "the hub refuses the token, or its rights"),
        ((404, {"X-Error-Code": "RevisionNotFound"}), "the hub has no revision 'main'"),
        ((410, {}), "the hub answers with HTTP 410"),
    ],
)
def test_each_refusal_is_one_sentence_without_address_or_token(hub, cache, capfd, refusal, said):
    hub.refusals[ID] = refusal
    with pytest.raises(SourceError) as caught:
        download(ID, "main", cache, RecordingMonitor())
    message = str(caught.value)
    assert message.startswith(f"{ID}: {said}")
    assert "\n" not in message
    assert TOKEN not in message + "".join(capfd.readouterr())
    assert hub.tokens == {f"Bearer {TOKEN}"}


@pytest.mark.parametrize(("content", "sent"), [("hf_fromafile\n", "Bearer hf_fromafile"), ("", "")])
def test_a_token_may_be_in_a_file_which_may_be_empty(hub, cache, monkeypatch, content, sent):
    token = cache.with_name("token")
    token.write_text(content)
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setenv("HF_TOKEN_PATH", str(token))
    download(ID, "main", cache, RecordingMonitor())
    assert hub.tokens == {sent}


@pytest.mark.usefixtures("hub")
def test_a_revision_that_is_not_there_is_named(cache):
    with pytest.raises(SourceError, match=r"org/name: the hub has no revision 'v9' \(name a branch, a tag or a whole"):
        download(ID, "v9", cache, RecordingMonitor())


@pytest.mark.usefixtures("hub")
def test_a_commit_needs_no_name(cache):
    download(ID, COMMIT, cache, RecordingMonitor())
    assert resolve(ID, cache, hub_cache=cache, revision=COMMIT).revision == COMMIT
    with pytest.raises(NotHereError):
        found(cache)


def test_a_model_that_has_only_pickles_is_refused_before_anything_comes(hub, cache):
    hub.files[ID] = {"config.json": b"{}", "pytorch_model.bin": b"\x80\x02" + bytes(1000)}
    with pytest.raises(SourceError, match=r"only pickled weights \(pytorch_model\.bin\), no safetensors"):
        download(ID, "main", cache, RecordingMonitor())
    assert hub.asked("pytorch_model.bin") == []


def test_what_does_not_fit_is_refused_before_anything_comes(hub, cache):
    hub.files[ID] = {"config.json": b"{}", "model.safetensors": b"x"}
    hub.sizes["model.safetensors"] = 1 << 59
    with pytest.raises(SourceError, match=r"the download needs 512\.0 PiB, and .* are free in"):
        download(ID, "main", cache, RecordingMonitor())
    assert hub.asked("model.safetensors") == []


@pytest.mark.usefixtures("hub")
def test_a_cache_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SourceError, match=r"org/name: .*/file/hub cannot be written: Not a directory"):
        download(ID, "main", tmp_path / "file" / "hub", RecordingMonitor())


def test_two_downloads_of_one_model_do_not_disturb_each_other(hub, cache):
    hub.bytes_per_second = 16 * MIB
    failures = []

    def other():
        try:
            download(ID, "main", cache, RecordingMonitor())
        except SourceError as error:
            failures.append(error)

    thread = threading.Thread(target=other)
    thread.start()
    download(ID, "main", cache, RecordingMonitor())
    thread.join(100)
    assert failures == []
    assert found(cache).revision == COMMIT


def test_the_process_ends_with_whoever_started_it(hub, cache):
    """A worker that is killed closes its end of the pipe."""
    hub.bytes_per_second = 100_000
    request = json.dumps({"hub_id": ID, "revision": "main", "hub_cache": str(cache)})
    command = [sys.executable, "-P", "-m", "vramscope.loading.hub_process", request]
    environment = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        try:
            assert b'"at": "download"' in process.stdout.readline()
            process.stdin.close()
            assert process.wait(60) == 1
        finally:
            process.kill()
