"""What each file of a model's directory is for, from its name alone; nothing is opened."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR

from vramscope.anatomy import weights

LIMIT = 200  # files that are listed; a directory may hold any number
_READ = "weights, which a load reads"
_TOKENIZER = "an older form of the tokenizer, or a part of it"

# The first pattern that fits the whole name, in the order in which the files are shown.
_ROLES = tuple(
    (re.compile(pattern, re.IGNORECASE), role)
    for pattern, role in (
        (r"config\.json", "the architecture: class, sizes, dtype, quantization"),
        (r"generation_config\.json", "defaults for generating text: sampling, stop tokens"),
        (r"tokenizer\.json", "the tokenizer: vocabulary, merges, special tokens"),
        (r"tokenizer_config\.json", "how the tokenizer is used: class, special tokens, longest text"),
        (r"chat_template\.(jinja|json)", "how a chat becomes one text"),
        (r"special_tokens_map\.json|added_tokens\.json", "special and added tokens, as older releases keep them"),
        (r"vocab\.(json|txt)|merges\.txt|.*\.tiktoken|tekken\.json", _TOKENIZER),
        (r"(tokenizer|spiece|sentencepiece.*)\.model", "a sentencepiece tokenizer, which needs its own package"),
        (r"(pre)?processor_config\.json|video_preprocessor_config\.json", "how images, video or sound are prepared"),
        (r"model\.safetensors\.index\.json", "the index: which shard holds which tensor"),
        (r"adapter_config\.json", "an adapter's own architecture, and its base model"),
        (r"adapter_model\..*", "an adapter's weights, which are no whole model"),
        (r"consolidated.*", "the publisher's original format of the weights, not read"),
        (r".*\.safetensors", "weights that a load does not read"),
        (r".*\.index\.json", "the index of weights that are not read"),
        (r".*\.(bin|pt|pth|ckpt|pkl)", "pickled weights, never opened: a pickle can run any code"),
        (r".*\.gguf", "weights for llama.cpp, not read"),
        (r".*\.(h5|msgpack|onnx|npz|tflite)", "weights for another framework, not read"),
        (r".*\.py", "code of the model's own, never run"),
        (r"(readme|license|licence|notice|use_policy)(\..*)?|.*\.(md|txt|pdf)", "for people"),
        (r"quant\w*config\.json|hf_quant_config\.json", "how the model was quantized"),
        (r"\.git.*|\.cache", "left by what fetched the model"),
        (r".*\.json", "other settings"),
        (r"(?s:.*)", ""),
    )
)


def _rank(name: str) -> int:
    return next(rank for rank, (pattern, _) in enumerate(_ROLES) if pattern.fullmatch(name))


_READ_RANK = _rank(weights.INDEX) + 0.5  # weights that are read stand right after their index


@dataclass(frozen=True, kw_only=True)
class FileFact:
    """One entry of a directory. `nbytes` is None for a directory, and for a link to nothing."""

    name: str
    nbytes: int | None
    role: str
    is_read: bool = False


def list_files(directory: Path, read: Collection[str]) -> tuple[tuple[FileFact, ...], int]:
    """List the files of `directory` in the order of their roles; `read` are the weight files that a load reads.

    Returns at most LIMIT of them, and how many there are. Raises OSError for a directory that cannot be read.
    """
    names = [entry.name for entry in directory.iterdir()]
    ranked = sorted(names, key=lambda name: (_READ_RANK if name in read else _rank(name), name))
    return tuple(_fact(directory / name, name in read) for name in ranked[:LIMIT]), len(names)


def _fact(path: Path, is_read: bool) -> FileFact:  # noqa: FBT001 - named where it is called
    role = _READ if is_read else _ROLES[_rank(path.name)][1]
    try:
        status = path.stat()
    except OSError:
        return FileFact(name=path.name, nbytes=None, role=f"not downloaded: {role}" if role else "not downloaded")
    if S_ISDIR(status.st_mode):
        return FileFact(name=f"{path.name}/", nbytes=None, role="a directory, not read")
    return FileFact(name=path.name, nbytes=status.st_size, role=role, is_read=is_read)
