"""Small tokenizers as files, and what they make of texts by the byte-level rule: one token for each byte of UTF-8."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

BEGIN, END, ADDED = "<s>", "</s>", "HELLO"
BYTES = 256
BASE = BYTES + 2  # begin and end belong to the base vocabulary
WINDOW = 16
NO_LONGEST = int(1e30)  # what transformers writes where a tokenizer knows no longest text

CHAT_TEMPLATE = "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}{% endfor %}"

# How many tokens each text is, without special tokens; with them it is two more.
TEXTS = {
    "": 0,
    "a": 1,
    "hello": 5,
    "你好世界": 12,
    "\N{GRINNING FACE}": 4,
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466": 25,  # a family: four faces, three joiners
    "e\u0301": 3,  # e and a combining accent
    "\u00e9": 2,  # the same sign, precomposed
    "\u200b": 3,  # a space without width
    f" {ADDED} ": 3,
    BEGIN: 1,
    f"{BEGIN}{BEGIN}": 2,
    "a" * 100: 100,
    "\0": 1,
    "\r\n": 2,
}


def byte_letters() -> list[str]:
    """GPT-2's letter for each byte: printable ones are themselves, the others follow from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(BYTES)]


def save_byte_tokenizer(
    directory: Path, *, template: str | None = CHAT_TEMPLATE, longest: int = WINDOW, special: bool = True
) -> Path:
    """Write a byte-level tokenizer that puts <s> and </s> around a text (with `special`), and knows HELLO whole."""
    vocabulary = {letter: number for number, letter in enumerate(byte_letters())} | {BEGIN: BYTES, END: BYTES + 1}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    document: dict[str, Any] = {
        "version": "1.0",
        "added_tokens": [_added(BYTES, BEGIN), _added(BYTES + 1, END), _added(BYTES + 2, ADDED, special=False)],
        "pre_tokenizer": byte_level,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
        "post_processor": _around([BEGIN], [END]) if special else None,
    }
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BEGIN,
        "eos_token": END,
        "model_max_length": longest,
    }
    if template is not None:
        config["chat_template"] = template
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "tokenizer.json").write_text(json.dumps(document))
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    return directory


def save_wordpiece_vocabulary(directory: Path) -> Path:
    """Write the one file that BERT's tokenizer needs; it puts [CLS] and [SEP] around a text."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    lines = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text('{"model_type": "bert", "vocab_size": 64}')
    (directory / "vocab.txt").write_text("\n".join(lines))
    return directory


def _added(number: int, content: str, *, special: bool = True) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
    return {"id": number, "content": content, "special": special, "normalized": not special, **flags}


def _around(before: Iterable[str], after: Iterable[str]) -> dict[str, Any]:
    """The rule that writes special tokens around a text."""
    ids = {BEGIN: BYTES, END: BYTES + 1}
    begin, end = ([{"SpecialToken": {"id": token, "type_id": 0}} for token in tokens] for tokens in (before, after))
    text = [{"Sequence": {"id": "A", "type_id": 0}}]
    return {
        "type": "TemplateProcessing",
        "single": [*begin, *text, *end],
        "pair": [*text, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {token: {"id": token, "ids": [number], "tokens": [token]} for token, number in ids.items()},
    }
