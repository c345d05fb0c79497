"""Everything that can be told of a model without loading it: from headers, config and file names, never from weights.

What is wrong with a checkpoint is gathered, not raised: the facts that are known are told all the same.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vramscope.anatomy import findings, library, listing, weights
from vramscope.anatomy.census import LayerRun, Share, Stored, by_component, by_dtype, by_layer, stored_in, total
from vramscope.anatomy.config import DTYPE_KEYS, FILE_NAME, ModelConfig, resolve_dtype
from vramscope.anatomy.decoder import Comparison
from vramscope.anatomy.findings import Problem
from vramscope.anatomy.header import TensorEntry, read_header
from vramscope.anatomy.jsonfile import read_object
from vramscope.anatomy.listing import FileFact
from vramscope.anatomy.quantization import Logical
from vramscope.anatomy.source import Examined, examine
from vramscope.anatomy.tally import Tally, planned, tally
from vramscope.anatomy.tokenizer import embedding_rows
from vramscope.anatomy.vocabulary import Vocabulary, count_vocabulary
from vramscope.errors import SourceError

_ADAPTER = "adapter_model.safetensors"
# 7B, 0.5b, 135M; 8x7B says how many experts of which size, and no sum.
_NOMINAL = re.compile(r"(?<![\d.])((?:\d+x)?(\d+(?:\.\d+)?)([bm]))(?![a-z\d])", re.IGNORECASE)
_SCALE = {"b": 10**9, "m": 10**6}
_BITS = {"float32": 32, "float16": 16, "bfloat16": 16, "int8": 8, "int4": 4}


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is to be inspected: a source, at a revision of the hub's, in the dtype in which it would be loaded.

    With `from_config` its weights are not looked at, and need not be there.
    """

    source: str
    revision: str = "main"
    dtype: str = "auto"
    from_config: bool = False


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """What a directory holds that is only an adapter."""

    base: str
    elements: int
    nbytes: int


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """A model as its files describe it. Sizes in bytes; None, "" and what is left out are unknown, never 0.

    `whole` is what a load has in memory, in `dtype`, without buffers; its count is None where it is not known, and the
    whole of it where not every file could be read. `stored` are the tensors of the files that could be, as they are.
    """

    source: str
    directory: Path
    revision: str = ""
    config: ModelConfig | None = None
    tied: bool | None = None
    dtype: str = ""
    whole: Share | None = None
    stored: Mapping[str, Stored] | None = None
    buffers: Stored | None = None
    components: Mapping[str, Share] = field(default_factory=dict)
    layer_runs: tuple[LayerRun, ...] = ()
    logical: Logical | None = None
    comparison: Comparison | None = None
    vocabulary: Vocabulary = field(default_factory=Vocabulary)
    adapter: Adapter | None = None
    files: tuple[FileFact, ...] = ()
    files_in_all: int = 0
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def parameters(self) -> int | None:
        return self.whole.parameters if self.whole else None

    @property
    def layers(self) -> int | None:
        """As the config says, else as many as the largest stack of the files has."""
        if self.config is not None and self.config.layers is not None:
            return self.config.layers
        sums: dict[str, int] = {}
        for run in self.layer_runs:
            sums[run.stack] = sums.get(run.stack, 0) + run.layers
        return max(sums.values(), default=None)

    @property
    def nominal(self) -> str:
        """The size that the model's name speaks of, such as 7B; "" where it speaks of none."""
        found = _NOMINAL.search(Path(self.source.rstrip("/")).name)
        return found[1] if found else ""

    @property
    def nominal_parameters(self) -> int | None:
        found = _NOMINAL.fullmatch(self.nominal)
        if found is None or found[1] != found[2] + found[3]:
            return None
        return round(float(found[2]) * _SCALE[found[3].lower()])


