import os
from pathlib import Path

import pytest

from vramscope.anatomy.hubcache import find_snapshot, is_hub_id
from vramscope.anatomy.source import resolve
from vramscope.errors import SourceError

COMMIT, OTHER = "a" * 40, "b" * 40


@pytest.fixture
def hub(tmp_path: Path, weights) -> Path:
    """Make a hub cache with one complete snapshot of org/name, its files links into blobs."""
    hub = tmp_path / "hub"
    home = hub / "models--org--name"
    weights(home / "blobs" / "d1", {"w": ("BF16", [3])})
    (home / "blobs" / "c1").write_text('{"model_type": "llama"}')
    (home / "blobs" / "d1.1f2e.incomplete").write_bytes(b"left by an older try")
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text(COMMIT)
    snapshot = home / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (snapshot / "model.safetensors").symlink_to("../../blobs/d1")
    (snapshot / "config.json").symlink_to("../../blobs/c1")
    return hub


def refusal(hub: Path, revision: str = "main", hub_id: str = "org/name") -> str:
    with pytest.raises(SourceError) as caught:
        resolve(hub_id, hub, hub_cache=hub, revision=revision)
    return str(caught.value)


def test_a_snapshot_is_found_by_branch_and_by_commit(hub: Path, tmp_path: Path):
    for revision in ("main", COMMIT):
        checkpoint = resolve("org/name", tmp_path, hub_cache=hub, revision=revision)
        assert (checkpoint.revision, checkpoint.elements) == (COMMIT, 3)
        assert checkpoint.files == (hub / "models--org--name" / "snapshots" / COMMIT / "model.safetensors",)


def test_names_with_slashes_are_revisions_too(hub: Path):
    ref = hub / "models--org--name" / "refs" / "refs" / "pr" / "1"
    ref.parent.mkdir(parents=True)
    ref.write_text(COMMIT + "\n")
    assert find_snapshot("org/name", "refs/pr/1", hub).commit == COMMIT


def test_blobs_that_models_share_or_that_lie_on_another_disk_are_inside(hub: Path, tmp_path: Path):
    blobs = hub / "models--org--name" / "blobs"
    blobs.rename(tmp_path / "disk2")
    blobs.symlink_to(tmp_path / "disk2")
    assert find_snapshot("org/name", "main", hub).commit == COMMIT
    (tmp_path / "disk2" / "d1").rename(hub / "shared")
    (tmp_path / "disk2" / "d1").symlink_to(hub / "shared")
    assert find_snapshot("org/name", "main", hub).commit == COMMIT


def test_what_is_not_there_is_said_with_what_to_do(hub: Path):
    assert refusal(hub, hub_id="org/none") == (
        f"org/none: not in the hub cache {hub} (fetch it with `hf download org/none`)"
    )
    assert f"(the cache has {COMMIT}; name it as `revision` to use it)" in refusal(hub, "v2")
    (hub / "models--org--name" / "refs" / "main").unlink()
    assert "org/name: revision main is not in the hub cache" in refusal(hub)


def test_another_revision_is_never_used_instead(hub: Path):
    home = hub / "models--org--name"
    (home / "refs" / "main").write_text(OTHER)
    assert f"revision main (commit {OTHER[:12]}) is not in the hub cache" in refusal(hub)
    (home / "snapshots" / OTHER).mkdir()
    (home / "snapshots" / OTHER / "model.safetensors").symlink_to("../../blobs/d2")
    assert f"{OTHER}/model.safetensors: not downloaded" in refusal(hub)


@pytest.mark.parametrize(
    ("ref", "reason"),
    [("", "the file is empty"), ("../../../etc", "expected a commit, got '../../../etc'"), ("/etc", "got '/etc'")],
)
def test_a_damaged_ref_is_refused(hub: Path, ref, reason):
    (hub / "models--org--name" / "refs" / "main").write_text(ref)
    assert reason in refusal(hub)


@pytest.mark.parametrize("revision", ["", "..", "../main", "/etc", "a//b", "a/../b", "a\0b", "-x"])
def test_a_revision_cannot_lead_out_of_the_cache(hub: Path, revision):
    assert "is no name of a branch, a tag or a commit" in refusal(hub, revision)


def test_a_link_out_of_the_cache_is_not_followed(hub: Path, tmp_path: Path):
    os.mkfifo(tmp_path / "outside")  # whoever opened it would wait for ever
    weights = hub / "models--org--name" / "snapshots" / COMMIT / "model.safetensors"
    weights.unlink()
    weights.symlink_to(tmp_path / "outside")
    assert "model.safetensors: the link leads out of the hub cache" in refusal(hub)


def test_links_in_a_circle_are_refused(hub: Path):
    weights = hub / "models--org--name" / "snapshots" / COMMIT / "model.safetensors"
    weights.unlink()
    weights.symlink_to("model.safetensors")
    assert "model.safetensors" in refusal(hub)


def test_hub_ids_are_told_from_other_words():
    assert all(map(is_hub_id, ["gpt2", "Qwen/Qwen2.5-0.5B-Instruct", "org/a_b.c-1"]))
    assert not any(map(is_hub_id, ["", "a/b/c", "../a", "/a", "a/..", "a b", "a\\b", "a--b", "x/" + "y" * 96, "org/"]))
