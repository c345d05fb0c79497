"""Tokenizers: text to ids and counts. A tokenizer is loaded to RAM only: it touches no device, and needs no torch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from vramscope.anatomy.config import stated_window
from vramscope.anatomy.tokenizer import check_tokenizer_files
from vramscope.errors import SourceError, StepError, VramscopeError, reason_of
from vramscope.loading.abandonable import abandonable

# Up to here it is also kept from where in the text each token comes, which takes more memory than the ids.
SPANS_CHARACTERS = 20_000
# transformers writes 1e30 where a tokenizer knows no longest text; no window is near this.
_NO_WINDOW = 10**12

Check = Callable[[], None]


@dataclass(frozen=True, kw_only=True)
class TokenCount:
    """How one text is counted. Tokens are neither characters nor words.

    `ids` and `tokens` are those of the text alone; `special_tokens` is how many the tokenizer adds around it for the
    model. `spelled_special` is how many of `tokens` are special ones all the same, because the text spells them out.
    `characters` are Unicode code points, `words` are what white space parts. `spans` are where in the text each token
    comes from, if that was kept.
    """

    ids: tuple[int, ...]
    tokens: int
    special_tokens: int
    spelled_special: int
    characters: int
    words: int
    spans: tuple[tuple[int, int], ...] = ()

    @property
    def tokens_with_special(self) -> int:
        return self.tokens + self.special_tokens


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """How many tokens a tokenizer knows: its base vocabulary, and what was added to that."""

    base: int
    added: int


def carry_on() -> None:
    """The check of work that nobody cancels."""


def load_tokenizer(directory: Path, check: Check = carry_on) -> Any:
    """The tokenizer that lies beside a model's weights. Raises SourceError naming the missing file or package."""
    check_tokenizer_files(directory, _is_installed)
    try:
        tokenizer = abandonable(
            lambda: AutoTokenizer.from_pretrained(str(directory), local_files_only=True, trust_remote_code=False), check
        )
    except VramscopeError:
        raise
    except Exception as error:  # noqa: BLE001 - the tokenizers library raises plain Exception about a damaged file
        raise _unusable(directory, reason_of(error)) from None
    if _is_empty(tokenizer):
        raise _unusable(directory, "there is no vocabulary")
    return tokenizer


def count_tokens(tokenizer: Any, text: str, check: Check = carry_on) -> TokenCount:
    """Tokenize `text` with and without special tokens. Raises StepError for what is no Unicode text."""
    keep_spans = len(text) <= SPANS_CHARACTERS and getattr(tokenizer, "is_fast", False)
    alone = _encode(tokenizer, text, check, add_special_tokens=False, return_offsets_mapping=keep_spans)
    with_special = len(_encode(tokenizer, text, check, add_special_tokens=True)["input_ids"])
    return _counted(tokenizer, text, alone, with_special)


def count_chat(
    tokenizer: Any,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    generation_prompt: bool = False,
) -> tuple[str, TokenCount]:
    """A chat as its template writes it, and the count of that.

    The template writes the special tokens itself, so the tokenizer adds none: adding both is a common mistake, which
    shows as a second beginning-of-sequence token. Raises StepError.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise StepError(
            "the tokenizer has no chat template",
            hint="base models have none: take the model's instruct version, or count a text",
        )
    try:
        text: str = tokenizer.apply_chat_template(
            list(messages),
            tools=list(tools) if tools else None,
            tokenize=False,
            add_generation_prompt=generation_prompt,
        )
    except Exception as error:  # noqa: BLE001 - a template is a stranger's program, and may raise anything
        raise StepError(f"the chat template refuses this chat: {reason_of(error)}") from None
    keep_spans = len(text) <= SPANS_CHARACTERS and getattr(tokenizer, "is_fast", False)
    alone = _encode(tokenizer, text, carry_on, add_special_tokens=False, return_offsets_mapping=keep_spans)
    return text, _counted(tokenizer, text, alone, len(alone["input_ids"]))


def vocabulary_of(tokenizer: Any) -> Vocabulary:
    """The tokens that the tokenizer has an id for."""
    base = int(tokenizer.vocab_size)
    return Vocabulary(base=base, added=max(0, len(tokenizer) - base))


def context_window(config: Mapping[str, Any], tokenizer: Any) -> int | None:
    """How many tokens the model can look at: by its config, else by its tokenizer; None where neither says it."""
    stated = stated_window(config)
    longest = getattr(tokenizer, "model_max_length", None)
    if stated is None and isinstance(longest, int | float) and 0 < longest < _NO_WINDOW:
        return int(longest)
    return stated


def _encode(tokenizer: Any, text: str, check: Check, **options: bool) -> Mapping[str, Any]:
    try:
        text.encode()  # the library's own error is about the types of its arguments
        encoded: Mapping[str, Any] = abandonable(lambda: tokenizer(text, verbose=False, **options), check)
    except UnicodeEncodeError as error:
        half = f"character {error.start + 1:,} is half of one, U+{ord(text[error.start]):04X} (a lone surrogate)"
        hint = "it holds what is no valid Unicode text"
        raise StepError(f"the text cannot be tokenized: {half}", hint=hint) from None
    except (TypeError, ValueError) as error:
        raise StepError(f"the text cannot be tokenized: {reason_of(error)}") from None
    return encoded


def _counted(tokenizer: Any, text: str, alone: Mapping[str, Any], with_special: int) -> TokenCount:
    ids = tuple(alone["input_ids"])
    special = set(getattr(tokenizer, "all_special_ids", ()))
    return TokenCount(
        ids=ids,
        tokens=len(ids),
        special_tokens=with_special - len(ids),
        spelled_special=sum(number in special for number in ids),
        characters=len(text),
        words=len(text.split()),
        spans=tuple((start, end) for start, end in alone.get("offset_mapping", ())),
    )


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # of google.protobuf, where there is no google
        return False


def _unusable(directory: Path, reason: str) -> SourceError:
    return SourceError(
        f"{directory}: no tokenizer can be loaded: {reason}",
        hint="the directory needs tokenizer.json, or the files of a slow tokenizer and the package that reads them",
    )


def _is_empty(tokenizer: Any) -> bool:
    """Where the files are missing, transformers 5 makes a tokenizer of special tokens alone, which counts no text."""
    added = getattr(tokenizer, "get_added_vocab", dict)  # mistral-common's tokenizers have none
    return len(tokenizer) - len(added()) <= 1  # T5's keeps one piece of its own
