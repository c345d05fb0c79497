"""What a forecast reads of a model: its config and the headers of its files, never its weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vramscope.anatomy.config import read_config, resolve_dtype
from vramscope.anatomy.header import Header
from vramscope.anatomy.hubcache import find_snapshot, is_hub_id
from vramscope.anatomy.source import resolve
from vramscope.forecast.order import order_key
from vramscope.plan.schema import ModelSpec


@dataclass(frozen=True, kw_only=True)
class SourceFacts:
    """A model as its files describe it; `dtype` is the one that it will be loaded in."""

    directory: Path
    config: Mapping[str, Any]
    headers: tuple[Header, ...]
    dtype: str

    @property
    def key(self) -> str:
        return order_key(self.config, self.headers, self.dtype)


def read_source(spec: ModelSpec, cache: Path, hub_cache: Path, *, from_config: bool = False) -> SourceFacts:
    """Read what the forecast needs; with `from_config` a config.json is enough. Raises SourceError."""
    headers: tuple[Header, ...] = ()
    if from_config and not spec.source.startswith("synthetic:"):
        directory = Path(spec.source)
        if not directory.is_dir() and is_hub_id(spec.source):
            directory = find_snapshot(spec.source, spec.revision, hub_cache).directory
        config = read_config(directory)
    else:
        checkpoint = resolve(spec.source, cache, hub_cache=hub_cache, revision=spec.revision)
        directory, config, headers = checkpoint.directory, checkpoint.config, checkpoint.headers
    return SourceFacts(
        directory=directory, config=config, headers=headers, dtype=resolve_dtype(spec.dtype, config, headers)
    )
