import pytest
from tests.loading.checkpoints import save_checkpoint
from tests.loading.copying import CopyingDevice
from tests.loading.monitor import RecordingMonitor

from vramscope.loading.assemble import quiet_transformers


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


@pytest.fixture
def device():
    return CopyingDevice()


@pytest.fixture
def monitor():
    return RecordingMonitor()
