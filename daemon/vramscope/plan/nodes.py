"""YAML text to plain values that remember their line and column.

Scalars are read by YAML 1.2's core schema (https://yaml.org/spec/1.2.2/#103-core-schema): `no` and `10:30` are text.
Anchors, aliases and merge keys (`<<`) work; tags do not. Limits are checked before an alias is written out.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import yaml

from vramscope.plan.problems import PlanError, Problem, path_text
from vramscope.plan.text import decode
from vramscope.units import shown

MAX_NODES = 30_000  # keys and values; PyYAML reads as many in about a second
MAX_DEPTH = 64

Path = tuple[str | int, ...]

_TOO_MANY = f"expected at most {MAX_NODES:,} keys and values, got more"
_TOO_DEEP = f"expected at most {MAX_DEPTH} levels of nesting, got more"
Entries = dict[str, tuple[yaml.ScalarNode, yaml.Node]]  # key to its node and its value's

_CONSTANTS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_NUMBERS: tuple[tuple[re.Pattern[str], Callable[[str], float]], ...] = (
    (re.compile(r"[-+]?[0-9]+"), int),
    (re.compile(r"0x[0-9a-fA-F]+|0o[0-7]+"), lambda text: int(text, 0)),
    (re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"), float),
    (re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"), lambda text: float(text.replace(".", "", 1))),
)
_MAX_DIGITS = 1000  # far below the number of digits at which Python's int() refuses


class Position(NamedTuple):
    """A place in the text, counted from 1."""

    line: int
    column: int


@dataclass(frozen=True)
class Document:
    """One YAML document: its value, the place of each of its parts, and the problems that did not stop the reading."""

    path: str
    value: Any
    problems: tuple[Problem, ...]
    root: yaml.Node
    entries: dict[int, Entries]

    def problem(self, at: Path, message: str, *, name: str = "", key: bool = False) -> Problem:
        """A problem with the value at `at` (with `key`: with its key) in the step called `name`, if it has a name."""
        line, column = self.position(at, key=key)
        existing = self.existing(at)
        where = path_text(existing[:-1] if key and existing == at else existing)
        where = f"{where} {shown(name)}" if name else where
        return Problem(path=self.path, line=line, column=column, where=where, message=message)

    def existing(self, path: Path) -> Path:
        """The longest beginning of `path` that stands in the text."""
        return path[: len(self._walk(path)) - 1]

    def position(self, path: Path, *, key: bool = False) -> Position:
        """Where the value at `path` begins, or its key; for a path that is not in the text, the place of its parent."""
        key_node, node = self._walk(path)[-1]
        return _position((key_node if key and key_node else node).start_mark)

    def _walk(self, path: Path) -> list[tuple[yaml.Node | None, yaml.Node]]:
        """The (key, value) nodes along `path`, from the root to where it leaves the text."""
        found: list[tuple[yaml.Node | None, yaml.Node]] = [(None, self.root)]
        for part in path:
            node = found[-1][1]
            entry = self.entries.get(id(node), {}).get(part) if isinstance(part, str) else None
            if entry is not None:
                found.append(entry)
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
                found.append((None, node.value[part]))
            else:
                break
        return found


def read_document(content: bytes, path: str) -> Document:
    """Read the bytes of a plan file; raises PlanError, with one problem, for what is not one document of plain YAML."""
    text = decode(content, path)
    builder = _Builder(path)
    try:
        root = _compose(text)
        value = builder.build(root, ()).value
    except yaml.MarkedYAMLError as error:
        raise PlanError([_syntax_problem(error, text, path)]) from None
    return Document(path, value, tuple(builder.problems), root, builder.entries)


class _RefusedError(yaml.MarkedYAMLError):
    """Legal YAML that a plan does not use."""


def _refused(at: Any, message: str) -> _RefusedError:
    """The error for an event or a node."""
    return _RefusedError(problem=message, problem_mark=at.start_mark)


def _position(mark: Any) -> Position:
    """PyYAML's marks count from 0."""
    return Position(mark.line + 1, mark.column + 1)


def _syntax_problem(error: yaml.MarkedYAMLError, text: str, path: str) -> Problem:
    """PyYAML's complaint in our form."""
    mark = error.problem_mark or error.context_mark
    line, column = _position(mark) if mark else Position(1, 1)
    if isinstance(error, _RefusedError):
        message = str(error.problem)
    elif mark and text[mark.index : mark.index + 1] == "\t":
        message = "expected spaces, got a tab (YAML is indented with spaces)"
    else:
        message = f"not valid YAML: {' '.join(part for part in (error.problem, error.context) if part)}"
        began = error.context_mark.line + 1 if error.context and error.context_mark else line
        message += f" that begins on line {began}" if began != line else ""
    return Problem(path=path, line=line, column=column, message=message)


