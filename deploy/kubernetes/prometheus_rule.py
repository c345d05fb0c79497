"""Makes base/prometheusrule.yaml of deploy/prometheus/rules: `python deploy/kubernetes/prometheus_rule.py`.

The Prometheus Operator takes rules as an object of the cluster; its groups are those of a rule file. A test compares
what is committed with what this makes.
"""

from pathlib import Path
from typing import Any

import yaml

KUBERNETES = Path(__file__).resolve().parent
RULES = KUBERNETES.parent / "prometheus" / "rules"
TARGET = KUBERNETES / "base" / "prometheusrule.yaml"
HEAD = "# Made by deploy/kubernetes/prometheus_rule.py of deploy/prometheus/rules; not to be edited.\n"


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, which people can read."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


def prometheus_rule(rules: Path) -> str:
    """The PrometheusRule, as text, of all rule files in a directory. Raises OSError and yaml.YAMLError."""
    groups: list[dict[str, Any]] = []
    for path in sorted(rules.glob("*.yml")):
        groups += yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
    resource = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "vramscope"},
        "spec": {"groups": groups},
    }
    return HEAD + yaml.dump(resource, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


if __name__ == "__main__":
    TARGET.write_text(prometheus_rule(RULES), encoding="utf-8")
