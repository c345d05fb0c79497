"""A small byte-level BPE tokenizer, learnt on the spot from a text of our own: good enough to count and to round-trip.

It is written in the format of the tokenizers library, so that transformers loads it like any other. All 256 bytes are
tokens, so every text can be written, and comes back as it was but for Unicode's normal form C.

transformers takes Qwen2Tokenizer for every qwen2 model, whatever the files say, and that class cuts and normalises in
its own way. The files say the same, so that whoever reads tokenizer.json alone counts the same tokens.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from typing import Any

END_OF_TEXT, MESSAGE_START, MESSAGE_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIALS = (END_OF_TEXT, MESSAGE_START, MESSAGE_END)
MERGES = 320

# Qwen2's rule (transformers/models/qwen2/tokenization_qwen2.py): an English ending, letters with one sign before them,
# one digit, signs with the line ends after them, line ends, blanks up to the last, blanks.
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# The text to learn from is our own: for it, words and signs with the space before them are enough.
_LEARNING_SPLIT = re.compile(r" ?\w+| ?[^\w\s]+|\s")

_CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

_TEXT = """
A model is a list of numbers in a file. Before it can answer, the numbers go from the disk to the memory of the machine,
and from there over the bus to the memory of the graphics card. Each of these steps takes time, and each of them needs
room. How much room the model needs is not a secret: count the parameters, take the bytes of each one, and add what the
allocator rounds up, what it keeps for later, and what the driver holds for itself. What is left is free for the work
that the model is there for: the words that come in, the words that go out, and the state that it keeps between them.
The text that people write is cut into tokens. A token is a piece of a word, a word, or a sign; the model knows each of
them by its number. A longer text has more tokens, and the context window says how many of them the model can look at.
When the model is unloaded, all of its memory should come back. If some of it does not, then something still holds it,
and the numbers show where. This is the reason for measuring: to know what there was, what there is, and what changed.
The quick test loads a model, moves it to the device, waits, moves it back, and loads the next one. It was not the same
model that was there before, but the same memory was used again, and the time that it took was almost the same.
大语言模型是一个文件里的数字。模型在回答问题之前，这些数字要从磁盘读到内存，再从内存经过总线送到显卡的显存。
每一步都需要时间，每一步都需要空间。模型需要多少显存不是秘密：参数的数量乘以每个参数的字节数，再加上分配器的取整、
缓存和驱动自己占用的部分。剩下的显存才是留给计算的：输入的文字、输出的文字，以及中间的状态。
人写的文字会被切成词元，一个词元可以是一个字、一个词的一部分或者一个符号。文字越长，词元越多；上下文窗口说明模型一次能看多少词元。
卸载模型之后，显存应该全部还回来。如果没有还回来，说明还有东西占用着它，测量的数字会告诉我们在哪里。
从基础设施的角度看，大语言模型到底是什么？它是参数、内存、显存和时间。我们要知道的是：什么时候加载，加载到哪里，用了多少。
"""  # noqa: RUF001 - Chinese has signs of its own


def tokenizer_files(model_type: str, context_window_tokens: int) -> dict[str, str]:
    """Write the tokenizer as file name to content: tokenizer.json, its config, and a generation config."""
    vocabulary, merges = _learn()
    special_ids = {token: len(vocabulary) + number for number, token in enumerate(SPECIALS)}
    end = special_ids[END_OF_TEXT]
    return {
        "tokenizer.json": _json(_tokenizer(vocabulary, merges, special_ids)),
        "tokenizer_config.json": _json(
            {
                "add_prefix_space": False,
                "additional_special_tokens": [MESSAGE_START, MESSAGE_END],
                "chat_template": _CHAT_TEMPLATE,
                "clean_up_tokenization_spaces": False,
                "eos_token": END_OF_TEXT,
                "model_max_length": context_window_tokens,
                "pad_token": END_OF_TEXT,
                "tokenizer_class": "Qwen2Tokenizer" if model_type == "qwen2" else "PreTrainedTokenizerFast",
            }
        ),
        "generation_config.json": _json({"do_sample": False, "eos_token_id": end, "pad_token_id": end}),
    }


def _tokenizer(
    vocabulary: Mapping[str, int], merges: tuple[tuple[str, str], ...], special_ids: Mapping[str, int]
) -> dict[str, Any]:
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": _SPLIT}, "behavior": "Isolated", "invert": False}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": number, "content": token, **flags} for token, number in special_ids.items()],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": dict(vocabulary),
            "merges": [list(pair) for pair in merges],
        },
    }


@cache
def _learn() -> tuple[dict[str, int], tuple[tuple[str, str], ...]]:
    """Learn the merges: time after time the most frequent pair of neighbours becomes a token; ties by text."""
    letters = _letters()
    vocabulary = {letter: number for number, letter in enumerate(letters.values())}
    pieces = Counter(_LEARNING_SPLIT.findall(_TEXT))
    words = [([letters[byte] for byte in piece.encode()], times) for piece, times in pieces.items()]
    merges: list[tuple[str, str]] = []
    while len(merges) < MERGES:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, times in words:
            for pair in pairwise(word):
                pairs[pair] += times
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        vocabulary[best[0] + best[1]] = len(vocabulary)
        words = [(_merged(word, best), times) for word, times in words]
    return vocabulary, tuple(merges)


def _merged(word: list[str], pair: tuple[str, str]) -> list[str]:
    merged: list[str] = []
    for token in word:
        if merged and (merged[-1], token) == pair:
            merged[-1] += token
        else:
            merged.append(token)
    return merged


def _letters() -> dict[int, str]:
    """Map every byte to the printable letter by which byte-level tokenizers write it.

    A byte that is itself a printable Latin-1 character keeps it; the 68 others get the letters from U+0100 on.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (byte for byte in range(256) if byte not in printable)
    return {byte: chr(byte) for byte in sorted(printable)} | {byte: chr(256 + n) for n, byte in enumerate(others)}


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"
