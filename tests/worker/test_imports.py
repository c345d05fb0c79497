"""What the worker does to have transformers imported sooner changes nothing about it."""

import subprocess
import sys

ALONE = """
import sys
from vramscope.worker.imports import import_transformers
"""


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-P", "-c", ALONE + code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_transformers_has_the_models_that_it_finds_by_itself():
    code = """
import_transformers()
import transformers
from transformers.utils.import_utils import define_import_structure
models = sys.modules["transformers.models"]
found = define_import_structure(models.__file__)
names = {name for modules in found.values() for each in modules.values() for name in each}
assert len(names) > 1000
assert {name for name in dir(models)} >= names, names - set(dir(models))
print(transformers.Qwen2ForCausalLM.__name__, models.llama.LlamaConfig.__name__)
"""
    assert run(code) == "Qwen2ForCausalLM LlamaConfig"


def test_the_models_are_looked_for_once():
    """No folder of them is listed twice."""
    code = """
listed = []
sys.addaudithook(lambda event, args: listed.append(str(args[0])) if event == "os.scandir" else None)
import_transformers()
from transformers import AutoModelForCausalLM
print(*(path.split("/")[-1] for path in sorted(listed) if path.endswith(("models/llama", "models/qwen2"))))
"""
    assert run(code) == "llama qwen2"
