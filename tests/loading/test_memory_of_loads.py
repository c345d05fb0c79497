"""How much memory a load takes, and that unloading gives it back, in a process of its own."""

import json
import subprocess
import sys

import pytest
import torch
import transformers

MIB = 1 << 20
MODELS = {
    # transformers' class and config: some 120 MB in 16 bits.
    "plain": (
        "Qwen2ForCausalLM",
        {
            "vocab_size": 16384,
            "hidden_size": 768,
            "intermediate_size": 3072,
            "num_hidden_layers": 4,
            "num_attention_heads": 12,
            "num_key_value_heads": 12,
            "tie_word_embeddings": False,
        },
    ),
    "fused": (
        "Qwen2MoeForCausalLM",
        {
            "vocab_size": 1024,
            "hidden_size": 512,
            "num_hidden_layers": 4,
            "num_attention_heads": 8,
            "num_key_value_heads": 8,
            "num_experts": 8,
            "moe_intermediate_size": 1024,
            "shared_expert_intermediate_size": 512,
        },
    ),
}
MEASURE = """
import gc, json, sys
from pathlib import Path
import torch
from tests.loading.checkpoints import resolve_directory
from tests.loading.monitor import RecordingMonitor
from vramscope.loading import loader
from vramscope.loading.assemble import quiet_transformers
from vramscope.loading.resident import ResidentModel
from tests.loading.modules import IDENTITY
from vramscope.memory.resident import read_resident

def load():
    loaded = loader.load(checkpoint, getattr(torch, dtype), RecordingMonitor())
    return ResidentModel(IDENTITY, loaded.module)

quiet_transformers()
directory, dtype, times = sys.argv[1], sys.argv[2], int(sys.argv[3])
checkpoint = resolve_directory(Path(directory))
model = load()
model.unload()
del model
gc.collect()
Path("/proc/self/clear_refs").write_text("5")
before = read_resident()
model = load()
gc.collect()
loaded = read_resident()
nbytes = model.nbytes
levels = []
for _ in range(times):
    model.unload()
    levels.append(read_resident().total_bytes)
    model = load()
print(json.dumps({"nbytes": nbytes, "before": before.total_bytes, "loaded": loaded.total_bytes,
                  "peak": loaded.peak_bytes, "levels": levels}))
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """The directory of a checkpoint in bfloat16 by its name in MODELS."""
    made = {}

    def saved(name):
        if name not in made:
            class_name, fields = MODELS[name]
            model_class = getattr(transformers, class_name)
            made[name] = tmp_path_factory.mktemp(name)
            with torch.device("meta"):
                model = model_class(model_class.config_class(**fields)).bfloat16()
            model.to_empty(device="cpu").save_pretrained(made[name])
        return made[name]

    return saved


def measured(directory, dtype, times=1):
    command = [sys.executable, "-c", MEASURE, str(directory), dtype, str(times)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_load_takes_hardly_more_than_the_model_at_any_moment(directory, dtype):
    found = measured(directory("plain"), dtype)
    assert found["nbytes"] > 100e6
    assert found["peak"] - found["before"] < 1.04 * found["nbytes"] + 8 * MIB  # buffers do not grow with the model


def test_a_fused_model_keeps_no_second_copy_of_what_was_read(directory):
    found = measured(directory("fused"), "float16")
    assert found["nbytes"] > 100e6
    assert found["loaded"] - found["before"] < 1.25 * found["nbytes"]  # torch's own memory comes in larger pieces


@pytest.mark.parametrize(("name", "times"), [("plain", 50), ("fused", 5)])
def test_unloading_gives_everything_back(directory, name, times):
    found = measured(directory(name), "bfloat16", times)
    assert found["loaded"] - found["before"] > 0.97 * found["nbytes"]
    assert max(found["levels"]) < 1.03 * found["before"]
