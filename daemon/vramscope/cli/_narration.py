"""What a run says on standard output: the narration, the results, and how it ended."""

import os
from collections.abc import Callable

from vramscope.cli._output import terminal
from vramscope.errors import ExitCode
from vramscope.events import Event, Outcome
from vramscope.plan.schema import OnFailure
from vramscope.report.live import Narrator
from vramscope.report.row import ResultRow
from vramscope.report.table import print_results
from vramscope.settings import DeviceMode

SERVING = "serving until interrupted (Ctrl-C)"


class Narration:
    """Everything for people, in the order of a run: events, the end of the plan, the end of the process."""

    def __init__(
        self,
        rows: Callable[[], tuple[ResultRow, ...]],
        urls: tuple[str, ...],
        mode: DeviceMode,
        *,
        once: bool,
        on_failure: Callable[[], OnFailure],
    ) -> None:
        self._rows = rows
        self._once = once
        self._on_failure = on_failure
        self._console = terminal(os.environ)
        self._narrator = Narrator(self._console, urls, mode)
        self._is_told = False

    def on_event(self, event: Event) -> None:
        self._narrator.on_event(event)

    def close(self) -> None:
        self._narrator.close()

    def plan_is_over(self) -> None:
        self._show_results()
        if self._once:
            return
        if self._narrator.outcome is Outcome.SUCCEEDED:
            self._narrator.say(f"the plan is done; {SERVING}")
        elif self._on_failure() is OnFailure.STOP:
            self._narrator.say(f"stopped at a failure; {SERVING}")
        else:
            self._narrator.say(f"the plan is done, but not every cycle succeeded; {SERVING}")

    def goodbye(self, code: ExitCode, *, is_quit: bool) -> None:
        """The results, if there was no occasion yet, and a line where somebody ended the run."""
        if not self._is_told:
            self._show_results()
        if code is ExitCode.INTERRUPTED:
            self._narrator.say("ended by Ctrl-C; goodbye")
        elif code is ExitCode.TERMINATED or not self._once:
            self._narrator.say(f"ended by {'a request to quit' if is_quit else 'SIGTERM'}; goodbye")

    def _show_results(self) -> None:
        self._is_told = True
        self._narrator.close()
        print_results(self._rows(), self._console)
