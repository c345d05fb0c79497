"""A page on a screen of a given width: Chromium over the pipe of its DevTools protocol.

https://chromedevtools.github.io/devtools-protocol/
"""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from ..daemon import wait_for  # noqa: TID252 - tests are not packages


class Browser:
    """One tab."""

    def __init__(self, to_browser: BinaryIO, from_browser: BinaryIO) -> None:
        self._to, self._from = to_browser, from_browser
        self._number, self._rest, self._session = 0, b"", ""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def ask(self, method: str, /, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        command = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            command["sessionId"] = self._session
        self._to.write(json.dumps(command).encode() + b"\0")
        self._to.flush()
        while (answer := self._message()).get("id") != self._number:
            pass
        assert "error" not in answer, answer
        return answer["result"]

    def open(self, url: str, width: int) -> None:
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=2, mobile=True)
        self.ask("Page.navigate", url=url)

    def evaluate(self, expression: str) -> Any:
        return self.ask("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            came = self._from.read1(1 << 16)
            assert came, "the browser ended"
            self._rest += came
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)


@contextmanager
def browser(command: list[str], profile: Path) -> Iterator[Browser]:
    """A browser that is gone afterwards."""
    (theirs_in, ours_out), (ours_in, theirs_out) = os.pipe(), os.pipe()
    # It reads commands from descriptor 3 and answers on 4; a message ends with a zero byte.
    script = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
    process = subprocess.Popen(
        ["bash", "-c", script, "bash", *command, f"--user-data-dir={profile}", "--remote-debugging-pipe"],
        pass_fds=(theirs_in, theirs_out),
        stderr=subprocess.DEVNULL,
    )
    for descriptor in (theirs_in, theirs_out):
        os.close(descriptor)
    with os.fdopen(ours_out, "wb") as to_browser, os.fdopen(ours_in, "rb") as from_browser:
        try:
            yield Browser(to_browser, from_browser)
        finally:
            process.kill()
            process.wait()


def appears(tab: Browser, text: str) -> None:
    wait_for(text, lambda: text in (tab.evaluate("document.body && document.body.innerText") or ""))
