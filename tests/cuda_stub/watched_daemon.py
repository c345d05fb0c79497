"""A daemon on a machine with stub GPUs, scraped all the time from its first answer to its end."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.daemon import Daemon, wait_for

INTERVAL_SECONDS = 0.1
OUTPUT_SHOWN = 2000
Series = dict[tuple[tuple[str, str], ...], float]


@dataclass(frozen=True)
class Scrape:
    """What one scrape saw, and how long it took."""

    seconds: float
    samples: Mapping[str, Series]

    def total(self, name: str, /, **labels: str) -> float | None:
        """The sum of a metric's series that have these labels; None if there is none."""
        values = [value for key, value in self.samples.get(name, {}).items() if labels.items() <= dict(key).items()]
        return sum(values) if values else None

    def owners(self, device: str = "cuda:0") -> dict[str, float]:
        """The ledger of a device."""
        series = self.samples.get("vramscope_ledger_bytes", {})
        return {dict(key)["owner"]: value for key, value in series.items() if dict(key)["device"] == device}

    def is_running(self, kind: str) -> bool:
        return self.total("vramscope_step_running", kind=kind) == 1


class WatchedDaemon(Daemon):
    """`vramscope run`; `scrapes` are all its answers, `refusals` why it did not answer once it had begun to."""

    def __init__(self, arguments: list[str], cache: Path, environment: Mapping[str, str]) -> None:
        super().__init__(arguments, cache, environment)
        self.scrapes: list[Scrape] = []
        self.refusals: list[str] = []
        self._enough = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def wait_until(self, what: str, condition: Callable[[Scrape], Any], seconds: float = 60.0) -> Scrape:
        """The first scrape from now on for which the condition holds."""
        begin = len(self.scrapes)

        def find() -> Scrape | None:
            assert self.process.poll() is None, f"the daemon ended: {self.output[-OUTPUT_SHOWN:]}"
            return next((scrape for scrape in self.scrapes[begin:] if condition(scrape)), None)

        try:
            return wait_for(what, find, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.output[-OUTPUT_SHOWN:]}") from None

    def end(self) -> int:
        """Stop watching, then the daemon; returns its exit code."""
        self._enough.set()
        self._watcher.join(10)
        return self.stop()

    def _watch(self) -> None:
        while not self._enough.is_set():
            began = time.monotonic()
            try:
                samples = self.samples()
            except OSError as error:
                if self._enough.is_set() or self.process.poll() is not None:
                    return
                if self.scrapes:
                    self.refusals.append(str(error))
            else:
                self.scrapes.append(Scrape(time.monotonic() - began, samples))
            self._enough.wait(INTERVAL_SECONDS)


@contextmanager
def watched(arguments: list[str], cache: Path, environment: Mapping[str, str]) -> Iterator[WatchedDaemon]:
    """A daemon that is gone afterwards, whatever happens."""
    daemon = WatchedDaemon(arguments, cache, environment)
    try:
        yield daemon
    finally:
        if daemon.process.poll() is None:
            daemon.process.kill()
            daemon.process.wait()
