"""Tokenizers: text to ids and counts. A tokenizer is loaded to RAM only; it never touches a device."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from vramscope.errors import SourceError, StepError, reason_of


@dataclass(frozen=True, kw_only=True)
class TokenCount:
    """How one text is counted. Tokens are neither characters nor words; `special` are those that the model adds."""

    ids: tuple[int, ...]
    tokens: int
    special_tokens: int
    characters: int
    words: int


def load_tokenizer(directory: Path) -> Any:
    """The tokenizer that lies beside a model's weights. Raises SourceError saying what is missing."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(directory), local_files_only=True, trust_remote_code=False)
    except Exception as error:  # noqa: BLE001 - the tokenizers library raises plain Exception about a damaged file
        raise _unusable(directory, reason_of(error)) from None
    if _is_empty(tokenizer):
        raise _unusable(directory, "there is no vocabulary")
    return tokenizer


def _unusable(directory: Path, reason: str) -> SourceError:
    return SourceError(
        f"{directory}: no tokenizer can be loaded: {reason}",
        hint="the directory needs tokenizer.json, or the files of a slow tokenizer and the package that reads them",
    )


def _is_empty(tokenizer: Any) -> bool:
    """Where the files are missing, transformers 5 makes a tokenizer of special tokens alone, which counts no text."""
    added = getattr(tokenizer, "get_added_vocab", dict)  # mistral-common's tokenizers have none
    return len(tokenizer) - len(added()) <= 1  # T5's keeps one piece of its own


def count_tokens(tokenizer: Any, text: str) -> TokenCount:
    """Tokenize `text` with and without special tokens. `tokens` counts without, as the text itself has that many."""
    try:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        with_special = tokenizer(text)["input_ids"]
    except (UnicodeEncodeError, TypeError) as error:
        raise StepError(
            f"the text cannot be tokenized: {reason_of(error)}", hint="it holds what is no valid Unicode text"
        ) from None
    return TokenCount(
        ids=tuple(ids),
        tokens=len(ids),
        special_tokens=len(with_special) - len(ids),
        characters=len(text),
        words=len(text.split()),
    )
