"""What supervisor and worker say to each other: one JSON object a line, with the name of its type.

Commands go to the worker's standard input; the worker answers with events and with the messages defined here.
"""

import json
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any, get_args

from pydantic import TypeAdapter, ValidationError

from vramscope.errors import WorkerError
from vramscope.events import Fact, Outcome, PhaseEnded, PhaseStarted, StepProgressed
from vramscope.forecast.order import ModelOrder
from vramscope.memory.residue import ResidueMeasured
from vramscope.memory.snapshot import MemorySampled, WorkerReady
from vramscope.plan.schema import ModelSpec


@dataclass(frozen=True, kw_only=True)
class Configure:
    """The models that steps may name, and where `move` goes when it does not say."""

    models: dict[str, ModelSpec]
    device: str


@dataclass(frozen=True, kw_only=True)
class RunStep:
    """Run one step. `fields` are the kind's fields, as JSON; the answer is a StepReturned with the same `run`."""

    run: int
    step: str
    kind: str
    model: str
    fields: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Cancel:
    """Stop the step `run` between two pieces of its work; a run that is over already is ignored."""

    run: int


@dataclass(frozen=True, kw_only=True)
class Reset:
    """Unload every model, as a step would; the answer is a StepReturned with the same `run`.

    With `release` the allocator's cache goes back, too.
    """

    run: int
    release: bool = False


@dataclass(frozen=True, kw_only=True)
class Describe:
    """Tell the order of these models' tensors, without loading them; the answer is a Described with the same `run`."""

    run: int
    models: tuple[str, ...]
    from_config: bool = False


@dataclass(frozen=True, kw_only=True)
class Described:
    """The order of each model that could be described, and for each other model why not."""

    run: int
    orders: dict[str, ModelOrder]
    problems: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class OpenDevices:
    """Create the context of every device, so that its size can be measured; the answer is a StepReturned."""

    run: int


@dataclass(frozen=True, kw_only=True)
class Shutdown:
    """End the process; so does the end of the stream."""


@dataclass(frozen=True, kw_only=True)
class StepReturned:
    """A step is over. `fatal` says that the process is of no use any more.

    `error` is why it failed, or the trouble that a cancelled step was in; empty else.
    """

    run: int
    outcome: Outcome
    error: str = ""
    fatal: bool = False
    facts: dict[str, Fact] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Refused:
    """The worker cannot start as it was asked to (for example: no CUDA); a restart would not help."""

    message: str


@dataclass(frozen=True, kw_only=True)
class Heartbeat:
    """The process lives and its threads run."""


Command = Configure | RunStep | Cancel | Reset | Describe | OpenDevices | Shutdown
Message = (
    WorkerReady
    | Refused
    | PhaseStarted
    | PhaseEnded
    | StepProgressed
    | MemorySampled
    | ResidueMeasured
    | StepReturned
    | Described
    | Heartbeat
)

_TYPES: dict[str, type] = {kind.__name__: kind for kind in (*get_args(Command), *get_args(Message))}
# A line longer than this is no message of ours. The order of a model with 100,000 tensors takes 11 MB.
LINE_LIMIT_BYTES = 64 << 20


@cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def encode(message: Command | Message) -> bytes:
    """One line of JSON; text that is no valid Unicode (lone surrogates) travels escaped."""
    return json.dumps({"type": type(message).__name__, **asdict(message)}).encode("ascii") + b"\n"


def decode(line: bytes, *, printable: bool = False) -> Any:
    """The message in a line. Raises WorkerError for anything else.

    With `printable`, text that is no valid Unicode (file names and configs may hold it) is escaped, so that it can go
    to pages, logs and metrics.
    """
    try:
        data = json.loads(line)
        if printable and rb"\ud" in line:
            data = _escaped(data)
        kind = _TYPES[data.pop("type")]
        return _adapter(kind).validate_python(data)
    except (ValueError, KeyError, TypeError, AttributeError, ValidationError) as error:
        raise WorkerError(f"not a message of the worker protocol: {line[:200]!r}: {error}") from None


def _escaped(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode()
        case list():
            return [_escaped(each) for each in value]
        case dict():
            return {_escaped(key): _escaped(each) for key, each in value.items()}
        case _:
            return value
