import pytest

from vramscope.collectors.web_config import WebConfigMetrics
from vramscope.events import WebConfigRead


@pytest.mark.parametrize(("problem", "value"), [("", "1.0"), ("web.yml:1:1: unknown key", "0.0")])
def test_it_tells_whether_the_file_is_in_force(page, problem, value):
    text = page.of(WebConfigMetrics, [WebConfigRead(at=1.0, problem=problem)])
    assert text == f"vramscope_web_config_last_reload_success {value}\n"
