"""What the installed transformers can load, read from its own tables as text: importing it takes seconds and torch."""

import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

NAME = "transformers"
_TIES = re.compile(r"^ +(?:self\.)?tie_word_embeddings(?:: .*)? = (True|False)$", re.MULTILINE)
_TABLES = ("auto_mappings.py", "configuration_auto.py")


def knows(model_type: str) -> bool | None:
    """Whether transformers has a config class for `model_type`; None where it is not installed or is another one."""
    tables = _tables()
    return bool(model_type) and f'"{model_type}"' in tables if tables else None


def ties(model_type: str) -> bool | None:
    """Whether the class of `model_type` ties its embeddings where a config does not say; None where nobody tells."""
    home = _home()
    name = model_type.replace("-", "_")
    if home is None or not name.isidentifier():
        return None
    stated = set(_TIES.findall(_text(home / "models" / name / f"configuration_{name}.py")))
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
