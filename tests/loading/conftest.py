import pytest
import torch
from tests.loading.checkpoints import save_checkpoint
from tests.loading.copying import CopyingDevice
from tests.loading.monitor import RecordingMonitor

from vramscope.loading import halves
from vramscope.loading.assemble import quiet_transformers

TARGETS = {
    "float32": torch.float32,
    "float16": torch.float16,
    "float16 by torch": torch.float16,
    "bfloat16": torch.bfloat16,
}


@pytest.fixture(scope="session", autouse=True)
def _quiet():
    quiet_transformers()


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory):
    """The directory of a tiny checkpoint by its architecture's name; made once, and not to be changed."""
    made = {}

    def checkpoint(name):
        if name not in made:
            made[name] = save_checkpoint(name, tmp_path_factory.mktemp(name))
        return made[name]

    return checkpoint


@pytest.fixture(params=TARGETS)
def wanted(request, monkeypatch):
    """The dtype to load in; bfloat16 becomes float16 by compiled code, where the package has it, and by torch."""
    if request.param == "float16 by torch":
        monkeypatch.setattr(halves, "native", None)
    return TARGETS[request.param]


@pytest.fixture
def device():
    return CopyingDevice()


@pytest.fixture
def monitor():
    return RecordingMonitor()
