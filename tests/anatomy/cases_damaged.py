"""Sources that are broken, incomplete, or no model at all: each must be named for what it is, and nothing else."""

import json
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

from tests.anatomy.cases import (
    TIED,
    UNTIED,
    Expected,
    llama,
    tensor,
    write,
    write_config,
    write_llama,
    write_raw,
    write_shards,
)

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "a" * 64 + "\nsize 7516192768\n"
COMMIT, NEWER = "a" * 40, "b" * 40
ENTRY = b'{"dtype":"F32","shape":[2],"data_offsets":[0,8]}'


class _Touch:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return os.mkdir, (str(self.path),)


def a_shard_that_is_not_there(path: Path) -> list[Expected]:
    write_config(path / "m", tie_word_embeddings=False)
    last = write_shards(path / "m", llama("F32", tied=False))[-1]
    (path / "m" / last).unlink()
    return [Expected(is_unknown=True, file_bytes=24768, problem=rf"{last}: the shard is missing")]


def a_name_that_no_shard_has(path: Path) -> list[Expected]:
    write_config(path / "m", tie_word_embeddings=False, dtype="float32")
    more = {"model.mtp.fc.weight": "model-00004-of-00004.safetensors"}
    write_shards(path / "m", llama("F32", tied=False), more=more)
    problem = r"the tensor 'model\.mtp\.fc\.weight' is not in model-00004"
    return [Expected(parameters=UNTIED, file_bytes=4 * UNTIED, problem=problem)]


def shards_outside_the_directory(path: Path) -> list[Expected]:
    """Whoever opened what they name would wait for ever."""
    os.mkfifo(path / "evil.safetensors")
    outside = str(path / "evil.safetensors")
    names = ["../evil.safetensors", outside, "C:\\evil.safetensors", "..\\evil.safetensors", "m/../../evil.safetensors"]
    for number, name in enumerate(names):
        write_config(path / str(number), tie_word_embeddings=False)
        (path / str(number) / "m").mkdir()
        write_shards(path / str(number), llama("F32", tied=False)[1:], more={"model.embed_tokens.weight": name})
    problem = r'"weight_map": .*expected the name of a file beside the index, got '
    return [Expected(source=str(number), is_unknown=True, problem=problem) for number in range(len(names))]


def dtypes_that_are_none(path: Path) -> list[Expected]:
    expected = []
    for number, value in enumerate(["bf16", "torch.bfloat16", 16, ["bfloat16"], "int4"]):
        write_llama(path / str(number), tied=False, dtype=value)
        shown = repr(value).replace("[", r"\[").replace("]", r"\]")
        problem = rf'"dtype": expected one of .*; got {shown}'
        expected.append(Expected(source=str(number), parameters=UNTIED, file_bytes=2 * UNTIED, problem=problem))
    return expected


def a_pointer_in_place_of_weights(path: Path) -> list[Expected]:
    write_config(path / "m")
    (path / "m/model.safetensors").write_text(POINTER)
    return [Expected(is_unknown=True, problem="a Git LFS pointer to 7,516,192,768 bytes")]


def a_file_that_was_cut_short(path: Path) -> list[Expected]:
    write_llama(path / "m")
    whole = (path / "m/model.safetensors").stat().st_size
    os.truncate(path / "m/model.safetensors", whole - 1000)
    problem = f"cut short by 1,000 bytes: expected {whole:,} bytes, got {whole - 1000:,}"
    return [Expected(is_unknown=True, problem=problem)]


def lengths_that_are_none(path: Path) -> list[Expected]:
    """None of them may be allocated."""
    write_raw(path / "large.safetensors", b"", length=132_095_296)
    os.truncate(path / "large.safetensors", 200_000_000)
    write_raw(path / "blank.safetensors", b"", length=90_000_000)
    os.truncate(path / "blank.safetensors", 200_000_000)
    lengths = (0, 1000, 2**31, 2**63, 2**64 - 1, 2**64 - 8)
    for length in lengths:
        write_raw(path / f"{length}.safetensors", b"{}", length=length)
    for name, content in {"short": b"\1\2\3", "empty": b"", "page": b"<!DOCTYPE html><html>404</html>"}.items():
        (path / f"{name}.safetensors").write_bytes(content)
    reasons = {
        "large": r"132,095,296 bytes long, the format allows 100,000,000",
        "blank": r"must start with",
        "0": "got nothing",
        "1000": "cut short",
        "short": "3 bytes are too few",
        "empty": "the file is empty",
        "page": "an HTML page",
    } | {str(length): f"{length:,} bytes long" for length in lengths[2:]}
    return [Expected(source=f"{name}.safetensors", is_unknown=True, problem=reason) for name, reason in reasons.items()]


