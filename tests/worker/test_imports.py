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
def note(event, args):  # transformers looks through its folders for other reasons, too
    if event == "os.scandir" and sys._getframe(1).f_code.co_name == "create_import_structure_from_path":
        listed.append(str(args[0]))
sys.addaudithook(note)
import_transformers()
from transformers import AutoModelForCausalLM
print(*(path.split("/")[-1] for path in sorted(listed) if path.endswith(("models/llama", "models/qwen2"))))
"""
    assert run(code) == "llama qwen2"


def test_where_it_cannot_be_spared_transformers_does_it_twice():
    code = """
import transformers.utils.import_utils as utils
define = utils.define_import_structure
def refusing(path, prefix=None):
    if sys._getframe(1).f_code.co_filename.endswith("worker/imports.py"):
        raise ValueError("another release")
    return define(path, prefix)
utils.define_import_structure = refusing
import_transformers()
import transformers
print(transformers.Qwen2ForCausalLM.__name__)
"""
    assert run(code) == "Qwen2ForCausalLM"
