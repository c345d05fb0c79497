"""The web configuration in force: read at the start, read again on change; a bad new one changes nothing."""

import asyncio
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from vramscope.events import Event, WebConfigRead
from vramscope.supervisor.watch import Watch, is_pipe
from vramscope.web.refusals import Refusals
from vramscope.web.tls import CurrentContext
from vramscope.web.web_config import WebConfig, WebConfigError, load_web_config


class Guard:
    """Holds the configuration of a file. Raises WebConfigError where there is nothing to start with."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._config = load_web_config(path)
        self._read_once = is_pipe(path)
        self.refusals = Refusals()

    @property
    def has_tls(self) -> bool:
        return self._config.context is not None

    def context(self) -> ssl.SSLContext | None:
        """For the server: a context that follows the configuration; None for plain HTTP."""
        first = self._config.context
        if first is None:
            return None
        return CurrentContext.of(lambda: self._config.context or first, self.refusals)

    def users(self) -> Mapping[str, str]:
        return self._config.users

    def headers(self) -> Mapping[str, str]:
        return self._config.headers

    async def keep(self, publish: Callable[[Event], None]) -> None:
        """Follow the files until cancelled, and publish how each reading went."""

        def take(read: WebConfig | WebConfigError, _tickets: list[None]) -> None:
            publish(self._take(read))

        watch = Watch(lambda: self._config.files, self._read, take)
        watch.start()
        try:
            await asyncio.Event().wait()
        finally:
            watch.stop()

    def _read(self) -> WebConfig | WebConfigError:
        if is_pipe(self._path):
            return self._config if self._read_once else WebConfigError(f"{self._path}: is a pipe or a device, no file")
        try:
            return load_web_config(self._path)
        except WebConfigError as error:
            return error

    def _take(self, read: WebConfig | WebConfigError) -> WebConfigRead:
        problem = ""
        if isinstance(read, WebConfigError):
            problem = str(read)
        elif (read.context is None) is self.has_tls:
            problem = f"{self._path}: TLS cannot be switched {'off' if self.has_tls else 'on'} in a run: start it again"
        elif self._config.users and not read.users:  # half a file, or one on a full disk, must not open the door
            problem = f"{self._path}: passwords cannot be switched off in a run: start it again"
        else:
            self._config = read
        return WebConfigRead(at=time.time(), problem=problem)
