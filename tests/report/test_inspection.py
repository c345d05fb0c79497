"""The page that `vramscope inspect` prints."""

import io
from pathlib import Path

import pytest
from rich.console import Console
from tests.anatomy import cases_quantized
from tests.anatomy.cases import write_llama

from vramscope.anatomy.inspection import Wanted, inspect
from vramscope.report.inspection import print_inspection


@pytest.fixture
def page():
    """What is printed of a source, for a terminal of some width or for none."""

    def page(source, width=None):
        stream = io.StringIO()
        console = Console(file=stream, force_terminal=width is not None, width=width, color_system=None)
        print_inspection(inspect(Wanted(source=str(source)), Path(source)), console)
        return stream.getvalue()

    return page


def test_a_quantized_model_has_two_counts(tmp_path, page):
    cases_quantized.gptq(tmp_path)
    text = page(tmp_path / "4")
    assert "2,112 parameters, 1,568 bytes (1.53 KiB) as stored" in text
    assert "quantized by gptq, 4 bits, 32 parameters a scale: 456 stored numbers stand for them" in text
    assert "Tensors as they are stored" in text


def test_what_is_unknown_is_said_openly(tmp_path, page):
    cases_quantized.methods_without_a_rule(tmp_path)
    text = page(tmp_path / "hqq")
    assert "unknown parameters, 1,216 bytes" in text
    assert "What unknown" not in text
    assert "note: hqq: how many parameters" in text


def test_the_page_is_bounded(tmp_path, page):
    write_llama(tmp_path, num_hidden_layers=2)
    for number in range(500):
        (tmp_path / f"{number}.txt").touch()
    text = page(tmp_path)
    assert "and 302 more" in text
    assert len(text.splitlines()) < 300


@pytest.mark.parametrize("width", [40, 80, 200, None])
def test_no_figure_is_cut_however_narrow_the_terminal(tmp_path, page, width):
    write_llama(tmp_path)
    text = page(tmp_path, width)
    for figure in ("6,224 parameters", "12,448", "24,896"):
        assert figure in text
    assert "…" not in text
