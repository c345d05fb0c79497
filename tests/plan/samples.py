"""Plan files as people have them, good and bad: bytes, and what is said of them. All are written when a test runs."""

from vramscope.plan.text import MAX_FILE_BYTES

GOOD = "version: 1\nsteps:\n  - wait: 1s\n"
HEAD = "version: 1\nmodels: {m: {source: synthetic:tiny}}\n"
MAPPING = "expected a mapping with version, models and steps; got"
NOTHING_IN_IT = "expected a plan, got a file with nothing in it"
TOO_MANY = "expected at most 30,000 keys and values, got more"
LONG_LIST = "l" + ",l" * 8
BOMB = f"a: &a [{LONG_LIST}]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


def _with_text(spelling: str) -> str:
    """A plan that tokenizes what is spelled so."""
    return f"{HEAD}steps:\n  - tokenize: {{model: m, text: {spelling}}}\n"


# Text and how many steps the plan has.
ACCEPTED = {
    "merge key": (
        (
            "version: 1\nx-base: &b {source: gpt2, dtype: auto}\nmodels: {m: {<<: *b, dtype: float16}}\n"
            "steps: [load: m, unload: m]\n"
        ),
        2,
    ),
    "few aliases": ("version: 1\nsteps:\n  - &w {wait: 1s}\n  - *w\n  - *w\n", 3),
    "byte order mark": ("\ufeff" + GOOD, 1),
    "Windows line ends": (GOOD.replace("\n", "\r\n"), 1),
    "old Mac line ends": (GOOD.replace("\n", "\r"), 1),
    "no line end": (GOOD.rstrip(), 1),
    "document markers": (f"---\n{GOOD}...\n", 1),
    "JSON": ('{"version": 1, "steps": ["release"]}', 1),
    "huge repeat": ("version: 1\nsteps: [repeat: {times: 1000000000000, steps: [wait: 1ms]}]\n", 1),
    "huge cycles": ("version: 1\nrepeat: 1e15\nsteps: [release]\n", 1),
    **{
        f"text {spelling}": (_with_text(spelling), 1)
        for spelling in ("yes", "NO", "on", "2024-01-01", "10:30", "1_000")
    },
    **{f"text {text!a}": (_with_text(text), 1) for text in ("''", "'1e3'", '"\\ud83d\\ude00"', '"a\\x85b"', "从")},
}

# Bytes or text, and the first line that is said of it, without the file's name.
REFUSED = {
    "keys given twice": (f"{GOOD}steps: []\n", '4:1: the key "steps" is given twice, first on line 2'),
    "keys given twice inside": (
        f"{HEAD}steps:\n  - load: {{model: m, model: m}}\n",
        '4:22: steps[0].load: the key "model" is given twice, first on line 4',
    ),
    "keys that Python takes for equal": (
        f"{GOOD}1: a\ntrue: b\n",
        "4:1: expected a text as key, got the number 1 (quote it to make it text)",
    ),
    "octal key": (f"{GOOD}0o17: a\n", "4:1: expected a text as key, got the number 15 (quote it to make it text)"),
    "list on top": ("- a\n", f"1:1: {MAPPING} a list"),
    "text on top": ("hello\n", f'1:1: {MAPPING} "hello"'),
    "null on top": ("null\n", f"1:1: {MAPPING} nothing"),
    "number on top": ("0o17\n", f"1:1: {MAPPING} the number 15"),
    "empty": ("", f"1:1: {NOTHING_IN_IT}"),
    "blank": ("\n  \n", f"3:1: {NOTHING_IN_IT}"),
    "comment alone": ("# only\n", f"2:1: {NOTHING_IN_IT}"),
    "byte order mark alone": ("\ufeff", f"1:1: {NOTHING_IN_IT}"),
    "marker alone": ("---\n", f"2:1: {MAPPING} nothing"),
    "steps of nothing": ("version: 1\nsteps:\n", "2:7: steps: expected a list, got nothing"),
    "no steps": ("version: 1\nsteps: []\n", "2:8: steps: expected at least one step, got an empty list"),
    "steps that are a mapping": (f"{HEAD}steps:\n  load: m\n", "4:3: steps: expected a list, got a mapping"),
    "tab": (
        "version: 1\nsteps:\n\t- wait: 1s\n",
        "3:1: expected spaces, got a tab (YAML is indented with spaces)",
    ),
    "bomb of aliases": (f"{BOMB}steps: *i\n", f"5:4: {TOO_MANY} where aliases are written out"),
    "alias of itself": (
        "version: 1\nsteps: &s [*s]\n",
        "2:8: expected a value with an end, got one that contains itself through an alias",
    ),
    "unknown alias": ("version: 1\nsteps: [*s]\n", "2:9: not valid YAML: found undefined alias 's'"),
    "unknown key": (f"{GOOD}stpes: []\n", '4:1: unknown key "stpes" (did you mean "steps"?)'),
    "byte order mark inside": (
        f"---\n\ufeff# c\n{GOOD}",
        (
            "2:1: expected printable text, got the character U+FEFF (a byte order mark, which may stand only at the "
            "start of the file)"
        ),
    ),
    "UTF-16": (GOOD.encode("utf-16"), "1:1: expected UTF-8 text, got UTF-16"),
    "Latin-1": (b"# caf\xe9\n" + GOOD.encode(), "1:6: expected UTF-8 text, got the byte 0xe9"),
    "Latin-1 behind old Mac line ends": (b"a: 1\rb: \xe9", "2:4: expected UTF-8 text, got the byte 0xe9"),
    "NUL": (b"steps: []\0\n", "1:10: expected printable text, got the character U+0000 (NUL)"),
    "control character": ('a: "\x07"\n', "1:5: expected printable text, got the character U+0007"),
    "line separator": (
        f"{GOOD}# a\u2028b\n",
        (
            "4:4: expected printable text, got the character U+2028 (a line end to some; in a text, write "
            '"\\u2028", in double quotes)'
        ),
    ),
    "several documents": (f"{GOOD}---\n{GOOD}", "4:1: expected one document, got a second one"),
    "Python tag": (
        'version: 1\nsteps: !!python/object/apply:os.system ["false"]\n',
        '2:8: expected a value without a tag, got "!!python/object/apply:os.system"',
    ),
    "deep": ("[" * 20_000 + "]" * 20_000, "1:66: expected at most 64 levels of nesting, got more"),
    "huge file": (
        b"#" * (MAX_FILE_BYTES + 1),
        "1:1: expected a file of at most 1,048,576 bytes, got a larger one (a repeat block saves steps)",
    ),
    "many steps": ("steps:\n" + "  - wait: 1ms\n" * 15_000, f"10001:5: {TOO_MANY} in the file"),
    "half a character": (
        _with_text('"\\ud800"'),
        "4:32: steps[0].tokenize.text: expected text, got the escape of half a character (a lone surrogate)",
    ),
    "escape of no character": (
        _with_text('"\\U00110000"'),
        "4:35: not valid YAML: an escape or a number is out of range",
    ),
    "version without end": (
        f"%YAML 1.{'1' * 6000}\n---\n{GOOD}",
        "1:9: not valid YAML: an escape or a number is out of range",
    ),
    "no space behind a colon": (
        "version: 1\nsteps:[release]\n",
        "3:1: not valid YAML: could not find expected ':' while scanning a simple key that begins on line 2",
    ),
    "quotes without end": (
        'version: 1\nname: "x\nsteps: []\n',
        "4:1: not valid YAML: found unexpected end of stream while scanning a quoted scalar that begins on line 2",
    ),
    "step that is no kind": (
        "version: 1\nsteps:\n  - load m\n",
        '3:5: steps[0]: expected load: m (with a colon after the kind), got "load m"',
    ),
}

