"""Shows what a model consists of: its files, its architecture, where its parameters are, and what they would take."""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vramscope.anatomy.census import LayerRun, Share
from vramscope.anatomy.config import ModelConfig
from vramscope.anatomy.inspection import Inspection, estimates
from vramscope.report.fitting import fits
from vramscope.report.sizes import UNKNOWN, exact, percent
from vramscope.units import format_bytes, printable

NARROWEST = 120  # columns below which the tables would wrap; a console that is no terminal can be as wide as it likes
_RUNS_SHOWN = 12
_NAME_SHOWN = 60
_GB = 10**9


@dataclass(frozen=True)
class _Section:
    """One table. The columns named in `texts` are text; the others are figures. `more` is a line below it."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    texts: tuple[int, ...] = (0,)
    more: str = ""


def print_inspection(found: Inspection, console: Console) -> None:
    """Show everything that is known, then what is odd, and last what stands against loading the model."""
    if not console.is_terminal:
        console.width = max(console.width, NARROWEST)
    for line in _head(found):
        _say(console, line)
    for section in _sections(found):
        _show(section, console)
    for line in _foot(found):
        _say(console, line)


def _say(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def _show(section: _Section, console: Console) -> None:
    """Print a table, or a line a row where the terminal is too narrow for it."""
    table = Table(title=Text(section.title), title_justify="left", show_header=any(section.headings))
    for index, heading in enumerate(section.headings):
        is_text = index in section.texts
        table.add_column(heading, justify="left" if is_text else "right", no_wrap=not is_text, overflow="fold")
    for row in section.rows:
        table.add_row(*(Text(cell) for cell in row))
    if not console.is_terminal or fits(table, console):
        console.print(table)
    else:
        _say(console, section.title)
        for first, *others in section.rows:
            named = enumerate(zip(section.headings[1:], others, strict=True), start=1)
            cells = (
                cell if index in section.texts else f"{heading} {cell}" for index, (heading, cell) in named if cell
            )
            _say(console, f"  {first}: {', '.join(cells)}")
    if section.more:
        _say(console, section.more)


def _sections(found: Inspection) -> Iterator[_Section]:
    if found.files:
        yield _files(found)
    if found.config is not None:
        yield _Section("Architecture", ("", ""), tuple(_facts(found, found.config)), texts=(0, 1))
    part = "" if found.whole else ", in the files that could be read"
    if found.components:
        yield _components(found, f"Parameters by part{part}")
    if found.layer_runs:
        yield _layers(found, f"Parameters by layer{part}")
    if found.stored and (len(found.stored) > 1 or _method(found)):
        yield _stored(found)
    if found.parameters:
        yield _estimates(found.parameters)


def _head(found: Inspection) -> Iterator[str]:
    revision = f" at {found.revision[:12]}" if found.revision else ""
    yield f"{printable(found.source)}{revision}"
    if found.whole is None:
        yield "parameters: unknown"
    else:
        nbytes, dtype = found.whole.nbytes, f" in {found.dtype}" if found.dtype and not _method(found) else " as stored"
        size = f"{exact(nbytes)} bytes ({format_bytes(nbytes)}){dtype}" if nbytes is not None else "bytes unknown"
        yield f"{exact(found.parameters) if found.parameters is not None else 'unknown'} parameters, {size}"
    if (nominal := found.nominal_parameters) and found.parameters:
        share = percent(found.parameters, nominal)
        yield f'"{found.nominal}" is a name: {exact(found.parameters)} is {share} of {exact(nominal)}'
    if _method(found):
        yield _quantized(found)


def _size(nbytes: int | None) -> str:
    return UNKNOWN if nbytes is None else format_bytes(nbytes)


def _method(found: Inspection) -> str:
    return found.logical.method if found.logical else ""


def _quantized(found: Inspection) -> str:
    """Say how it is quantized, and what that means for the two counts."""
    logical = found.logical
    bits = " and ".join(str(bits) for bits in logical.bits) if logical else ""
    how = f", {bits} bits" if bits else ""
    group = f", {logical.group_size} parameters a scale" if logical and logical.group_size else ""
    stored = sum(share.elements for share in (found.stored or {}).values())
    return f"quantized by {printable(_method(found))}{how}{group}: {exact(stored)} stored numbers stand for them"


def _files(found: Inspection) -> _Section:
    rest = found.files_in_all - len(found.files)
    return _Section(
        f"Files in {printable(str(found.directory))}",
        ("file", "size", "bytes", "what it is for"),
        tuple((printable(file.name), _size(file.nbytes), exact(file.nbytes), file.role) for file in found.files),
        texts=(0, 3),
        more=f"and {rest:,} more" if rest > 0 else "",
    )


def _facts(found: Inspection, config: ModelConfig) -> Iterator[tuple[str, str]]:
    named = printable(config.architecture) or UNKNOWN
    yield "class", f"{named} (model_type {printable(config.model_type)})"
    yield "layers", exact(found.layers)
    yield "hidden size", f"{exact(config.hidden_size)}, feed-forward {exact(config.intermediate_size)}"
    keys = config.kv_heads or config.heads
    yield "attention", f"{exact(config.heads)} query heads, {exact(keys)} key and value heads"
    if config.experts:
        yield "experts", f"{exact(config.experts)} a layer, {exact(config.active_experts)} used for a token"
    yield "vocabulary", _vocabulary(found)
    yield "context window", f"{exact(config.context_window_tokens)} tokens"
    yield (
        "embeddings",
        {True: "tied: input and output share one matrix", False: "not tied", None: "as the class does"}[found.tied],
    )
    yield "dtype", f"{config.dtype or 'none'} in config.json, loaded in {found.dtype or 'none that is known'}"


def _vocabulary(found: Inspection) -> str:
    vocabulary = found.vocabulary
    rows = f"{exact(vocabulary.embedding_rows)} embedding rows"
    if vocabulary.vocabulary is None:
        return rows
    return f"{rows}; the tokenizer has {exact(vocabulary.vocabulary)} tokens and {exact(vocabulary.added)} added ones"


def _components(found: Inspection, title: str) -> _Section:
    ordered = sorted(found.components.items(), key=lambda item: -(item[1].nbytes or 0))
    rows = ((part, *_figures(share, found.parameters)) for part, share in ordered)
    return _Section(title, ("part", "parameters", "share", "bytes", "size"), tuple(rows))


def _figures(share: Share, whole: int | None) -> tuple[str, ...]:
    return exact(share.parameters), percent(share.parameters, whole), exact(share.nbytes), _size(share.nbytes)


def _layers(found: Inspection, title: str) -> _Section:
    rest = len(found.layer_runs) - _RUNS_SHOWN
    return _Section(
        title,
        ("layers", "number", "parameters of each", "bytes of each", "all of them"),
        tuple(_run(run) for run in found.layer_runs[:_RUNS_SHOWN]),
        more=f"and {rest:,} more runs of layers" if rest > 0 else "",
    )


def _run(run: LayerRun) -> tuple[str, ...]:
    numbers = str(run.first) if run.first == run.last else f"{run.first}-{run.last}"
    together = None if run.each.parameters is None else run.layers * run.each.parameters
    name = f"{printable(run.stack[:_NAME_SHOWN])} {numbers}"
    return name, exact(run.layers), exact(run.each.parameters), exact(run.each.nbytes), exact(together)


def _stored(found: Inspection) -> _Section:
    rows = (
        (dtype, exact(share.tensors), exact(share.elements), exact(share.nbytes), _size(share.nbytes))
        for dtype, share in (found.stored or {}).items()
    )
    return _Section("Tensors as they are stored", ("dtype", "tensors", "elements", "bytes", "size"), tuple(rows))


def _estimates(parameters: int) -> _Section:
    sizes = estimates(parameters)
    wanted = (("float32", "float32"), ("float16, bfloat16", "float16"), ("int8", "int8"), ("int4", "int4"))
    rows = ((label, exact(sizes[key]), _scaled(sizes[key], _GB), _scaled(sizes[key], 1 << 30)) for label, key in wanted)
    return _Section(f"What {exact(parameters)} parameters take", ("dtype", "bytes", "GB", "GiB"), tuple(rows))


def _scaled(nbytes: int, unit: int) -> str:
    scaled = nbytes / unit
    return f"{scaled:,.2f}" if scaled >= 0.1 else f"{scaled:.2g}"  # noqa: PLR2004 - three digits


def _foot(found: Inspection) -> Iterator[str]:
    if (adapter := found.adapter) is not None:
        base = f" for {printable(adapter.base)}" if adapter.base else ""
        yield f"adapter{base}: {exact(adapter.elements)} elements, {exact(adapter.nbytes)} bytes"
    for note in found.notes:
        yield f"note: {printable(note)}"
    for problem in found.problems:
        hint = f" ({problem.hint})" if problem.hint else ""
        yield printable(f"cannot be loaded: {problem.where}: {problem.what}{hint}")
