"""Whether torch itself finds CUDA, which is what decides a run; asked only where there is a GPU or one is insisted on.

torch is imported in a process of its own, with a deadline: it takes seconds, and a broken driver may hang it. Devices
are only counted, so that no CUDA context is made.
"""

import json
import subprocess
import sys

from vramscope.doctor._frame import Check, Finding, Machine, State
from vramscope.doctor._hardware import gpus, kernel_module
from vramscope.settings import DeviceMode

START_SECONDS = 45.0
_ASK = (
    "import json, warnings\n"
    "with warnings.catch_warnings(record=True) as told:\n"
    "    warnings.simplefilter('always')\n"
    "    import torch\n"
    "    count = torch.cuda.device_count() if torch.cuda.is_available() else 0\n"
    "print(json.dumps([count, [str(each.message).splitlines()[0] for each in told]]))\n"
)


def _look(machine: Machine) -> Finding:
    if machine.device_mode is DeviceMode.SIMULATED:
        return Finding(state=State.NOTE, found="not asked: a simulated run needs none")
    is_there = gpus(machine) or kernel_module(machine) is not None
    if machine.device_mode is DeviceMode.AUTO and not is_there:
        return Finding(state=State.NOTE, found="not asked: there is no GPU")
    command = [sys.executable, "-P", "-c", _ASK]
    try:
        told = subprocess.run(command, capture_output=True, timeout=START_SECONDS, check=True)  # noqa: S603 - our own code
        count, warnings = json.loads(told.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return _without(machine, f"torch does not get as far as counting devices: {type(error).__name__}")
    return judge(machine, count, warnings)


def judge(machine: Machine, count: int, warnings: list[str]) -> Finding:
    """What torch's count means; `warnings` are what it said meanwhile, a line each."""
    if count:
        return Finding(state=State.OK, found=f"torch sees {count} CUDA {'device' if count == 1 else 'devices'}")
    reason = f": {warnings[0]}" if warnings else ""
    return _without(machine, f"torch sees no CUDA device{reason}")


def _without(machine: Machine, found: str) -> Finding:
    """It stops a run that insists on CUDA; another simulates."""
    state = State.PROBLEM if machine.device_mode is DeviceMode.CUDA else State.WARNING
    return Finding(state=state, found=found, advice="the warnings about driver, device files and torch say why")


CHECK = Check(title="CUDA start", look=_look, seconds=START_SECONDS + 5)
