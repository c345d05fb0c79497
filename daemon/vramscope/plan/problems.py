"""What is wrong with a plan: every problem at once, each with the place in the text where it stands."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from vramscope.errors import VramscopeError
from vramscope.units import printable, shown


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing to correct. Lines and columns count from 1; they are None where the file itself cannot be read.

    `where` is the place in the plan's terms, such as steps[3] "warm-b"; it is empty for the plan as a whole.
    """

    path: str
    message: str
    line: int | None = None
    column: int | None = None
    where: str = ""

    def __str__(self) -> str:
        place = self.path if self.line is None else f"{self.path}:{self.line}:{self.column}"
        return ": ".join(part for part in (place, self.where, self.message) if part)


class PlanError(VramscopeError):
    """The plan cannot be run as it is written; its text has one line for each problem, in the order of the file."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda problem: (problem.line or 0, problem.column or 0)))
        super().__init__("\n".join(str(problem) for problem in self.problems))


_NEAR = 0.63  # below it, what difflib finds is rarely what was meant: gpu0 and cpu share 0.57
_SPOKEN = {"fp16": "float16", "half": "float16", "bf16": "bfloat16", "fp32": "float32"}


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known name that `word` was probably meant to be."""
    by_folded = {name.casefold(): name for name in known}
    folded = _SPOKEN.get(word.casefold(), word.casefold())
    close = difflib.get_close_matches(folded, by_folded, n=1, cutoff=_NEAR)
    return by_folded[close[0]] if close else None


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Ends a message with the nearest known name, if there is one."""
    name = nearest(word, known) if isinstance(word, str) else None
    return f' (did you mean "{name}"?)' if name else ""


def expected_one_of(names: Iterable[str], found: object) -> str:
    """The message for a word that is none of the known ones."""
    names = list(names)
    return f"expected one of {', '.join(names)}; got {shown(found)}{did_you_mean(found, names)}"


def unknown_key(key: str, known: Iterable[str]) -> str:
    """The message for a key that means nothing in its place."""
    names = list(known)
    listed = f" (known: {', '.join(names)})" if names else ""
    return f"unknown key {shown(key)}{did_you_mean(key, names) or listed}"


def path_text(path: tuple[str | int, ...]) -> str:
    """A path through the plan as people read it: steps[2].repeat.steps[0]."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{printable(part)}"
    return text.removeprefix(".")
