"""What the installed transformers does with a model, read from its files as text: to import it takes seconds."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

NAME = "transformers"
_TIES = re.compile(r"^ +(?:self\.)?tie_word_embeddings(?:: .*)? = (True|False)$", re.MULTILINE)
_BUFFER = re.compile(r"self\.(\w+) = (?:torch\.)?nn\.Buffer\(|register_buffer\(\s*[\"'](\w+)")
_PARAMETER = re.compile(r"self\.(\w+) = (?:torch\.)?nn\.Parameter\(")
_KEPT = re.compile(r"^    _keep_in_fp32_modules(_strict)? = \[([^\]]*)\]", re.MULTILINE)
_QUOTED = re.compile(r"[\"']([^\"']+)[\"']")
_TABLES = ("auto_mappings.py", "configuration_auto.py")
# Names that parameters have, too.
_COMMON = {"weight", "bias"}


@dataclass(frozen=True, kw_only=True)
class ClassFacts:
    """What the classes of a model do: `buffers` are names of what is stored and no parameter.

    `kept` matches the names of parameters that stay in float32 in a load in 16 bits; None where there are none.
    """

    buffers: frozenset[str] = frozenset()
    kept: re.Pattern[str] | None = None


def class_facts(config: Mapping[str, Any], dtype: str | None) -> ClassFacts:
    """Gather the facts of a model's class, and of those of its parts, for a load in `dtype`."""
    sections = (config, *(part for key, part in config.items() if key.endswith("_config")))
    stated = (part.get("model_type") for part in sections if isinstance(part, Mapping))
    code = "".join(_code_of(kind, "modeling") for kind in sorted({kind for kind in stated if isinstance(kind, str)}))
    buffers = {name for found in _BUFFER.findall(code) for name in found if name}
    kept = set(_kept(code, dtype))
    return ClassFacts(
        buffers=frozenset(buffers - _COMMON - set(_PARAMETER.findall(code))),
        kept=re.compile("|".join(sorted(kept))) if kept else None,
    )


def _kept(code: str, dtype: str | None) -> Iterator[str]:
    """Patterns of a load in float16; bfloat16 has to do only with the strict ones."""
    for strict, listed in _KEPT.findall(code):
        if dtype == "float16" or (strict and dtype == "bfloat16"):
            yield from (name.replace("*", ".*") for name in _QUOTED.findall(listed))


def knows(model_type: str) -> bool | None:
    """Whether transformers has a config class for `model_type`; None where it is not installed or is another one."""
    tables = _tables()
    return bool(model_type) and f'"{model_type}"' in tables if tables else None


def ties(model_type: str) -> bool | None:
    """Whether the class of `model_type` ties its embeddings where a config does not say; None where nobody tells."""
    stated = set(_TIES.findall(_code_of(model_type, "configuration")))
    return stated == {"True"} if len(stated) == 1 else None


def release() -> str:
    """Name the library and its release, for messages."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - it takes longer than an inspection

    try:
        return f"{NAME} {version(NAME)}"
    except PackageNotFoundError:
        return NAME


@cache
def _tables() -> str:
    home = _home()
    return "" if home is None else "".join(_text(home / "models" / "auto" / name) for name in _TABLES)


@cache
def _code_of(model_type: str, what: str) -> str:
    """The text of the file that holds a model's classes; "" where there is none. Several types may share a file."""
    home, name = _home(), model_type.replace("-", "_")
    if home is None or not name.isidentifier():
        return ""
    if not (home / "models" / name).is_dir():
        found = re.search(rf'"{re.escape(model_type)}"[,:]\s*"([a-z0-9_]+)"', _tables())
        name = found[1] if found else name
    return _text(home / "models" / name / f"{what}_{name}.py")


def _home() -> Path | None:
    try:
        spec = find_spec(NAME)
    except (ImportError, ValueError):
        return None
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
