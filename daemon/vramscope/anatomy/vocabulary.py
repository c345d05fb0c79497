"""How many tokens a tokenizer has, from its files alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vramscope.anatomy import jsonfile
from vramscope.anatomy.tokenizer import TOKENIZER
from vramscope.errors import SourceError


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """Three numbers with three names; None is unknown. `added` are tokens beside the vocabulary of `vocabulary`.

    `embedding_rows` are the rows that the model has for ids, often more than there are tokens.
    """

    vocabulary: int | None = None
    added: int | None = None
    embedding_rows: int | None = None


def count_vocabulary(directory: Path) -> tuple[int, int] | None:
    """Count the vocabulary of tokenizer.json and the tokens that are added to it; None where there is no such file.

    Raises SourceError for a file that is damaged. A sentencepiece model alone is not counted: nothing here reads one.
    """
    path = directory / TOKENIZER
    if not path.exists() and not path.is_symlink():
        return None
    content = jsonfile.read_object(path)
    model, listed = content.get("model"), content.get("added_tokens")
    entries = model.get("vocab") if isinstance(model, Mapping) else None
    if not isinstance(entries, Mapping | list):
        raise SourceError(f'{path}: "model": "vocab": expected an object or a list')
    known = entries if isinstance(entries, Mapping) else {_piece(entry) for entry in entries}
    contents = {_content(token) for token in listed} if isinstance(listed, list) else set()
    return len(entries), len({token for token in contents if token is not None and token not in known})


def _piece(entry: Any) -> Any:
    """The text of an entry of a Unigram vocabulary, which is a pair of text and score."""
    return entry[0] if isinstance(entry, list) and entry and isinstance(entry[0], str) else None


def _content(token: Any) -> str | None:
    content = token.get("content") if isinstance(token, Mapping) else None
    return content if isinstance(content, str) else None
