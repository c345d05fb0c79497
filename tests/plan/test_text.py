import pytest

from vramscope.plan.problems import PlanError
from vramscope.plan.text import MAX_FILE_BYTES, decode

MISPLACED = "(a byte order mark, which may stand only at the start of the file)"
BAD = {
    "utf-16": ("version: 1".encode("utf-16"), "1:1: expected UTF-8 text, got UTF-16"),
    "latin-1": (b"# a\n# caf\xe9\n", "2:6: expected UTF-8 text, got the byte 0xe9"),
    "latin-1 behind a byte order mark": (b"\xef\xbb\xbf# caf\xe9\n", "1:6: expected UTF-8 text, got the byte 0xe9"),
    "latin-1 behind wide characters": ("从从".encode() + b"\xe9\n", "1:3: expected UTF-8 text, got the byte 0xe9"),
    "NUL": (b"steps: []\0\n", "1:10: expected printable text, got the character U+0000 (NUL)"),
    "control character": (b'a:\n b: "\x07"\n', "2:6: expected printable text, got the character U+0007"),
    "byte order mark inside": (
        "---\n\ufeff# c\n".encode(),
        f"2:1: expected printable text, got the character U+FEFF {MISPLACED}",
    ),
    "too large": (
        b"#" * (MAX_FILE_BYTES + 1),
        "1:1: expected a file of at most 1,048,576 bytes, got a larger one (a repeat block saves steps)",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_not_plain_utf8_text_is_refused_where_it_stands(case):
    content, message = BAD[case]
    with pytest.raises(PlanError) as caught:
        decode(content, "plan.yaml")
    assert str(caught.value) == f"plan.yaml:{message}"


def test_a_byte_order_mark_at_the_start_is_left_out():
    assert decode("\ufeffversion: 1".encode(), "plan.yaml") == "version: 1"


def test_wide_characters_and_windows_line_ends_are_text():
    assert decode("a: 从 😀\r\n".encode(), "plan.yaml") == "a: 从 😀\r\n"


def test_a_file_of_the_largest_size_is_read():
    assert len(decode(b"#" * MAX_FILE_BYTES, "plan.yaml")) == MAX_FILE_BYTES
