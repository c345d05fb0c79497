"""Feeds the parser mutated plans, random YAML and worst cases of size, and prints what came of them.

    python tests/plan/fuzz_parser.py [MUTANTS]

Every text must be a plan or a PlanError whose problems have a place; anything else ends the run with the text. Times
are those of this process (CPU), so that a busy machine does not show.
"""

import random
import resource
import sys
import time
from collections import Counter
from pathlib import Path

from vramscope.plan.parse import parse_plan
from vramscope.plan.problems import PlanError
from vramscope.plan.text import MAX_FILE_BYTES
from vramscope.steps._catalog import step_kinds

KINDS = step_kinds()
PLANS = [path.read_bytes() for path in sorted(Path(__file__).parents[2].glob("deploy/plans/*.yaml"))]
PIECES = (
    *(b"- ", b": ", b"? ", b"[", b"]", b"{", b"}", b"&a ", b"*a", b"<<: *a", b"!!str ", b"|\n", b">-\n", b"'", b'"'),
    *(
        b"\t",
        b"\r\n",
        b"\n",
        b"#",
        b"---\n",
        b"...\n",
        b"%YAML 1.1\n",
        b"%YAML 1." + b"9" * 5000 + b"\n",
        b'"\\U00110000"',
        b"\xef\xbb\xbf",
        b"\xff",
        b"\0",
        b"\\ud800",
    ),
    *(b".inf", b".nan", b"1e999", b"0o17", b"0x1F", b"~", b"null", b"yes", b"10GB", b"-1s", b"1h30m", b"9" * 400),
    *(b"repeat: {times: 1000000000000, steps: [release]}", b"load: qwen", b"move: {model: qwen, to: cuda:0}"),
    *("\u4ece\U0001f600\u2028\x85".encode(), b"steps:\n", b"models:\n", b"version: 1\n", b"x-a: &a\n"),
)
SIZE = MAX_FILE_BYTES - 64
WORST = {
    "open lists": b"[" * SIZE,
    "open mappings": b"{" * SIZE,
    "nested keys": b"{a: " * (SIZE // 4),
    "dashes": b"- " * (SIZE // 2),
    "question marks": b"? " * (SIZE // 2),
    "flow items": b"[" + b"a," * (SIZE // 2),
    "short lines": b"a\n" * (SIZE // 2),
    "keys": b"".join(b"k%d:\n" % number for number in range(SIZE // 9)),
    "one long word": b"a" * SIZE,
    "a quoted word": b'"' + b"a " * (SIZE // 2),
    "escapes": b'"' + b"\\u4ece" * (SIZE // 6) + b'"',
    "digits": b"version: " + b"9" * SIZE,
    "empty lines": b"\n" * SIZE,
    "comments": b"#\n" * (SIZE // 2),
    "anchors": b"".join(b"- &a%d x\n" % number for number in range(SIZE // 13)),
    "aliases": b"- &a x\n" + b"- *a\n" * (SIZE // 6),
    "merges": b"a: &a {b: c}\n" + b"d: {<<: [" + b"*a," * (SIZE // 4) + b"]}",
    "twice the same key": b"a: b\n" * (SIZE // 5),
    "unknown keys": b"version: 1\nsteps: [release]\n" + b"".join(b"stepz%d: x\n" % number for number in range(14_000)),
    "unknown steps": b"version: 1\nsteps:\n" + b"- lod: x\n" * 9_000,
    "unknown models": b"version: 1\nsteps:\n" + b"- load: x\n" * 9_000,
    "many models": b"version: 1\nmodels:\n"
    + b"".join(b" m%d: {source: gpt2}\n" % number for number in range(7_000))
    + b"steps:\n"
    + b"".join(b"- load: n%d\n" % number for number in range(700)),
    "many steps": b"version: 1\nsteps:\n" + b"- release\n" * 25_000,
    "blocks": b"version: 1\nsteps:\n" + b"- repeat: {times: 1000000000000, steps: [release]}\n" * 3_000,
    "nested blocks": b"version: 1\nsteps: " + b"[{repeat: {times: 9, steps: " * 15 + b"[release]" + b"}}]" * 15,
}


def seconds_of(content: bytes) -> tuple[str, float]:
    """What the parser makes of a text, and how long it takes."""
    began = time.process_time()
    try:
        parse_plan(content, "plan.yaml", KINDS)
        outcome = "plan"
    except PlanError as error:
        if not error.problems or not all(problem.line and problem.column for problem in error.problems):
            raise
        outcome = "problems"
    return outcome, time.process_time() - began


def mutant(source: random.Random) -> bytes:
    """A plan with a few pieces written over, inserted, cut out or repeated."""
    text = bytearray(source.choice(PLANS))
    for _ in range(source.randint(1, 8)):
        at = source.randrange(len(text) + 1)
        length = source.randrange(40)
        match source.randrange(4):
            case 0:
                text[at:at] = source.choice(PIECES)
            case 1:
                text[at : at + length] = source.choice(PIECES)
            case 2:
                del text[at : at + length]
            case _:
                text[at:at] = text[at : at + length] * source.randint(1, 20)
    return bytes(text)


def main() -> None:
    """Run, and print the figures."""
    for name, content in WORST.items():
        outcome, seconds = seconds_of(content)
        print(f"{name}: {len(content):,} bytes, {outcome}, {seconds:.2f} s")
    mutants = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    source, outcomes, slowest = random.Random(6), Counter[str](), 0.0  # noqa: S311 - no secret
    for _ in range(mutants):
        content = mutant(source)
        try:
            outcome, seconds = seconds_of(content)
        except Exception:
            print(f"this text is neither a plan nor a PlanError: {content!r}")
            raise
        outcomes[outcome] += 1
        slowest = max(slowest, seconds)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{mutants:,} mutants: {dict(outcomes)}, the slowest {slowest:.2f} s, peak memory {peak:.0f} MiB")


if __name__ == "__main__":
    main()
