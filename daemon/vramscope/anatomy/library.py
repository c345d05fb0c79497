"""What the installed transformers can load, read from its own tables as text: importing it takes seconds and torch."""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

NAME = "transformers"
_TABLES = ("auto_mappings.py", "configuration_auto.py")


def knows(model_type: str) -> bool | None:
    """Whether transformers has a config class for `model_type`; None where it is not installed or is another one."""
    tables = _tables()
    return bool(model_type) and f'"{model_type}"' in tables if tables else None


def release() -> str:
    """Name the library and its release, for messages."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - it takes longer than an inspection

    try:
        return f"{NAME} {version(NAME)}"
    except PackageNotFoundError:
        return NAME


@cache
def _tables() -> str:
    try:
        spec = find_spec(NAME)
    except (ImportError, ValueError):
        return ""
    if spec is None or not spec.origin:
        return ""
    return "".join(_text(Path(spec.origin).parent / "models" / "auto" / name) for name in _TABLES)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
