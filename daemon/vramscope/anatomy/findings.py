"""What stands against loading a checkpoint, and what a reader should know before trusting its numbers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from vramscope.anatomy import library, weights
from vramscope.anatomy.config import FILE_NAME
from vramscope.anatomy.header import DTYPE_BITS, is_floating
from vramscope.anatomy.jsonfile import shown
from vramscope.anatomy.source import Examined
from vramscope.anatomy.tally import Tally
from vramscope.anatomy.vocabulary import Vocabulary
from vramscope.errors import SourceError

_NAMED = 3
_BYTE_BITS = 8


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One reason why a model cannot be loaded: where it is, what it is, and what to do."""

    where: str
    what: str
    hint: str = ""

    @classmethod
    def of(cls, where: Path | str, error: SourceError) -> "Problem":
        return cls(where=str(where), what=error.message.removeprefix(f"{where}: "), hint=error.hint)


def unloadable(found: Examined, counted: Tally | None) -> Iterator[Problem]:
    """Tell what a load would stumble over although every file can be read."""
    where = str(found.directory / FILE_NAME)
    kind = (found.config or {}).get("model_type")
    if isinstance(kind, str) and library.knows(kind) is False:
        hint = "a newer transformers may have it"
        if "auto_map" in (found.config or {}):
            hint = "the checkpoint brings code of its own, which vramscope does not run"
        yield Problem(where=where, what=f"{library.release()} has no model_type {shown(kind)}", hint=hint)
    if found.config is not None:
        yield from _untyped(found)
    if counted is None or (comparison := counted.comparison) is None:
        return
    if comparison.missing:
        what = f"{len(comparison.missing)} parameter(s) are not in the files: {_some(comparison.missing)}"
        hint = "they would be random numbers; the checkpoint is incomplete or belongs to another model"
        yield Problem(where=str(found.directory), what=what, hint=hint)
    if comparison.misshapen:
        count = len(comparison.misshapen)
        what = f"{count} parameter(s) have another shape than {FILE_NAME} says: {_some(comparison.misshapen)}"
        yield Problem(where=str(found.directory), what=what, hint="config and weights belong to different models")


def _untyped(found: Examined) -> Iterator[Problem]:
    """Tell of tensors narrower than a byte, of which torch has none with one value an element."""
    for header in found.headers:
        narrow = [t for t in header.tensors if is_floating(t.dtype) and DTYPE_BITS[t.dtype] < _BYTE_BITS]
        if narrow:
            named = _some([tensor.name for tensor in narrow])
            what = (
                f"{len(narrow)} tensor(s) of dtype {narrow[0].dtype}, of which torch has none with one value an element"
            )
            yield Problem(where=str(header.path), what=f"{what}: {named}")


def remarks(found: Examined, counted: Tally | None, vocabulary: Vocabulary) -> Iterator[str]:
    """Tell what is odd, and harms nothing by itself."""
    yield from _other_weights(found)
    tokens = None if vocabulary.vocabulary is None else vocabulary.vocabulary + (vocabulary.added or 0)
    if tokens is not None and vocabulary.embedding_rows is not None and tokens > vocabulary.embedding_rows:
        yield f"the tokenizer has {tokens:,} tokens, the model rows for {vocabulary.embedding_rows:,}"
    if counted is None:
        return
    for twice in counted.tied_twice:
        yield (
            f"the files hold both ends of a tie: {twice.name} counts once, with the embedding; should the two differ, "
            f"a load keeps both, {twice.elements:,} parameters more"
        )
    if counted.comparison and (unexpected := counted.comparison.unexpected):
        yield f"{len(unexpected)} tensor(s) in the files are none of the model's, and do not count: {_some(unexpected)}"
    if counted.buffers:
        named = _some([tensor.name for tensor in counted.buffers])
        yield f"{len(counted.buffers)} stored tensor(s) are buffers, and do not count as parameters: {named}"
    if unknown := counted.logical.unknown:
        method = counted.logical.method
        yield f"{method}: how many parameters {len(unknown)} packed tensor(s) hold is unknown: {_some(unknown)}"
    if counted.logical.method == "mlx":
        yield "weights packed by MLX are read by MLX; transformers does not load them"


def _other_weights(found: Examined) -> Iterator[str]:
    """Tell of weights beside those that a load reads, which people may add up."""
    read = {header.path.name for header in found.headers}
    if found.is_planned or found.is_file or not read or not found.directory.is_dir():
        return
    names = sorted(entry.name for entry in found.directory.iterdir())
    others = [name for name in names if name.endswith((weights.SUFFIX, *weights.PICKLES)) and name not in read]
    if others:
        yield f"not read, and not counted: {weights.few(others)}; a load reads {weights.few(sorted(read))}"


def _some(names: Sequence[str]) -> str:
    rest = len(names) - _NAMED
    return ", ".join(shown(name) for name in names[:_NAMED]) + (f" and {rest:,} more" if rest > 0 else "")
