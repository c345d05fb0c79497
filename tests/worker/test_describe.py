"""The order of a model's tensors as a worker tells it: from the architecture, from the cache, or guessed."""

import json

import pytest
import torch
from safetensors.torch import save_file
from tests.loading.checkpoints import save_checkpoint

from vramscope.errors import SourceError
from vramscope.plan.schema import ModelSpec
from vramscope.settings import WorkerSettings
from vramscope.worker.bench import Bench


@pytest.fixture
def bench(tmp_path):
    settings = WorkerSettings(cache=tmp_path / "cache", hub_cache=tmp_path / "hub")
    return Bench(settings, {"cuda:0": None})


def describe(bench, source, *, from_config=False):
    bench.specs = {"m": ModelSpec(name="m", source=str(source), dtype="float16")}
    return bench.describe("m", from_config=from_config)


def kept(bench):
    return sorted(bench.settings.cache.glob("orders/*"))


def test_an_architecture_that_can_be_built_is_built_once(bench, tmp_path):
    directory = save_checkpoint("llama", tmp_path / "model")
    order = describe(bench, directory)
    assert order.exact
    (path,) = kept(bench)
    path.write_text(path.read_text().replace(order.tensors[0].name, "from the cache"))
    assert describe(bench, directory).tensors[0].name == "from the cache"


def test_from_the_config_alone_the_tensors_are_the_same(bench, tmp_path):
    directory = save_checkpoint("llama", tmp_path / "model")
    whole = describe(bench, directory)
    (directory / "model.safetensors").unlink()
    order = describe(bench, directory, from_config=True)
    assert order.tensors == whole.tensors
    assert order.direct == tuple(range(len(order.tensors)))
    assert len(kept(bench)) == 2


def test_an_architecture_that_nobody_knows_is_guessed_from_its_files_and_not_kept(bench, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "strange"}))
    save_file({"w": torch.ones(4, 3)}, tmp_path / "model.safetensors")
    order = describe(bench, tmp_path)
    assert (order.exact, order.nbytes) == (False, 24)
    assert "cannot be built" in order.basis
    assert kept(bench) == []
    with pytest.raises(SourceError, match="strange"):
        describe(bench, tmp_path, from_config=True)


def test_a_model_that_is_not_made_yet_is_described_as_it_will_be(bench):
    order = describe(bench, "synthetic:tiny")
    assert order.exact
    assert sorted(path.name for path in bench.settings.cache.iterdir()) == ["orders"]
