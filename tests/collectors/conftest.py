from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import pytest
from prometheus_client.exposition import generate_latest

from vramscope.collectors._catalog import build_registry
from vramscope.collectors._frame import Collector, Listener, Sources
from vramscope.events import Event
from vramscope.supervisor.state import RunState
from vramscope.supervisor.store import Store

from ..picture import STARTED_AT  # noqa: TID252 - tests are not packages


@dataclass
class Page:
    """One collector, or all of them, over a store that is told events as the daemon tells them."""

    store: Store
    sources: Sources

    def of(self, create: Callable[[Sources], Collector], *stories: Iterable[Event]) -> str:
        """Tell the events and return the page of the one collector, without help texts."""
        collector = create(self.sources)
        self.tell(stories, collector.on_event if isinstance(collector, Listener) else lambda _event: None)

        @dataclass
        class One:
            def collect(self):
                return [family for family in collector.collect() if family.samples]

        return "".join(_samples(generate_latest(One()).decode()))

    def tell(self, stories: Iterable[Iterable[Event]], on_event: Callable[[Event], None]) -> None:
        for story in stories:
            for event in story:
                self.store.apply(event)
                on_event(event)

    def whole(self, *stories: Iterable[Event]) -> bytes:
        registry, on_event = build_registry(self.sources)
        self.tell(stories, on_event)
        return generate_latest(registry)

    def without_models(self) -> "Page":
        """The same store under a plan that names nothing any more."""
        return Page(self.store, replace(self.sources, model_names=frozenset, step_names=frozenset))


def _samples(text: str) -> Iterator[str]:
    return (line for line in text.splitlines(keepends=True) if not line.startswith("#"))


@pytest.fixture
def page() -> Page:
    store = Store(STARTED_AT)

    def state() -> RunState:
        return store.state

    sources = Sources(
        state=state,
        clock=lambda: STARTED_AT + 60,
        model_names=lambda: frozenset({"qwen"}),
        step_names=lambda: frozenset({"tokenize qwen", "load qwen", "to the card", "back", "unload qwen", "release"}),
        step_kinds=frozenset({"load", "move"}),
        exit_reasons=frozenset({"signal", "exit"}),
    )
    return Page(store, sources)
