"""Checkpoints of which no model can be made: one clear error each, and never code of a stranger."""

import json
import shutil
import time

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.loading.checkpoints import load, resolve_directory

from vramscope.errors import SourceError, StepError
from vramscope.loading.assemble import find_architecture

NORM = "model.norm.weight"
CODE_OF_A_STRANGER = """
from pathlib import Path
from transformers import PreTrainedConfig
Path(r"{mark}").touch()
class StrangeConfig(PreTrainedConfig):
    model_type = "strange"
"""


def architecture_of(checkpoint):
    return find_architecture(checkpoint.directory, checkpoint.config)


@pytest.fixture
def copied(checkpoints, tmp_path):
    """A copy of the tiny Qwen2 checkpoint, with changes to its tensors and to its config."""

    def copy(change=None, **config):
        directory = tmp_path / "model"
        shutil.copytree(checkpoints("qwen2"), directory)
        if change:
            tensors = load_file(directory / "model.safetensors")
            change(tensors)
            save_file(tensors, directory / "model.safetensors")
        path = directory / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | config))
        return resolve_directory(directory)

    return copy


def test_a_missing_parameter_is_named(copied):
    checkpoint = copied(lambda tensors: tensors.pop(NORM))
    with pytest.raises(StepError, match=rf"^Qwen2ForCausalLM: 1 parameter\(s\) are not in the checkpoint: '{NORM}' "):
        load(checkpoint, torch.float16)


def test_many_missing_parameters_are_counted(copied):
    checkpoint = copied(lambda tensors: [tensors.pop(name) for name in list(tensors) if "layers.1" in name])
    with pytest.raises(StepError, match=r"12 parameter\(s\) are not in the checkpoint: '.*', '.*', '.*' and 9 more "):
        load(checkpoint, torch.float16)


def test_a_parameter_of_another_shape_is_named(copied):
    checkpoint = copied(lambda tensors: tensors.update({NORM: torch.ones(31)}))
    message = rf"^Qwen2ForCausalLM: 1 parameter\(s\) have another shape than config.json says: '{NORM}'$"
    with pytest.raises(StepError, match=message):
        load(checkpoint, torch.float16)


def test_tensors_that_the_model_has_not_are_reported(copied):
    checkpoint = copied(lambda tensors: tensors.update({"b.extra": torch.ones(3), "a.extra": torch.ones(3)}))
    model, unexpected = load(checkpoint, torch.float16)
    assert unexpected == ("a.extra", "b.extra")
    assert not hasattr(model, "a")


def test_a_model_that_needs_its_own_code_is_refused_at_once_and_the_code_never_runs(copied, tmp_path):
    mark = tmp_path / "ran"
    auto = {"AutoConfig": "configuration_strange.StrangeConfig"}
    checkpoint = copied(model_type="strange", architectures=["StrangeModel"], auto_map=auto)
    code = CODE_OF_A_STRANGER.format(mark=mark)
    (checkpoint.directory / "configuration_strange.py").write_text(code)
    began = time.monotonic()
    with pytest.raises(SourceError, match=r"config\.json: transformers .* custom code .* vramscope does not run"):
        architecture_of(checkpoint)
    assert time.monotonic() - began < 14, "transformers would ask at the terminal, and wait for 15 s"
    assert not mark.exists()


def test_a_known_model_that_brings_its_own_code_is_loaded_without_it(copied, tmp_path):
    mark = tmp_path / "ran"
    checkpoint = copied(auto_map={"AutoConfig": "configuration_strange.StrangeConfig"})
    (checkpoint.directory / "configuration_strange.py").write_text(CODE_OF_A_STRANGER.format(mark=mark))
    model, _ = load(checkpoint, torch.float16)
    assert type(model).__name__ == "Qwen2ForCausalLM"
    assert not mark.exists()


def test_a_model_that_transformers_does_not_know(copied):
    with pytest.raises(SourceError, match=r"cannot use it: .* has model type `strange` .*a newer transformers"):
        architecture_of(copied(model_type="strange"))


def test_a_model_that_generates_no_text_and_names_no_class(copied):
    message = r"no model class for architectures 'Nonsense' and model_type 'clip_vision_model'"
    with pytest.raises(SourceError, match=message):
        architecture_of(copied(model_type="clip_vision_model", architectures=["Nonsense"]))


@pytest.mark.parametrize("named", [["BertModel"], ["PreTrainedModel"], ["AutoModel"], ["not a name"], [], None])
def test_a_class_that_does_not_fit_the_config_is_not_used(copied, named):
    assert architecture_of(copied(architectures=named)).name == "Qwen2ForCausalLM"


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"hidden_size": "many"}, r"cannot use it: Validation error for field 'hidden_size': TypeError: .*"),
        ({"hidden_act": "nonsense"}, r"Qwen2ForCausalLM cannot be built from it: KeyError: 'nonsense'"),
        ({"rope_scaling": {"rope_type": "nonsense"}}, r"Qwen2ForCausalLM cannot be built from it: .*nonsense.*"),
    ],
)
def test_a_config_that_makes_no_model(copied, config, reason):
    with pytest.raises(SourceError, match=reason):
        load(copied(**config), torch.float16)


def test_a_config_of_another_size(copied):
    with pytest.raises(StepError, match=r"26 parameter\(s\) have another shape than config.json says"):
        load(copied(hidden_size=36), torch.float16)
