"""When a model's files are made or downloaded, and when that is refused."""

from dataclasses import replace

import pytest
from tests.loading.checkpoints import save_checkpoint
from tests.loading.hub_server import COMMIT, HubServer, serving
from tests.loading.monitor import RecordingMonitor

from vramscope.errors import NotHereError, SourceError
from vramscope.plan.schema import Download, ModelSpec
from vramscope.settings import WorkerSettings, forbidden_downloads
from vramscope.worker.provision import fetch_facts, provide

ID = "org/name"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    with serving(HubServer()) as server:
        server.add(ID, save_checkpoint("qwen2", tmp_path / "model"))
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield server


@pytest.fixture
def settings(tmp_path):
    return WorkerSettings(cache=tmp_path / "cache", hub_cache=tmp_path / "hub")


def spec(download=Download.NEVER, source=ID):
    return ModelSpec(name="qwen", source=source, download=download)


def test_nothing_is_downloaded_that_the_plan_does_not_want(hub, settings):
    with pytest.raises(SourceError) as caught:
        provide(spec(), settings, RecordingMonitor())
    assert str(caught.value) == (
        f"org/name: not in the hub cache {settings.hub_cache} (fetch it with `hf download org/name`, or let the plan "
        "do it: `- fetch: qwen`, or `download: if-missing` for the model)"
    )
    assert hub.requests == []


def test_if_missing_downloads_once(hub, settings):
    monitor = RecordingMonitor()
    first = provide(spec(Download.IF_MISSING), settings, monitor)
    assert monitor.phase_names == ["download", "verify", "resolve"]
    assert first.facts["downloaded_bytes"] == first.downloaded.nbytes > 0
    asked = len(hub.requests)
    second = provide(spec(Download.IF_MISSING), settings, RecordingMonitor())
    assert (second.downloaded, second.facts, len(hub.requests)) == (None, {}, asked)


def test_a_shard_that_is_missing_comes_back(hub, settings):
    files = provide(spec(Download.IF_MISSING), settings, RecordingMonitor()).checkpoint.files
    files[0].resolve().unlink()
    again = provide(spec(Download.IF_MISSING), settings, RecordingMonitor())
    assert again.downloaded.came_bytes == files[0].stat().st_size
    assert len(hub.asked(files[0].name)) == 2


@pytest.mark.usefixtures("hub")
def test_a_fetch_downloads_whatever_the_model_says_and_tells_what_came(settings):
    facts = fetch_facts(provide(spec(), settings, RecordingMonitor(), fetch=True))
    assert facts["revision"] == COMMIT
    assert facts["downloaded_bytes"] == facts["bytes"] > 0
    assert facts["download_bytes_per_second"] > 0
    again = fetch_facts(provide(spec(), settings, RecordingMonitor(), fetch=True))
    assert again["downloaded_bytes"] == 0


def test_the_environment_forbids_even_what_the_plan_wants(hub, settings):
    offline = replace(settings, forbidden=forbidden_downloads({"HF_HUB_OFFLINE": "1"}))
    with pytest.raises(SourceError, match="HF_HUB_OFFLINE forbids the download"):
        provide(spec(), offline, RecordingMonitor(), fetch=True)
    assert hub.requests == []


def test_a_synthetic_model_is_made_and_a_directory_is_only_looked_at(settings, tmp_path):
    made = RecordingMonitor()
    provide(spec(source="synthetic:tiny"), settings, made, fetch=True)
    assert made.phase_names == ["generate", "resolve"]
    with pytest.raises(NotHereError, match="no weights"):
        provide(spec(source=str(tmp_path)), settings, RecordingMonitor(), fetch=True)