class _Composer(yaml.BaseLoader):
    """PyYAML's composer, which is made to be derived from, with limits and without tags."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0
        self._nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = _next_event(self)
        if self._depth > MAX_DEPTH:
            raise _refused(event, _TOO_DEEP)
        tag = getattr(event, "tag", None)
        if tag is not None:
            spelled = tag.replace("tag:yaml.org,2002:", "!!")
            raise _refused(event, f"expected a value without a tag, got {shown(spelled)}")
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise _refused(event, f"{_TOO_MANY} in the file")
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


def _next_event(loader: yaml.BaseLoader) -> Any:
    return loader.peek_event()  # type: ignore[no-untyped-call]  # types-PyYAML does not type the parser's methods


def _compose(text: str) -> yaml.Node:
    """The root node of the only document in `text`."""
    loader = _Composer(text)
    try:
        loader.get_event()  # type: ignore[no-untyped-call]  # as in _next_event
        if loader.check_event(yaml.StreamEndEvent):
            raise _refused(_next_event(loader), "expected a plan, got a file with nothing in it")
        root = loader.compose_document()
        if root is None or not loader.check_event(yaml.StreamEndEvent):
            raise _refused(_next_event(loader), "expected one document, got a second one")
    except (ValueError, OverflowError):  # chr() of an escape such as \U00110000, int() of a %YAML version without end
        message = "an escape or a number is out of range"
        raise yaml.MarkedYAMLError(problem=message, problem_mark=loader.get_mark()) from None
    finally:
        loader.dispose()
    return root


class _Built(NamedTuple):
    """A value, and how many nodes and levels it has when every alias is written out."""

    value: Any
    nodes: int
    depth: int


@dataclass
class _Builder:
    """Turns the node graph into values; a node that aliases share is built once, and counted as often as it is used."""

    path: str
    problems: list[Problem] = field(default_factory=list)
    entries: dict[int, Entries] = field(default_factory=dict)
    _done: dict[int, _Built] = field(default_factory=dict)
    _open: set[int] = field(default_factory=set)
    _merged: int = 0

    def build(self, node: yaml.Node, path: Path) -> _Built:
        """The value of a node; `path` is the first one that leads to it."""
        if (known := self._done.get(id(node))) is not None:
            return known
        built = (
            _Built(self._scalar(node, path), 1, 0)
            if isinstance(node, yaml.ScalarNode)
            else self._collection(node, path)
        )
        if built.nodes > MAX_NODES:
            raise _refused(node, f"{_TOO_MANY} where aliases are written out")
        if built.depth > MAX_DEPTH:
            raise _refused(node, f"{_TOO_DEEP} where aliases are written out")
        self._done[id(node)] = built
        return built

    def _collection(self, node: yaml.Node, path: Path) -> _Built:
        """A list or a mapping with all that is in it."""
        if id(node) in self._open:
            raise _refused(node, "expected a value with an end, got one that contains itself through an alias")
        self._open.add(id(node))
        value: list[Any] | dict[str, Any]
        if isinstance(node, yaml.MappingNode):
            entries = self.entries[id(node)] = self._flatten(node, path)
            children = [self.build(child, (*path, key)) for key, (_, child) in entries.items()]
            keys = len(entries)
            value = dict(zip(entries, (child.value for child in children), strict=True))
        else:
            children = [self.build(child, (*path, index)) for index, child in enumerate(node.value)]
            keys = 0
            value = [child.value for child in children]
        self._open.remove(id(node))
        nodes = 1 + keys + sum(child.nodes for child in children)
        return _Built(value, nodes, 1 + max((child.depth for child in children), default=0))

    def _flatten(self, node: yaml.MappingNode, path: Path) -> Entries:
        """Keys and values of a mapping: its own win over merged ones, and the first mapping to merge over the next."""
        own: Entries = {}
        merged: Entries = {}
        for key_node, value_node in node.value:
            key = self._key(key_node, path)
            if key is None or not isinstance(key_node, yaml.ScalarNode):
                continue
            if key in own:
                first = _position(own[key][0].start_mark)
                self._add(key_node, path, f"the key {shown(key)} is given twice, first on line {first.line}")
                continue
            own[key] = (key_node, value_node)
        if "<<" in own and own["<<"][0].style is None:
            for entries in self._sources(*own.pop("<<"), path):
                merged = entries | merged
        return merged | own

    def _sources(self, key: yaml.Node, node: yaml.Node, path: Path) -> Iterable[Entries]:
        """The mappings that a merge key names."""
        for source in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            if not isinstance(source, yaml.MappingNode):
                self._add(source, path, f"expected a mapping to merge, got {shown(self.build(source, path).value)}")
                continue
            self.build(source, path)
            self._merged += len(self.entries[id(source)])
            if self._merged > MAX_NODES:
                raise _refused(key, f"{_TOO_MANY} where merges are written out")
            yield self.entries[id(source)]

    def _key(self, node: yaml.Node, path: Path) -> str | None:
        """A key's text; None, and a problem, for a key that is none."""
        key = self._scalar(node, path) if isinstance(node, yaml.ScalarNode) else self.build(node, path).value
        if isinstance(key, str):
            return key
        hint = " (quote it to make it text)" if isinstance(node, yaml.ScalarNode) else ""
        self._add(node, path, f"expected a text as key, got {shown(key)}{hint}")
        return None

    def _scalar(self, node: yaml.ScalarNode, path: Path) -> object:
        """The value of a scalar: only a plain one (not quoted, no block) can be anything but text."""
        text: str = node.value
        if node.style is None:
            return _plain(text)
        try:
            # YAML written as JSON spells a character beyond U+FFFF as two escapes, which PyYAML does not join.
            return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        except UnicodeDecodeError:
            self._add(node, path, "expected text, got the escape of half a character (a lone surrogate)")
            return text.encode(errors="replace").decode()

    def _add(self, node: yaml.Node, path: Path, message: str) -> None:
        line, column = _position(node.start_mark)
        self.problems.append(Problem(path=self.path, line=line, column=column, where=path_text(path), message=message))


def _plain(text: str) -> object:
    """A plain scalar by the core schema."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if len(text) <= _MAX_DIGITS:
        for pattern, read in _NUMBERS:
            if pattern.fullmatch(text):
                return read(text)
    return text
