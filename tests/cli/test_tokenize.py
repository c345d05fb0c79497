import io
import json
import os
import subprocess
import sys

import pytest
from tests.loading.tokenizers import save_byte_tokenizer

from vramscope.cli import main

CHAT = [{"role": "user", "content": "hi"}]
# What a start of `vramscope tokenize` imports, beside its answer.
WATCHED = (
    "import sys; from vramscope.cli import main; code = main(sys.argv[1:]); "
    "print([name for name in ('torch', 'transformers') if sys.modules.get(name)], file=sys.stderr); sys.exit(code)"
)


def tokenize(*arguments, stdin=b"", program=("-m", "vramscope")):
    """The command in a process of its own: it keeps torch out of the process that it runs in."""
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "PYTHONUTF8": "1"}
    return subprocess.run(
        [sys.executable, *program, "tokenize", *arguments],
        input=stdin,
        capture_output=True,
        env=environment,
        check=False,
    )


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    directory = save_byte_tokenizer(tmp_path_factory.mktemp("model"))
    (directory / "config.json").write_text('{"model_type": "llama", "vocab_size": 272, "max_position_embeddings": 32}')
    return str(directory)


def test_a_text_as_json_has_every_figure_and_needs_no_torch(model):
    done = tokenize(model, "hello", "--format", "json", program=("-c", WATCHED))
    assert done.returncode == 0
    assert json.loads(done.stdout) == {
        "ids": list(b"hello"),
        "tokens": list("hello"),
        "count": 5,
        "count_with_special": 7,
        "characters": 5,
        "words": 1,
        "context_window": 32,
        "share": 7 / 32,
        "tokenizer": {"vocabulary": 258, "added": 1, "with_added": 259, "embedding_rows": 272},
    }
    assert done.stderr.decode() == "['transformers']\n"


def test_a_chat_is_counted_once(model, tmp_path):
    path = tmp_path / "chat.json"
    path.write_text(json.dumps({"messages": CHAT}))
    report = json.loads(tokenize(model, "--chat", str(path), "--format", "json").stdout)
    assert (report["count"], report["count_with_special"], report["tokens"][0]) == (9, 9, "<s>")


def test_standard_input_is_a_text_and_a_synthetic_model_needs_no_weights():
    done = tokenize("synthetic:qwen2.5-0.5b", "-", "--format", "json", stdin="从\n".encode())
    report = json.loads(done.stdout)
    assert (report["characters"], report["context_window"]) == (2, 32768)
    assert report["tokenizer"]["embedding_rows"] == 151936


def test_the_table_says_which_count_it_shows(model):
    shown = tokenize(model, "你<s>").stdout.decode()
    for cells in ("tokens of the text │ 4 │", "tokens for the model │ 6 │", "of them special │ 1 │"):
        assert cells in " ".join(shown.split())


BAD = {
    "neither": ([], b"", 2, "expected a TEXT or --chat FILE, and not both"),
    "both": (["text", "--chat", "-"], b"", 2, "expected a TEXT or --chat FILE, and not both"),
    "prompt of a text": (["text", "--generation-prompt"], b"", 2, "--generation-prompt goes with --chat"),
    "Latin-1": (["-"], b"caf\xe9", 1, "standard input: not UTF-8 text (byte 3)"),
    "too long": (["-"], b"a" * (4 << 20) + b"a", 1, "expected a text of at most 4,194,304 bytes, got a longer one"),
    "no file": (["--chat", "/no/such/file"], b"", 1, "/no/such/file: No such file or directory"),
    "no JSON": (["--chat", "-"], b"[", 1, "standard input: the file is not valid JSON"),
    "no message": (["--chat", "-"], b"[]", 1, "standard input: expected a list of messages such as"),
    "text": (["--chat", "-"], b'["hi"]', 1, "standard input: expected a list of messages such as"),
    "no role": (["--chat", "-"], b'[{"content": "hi"}]', 1, 'messages[0]: expected a "role" such as "user"'),
    "tools": (["--chat", "-"], b'{"messages": [{"role": "user"}], "tools": 1}', 1, 'expected "tools" to be a list'),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_counted_is_one_error(capfd, monkeypatch, case):
    """These end before transformers is imported, so they may run in this process."""
    arguments, stdin, code, message = BAD[case]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
    assert main(["tokenize", "./nowhere", *arguments]) == code
    assert message in capfd.readouterr().err


def test_a_model_without_a_tokenizer_is_one_error(tmp_path):
    done = tokenize(str(tmp_path), "text")
    assert done.returncode == 1
    assert done.stderr.decode().startswith(
        f"vramscope: {tmp_path}: no tokenizer can be loaded: there is no tokenizer.json"
    )


def test_a_text_is_counted_whatever_the_hub_is_said_to_be(model, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://[::bad")
    done = tokenize(model, "hello", "--format", "json")
    assert (done.returncode, json.loads(done.stdout)["count"]) == (0, 5)