def headers_that_only_python_would_read(path: Path) -> list[Expected]:
    headers = {
        "twice": (b'{"a":%s,"a":%s}' % (ENTRY, ENTRY), "says the key 'a' twice"),
        "latin": (b'{"\xff":%s}' % ENTRY, "is not UTF-8"),
        "mark": (b'\xef\xbb\xbf{"a":%s}' % ENTRY, "must start with"),
        "nan": (b'{"a":%s}' % ENTRY.replace(b"[2]", b"[NaN]"), "NaN is no JSON"),
        "list": (b"[]", "must start with"),
        "deep": (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        "digits": (b'{"a":%s}' % ENTRY.replace(b"8]", b"9" * 5000 + b"]"), "a number too long"),
        "numbers": (b'{"__metadata__":{"k":1},"a":%s}' % ENTRY, "expected a string, got a number"),
    }
    for name, (header, _) in headers.items():
        write_raw(path / f"{name}.safetensors", header, bytes(8))
    write_raw(path / "good.safetensors", b'{"a":%s}    ' % ENTRY, bytes(8))
    good = Expected(source="good.safetensors", parameters=2, file_bytes=8)
    bad = [Expected(source=f"{name}.safetensors", problem=reason) for name, (_, reason) in headers.items()]
    return [good, *bad]


def configs_that_are_none(path: Path) -> list[Expected]:
    texts = {
        "absent": (None, "no such file"),
        "empty": ("", "the file is empty"),
        "broken": ('{"model_type": "llama",', "not valid JSON"),
        "untyped": ('{"hidden_size": 16}', '"model_type" is missing'),
        "list": ("[]", "expected a JSON object, got a list"),
        "null": ("null", "expected a JSON object, got null"),
        "deep": ('{"x":' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deeply"),
    }
    for name, (text, _) in texts.items():
        write_llama(path / name, tied=False)
        config = path / name / "config.json"
        config.unlink() if text is None else config.write_text(text)
    return [
        Expected(source=name, parameters=UNTIED, file_bytes=2 * UNTIED, problem=rf"config\.json: .*{reason}")
        for name, (_, reason) in texts.items()
    ]


def only_an_adapter(path: Path) -> list[Expected]:
    prefix = "base_model.model.model.layers.0.self_attn.q_proj.lora_"
    tensors = [tensor(f"{prefix}A.weight", "F32", 8, 16), tensor(f"{prefix}B.weight", "F32", 16, 8)]
    write(path / "m/adapter_model.safetensors", tensors)
    (path / "m/adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "org/base"}))
    return [Expected(is_unknown=True, problem="only an adapter for org/base")]


def only_pickles(path: Path) -> list[Expected]:
    for name in ("raw", "zipped"):
        write_config(path / name)
        content = pickle.dumps(_Touch(path / f"ran-{name}"), protocol=2)
        if name == "raw":
            (path / name / "pytorch_model.bin").write_bytes(content)
        else:
            with zipfile.ZipFile(path / name / "pytorch_model.bin", "w") as archive:
                archive.writestr("archive/data.pkl", content)
    problem = r"only pickled weights \(pytorch_model\.bin\)"
    ran = ("ran-raw", "ran-zipped")
    return [Expected(source=name, is_unknown=True, problem=problem, never_made=ran) for name in ("raw", "zipped")]


def only_gguf(path: Path) -> list[Expected]:
    (path / "m").mkdir()
    (path / "m/model.Q4_K_M.gguf").write_bytes(b"GGUF" + bytes(20))
    return [Expected(is_unknown=True, problem="only GGUF weights")]


def a_model_with_code_of_its_own(path: Path) -> list[Expected]:
    write_llama(path / "m", model_type="zzz_custom", auto_map={"AutoConfig": "c.C", "AutoModelForCausalLM": "c.M"})
    (path / "m/c.py").write_text(f"open({str(path / 'ran')!r}, 'w')\n")
    return [
        Expected(
            parameters=TIED,
            file_bytes=2 * TIED,
            problem="has no model_type 'zzz_custom'.*code of its own, which vramscope does not run",
            load_error="custom code .* vramscope does not run",
            never_made=("ran",),
        )
    ]


def _snapshot(cache: Path, commit: str = COMMIT, *, ref: str | None = COMMIT, whole: bool = True) -> None:
    """A model in a hub cache, the snapshot's files being links to blobs; without its weights if it is not `whole`."""
    home = cache / "models--org--name"
    write_llama(cache / "made", dtype="bfloat16")
    (home / "blobs").mkdir(parents=True, exist_ok=True)
    (home / "snapshots" / commit).mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        blob = home / "blobs" / f"{commit[:8]}-{name}"
        (home / "snapshots" / commit / name).symlink_to(f"../../blobs/{blob.name}")
        if whole or name == "config.json":
            blob.write_bytes((cache / "made" / name).read_bytes())
    if ref is not None:
        (home / "refs").mkdir(exist_ok=True)
        (home / "refs/main").write_text(ref)


def hub_caches(path: Path) -> list[Expected]:
    for name, ref in {
        "whole": COMMIT,
        "newline": f"{COMMIT}\n",
        "none": None,
        "empty": "",
        "up": "../../../etc",
    }.items():
        _snapshot(path / name, ref=ref)
    (path / "whole/models--org--name/blobs/stale.incomplete").write_bytes(b"x")
    _snapshot(path / "partial", whole=False)
    _snapshot(path / "ahead")
    _snapshot(path / "ahead", NEWER, ref=NEWER, whole=False)
    good = {"parameters": TIED, "loaded": (TIED, 2 * TIED), "revision": COMMIT}
    problems = {
        "none": "revision main is not in the hub cache",
        "empty": "refs/main: the file is empty",
        "up": "refs/main: expected a commit, got",
        "partial": r"model\.safetensors: not downloaded",
        "ahead": rf"{NEWER}/model\.safetensors: not downloaded",
    }
    bad = [Expected(source="org/name", hub_cache=name, problem=problem) for name, problem in problems.items()]
    return [Expected(source="org/name", hub_cache=name, **good) for name in ("whole", "newline")] + bad  # type: ignore[arg-type]


CASES: tuple[Callable[[Path], list[Expected]], ...] = (
    a_shard_that_is_not_there,
    a_name_that_no_shard_has,
    shards_outside_the_directory,
    dtypes_that_are_none,
    a_pointer_in_place_of_weights,
    a_file_that_was_cut_short,
    lengths_that_are_none,
    headers_that_only_python_would_read,
    configs_that_are_none,
    only_an_adapter,
    only_pickles,
    only_gguf,
    a_model_with_code_of_its_own,
    hub_caches,
)
