"""A model's directory that is exchanged under a running daemon, as deployments do it: by a symbolic link."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.daemon import Daemon, wait_for

PLAN = """
version: 1
models:
  tiny: {source: SOURCE}
repeat: forever
every: 200ms
steps:
  - load: tiny
  - move: tiny
  - {wait: 100ms, name: loaded}
  - unload: tiny
  - release
"""


@pytest.fixture
def versions(cache: Path, tmp_path: Path) -> tuple[Path, Path]:
    """The tiny model, and one that has a layer less."""
    from vramscope.anatomy.synthetic import materialize

    whole = materialize("tiny", cache, progress=lambda _done, _total: None, check=lambda: None)
    first, second = tmp_path / "v1", tmp_path / "v2"
    shutil.copytree(whole, first)
    shutil.copytree(whole, second)
    config = json.loads((second / "config.json").read_text())
    config["num_hidden_layers"] -= 1
    for key in ("layer_types", "max_window_layers"):
        config.pop(key, None)
    (second / "config.json").write_text(json.dumps(config))
    return first, second


def point(link: Path, target: Path) -> None:
    new = link.with_suffix(".new")
    new.symlink_to(target)
    new.replace(link)


def test_the_forecast_follows_the_files_and_says_where_it_does_not_know_them(
    versions: tuple[Path, Path], tmp_path: Path, start: Callable[..., Daemon], write_plan: Callable[[str], Path]
) -> None:
    link = tmp_path / "model"
    point(link, versions[0])
    daemon = start(write_plan(PLAN.replace("SOURCE", str(link))), "--device", "simulated")

    def settled() -> float | None:
        """The parameters of a loaded model whose forecast was right."""
        page = daemon.samples()
        errors = page.get("vramscope_forecast_error_bytes", {})
        known = sum(page.get("vramscope_model_parameters", {}).values())
        return known if known and errors and set(errors.values()) == {0} else None

    whole = wait_for("the first model", settled)
    worker = daemon.worker_pid()
    for target in (versions[1], versions[0], versions[1]):
        point(link, target)
        before = whole
        whole = wait_for("the other model", lambda before=before: (found := settled()) != before and found)
    assert daemon.total("vramscope_cycles_total", outcome="failed") == 0
    assert daemon.worker_pid() == worker
    assert not [fault for fault in daemon.status()["faults"] if fault["what"].startswith("forecast")]
