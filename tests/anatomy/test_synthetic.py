import dataclasses
import json
import os
import struct
import subprocess
import sys
import textwrap
from itertools import pairwise
from pathlib import Path

import pytest
from safetensors import safe_open

from vramscope.anatomy import synthetic
from vramscope.anatomy.recipes import RECIPES, Recipe
from vramscope.anatomy.source import resolve
from vramscope.anatomy.synthetic import materialize, planned_headers
from vramscope.anatomy.weights import read_headers
from vramscope.errors import SourceError, StepCancelledError

TINY = RECIPES["tiny"]


def nothing(*_: object) -> None:
    pass


def make(cache: Path, name: str = "tiny") -> Path:
    return materialize(name, cache, progress=nothing, check=nothing)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("cache"))


def header_text(file: Path) -> bytes:
    data = file.read_bytes()
    return data[8 : 8 + struct.unpack("<Q", data[:8])[0]]


def test_safetensors_reads_what_was_written(tiny: Path):
    with safe_open(tiny / "model.safetensors", "pt") as file:
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 - not a dict
        assert file.metadata() == {"format": "pt"}
        assert shapes == {tensor.name: tensor.shape for tensor in TINY.tensors}


def test_weights_are_small_and_finite_and_norms_are_one(tiny: Path):
    import torch
    from safetensors.torch import load_file

    signs = []
    for name, tensor in load_file(tiny / "model.safetensors").items():
        assert tensor.dtype == torch.bfloat16
        if "norm" in name:
            assert (tensor == 1).all()
        else:
            size = tensor.float().abs()
            assert size.min() >= 2**-7
            assert size.max() < 2**-3
            signs.append((tensor < 0).flatten())
            assert tensor.unique().numel() > min(tensor.numel() // 4, 500)
    assert torch.cat(signs).float().mean() == pytest.approx(0.5, abs=0.02)


def test_transformers_loads_it_whole(tiny: Path):
    import torch
    from transformers import AutoModelForCausalLM

    model, info = AutoModelForCausalLM.from_pretrained(tiny, dtype="auto", output_loading_info=True)
    assert not any(info.values())
    assert model.num_parameters() == TINY.parameters
    assert model.dtype == torch.bfloat16
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert model(torch.tensor([[1, 2, 3]])).logits.isfinite().all()


def test_the_file_is_laid_out_as_transformers_lays_it_out(tiny: Path, tmp_path: Path):
    from transformers import AutoModelForCausalLM

    AutoModelForCausalLM.from_pretrained(tiny, dtype="auto").save_pretrained(tmp_path)
    assert header_text(tiny / "model.safetensors") == header_text(tmp_path / "model.safetensors")
    assert (tiny / "model.safetensors").stat().st_size == (tmp_path / "model.safetensors").stat().st_size


def write(made: Recipe, directory: Path) -> list[tuple[int, int]]:
    told: list[tuple[int, int]] = []
    directory.mkdir()
    synthetic._write_all(made, directory, lambda done, total: told.append((done, total)), nothing)
    return told


def test_shards_and_index_are_those_of_transformers(tmp_path: Path):
    from transformers import AutoModelForCausalLM

    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    write(dataclasses.replace(TINY, shard_bytes=100_000), ours)
    model = AutoModelForCausalLM.from_pretrained(ours, dtype="auto")
    model.save_pretrained(theirs, max_shard_size=100_000)
    files = sorted(file.name for file in theirs.glob("*.safetensors"))
    assert len(files) > 2
    assert sorted(file.name for file in ours.glob("*.safetensors")) == files
    assert all(header_text(ours / file) == header_text(theirs / file) for file in files)
    indexes = [(directory / "model.safetensors.index.json").read_text() for directory in (ours, theirs)]
    assert json.loads(indexes[0]) == json.loads(indexes[1])
    assert sum(header.elements for header in read_headers(ours)) == TINY.parameters


def test_progress_is_told_at_least_every_16_mib(tmp_path: Path):
    large = Recipe(name="large", config=TINY.config | {"vocab_size": 400_000})
    told = write(large, tmp_path / "large")
    (header,) = read_headers(tmp_path / "large")
    done = [0, *(done for done, _ in told)]
    assert max(after - before for before, after in pairwise(done)) <= 16 << 20
    assert done == sorted(done)
    assert told[-1] == (header.file_bytes, header.file_bytes)


def test_it_is_the_same_every_time_and_made_once(tiny: Path, tmp_path: Path):
    other = make(tmp_path / "new" / "cache")
    contents = [{file.name: file.read_bytes() for file in directory.iterdir()} for directory in (tiny, other)]
    assert contents[0] == contents[1]
    before = (other / "model.safetensors").stat().st_mtime_ns
    assert make(other.parent) == other
    assert (other / "model.safetensors").stat().st_mtime_ns == before


@pytest.mark.parametrize("name", RECIPES)
def test_a_checkpoint_is_described_before_it_is_made(tmp_path: Path, name):
    checkpoint = resolve(f"synthetic:{name}", tmp_path)
    assert checkpoint.headers == planned_headers(name, tmp_path)
    assert checkpoint.elements == RECIPES[name].parameters
    assert checkpoint.config == RECIPES[name].config
    assert len(checkpoint.files) == (2 if name == "qwen2.5-1.5b" else 1)
    assert not list(tmp_path.iterdir())


def test_what_was_described_is_what_was_made(tmp_path: Path):
    described = resolve("synthetic:tiny", tmp_path)
    assert make(tmp_path) == described.directory
    assert resolve("synthetic:tiny", tmp_path) == described
    assert resolve(str(described.directory), tmp_path) == described


def test_a_cancelled_write_leaves_nothing(tmp_path: Path):
    calls = []

    def cancel() -> None:
        calls.append([path.name for path in tmp_path.iterdir()])
        if len(calls) == 3:
            raise StepCancelledError("stop")

    with pytest.raises(StepCancelledError):
        materialize("tiny", tmp_path, progress=nothing, check=cancel)
    assert all(len(names) == 1 and names[0].endswith(".unfinished") for names in calls)
    assert not list(tmp_path.iterdir())


def test_the_second_of_two_writers_takes_the_first_ones_copy(tmp_path: Path):
    inner: list[Path] = []

    def overtake() -> None:
        if not inner:
            inner.append(make(tmp_path))

    assert materialize("tiny", tmp_path, progress=nothing, check=overtake) == inner[0]
    assert [path.name for path in tmp_path.iterdir()] == ["tiny-v1"]
    assert read_headers(inner[0])


def test_two_processes_at_once_both_end_well(tmp_path: Path):
    program = "import sys, pathlib; from vramscope.anatomy.synthetic import materialize as make\n"
    program += "make('tiny', pathlib.Path(sys.argv[1]), progress=lambda *_: None, check=lambda: None)"
    command = [sys.executable, "-c", program, str(tmp_path)]
    writers = [subprocess.Popen(command) for _ in range(2)]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    assert [path.name for path in tmp_path.iterdir()] == ["tiny-v1"]


def test_what_a_dead_writer_left_is_removed_and_a_live_ones_is_not(tmp_path: Path):
    dead, live = tmp_path / ".tiny-v1-dead.unfinished", tmp_path / ".tiny-v1-live.unfinished"
    for path in (dead, live):
        path.mkdir()
        (path / "model.safetensors").write_bytes(b"half")
    lock = synthetic._locked(live)
    assert lock is not None
    make(tmp_path)
    assert not dead.exists()
    assert (live / "model.safetensors").exists()
    os.close(lock)


def test_no_room_is_said_with_the_bytes_needed(tmp_path: Path):
    program = """
        import pathlib, resource, sys
        from vramscope.anatomy.synthetic import materialize
        from vramscope.errors import SourceError
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        try:
            materialize("tiny", pathlib.Path(sys.argv[1]), progress=lambda *_: None, check=lambda: None)
        except SourceError as error:
            print(error)
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    assert said.startswith(f"{tmp_path}: the disk has no room for 282,368 bytes of synthetic weights (")
    assert not list(tmp_path.iterdir())


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(SourceError, match="cannot write the synthetic checkpoint: Not a directory"):
        make(tmp_path / "file" / "cache")


def test_a_damaged_copy_is_named(tmp_path: Path):
    directory = make(tmp_path)
    os.truncate(directory / "model.safetensors", 1000)
    with pytest.raises(
        SourceError, match=r"not the 282,368 bytes that were written \(delete .*, and it is made again\)"
    ):
        make(tmp_path)


def test_an_unknown_name_makes_nothing(tmp_path: Path):
    with pytest.raises(SourceError, match=r"synthetic:tinny: no such model \(did you mean 'tiny'\?\)"):
        make(tmp_path, "tinny")
    assert not list(tmp_path.iterdir())
