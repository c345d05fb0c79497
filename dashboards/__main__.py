"""Writes the dashboards: `python -m dashboards [DIRECTORY]`, else where Grafana's provisioning looks for them."""

import sys
from pathlib import Path

from dashboards._catalog import rendered

DIRECTORY = Path(__file__).parents[1] / "deploy/grafana/dashboards"


def main(arguments: list[str]) -> None:
    """Write each dashboard to its file, and remove the file of a dashboard that is gone."""
    directory = Path(arguments[0]) if arguments else DIRECTORY
    directory.mkdir(parents=True, exist_ok=True)
    files = rendered()
    for path in directory.glob("*.json"):
        if path.name not in files:
            path.unlink()
    for name, text in files.items():
        (directory / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
