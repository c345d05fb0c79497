"""The tokenize step on a bench: what it tells, and that it fails alone."""

import pytest
from tests.loading.checkpoints import save_checkpoint
from tests.loading.copying import CopyingDevice
from tests.loading.tokenizers import save_byte_tokenizer

from vramscope.errors import SourceError, StepCancelledError, StepError
from vramscope.plan.schema import ModelSpec
from vramscope.settings import WorkerSettings
from vramscope.worker.bench import Bench, StepBench
from vramscope.worker.protocol import RunStep
from vramscope.worker.reporter import Reporter


@pytest.fixture
def directory(tmp_path):
    return save_checkpoint("llama", tmp_path / "model")


@pytest.fixture
def bench(tmp_path, directory):
    settings = WorkerSettings(cache=tmp_path / "cache", hub_cache=tmp_path / "hub")
    bench = Bench(settings, {"cuda:0": CopyingDevice()})
    bench.specs = {"m": ModelSpec(name="m", source=str(directory))}
    return bench


@pytest.fixture
def reporter():
    command = RunStep(run=1, step="count", kind="tokenize", model="m", fields={})
    return Reporter(command, lambda _message: None)


def test_every_count_has_its_name(bench, reporter, directory):
    save_byte_tokenizer(directory)
    facts = StepBench(bench, reporter).tokenize("m", "two words")
    config_rows = facts.pop("embedding_rows")
    window = facts.pop("context_window_tokens")
    assert facts.pop("context_window_share") == 11 / window
    assert facts == {
        "tokens": 9,
        "tokens_with_special": 11,
        "special_tokens": 2,
        "characters": 9,
        "words": 2,
        "vocabulary": 258,
        "added_tokens": 1,
    }
    assert config_rows > 0


def test_a_tokenizer_takes_no_device_memory(bench, reporter, directory):
    save_byte_tokenizer(directory)
    before = bench.memory().devices
    StepBench(bench, reporter).tokenize("m", "text")
    assert bench.memory().devices == before
    assert bench.memory().models == ()


@pytest.mark.parametrize(
    ("file", "named"), [(None, r"there is no tokenizer\.json"), ("tokenizer.model", "sentencepiece and protobuf")]
)
def test_without_a_tokenizer_only_this_step_fails(bench, reporter, directory, file, named):
    if file:
        (directory / file).write_bytes(b"\x0a\x05dummy")
    steps = StepBench(bench, reporter)
    with pytest.raises(SourceError, match=named):
        steps.tokenize("m", "text")
    assert steps.load("m", "cpu")["bytes"] > 0
    with pytest.raises(SourceError, match=named):
        steps.tokenize("m", "text")
    assert set(bench.models) == {"m"}


def test_half_a_character_is_an_error_of_the_step(bench, reporter, directory):
    save_byte_tokenizer(directory)
    with pytest.raises(StepError, match="the text cannot be tokenized: character 1 is half of one"):
        StepBench(bench, reporter).tokenize("m", "\ud800")


def test_a_cancelled_step_counts_nothing(bench, reporter, directory):
    save_byte_tokenizer(directory)
    reporter.cancel()
    with pytest.raises(StepCancelledError):
        StepBench(bench, reporter).tokenize("m", "text")
