"""Feeds damaged safetensors files to the header's reader: none may crash it, hang it, or make it take memory.

    python tests/benchmarks/fuzz_headers.py --count 200000 --seed 1

Each file must be read or refused with a SourceError, in less than a second; one that is read must be one that the
reference implementation reads, too. Prints what became of the files, and the memory before and after; ends with 1
where one of these does not hold, and leaves the file that showed it.
"""

import argparse
import random
import resource
import sys
import tempfile
import time
from collections import Counter
from itertools import islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from figures import say
from safetensors import SafetensorError, deserialize
from tests.anatomy.mutations import mutants

from vramscope.anatomy.header import read_header
from vramscope.errors import SourceError

SLOWEST_SECONDS = 1.0
GROWTH_BYTES = 50 << 20
WARM_UP = 1000  # files after which everything that stays is imported and allocated
READ, REFUSED, STRICTER = "read by both", "refused by both", "refused by vramscope alone"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)  # noqa: S311 - a seed that can be told again, not a secret
    outcomes: Counter[str] = Counter()
    slowest, began, before = 0.0, time.perf_counter(), peak_bytes()
    with tempfile.TemporaryDirectory() as made:
        path = Path(made) / "m.safetensors"
        for number, content in enumerate(islice(mutants(chance), arguments.count)):
            path.write_bytes(content)
            started = time.perf_counter()
            outcome = outcome_of(path)
            slowest = max(slowest, time.perf_counter() - started)
            expected = reference_reads(content)
            if (outcome == READ and not expected) or slowest > SLOWEST_SECONDS:
                return give_up(content, number, outcome, slowest)
            outcomes[STRICTER if outcome == REFUSED and expected else outcome] += 1
            if number == WARM_UP:
                before = peak_bytes()
    grown = peak_bytes() - before
    say(f"{arguments.count:,} files in {time.perf_counter() - began:.0f} s, the slowest took {1000 * slowest:.1f} ms")
    for outcome, count in outcomes.most_common():
        say(f"  {count:>9,} {outcome}")
    say(f"peak memory grew by {grown / (1 << 20):.1f} MiB after the first {WARM_UP:,}")
    return int(grown > GROWTH_BYTES)


def outcome_of(path: Path) -> str:
    """Read one file; anything but a header or a SourceError ends the run with its traceback."""
    try:
        read_header(path)
    except SourceError:
        return REFUSED
    return READ


def reference_reads(content: bytes) -> bool:
    try:
        deserialize(content)
    except SafetensorError:
        return False
    return True


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def give_up(content: bytes, number: int, outcome: str, seconds: float) -> int:
    kept = Path("fuzz_headers.safetensors")
    kept.write_bytes(content)
    say(f"file {number}: {outcome} in {seconds:.2f} s, which the reference does not do; kept as {kept}")
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
