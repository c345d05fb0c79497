"""Brings a model's files from the Hugging Face hub: what a load reads, and nothing that could run code."""

import errno
import os
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from huggingface_hub import HfApi, constants, hf_hub_url
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.file_download import http_get
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

from vramscope.anatomy.jsonfile import read_object
from vramscope.anatomy.weights import INDEX, PICKLES, SINGLE, few
from vramscope.errors import SourceError
from vramscope.loading.hub_store import HubFile, Store
from vramscope.units import format_bytes

# A dropped connection loses what is no whole chunk yet; the library's own are 10 MB.
CHUNK_BYTES = 1 << 20
# How often in a row an attempt may bring nothing, and how long the pauses between are.
TRIES = 6
PAUSE_LIMIT_SECONDS = 30.0
TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
# The library's base of all that can go wrong with a request: httpx's in one release, httpx2's in another.
RequestFailure: type[Exception] = HfHubHTTPError.__bases__[0]

# Beside the weights: what the config, the tokenizer and the chat template consist of. All of them are text or tables.
PLAIN = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "chat_template.jinja",
    "chat_template.json",
)


@dataclass(frozen=True, kw_only=True)
class Listing:
    """What a revision is: its commit, and its files by name."""

    commit: str
    files: Mapping[str, HubFile]


@dataclass(frozen=True)
class Progress:
    """How far it is at one moment, as another thread may look at any."""

    phase: str = ""
    total_bytes: int = 0
    settled_bytes: int = 0
    under_way: Path | None = None

    @property
    def done_bytes(self) -> int:
        path = self.under_way
        try:
            return self.settled_bytes + (path.stat().st_size if path else 0)
        except OSError:  # it has just been given its name
            return self.settled_bytes


