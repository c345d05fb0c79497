"""Finds the collectors of this room and puts them into one registry."""

from collections.abc import Callable

from prometheus_client.registry import CollectorRegistry

import vramscope.collectors as room
from vramscope.collectors._frame import CollectorFactory, Guarded, Sources
from vramscope.discovery import discover
from vramscope.events import Event


def factories() -> tuple[CollectorFactory, ...]:
    """Every collector of this room, by name."""
    return tuple(discover(room, "COLLECTOR", CollectorFactory).values())


def build_registry(sources: Sources) -> tuple[CollectorRegistry, Callable[[Event], None]]:
    """Return a registry with every collector, and the subscriber that they count events with."""
    guarded = Guarded({factory.name: factory.create(sources) for factory in factories()})
    registry = CollectorRegistry()
    registry.register(guarded)
    return registry, guarded.on_event
