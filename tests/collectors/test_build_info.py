import platform

from vramscope import __version__
from vramscope.collectors.build_info import BuildInfo


def test_golden_page(page):
    expected = f'vramscope_build_info{{python="{platform.python_version()}",version="{__version__}"}} 1.0\n'
    assert page.of(BuildInfo) == expected