@dataclass
class Transfer:
    """One download. Another thread may read `progress`, which is replaced as a whole.

    `on_failure` hears of every failure after which there is another attempt, before the pause.
    """

    hub_id: str
    revision: str
    hub_cache: Path
    progress: Progress = field(default_factory=Progress)
    pause: Callable[[float], None] = time.sleep
    on_failure: Callable[[Exception], None] = lambda _: None
    came_bytes: int = 0

    def __post_init__(self) -> None:
        constants.DOWNLOAD_CHUNK_SIZE = CHUNK_BYTES
        self._store = Store(self.hub_cache, self.hub_id)
        self._failures = 0

    def list(self) -> Listing:
        """Ask the hub what the revision consists of. Raises what requests raise, and SourceError."""
        while True:
            try:
                info = HfApi().model_info(self.hub_id, revision=self.revision, files_metadata=True)
                break
            except RequestFailure as error:
                self._bear(error, came=False)
        files = {}
        for entry in info.siblings or []:
            digest = entry.lfs.sha256 if entry.lfs else entry.blob_id
            size = entry.lfs.size if entry.lfs else entry.size
            if digest and size is not None:
                files[entry.rfilename] = HubFile(name=entry.rfilename, nbytes=size, checksum=digest)
        if info.sha is None:
            raise SourceError(f"{self.hub_id}: the hub names no commit for revision {self.revision!r}")
        return Listing(commit=info.sha, files=files)

    def locked(self) -> AbstractContextManager[None]:
        """Keep others from the model's place in the cache, from `bring` to the end of `settle`."""
        return self._store.locked()

    def bring(self, listing: Listing) -> tuple[HubFile, ...]:
        """Download what is missing of the files that a load reads; returns all of them, the weights last."""
        if SINGLE not in listing.files and INDEX in listing.files:
            self._enter("download", listing.files[INDEX].nbytes)
            self._download(listing, listing.files[INDEX])
        wanted = self._wanted(listing)
        missing = sum(self._store.missing_bytes(file) for file in wanted)
        _check_room(self.hub_id, self.hub_cache, missing)
        self._enter("download", sum(file.nbytes for file in wanted))
        for file in wanted:
            self._download(listing, file)
        return wanted

    def settle(self, listing: Listing, files: tuple[HubFile, ...]) -> None:
        """Check what came, and let the cache have it."""
        fresh = [file for file in files if not self._store.blob(file).exists()]
        self._enter("verify", sum(file.nbytes for file in fresh))
        for file in fresh:
            self._store.settle(file)
            self._settled(file)
        for file in files:
            self._store.link(file, listing.commit)
        self._store.name(self.revision, listing.commit)

    def _wanted(self, listing: Listing) -> tuple[HubFile, ...]:
        files = listing.files
        plain = [files[name] for name in PLAIN if name in files]
        if SINGLE in files:
            return (*plain, files[SINGLE])
        if INDEX not in files:
            raise _no_weights(self.hub_id, files)
        index = files[INDEX]
        path = self._store.blob(index) if self._store.blob(index).exists() else self._store.partial(index)
        named = read_object(path).get("weight_map")
        shards = sorted({str(name) for name in named.values()}) if isinstance(named, dict) else []
        if absent := [name for name in shards if name not in files]:
            raise SourceError(f"{self.hub_id}: {INDEX} names {few(absent)}, which the hub does not have")
        return (*plain, *(files[name] for name in shards), index)

    def _download(self, listing: Listing, file: HubFile) -> None:
        if not self._store.blob(file).exists():
            with self._store.open(file) as partial:
                self.progress = replace(self.progress, under_way=self._store.partial(file))
                self._transfer(listing, file, partial)
        self._settled(file)

    def _transfer(self, listing: Listing, file: HubFile, partial: BinaryIO) -> None:
        """Receive what is missing of a file, as often as its connection breaks."""
        url = hf_hub_url(self.hub_id, file.name, revision=listing.commit)
        headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
        while (had := self._store.come_bytes(file, partial)) < file.nbytes:
            failure: Exception | None = None
            try:
                http_get(url, partial, resume_size=had, headers=headers, expected_size=file.nbytes)
            except (RequestFailure, OSError) as error:
                failure = error
            partial.flush()
            came = partial.seek(0, os.SEEK_END) - had
            self.came_bytes += max(0, came)
            if failure is not None:
                self._bear(failure, came=came > 0)

    def _bear(self, error: Exception, *, came: bool) -> None:
        """Wait before another attempt; raise what the hub means, and what has failed too often in a row."""
        if getattr(error, "errno", None) is not None:  # the file system's; a short answer is an OSError without
            raise error
        self._failures = 1 if came else self._failures + 1
        response = getattr(error, "response", None)
        if self._failures >= TRIES or (response is not None and response.status_code not in TRANSIENT):
            raise error
        asked = "" if response is None else response.headers.get("Retry-After", "")
        self.on_failure(error)
        pause = float(asked) if asked.isdecimal() else 2.0 ** (self._failures - 1)
        self.pause(min(pause, PAUSE_LIMIT_SECONDS))

    def _enter(self, phase: str, total_bytes: int) -> None:
        self.progress = Progress(phase=phase, total_bytes=total_bytes)

    def _settled(self, file: HubFile) -> None:
        done = self.progress.settled_bytes + file.nbytes
        self.progress = replace(self.progress, settled_bytes=done, under_way=None)


def _check_room(hub_id: str, hub_cache: Path, missing: int) -> None:
    hub_cache.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(hub_cache).free
    if missing > free:
        needs = f"the download needs {format_bytes(missing)}, and {format_bytes(free)} are free in {hub_cache}"
        raise SourceError(f"{hub_id}: {needs}", hint="make room, or set HF_HUB_CACHE to another file system")


def _no_weights(hub_id: str, files: Mapping[str, HubFile]) -> SourceError:
    pickles = sorted(name for name in files if name.endswith(PICKLES))
    if pickles:
        hint = "a pickle can run any code, so it is not fetched; take a revision with safetensors"
        return SourceError(f"{hub_id}: only pickled weights ({few(pickles)}), no safetensors", hint=hint)
    return SourceError(f"{hub_id}: the hub has neither {SINGLE} nor {INDEX}", hint="is it a model, and this revision?")


def is_full(error: OSError) -> bool:
    """Whether a file system, or the share of it that this user has, is full."""
    return error.errno in {errno.ENOSPC, errno.EDQUOT}
