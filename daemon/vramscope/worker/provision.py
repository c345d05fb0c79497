"""Sees to it that a model's files are on this machine: makes them, or downloads them where the plan lets it."""

from dataclasses import dataclass

from vramscope.anatomy.hubcache import is_hub_id
from vramscope.anatomy.source import SYNTHETIC, Checkpoint, resolve, steady
from vramscope.anatomy.synthetic import directory_of, materialize
from vramscope.errors import NotHereError, SourceError
from vramscope.loading.hub import Downloaded, download
from vramscope.plan.schema import Download, ModelSpec
from vramscope.settings import WorkerSettings
from vramscope.steps._frame import Facts
from vramscope.worker.reporter import Reporter

ALLOW = "or let the plan do it: `- fetch: {0}`, or `download: if-missing` for the model"


@dataclass(frozen=True, kw_only=True)
class Provided:
    """A model's files, every header checked, and what had to come for it."""

    checkpoint: Checkpoint
    downloaded: Downloaded | None = None

    @property
    def facts(self) -> Facts:
        """What an event tells of a download; nothing where there was none."""
        if (came := self.downloaded) is None:
            return {}
        rate = came.came_bytes / came.seconds if came.seconds else None
        return {"downloaded_bytes": came.came_bytes, "download_bytes_per_second": rate}


def provide(spec: ModelSpec, settings: WorkerSettings, reporter: Reporter, *, fetch: bool = False) -> Provided:
    """The model's files. `fetch` lets them be downloaded whatever the model says. Raises SourceError."""
    if spec.source.startswith(SYNTHETIC):
        _generate(spec.source.removeprefix(SYNTHETIC), settings, reporter)
    try:
        return Provided(checkpoint=_resolve(spec, settings, reporter))
    except NotHereError as error:
        if not is_hub_id(spec.source):
            raise
        if not fetch and spec.download is Download.NEVER:
            hint = f"{error.hint}, {ALLOW.format(spec.name)}" if error.hint else ALLOW.format(spec.name)
            raise SourceError(error.message, hint=hint) from None
        if settings.forbidden:
            raise SourceError(error.message, hint=settings.forbidden) from None
    came = download(spec.source, spec.revision, settings.hub_cache, reporter)
    return Provided(checkpoint=_resolve(spec, settings, reporter), downloaded=came)


def fetch_facts(provided: Provided) -> Facts:
    """What a fetch tells: the files that are here now, and what came for it."""
    checkpoint = provided.checkpoint
    return {
        "bytes": provided.downloaded.nbytes if provided.downloaded else checkpoint.file_bytes,
        "files": provided.downloaded.files if provided.downloaded else len(checkpoint.files),
        "revision": checkpoint.revision,
        "downloaded_bytes": 0,
        **provided.facts,
    }


def _resolve(spec: ModelSpec, settings: WorkerSettings, reporter: Reporter) -> Checkpoint:
    with reporter.phase("resolve"):
        return resolve(steady(spec.source), settings.cache, hub_cache=settings.hub_cache, revision=spec.revision)


def _generate(name: str, settings: WorkerSettings, reporter: Reporter) -> None:
    """Make a synthetic checkpoint, if it is not there yet, as a phase of its own: it is no part of loading."""
    if directory_of(name, settings.cache).is_dir():
        return
    with reporter.phase("generate"):
        materialize(name, settings.cache, progress=reporter.progress, check=reporter.check_cancelled)