_DURATION = "4:11: steps[0].wait: expected a duration such as 250ms, 30s, 5m or 1h30m, got"
_TEXT = "4:32: steps[0].tokenize.text: expected text, got"
_CYCLES = "3:9: repeat: expected forever or a whole number of 1 or more, got"
_SIZE = "4:35: steps[0].expect.device_used.below: expected a size such as 512MiB, 10GB or 1048576, got"
_QUOTE = "(quote it to make it text)"

# Values in a place where they cannot be: the value as it is written, and what is said.
WRONG_DURATIONS = {
    **dict.fromkeys((".inf", "1e400", "+.INF"), f"{_DURATION} the number inf"),
    "-.inf": f"{_DURATION} the number -inf",
    ".nan": f"{_DURATION} the number nan",
    "-1s": f'{_DURATION} "-1s"',
    "-1": f"{_DURATION} the number -1: a duration is never negative",
    "367d": f'{_DURATION} "367d": longer than 366 days',
    **{
        text: f'{_DURATION} "{text}"'
        for text in ("10:30", "yes", "2024-01-01", "1H", "5sec", "30m1h", "5s#c", "\u0660\u0661s")
    },
    "[5s]": f"{_DURATION} a list",
    "true": f"{_DURATION} true",
    "null": "4:11: steps[0].wait: expected wait: DURATION, got nothing",
}
WRONG_TEXTS = {
    "1e3": f"{_TEXT} the number 1000.0 {_QUOTE}",
    "010": f"{_TEXT} the number 10 {_QUOTE}",
    "0o17": f"{_TEXT} the number 15 {_QUOTE}",
    "0x1F": f"{_TEXT} the number 31 {_QUOTE}",
    ".5": f"{_TEXT} the number 0.5 {_QUOTE}",
    "True": f"{_TEXT} true {_QUOTE}",
    **dict.fromkeys(("~", "null", "NULL"), f"{_TEXT} nothing"),
    "{a: b}": f"{_TEXT} a mapping",
}
WRONG_CYCLES = {
    **{text: f"{_CYCLES} the number {text}" for text in ("0", "-1", "1.5", "99999999999999999999")},
    "1e30": f"{_CYCLES} the number 1e+30",
    ".inf": f"{_CYCLES} the number inf",
    "yes": f'{_CYCLES} "yes"',
    "FOREVER": f'{_CYCLES} "FOREVER"',
    "null": f"{_CYCLES} nothing",
}
WRONG_SIZES = {
    "10gb": f'{_SIZE} "10gb" (did you mean "GB"?)',
    "10Gb": f'{_SIZE} "10Gb" (did you mean "GB"?)',
    "-1GB": f'{_SIZE} "-1GB"',
    "1.5": f"{_SIZE} the number 1.5: a part of a byte",
    ".inf": f"{_SIZE} the number inf",
    "1e30": f"{_SIZE} the number 1e+30: larger than 8 EiB",
    "9EiB": f'{_SIZE} "9EiB"',
}
SIZES = {
    "10GB": 10**10,
    "10 GB": 10**10,
    "10G": 10**10,
    "10GiB": 10 * 2**30,
    "10Gi": 10 * 2**30,
    "1.5GiB": 3 * 2**29,
    "512MiB": 512 * 2**20,
    "1024": 1024,
    "1024B": 1024,
    "1e3": 1000,
    "1_000": 1000,
    "0x400": 1024,
}
