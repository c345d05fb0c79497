"""The one tree of errors. An error says what, where, what was expected and, in its hint, what to do."""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of the command line."""

    OK = 0
    USER = 1
    USAGE = 2
    BUG = 3
    INTERRUPTED = 130
    TERMINATED = 143


class VramscopeError(Exception):
    """Base of every error that vramscope raises on purpose; its text is one clear sentence."""

    exit_code = ExitCode.USER

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class UsageError(VramscopeError):
    """The command line itself is wrong."""

    exit_code = ExitCode.USAGE


class SourceError(VramscopeError):
    """A model's files are missing, damaged, or not what vramscope reads."""


class NotHereError(SourceError):
    """A model, or a file of it, is not on this machine; a download would bring it."""


class StepError(VramscopeError):
    """A step could not do its work; the run goes on as the plan says."""


class ExpectationError(StepError):
    """An `expect` step measured something else than the plan expects."""


class PartError(StepError):
    """A step names a part that its model does not have."""


class OutOfMemoryError(StepError):
    """A device has no room for what was asked; everything that the step took is given back."""


class StickyDeviceError(StepError):
    """CUDA is broken for this process: only a new worker helps."""


class StepCancelledError(VramscopeError):
    """The step was told to stop, and stopped between two pieces of its work.

    `trouble` is what it could not get done by then, in a sentence; empty where all went well.
    """

    trouble = ""


class WorkerError(VramscopeError):
    """The worker process died, did not start, or stopped answering."""


class ListenError(VramscopeError):
    """The HTTP address cannot be listened on."""


def reason_of(error: BaseException) -> str:
    """What an exception of another library says, as one line. Its text may be empty, or go on for pages."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if isinstance(error, LookupError | AttributeError) or not lines:  # these say no more than a name
        lines.insert(0, f"{type(error).__name__}:")
    return " ".join(lines[:2]).rstrip(":,") if lines[0].endswith(":") else lines[0]
