"""A model's place in the Hugging Face hub's cache, and the files that are on their way into it.

The layout is huggingface_hub's (https://huggingface.co/docs/huggingface_hub/guides/manage-cache): blobs by checksum,
snapshots/COMMIT of links into them, refs/REVISION with a commit. A file under way is blobs/CHECKSUM.incomplete; it
outlives the process, and the next one goes on behind its end, which the library's own downloads gave up
(https://github.com/huggingface/huggingface_hub/pull/4228). Nothing is linked before its checksum is right.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from vramscope.errors import SourceError
from vramscope.loading.checksum import BLOBS, git_or_sha256


@dataclass(frozen=True, kw_only=True)
class HubFile:
    """A file on the hub. `checksum` is a SHA-256 for a large file, and git's SHA-1 of a blob for a small one."""

    name: str
    nbytes: int
    checksum: str


class Store:
    """The place of one model in the cache."""

    def __init__(self, hub_cache: Path, hub_id: str) -> None:
        self.home = hub_cache / f"models--{hub_id.replace('/', '--')}"
        self._blobs = self.home / BLOBS

    def blob(self, file: HubFile) -> Path:
        return self._blobs / file.checksum

    def partial(self, file: HubFile) -> Path:
        return self._blobs / f"{file.checksum}.incomplete"

    def missing_bytes(self, file: HubFile) -> int:
        """What has still to come of a file."""
        if self.blob(file).exists():
            return 0
        try:
            return max(0, file.nbytes - self.partial(file).stat().st_size)
        except OSError:
            return file.nbytes

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep the model's place for this process; another one that downloads the same model waits until it is done."""
        locks = self.home.parent / ".locks" / self.home.name
        locks.mkdir(parents=True, exist_ok=True)
        with (locks / "vramscope.lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def open(self, file: HubFile) -> BinaryIO:
        """The partial file, to be closed by whoever asks for it."""
        self._blobs.mkdir(parents=True, exist_ok=True)
        return self.partial(file).open("a+b")

    @staticmethod
    def come_bytes(file: HubFile, partial: BinaryIO) -> int:
        """How much of a file has come; one that is longer than it may be begins anew."""
        if partial.seek(0, os.SEEK_END) > file.nbytes:
            partial.truncate(0)
        return partial.seek(0, os.SEEK_END)

    def settle(self, file: HubFile) -> None:
        """Give a whole file its name, if its checksum is right. Raises SourceError."""
        path = self.partial(file)
        if git_or_sha256(path, file.checksum) != file.checksum:
            path.unlink()
            hint = "the transfer was disturbed, by a proxy for example; fetch it again"
            raise SourceError(f"{file.name}: what came has another checksum than the hub names", hint=hint)
        path.replace(self.blob(file))

    def link(self, file: HubFile, commit: str) -> None:
        """Let the snapshot have the file."""
        place = self.home / "snapshots" / commit / file.name
        place.parent.mkdir(parents=True, exist_ok=True)
        new = place.with_name(f"{place.name}.new")
        new.unlink(missing_ok=True)
        new.symlink_to(os.path.relpath(self.blob(file), place.parent))
        new.replace(place)

    def name(self, revision: str, commit: str) -> None:
        """Let the revision be the commit, once all of it is there."""
        if revision == commit:
            return
        ref = self.home / "refs" / revision
        ref.parent.mkdir(parents=True, exist_ok=True)
        new = ref.with_name(f"{ref.name}.new")
        new.write_text(commit)
        new.replace(ref)