def estimates(parameters: int) -> dict[str, int]:
    """Bytes of so many parameters in each dtype, without the scales that a quantized model has beside them."""
    return {dtype: -(-parameters * bits // 8) for dtype, bits in _BITS.items()}


def inspect(wanted: Wanted, cache: Path, hub_cache: Path | None = None) -> Inspection:
    """Tell what is known of a source. Never uses the network. Raises SourceError where there is no such source."""
    found = examine(wanted.source, cache, hub_cache=hub_cache, revision=wanted.revision)
    if wanted.from_config:
        found = _without_weights(found)
    elif found.config is None and not (found.directory / FILE_NAME).exists():
        found = _without_config(found)
    config, resolved, error = _facts(found, wanted.dtype)
    problems = [Problem.of(where, reason) for where, reason in found.problems]
    if error is not None:
        what = error.message.removeprefix(f"{FILE_NAME}: ")
        problems.append(Problem(where=str(found.directory / FILE_NAME), what=what, hint=error.hint))
    tied = _tied(config)
    counted = _planned(found, resolved) if wanted.from_config else _tally(found, resolved, tied=tied)
    known = Inspection(
        source=wanted.source,
        directory=found.directory,
        revision=found.revision,
        config=config,
        tied=tied,
        dtype=resolved or "",
    )
    known = _with_counts(known, found, counted)
    vocabulary, odd = _vocabulary(found)
    known = replace(known, vocabulary=vocabulary, adapter=_adapter(found.directory))
    if not found.is_planned:
        files, number = listing.list_files(found.directory, {header.path.name for header in found.headers})
        known = replace(known, files=files, files_in_all=number)
    problems += findings.unloadable(found, counted)
    notes = (
        *found.notes,
        *odd,
        *findings.remarks(found, counted, vocabulary),
        *(_of_plan(counted) if wanted.from_config else ()),
    )
    return replace(known, problems=tuple(problems), notes=notes)


def _without_weights(found: Examined) -> Examined:
    """The same source, known only by its config; what is wrong with its weights does not matter then."""
    problems = () if found.config is not None else tuple(pair for pair in found.problems if pair[0].name == FILE_NAME)
    return replace(found, headers=(), problems=problems, notes=(), is_whole=True)


def _without_config(found: Examined) -> Examined:
    """One file by itself is not taken for a model, and an adapter is none: neither needs a config."""
    rest = tuple(pair for pair in found.problems if pair[0] != found.directory / FILE_NAME)
    if found.is_file:
        note = f"there is no {FILE_NAME} beside the file: its tensors count as they are stored"
        return replace(found, problems=rest, notes=(*found.notes, note) if found.headers else found.notes)
    is_adapter = (found.directory / weights.ADAPTER_CONFIG).exists()
    return replace(found, problems=rest) if is_adapter and rest else found


def _facts(found: Examined, requested: str) -> tuple[ModelConfig | None, str | None, SourceError | None]:
    """The config's facts, and the dtype of a load: "" is as stored, None is nonsense in the config."""
    if found.config is None:
        return None, "", None
    try:
        return ModelConfig.of(found.config), resolve_dtype(requested, found.config, found.headers), None
    except SourceError as error:
        return ModelConfig.of(_without_dtypes(found.config)), None, error


def _tied(config: ModelConfig | None) -> bool | None:
    if config is None or config.tied is not None:
        return config.tied if config else None
    return library.ties(config.model_type)


def _without_dtypes(config: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in config.items() if key not in DTYPE_KEYS}
    return {key: _without_dtypes(value) if isinstance(value, Mapping) else value for key, value in kept.items()}


def _tensors(found: Examined) -> list[TensorEntry]:
    return [tensor for header in found.headers for tensor in header.tensors]


def _planned(found: Examined, dtype: str | None) -> Tally | None:
    return planned(found.config, dtype) if found.config is not None and dtype else None


def _tally(found: Examined, dtype: str | None, *, tied: bool | None) -> Tally | None:
    if not found.headers:
        return None
    is_part = found.is_file and found.headers[0].path.name != weights.SINGLE
    return tally(
        _tensors(found),
        found.config or {},
        tied=tied,
        dtype=dtype,
        whole=found.is_whole and not is_part,
    )


def _with_counts(known: Inspection, found: Examined, counted: Tally | None) -> Inspection:
    if counted is None:
        return known
    return replace(
        known,
        whole=total(counted.counted) if found.is_whole else None,
        stored=by_dtype(_tensors(found)) if found.headers else None,
        buffers=stored_in(counted.buffers) if counted.buffers else None,
        components=by_component(counted.counted),
        layer_runs=by_layer(counted.counted),
        logical=counted.logical,
        comparison=counted.comparison,
    )


def _vocabulary(found: Examined) -> tuple[Vocabulary, tuple[str, ...]]:
    """Count tokens and rows; a damaged tokenizer is no reason why a model could not be loaded."""
    rows = embedding_rows(found.config or {}, found.headers)
    try:
        counted = None if found.is_planned else count_vocabulary(found.directory)
    except SourceError as error:
        return Vocabulary(embedding_rows=rows), (f"the tokenizer cannot be used: {error}",)
    if counted is None:
        return Vocabulary(embedding_rows=rows), ()
    return Vocabulary(vocabulary=counted[0], added=counted[1], embedding_rows=rows), ()


def _adapter(directory: Path) -> Adapter | None:
    """The adapter in a directory, if there is one that can be read; what is wrong with it is told as a problem."""
    try:
        header = read_header(directory / _ADAPTER)
    except SourceError:
        return None
    try:
        base = read_object(directory / weights.ADAPTER_CONFIG).get("base_model_name_or_path")
    except SourceError:
        base = None
    return Adapter(base=base if isinstance(base, str) else "", elements=header.elements, nbytes=header.tensor_bytes)


def _of_plan(counted: Tally | None) -> tuple[str, ...]:
    if counted is None:
        return ("nothing but the config is looked at, which tells no counts for this architecture",)
    return ("counted from the config alone",)
