"""CudaDevice keeps every promise of the contract suite that all kinds of devices pass, on the real CUDA build.

The suite runs in a process of its own, which has no CUDA context yet; the tests here look at what became of it.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

pytestmark = pytest.mark.cuda_stub

SUITE = Path(__file__).parents[1] / "devices" / "test_contract.py"
REPOSITORY = SUITE.parents[2]
# A CudaDevice by itself asks no driver; what the driver adds is in test_device_driver.py.
SKIPPED = {"test_used_and_free_make_the_total_where_the_device_plays_the_driver": "the driver tells that itself"}


@pytest.fixture(scope="module")
def suite(shared_machine, tmp_path_factory):
    """The suite's test cases, as pytest reported them."""
    shared_machine.configure(devices=2)
    report = tmp_path_factory.mktemp("report") / "report.xml"
    options = ["-k", "[cuda", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
    subprocess.run(
        [sys.executable, "-m", "pytest", str(SUITE), *options],
        cwd=REPOSITORY,
        env=shared_machine.env(),
        stdout=subprocess.DEVNULL,
        timeout=110,
        check=False,
    )
    return list(ET.parse(report).iter("testcase"))  # noqa: S314 - our own report


def test_every_test_of_the_suite_met_a_cuda_device(suite):
    functions = {
        node.name
        for node in ast.parse(SUITE.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }
    assert {_function(case) for case in suite} == functions


def test_cuda_device_keeps_every_promise(suite):
    broken = [f"{case.get('name')}: {outcome.get('message')}" for case in suite for outcome in _failures(case)]
    assert broken == []


def test_nothing_is_skipped_but_what_another_part_answers_for(suite):
    skipped = {_function(case): outcome.get("message") for case in suite for outcome in case.findall("skipped")}
    assert skipped == SKIPPED


def _function(case: ET.Element) -> str:
    return re.sub(r"\[.*", "", case.get("name", ""))


def _failures(case: ET.Element) -> list[ET.Element]:
    return [*case.findall("failure"), *case.findall("error")]
