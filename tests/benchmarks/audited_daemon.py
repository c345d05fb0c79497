"""`vramscope run` with an auditor inside, which looks at every state that is published, and prints what it found.

The last line of its output is the audit, as JSON.
"""

import argparse
import asyncio
import json
import sys
import time

from vramscope.app import Run
from vramscope.cli import run as command
from vramscope.events import Event
from vramscope.memory.residue import AFTER_RELEASE, ResidueMeasured
from vramscope.supervisor.store import Store
from vramscope.web.server import url

FAULTS_KEPT = 20
AUDIT = "audit: "


class Auditor:
    """A subscriber that folds the events as the daemon does, and checks what comes of them.

    `ledgers` and `residues` are how many were checked, so that nobody takes silence for soundness.
    """

    def __init__(self) -> None:
        self._store = Store(time.time())
        self.ledgers = 0
        self.residues = 0
        self.faults: list[str] = []

    def on_event(self, event: Event) -> None:
        before = self._store.state.accounts
        self._store.apply(event)
        after = self._store.state.accounts
        for device, account in after.items():
            if account is not before.get(device):
                self._check(device, account.ledger(), account.driver.total_bytes)
        if isinstance(event, ResidueMeasured):
            for residue in event.residues:
                self.residues += 1
                if residue.after == AFTER_RELEASE and residue.device_bytes:
                    self._note(f"{residue.model} left {residue.device_bytes} bytes on the devices")

    def _check(self, device: str, owners: dict[str, int] | None, total: int | None) -> None:
        if owners is None:
            return
        self.ledgers += 1
        if sum(owners.values()) != total or min(owners.values()) < 0:
            self._note(f"the ledger of {device} is no partition of {total} bytes: {owners}")

    def _note(self, fault: str) -> None:
        if len(self.faults) < FAULTS_KEPT:
            self.faults.append(fault)

    def text(self) -> str:
        return json.dumps({"ledgers": self.ledgers, "residues": self.residues, "faults": self.faults})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    command.add_arguments(parser)
    settings = command._settings(parser.parse_args())
    session, auditor = Run(settings), Auditor()
    session.subscribe(auditor.on_event)
    for listener in settings.listeners:
        sys.stdout.write(f"{url(listener)}\n")
    sys.stdout.flush()
    code = asyncio.run(session.run(lambda: None))
    sys.stdout.write(f"{AUDIT}{auditor.text()}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
