"""The child process from its first moment on: `python -m vramscope.worker SETTINGS`."""

from vramscope.worker.imports import preload_torch


def main() -> None:
    """Load torch's libraries while everything else is imported."""
    preload_torch()
    from vramscope.worker.process import main as work  # noqa: PLC0415 - what it imports is to come after the thread's start

    work()


if __name__ == "__main__":
    main()
