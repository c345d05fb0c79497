"""Finds the dashboards of this room and writes each one out."""

import json

from grafana_foundation_sdk.cog.encoder import JSONEncoder

import dashboards as room
from dashboards._page import Page
from vramscope.discovery import discover


def rendered() -> dict[str, str]:
    """File name to JSON text of every dashboard, the same text each time."""
    pages = discover(room, "DASHBOARD", Page)
    return {f"{name.replace('_', '-')}.json": _text(page) for name, page in pages.items()}


def _text(page: Page) -> str:
    made = json.loads(json.dumps(page.build(), cls=JSONEncoder))
    for link in made["links"]:
        # The SDK knows one placement only, in a menu. Without it Grafana shows the links above the dashboard.
        del link["placement"]
    return json.dumps(made, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
