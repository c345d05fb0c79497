"""Every checkpoint of the collection, inspected: the right values, or one clear reason; never code of a stranger."""

import re
from pathlib import Path

import pytest
from tests.anatomy import cases_damaged, cases_plain, cases_quantized
from tests.anatomy.cases import Expected

from vramscope.anatomy.inspection import Wanted, inspect
from vramscope.cli.inspect import as_json
from vramscope.errors import SourceError

CASES = (*cases_plain.CASES, *cases_quantized.CASES, *cases_damaged.CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_inspection(tmp_path: Path, case):
    for expected in case(tmp_path):
        told = inspected(tmp_path, expected)
        about = f"{expected.source} {expected.hub_cache}"
        for key in ("parameters", "parameter_bytes", "stored_elements", "file_bytes", "tensors", "quantization"):
            if (value := getattr(expected, key)) is not None:
                assert told[key] == value, (about, key)
        if expected.dtypes is not None:
            sizes = {name: (share["elements"], share["bytes"]) for name, share in told["dtypes"].items()}
            assert sizes == expected.dtypes, about
        if expected.revision:
            assert told["revision"] == expected.revision
        reasons = [f"{problem['where']}: {problem['what']} ({problem['hint']})" for problem in told["problems"]]
        if expected.problem:
            assert any(re.search(expected.problem, reason, re.DOTALL) for reason in reasons), (about, reasons)
        else:
            assert reasons == [], about
        if expected.note:
            assert any(re.search(expected.note, note) for note in told["notes"]), (about, told["notes"])
        if expected.is_unknown or not expected.problem:
            assert (told["parameters"] is None) is expected.is_unknown, about
        sums_agree(told)
        assert not any((tmp_path / name).exists() for name in expected.never_made), about


def inspected(directory: Path, expected: Expected):
    """What `inspect --format json` tells; a source that is not there at all is one problem."""
    source = expected.source if expected.hub_cache else str(directory / expected.source)
    try:
        found = inspect(Wanted(source=source), directory / "cache", directory / expected.hub_cache)
    except SourceError as error:
        found = None
        reason = str(error)
    if found is not None:
        return as_json(found)
    problem = {"where": source, "what": reason, "hint": ""}
    return {"parameters": None, "components": {}, "dtypes": {}, "problems": [problem], "notes": []}


def sums_agree(told):
    """Parts sum to the whole, where every file could be read."""
    if told["parameters"] is None or not told["components"]:
        return
    parts = told["components"].values()
    assert sum(part["parameters"] for part in parts) == told["parameters"]
    if told["parameter_bytes"] is not None:
        assert sum(part["bytes"] for part in parts) == told["parameter_bytes"]
    assert sum(share["bytes"] for share in told["dtypes"].values()) == told["file_bytes"]
