"""What a forecast reads of a model: its config and the headers of its files, never its weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vramscope.anatomy.config import read_config, resolve_dtype
from vramscope.anatomy.header import Header
from vramscope.anatomy.hubcache import find_snapshot, is_hub_id
from vramscope.anatomy.jsonfile import shown
from vramscope.anatomy.source import SYNTHETIC, resolve
from vramscope.errors import SourceError
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
    if from_config and not spec.source.startswith(SYNTHETIC):
        try:
            directory = _directory(spec, hub_cache)
            config = read_config(directory)
        except (OSError, ValueError) as error:  # for example a name too long, or one that no file can have
            reason = getattr(error, "strerror", None) or error
            raise SourceError(f"{shown(spec.source)}: {reason}") from None
    else:
        checkpoint = resolve(spec.source, cache, hub_cache=hub_cache, revision=spec.revision)
        directory, config, headers = checkpoint.directory, checkpoint.config, checkpoint.headers
    return SourceFacts(
        directory=directory, config=config, headers=headers, dtype=resolve_dtype(spec.dtype, config, headers)
    )


def _directory(spec: ModelSpec, hub_cache: Path) -> Path:
    """Where a model's config.json is: in a directory, beside a file, or in the hub cache."""
    path = Path(spec.source)
    if path.is_file():
        return path.parent
    if path.is_dir() or not is_hub_id(spec.source):
        return path
    return find_snapshot(spec.source, spec.revision, hub_cache).directory
