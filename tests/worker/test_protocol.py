import pytest

from vramscope.errors import WorkerError
from vramscope.events import Outcome, PhaseEnded
from vramscope.memory.snapshot import (
    AllocatorMemory,
    DeviceSnapshot,
    DriverMemory,
    MemorySampled,
    ModelSnapshot,
    ParameterGroup,
    Residency,
    ResidentMemory,
)
from vramscope.plan.schema import Download, ModelSpec
from vramscope.worker.protocol import (
    Cancel,
    Configure,
    Heartbeat,
    Refused,
    Reset,
    RunStep,
    Shutdown,
    StepReturned,
    decode,
    encode,
)

SAMPLE = MemorySampled(
    at=1.5,
    devices=(
        DeviceSnapshot(
            device="cuda:0",
            backend="simulated",
            allocator=AllocatorMemory(allocated_bytes=512, reserved_bytes=2 << 20),
            driver=DriverMemory(total_bytes=12 << 30),
        ),
    ),
    models=(
        ModelSnapshot(
            model="m",
            residency=Residency.DEVICE,
            architecture="Qwen2ForCausalLM",
            dtype="float16",
            quantization="",
            revision="",
            groups=(ParameterGroup(component="mlp", dtype="float16", device="cuda:0", parameters=3, nbytes=6),),
            buffer_bytes={"cuda:0": 256},
        ),
    ),
    resident=ResidentMemory(anonymous_bytes=1, file_bytes=2, swap_bytes=3, peak_bytes=4),
)


@pytest.mark.parametrize(
    "message",
    [
        Configure(models={"m": ModelSpec(name="m", source="/models/m", download=Download.NEVER)}, device="cuda:0"),
        RunStep(run=1, step="say", kind="tokenize", model="m", fields={"text": "大\udc80\n", "n": 1}),
        Cancel(run=7),
        Reset(run=8),
        Shutdown(),
        Heartbeat(),
        Refused(message="no"),
        StepReturned(
            run=1, outcome=Outcome.FAILED, error="why", facts={"tokens": 3, "rate": 0.5, "name": "x", "u": None}
        ),
        PhaseEnded(at=2.0, step="s", kind="load", model="m", phase="read", seconds=0.25, nbytes=None),
        SAMPLE,
    ],
    ids=lambda message: type(message).__name__,
)
def test_message_arrives_as_it_was_sent_in_one_line_of_ascii(message) -> None:
    line = encode(message)
    assert line.isascii()
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode(line) == message


@pytest.mark.parametrize(
    "line",
    [
        b"hello from a library that prints\n",
        b"{}\n",
        b"[1]\n",
        b'{"type": "os.system"}\n',
        b'{"type": "Cancel"}\n',
        b'{"type": "Cancel", "run": "soon"}\n',
        b"\xff\xfe\n",
    ],
)
def test_anything_else_is_refused_and_quoted(line: bytes) -> None:
    with pytest.raises(WorkerError, match="not a message of the worker protocol"):
        decode(line)


def test_text_that_is_no_valid_unicode_is_escaped_for_pages_and_logs() -> None:
    line = encode(StepReturned(run=1, outcome=Outcome.FAILED, error="caf\udce9.bin", facts={"name": "\ud800"}))
    message = decode(line, printable=True)
    assert message.error == "caf\\udce9.bin"
    assert message.facts == {"name": "\\ud800"}
    message.error.encode()
